//! `selfbench ranges`: what recording adds to an NVTX range.
//!
//! The program's side of NVTX is here, as small as possible: a function pointer, which is null unless an injection library has set it. A range is
//! a push and a pop. Bare and recorded ranges alternate in one process.

use crate::looped::{self, figure};
use crate::{Plan, median, stay_on};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};
use tape::event::{Body, Event};

/// Ranges that are timed together.
const BATCH: u32 = 1000;
/// Batches between pauses in which the recorder empties the ring.
const A_WAIT: u32 = 8;

/// One run of the loop: medians over its batches, ns.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bare: f64,
    /// Its text is read each time.
    text: f64,
    /// Its text was registered.
    registered: f64,
    /// In a pause of the recording.
    paused: f64,
}

/// The result: medians over the rounds, ns.
pub struct Figures {
    plan: Plan,
    samples: Vec<Sample>,
    lost: u64,
}

/// Runs all rounds; calls `tell` at each turn.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let (mut samples, mut lost) = (Vec::new(), 0);
    for round in 0..plan.rounds {
        tell(&format!("round {} of {}", round + 1, plan.rounds));
        let (sample, gaps) = recorded(plan)?;
        samples.push(sample);
        lost += gaps;
    }
    Ok(Figures { plan: plan.clone(), samples, lost })
}

impl Figures {
    fn of(&self, f: fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(f).collect())
    }

    /// What recording adds to a range with a text.
    pub fn added(&self) -> f64 {
        self.of(|s| s.text - s.bare)
    }

    pub fn json(&self) -> Value {
        json!({
            "bench": "ranges",
            "rounds": self.plan.rounds,
            "count": self.plan.count,
            "bare_range_ns": self.of(|s| s.bare),
            "recorded_range_ns": self.of(|s| s.text),
            "added_range_ns": self.added(),
            "registered_range_ns": self.of(|s| s.registered),
            "added_registered_range_ns": self.of(|s| s.registered - s.bare),
            "paused_range_ns": self.of(|s| s.paused),
            "added_paused_range_ns": self.of(|s| s.paused - s.bare),
            // Events that did not fit. An event that is not written costs less, so this number shows how far to trust the figures.
            "lost_events": self.lost,
            "machine": crate::machine(),
        })
    }

    pub fn table(&self) -> String {
        let mut t = format!("{:<34}{:>10}{:>10}\n", "a range: a push and a pop, ns", "takes", "added");
        t += &format!("  {:<32}{:>10.1}\n", "bare", self.of(|s| s.bare));
        type Of = fn(&Sample) -> f64;
        let rows: [(&str, Of, Of); 3] = [
            ("recorded", |s| s.text, |s| s.text - s.bare),
            ("recorded, a registered text", |s| s.registered, |s| s.registered - s.bare),
            ("in a pause of the recording", |s| s.paused, |s| s.paused - s.bare),
        ];
        for (name, takes, added) in rows {
            t += &format!("  {name:<32}{:>10.1}{:>10.1}\n", self.of(takes), self.of(added));
        }
        t += &format!("medians of {} rounds; added: median of the rounds' differences\n", self.plan.rounds);
        t + &looped::not_fitted(self.lost, "ring")
    }
}

/// A run whose ranges are recorded, and its lost events.
fn recorded(plan: &Plan) -> anyhow::Result<(Sample, u64)> {
    // Two ends of each range, with and without a registered text.
    let made = ("ends of ranges", 4 * u64::from(plan.count));
    let is_end = |e: &Event<'_>| matches!(e.body, Body::Push(_) | Body::Pop(_));
    let options = ["--nvtx", "--gpu", "soft"];
    let (said, lost) = plan.run_recorded("range-loop", &options, "NVTX_INJECTION64_PATH", made, is_end)?;
    let sample = Sample {
        bare: figure(&said, "bare_ns")?,
        text: figure(&said, "text_ns")?,
        registered: figure(&said, "registered_ns")?,
        paused: figure(&said, "paused_ns")?,
    };
    Ok((sample, lost))
}

/// Functions of the NVTX modules 1 and 5 by number; null until the injection library has set them.
static CORE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
static CORE2: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
/// The same, but never set.
static BARE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
const PUSH_EX: usize = 8;
const PUSH: usize = 9;
const POP: usize = 11;
const REGISTER: usize = 10;

struct Pointers([[AtomicPtr<AtomicPtr<c_void>>; 16]; 2]);
static POINTERS: Pointers = Pointers([const { [const { AtomicPtr::new(null_mut()) }; 16] }; 2]);

unsafe extern "C" fn functions(module: u32, table: *mut *const c_void, n: *mut u32) -> c_int {
    let (of, pointers) = match module {
        1 => (&CORE, &POINTERS.0[0]),
        5 => (&CORE2, &POINTERS.0[1]),
        _ => return 0,
    };
    for (to, at) in pointers.iter().zip(of).skip(1) {
        to.store(std::ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        *table = pointers.as_ptr().cast();
        *n = 16;
    }
    1
}

#[repr(C)]
struct Callbacks {
    bytes: usize,
    functions: unsafe extern "C" fn(u32, *mut *const c_void, *mut u32) -> c_int,
}
static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), functions };

unsafe extern "C" fn table(number: u32) -> *const c_void {
    if number == 1 { (&raw const CALLBACKS).cast() } else { std::ptr::null() }
}

/// Does the same as NVTX at its first call.
fn connect() -> anyhow::Result<()> {
    // SAFETY: the names are NUL-terminated. The library stays loaded, and its function of that name has this type.
    unsafe {
        let path = libc::getenv(c"NVTX_INJECTION64_PATH".as_ptr());
        if path.is_null() {
            bail!("this is the loop of `doorbell selfbench ranges`, which starts it under the agent");
        }
        let library = libc::dlopen(path, libc::RTLD_LAZY);
        let begin = libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr());
        if library.is_null() || begin.is_null() {
            bail!("the agent is no injection library of NVTX");
        }
        type Begin = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
        if std::mem::transmute::<*mut c_void, Begin>(begin)(table) == 0 {
            bail!("the agent records no ranges here");
        }
    }
    Ok(())
}

/// nvtxEventAttributes_t.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    words: [u32; 5],
    payload: u64,
    message_type: u32,
    message: *mut c_void,
}

const TEXT: *const c_char = c"forward of layer 12".as_ptr();

/// Nanoseconds of one call in a batch.
#[inline(always)]
fn timed(mut f: impl FnMut()) -> f64 {
    let from = Instant::now();
    (0..BATCH).for_each(|_| f());
    from.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

/// Calls like NVTX's functions: through the pointer if it is set.
#[inline(always)]
fn call<T>(of: &[AtomicPtr<c_void>; 16], i: usize, f: impl FnOnce(*mut c_void) -> T) -> Option<T> {
    let at = of[i].load(Ordering::Relaxed);
    if at.is_null() { None } else { Some(f(at)) }
}

#[inline(never)]
fn texts(of: &[AtomicPtr<c_void>; 16]) -> f64 {
    timed(|| {
        // SAFETY: pointers that are set have the types of the NVTX functions.
        unsafe {
            call(of, PUSH, |f| {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(f)(TEXT)
            });
            call(of, POP, |f| std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(f)());
        }
    })
}

#[inline(never)]
fn registered(handle: *mut c_void) -> f64 {
    let size = size_of::<Attributes>() as u16;
    let a = Attributes { version: 3, size, words: [0; 5], payload: 0, message_type: 3, message: handle };
    timed(|| {
        // SAFETY: as in `texts`.
        unsafe {
            type PushEx = unsafe extern "C" fn(*const Attributes) -> c_int;
            call(&CORE, PUSH_EX, |f| std::mem::transmute::<*mut c_void, PushEx>(f)(&raw const a));
            call(&CORE, POP, |f| std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(f)());
        }
    })
}

/// Measures bare and recorded ranges, `count` of each, and prints one line of JSON.
pub fn run_loop(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    if let Some(cpu) = cpu {
        stay_on(cpu)?;
    }
    connect()?;
    // SAFETY: as in `texts`, and the agent's function of that name has this type.
    let (handle, recording) = unsafe {
        type Register = unsafe extern "C" fn(usize, *const c_char) -> *mut c_void;
        let handle = call(&CORE2, REGISTER, |f| std::mem::transmute::<*mut c_void, Register>(f)(0, TEXT));
        let recording = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_agent_recording".as_ptr());
        if recording.is_null() {
            bail!("the agent cannot pause");
        }
        (
            handle.context("no text is registered")?,
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(recording),
        )
    };
    // The first range maps the ring.
    texts(&CORE);
    texts(&BARE);
    let names = ["bare_ns", "text_ns", "registered_ns", "paused_ns"];
    let mut times = names.map(|_| Vec::new());
    for i in 0..count.div_ceil(BATCH) {
        for k in 0..names.len() {
            // The order rotates each time.
            let at = (i as usize + k) % names.len();
            times[at].push(match at {
                0 => texts(&BARE),
                1 => texts(&CORE),
                2 => registered(handle),
                _ => {
                    recording(0);
                    let ns = texts(&CORE);
                    recording(1);
                    ns
                }
            });
        }
        if i % A_WAIT == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let out: serde_json::Map<String, Value> =
        names.iter().zip(times).map(|(name, times)| ((*name).into(), json!(median(times)))).collect();
    println!("{}", Value::Object(out));
    Ok(())
}
