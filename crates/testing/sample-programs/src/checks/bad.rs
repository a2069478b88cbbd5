//! Bad input is an error before anything is submitted, with a text that names the mistake, and the channel stays usable.

use super::Outcome;
use super::ground::{Ground, Rig, Stop, ensure};
use super::ring::another_space;
use gpu::{Channel, ChannelOptions, Engine, Error, Pushbuffer, Semaphores};
use pushbuf::encode::Lines;
use rm::driver::Driver;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

const WORDS: usize = 64;

/// The channel still works.
fn works(rig: &Rig, channel: &mut Channel) -> Result<(), Stop> {
    let done = rig.semaphore()?;
    rig.submit(channel, WORDS, |pushbuffer| pushbuffer.host_release(&done, 1).map(drop))?;
    rig.wait(channel, &done, 1)
}

/// The text of an error that must occur.
fn refused<T>(what: &str, result: Result<T, Error>) -> Result<String, Stop> {
    match result {
        Ok(_) => Err(Stop::Failed(format!("{what} was let through"))),
        Err(error) => Ok(error.to_string()),
    }
}

pub(super) fn stale(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let src = rig.memory(false, 0x1000)?;
    let (dst, kept) = (rig.memory(true, 0x1000)?, rig.memory(true, 0x1000)?);
    let ready = |to: u64| -> Result<_, Stop> {
        let mut pushbuffer = Pushbuffer::new(&rig.space, WORDS)?;
        pushbuffer.copy(to, src.va(), 64)?;
        Ok(pushbuffer)
    };
    let (prepared, late) = (ready(dst.va())?.validate(&channel)?, ready(dst.va())?);
    let other = ready(kept.va())?.validate(&channel)?;
    channel.submit(&prepared)?;
    works(&rig, &mut channel)?;
    drop(dst);
    let error = channel.submit(&prepared);
    ensure(matches!(error, Err(Error::Stale)), || format!("freed memory at submission: {error:?}"))?;
    let text = refused("a pushbuffer that names freed memory", error)?;
    refused("freed memory at validation", late.validate(&channel))?;
    // A page of semaphores that was closed.
    let closed = Semaphores::new(&rig.space)?;
    let semaphore = closed.alloc().ok_or_else(|| Stop::Failed("a new page has no free semaphore".into()))?;
    let mut pushbuffer = Pushbuffer::new(&rig.space, WORDS)?;
    pushbuffer.host_release(&semaphore, 1)?;
    let release = pushbuffer.validate(&channel)?;
    drop((semaphore, closed));
    let error = channel.submit(&release);
    ensure(matches!(error, Err(Error::Stale)), || format!("a closed semaphore at submission: {error:?}"))?;
    // A transfer that names only existing memory is not affected.
    channel.submit(&other)?;
    works(&rig, &mut channel)?;
    Ok(text)
}

pub(super) fn wrong_channel(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let (mut copy, mut graphics) = (rig.channel(rig.copy_engine()?)?, rig.channel(Engine::Graphics)?);
    let target = rig.memory(true, 0x1000)?;
    let mut inline = Pushbuffer::new(&rig.space, WORDS)?;
    inline.inline(target.va(), b"data")?;
    let inline = inline.validate(&graphics)?;
    let text = refused("an inline copy on a copy engine", copy.submit(&inline))?;
    graphics.submit(&inline)?;
    let other = another_space(ground)?;
    let mut foreign = Pushbuffer::new(&other, WORDS)?;
    foreign.raw(&[0])?;
    refused("a pushbuffer of another address space", foreign.validate(&copy))?;
    let mut copied = Pushbuffer::new(&rig.space, WORDS)?;
    copied.copy(target.va(), target.va() + 64, 64)?;
    refused("a copy-engine pushbuffer on graphics", copied.validate(&graphics))?;
    works(&rig, &mut copy)?;
    works(&rig, &mut graphics)?;
    Ok(text)
}

pub(super) fn input(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let memory = rig.memory(true, 0x1000)?;
    let (start, end) = (memory.va(), memory.va() + memory.length());
    let mut count = 0;
    let mut bad = |what: &str, write: &dyn Fn(&mut Pushbuffer) -> Result<(), Error>| -> Result<String, Stop> {
        let mut pushbuffer = Pushbuffer::new(&rig.space, WORDS)?;
        count += 1;
        refused(what, write(&mut pushbuffer).and_then(|()| pushbuffer.validate(&channel)))
    };
    let null = bad("a copy from null", &|p| p.copy(start, 0, 8).map(drop))?;
    ensure(null.contains("0x0"), || format!("the text does not say which address: {null}"))?;
    bad("a copy to null", &|p| p.copy(0, start, 8).map(drop))?;
    let past = bad("a copy past the end", &|p| p.copy(end - 8, start, 9).map(drop))?;
    ensure(past.contains(&format!("{:#x}", end - 8)), || format!("the text does not say which address: {past}"))?;
    bad("a copy from before the start", &|p| p.copy(start, start - 1, 8).map(drop))?;
    bad("a copy that wraps", &|p| p.copy(u64::MAX - 3, start, 8).map(drop))?;
    bad("a fill past the end", &|p| p.fill(end - 4, 1, 2).map(drop))?;
    bad("a copy to the channel's ring", &|p| p.copy(channel.gpfifo_va(), start, 8).map(drop))?;
    bad("an empty pushbuffer", &|_| Ok(()))?;
    let lines = |lines, pitch| Lines { src: start, dst: start, src_pitch: pitch, dst_pitch: pitch, bytes: 8, lines };
    bad("a copy of no lines", &|p| p.copy_lines(lines(0, 8)).map(drop))?;
    bad("a copy of no lines to nowhere", &|p| p.copy_lines(Lines { src: 0, dst: u64::MAX, ..lines(0, 8) }).map(drop))?;
    bad("a copy of lines that go backwards", &|p| p.copy_lines(lines(2, 8u32.wrapping_neg())).map(drop))?;
    // The library's semaphores are always aligned, so raw words say it instead (SEM_ADDR_LO to SEM_EXECUTE, release and time).
    let lo = (start as u32) + 4;
    let misaligned = bad("a misaligned semaphore", &|p| {
        p.raw(&[0x2005_0017, lo, (start >> 32) as u32, 1, 0, 0x0210_0001]).map(drop)
    })?;
    ensure(misaligned.contains("aligned"), || format!("the text does not say that it is alignment: {misaligned}"))?;
    bad("a physical copy", &|p| p.raw(&[0x2001_80c0, 0x1182]).map(drop))?;
    for words in [1 << 21, usize::MAX / 4 + 2, usize::MAX] {
        refused("a pushbuffer that no GPFIFO entry can count", Pushbuffer::new(&rig.space, words))?;
    }
    for entries in [0, 7, 12, 4096] {
        let options = ChannelOptions { entries, ..Default::default() };
        refused("a ring of a wrong size", Channel::new(&rig.space, rig.copy_engine()?, options))?;
    }
    refused("copy engine 999", Channel::new(&rig.space, Engine::Copy(999), ChannelOptions::default()))?;
    refused("memory of 0 bytes", rig.space.alloc_host(0))?;
    refused("memory of 2^64 - 1 bytes", rig.space.alloc_video(u64::MAX))?;
    works(&rig, &mut channel)?;
    Ok(format!("{} refused; null: {null}", count + 10))
}

/// A machine without the driver's nodes.
struct NoDriver;

impl Driver for NoDriver {
    fn open(&self, _: &CStr) -> io::Result<RawFd> {
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }

    unsafe fn ioctl(&self, _: RawFd, _: u64, _: *mut c_void) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }

    unsafe fn mmap(&self, _: *mut c_void, _: usize, _: i32, _: i32, _: RawFd, _: i64) -> io::Result<*mut c_void> {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }

    unsafe fn munmap(&self, _: *mut c_void, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, _: RawFd) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn absent(ground: &Ground) -> Outcome {
    let text = refused("GPU 99", ground.device_of(ground.driver.clone(), 99))?;
    ensure(text.contains("99"), || format!("the text does not name the GPU: {text}"))?;
    let none = refused("a machine without the driver", ground.device_of(Arc::new(NoDriver), 0))?;
    ensure(none.contains("/dev/nvidia"), || format!("the text does not name the file: {none}"))?;
    Ok(format!("{text}; {none}"))
}
