//! A [`Way`] in the words of `gpu`.

use crate::way::{Flush, Memory, Mode, Way};
use gpu::{ChannelOptions, CopyFlush, CopyMode, Place};

pub fn mode(mode: Mode) -> CopyMode {
    match mode {
        Mode::Pipelined => CopyMode::Pipelined,
        Mode::Plain => CopyMode::Plain,
        Mode::Folded => CopyMode::Folded,
    }
}

pub fn flush(flush: Flush) -> CopyFlush {
    match flush {
        Flush::All => CopyFlush::All,
        Flush::Local => CopyFlush::Local,
        Flush::None => CopyFlush::None,
    }
}

pub fn place(memory: Memory) -> Place {
    match memory {
        Memory::Video => Place::Video,
        Memory::Host => Place::Host,
    }
}

pub fn channel(way: Way) -> ChannelOptions {
    let commands = place(way.commands);
    let tracker = place(way.completions);
    ChannelOptions { gpfifo: commands, pushbuffer: commands, tracker, ..ChannelOptions::default() }
}
