//! Code is loaded to the GPU: modules when they are loaded, and kernels when they are first used.

use super::{Measured, Take};
use crate::Difference;
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wrong};
use cuda::{Argument, Compiled, Context, DeviceBuffer, Module, Stream};
use std::ffi::CString;
use std::fmt::Write;
use std::time::Duration;

/// The module is compiled beforehand, as those of libraries are.
const COMPILED: &str = "compiled";
/// The same PTX each time: the driver compiled it once and keeps it on disk, as for a program that ran before.
const CACHED: &str = "cached";
/// The variable that disables the driver's cache.
const NO_CACHE: &str = "CUDA_CACHE_DISABLE";

pub(crate) const MODULE: Entry = Entry {
    name: "module",
    form: "module(KERNELS,compiled|cached)",
    about: "cuModuleLoadData of PTX, compiled each time, or (compiled) of code for this GPU, or (cached) of PTX whose code the driver has in its \
            cache on disk; unloaded before the next, untimed",
    number: Some(Number { of: "kernels", default: 400, least: 1, most: 10_000 }),
    words: &[COMPILED, CACHED],
    one_word: true,
    open: open_module,
    ..PLAIN
};

pub(crate) const LAZY: Entry = Entry {
    name: "lazy",
    form: "lazy(KERNELS)",
    about: "the first launch of a kernel that is loaded when it is first used, including cuModuleGetFunction; a new module of \
            this many is loaded, untimed, when all have been used",
    number: Some(Number { of: "kernels", default: 200, least: 1, most: 10_000 }),
    open: open_lazy,
    ..PLAIN
};

/// This many kernels, each of which adds 1 to a word. No two calls give the same text, so no cache has it: the driver keeps compiled code, also
/// on disk.
fn text(kernels: u32, salt: u64) -> String {
    let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
    for n in 0..kernels {
        let name = name(salt, n);
        // Writing to a String does not fail.
        let _ = write!(
            text,
            ".visible .entry {name}(.param .u64 {name}_cell)\n{{\n .reg .b32 %r<5>;\n .reg .b64 %rd<3>;\n \
             ld.param.u64 %rd1, [{name}_cell];\n cvta.to.global.u64 %rd2, %rd1;\n ld.volatile.global.u32 %r1, [%rd2];\n \
             add.u32 %r2, %r1, {more};\n sub.u32 %r3, %r2, {less};\n st.volatile.global.u32 [%rd2], %r3;\n ret;\n}}\n",
            more = n + 4,
            less = n + 3,
        );
    }
    text
}

fn name(salt: u64, kernel: u32) -> String {
    format!("own_{salt:016x}_{kernel}")
}

/// A word that kernels count up, and their stream.
struct Counter<'m> {
    stream: Stream<'m>,
    cell: DeviceBuffer<'m>,
    count: u32,
}

impl<'m> Counter<'m> {
    fn new(context: &'m Context) -> Result<Counter<'m>, Error> {
        let counter = Counter { stream: Stream::new(context)?, cell: DeviceBuffer::new(context, 4)?, count: 0 };
        counter.cell.write(&[0; 4])?;
        context.synchronize_default_stream()?;
        Ok(counter)
    }

    /// Finds a kernel of the module and launches it.
    #[inline]
    fn launch(&mut self, module: &Module<'_>, name: &CString) -> Result<(), Error> {
        let (function, arguments) = (module.function_named(name)?, [Argument::U64(self.cell.address())]);
        // SAFETY: the argument is the kernel's; the stream is waited for before the word is freed.
        unsafe { function.launch([1; 3], [1; 3], 0, &self.stream, &arguments) }?;
        self.count = self.count.wrapping_add(1);
        Ok(())
    }

    fn compare(&self) -> Result<Option<Wrong>, Error> {
        self.stream.synchronize()?;
        let mut found = [0; 4];
        self.cell.read(&mut found)?;
        Ok(Difference::between(&self.count.to_le_bytes(), &found, None).map(Wrong::Data))
    }
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

fn c_string(text: String) -> Result<CString, Error> {
    CString::new(text).map_err(|_| cuda::Error::Text { what: "PTX" }.into())
}

fn open_module<'m>(machine: &'m Machine, call: &Call, _: &crate::Wanted) -> Open<'m> {
    let (context, kernels) = (machine.context()?, call.number);
    let salt = fastrand::u64(..);
    let compiled = match call.has(COMPILED) {
        true => Some(Compiled::from_ptx(context, &text(kernels, salt))?),
        false => None,
    };
    let (cached, no_cache) = (call.has(CACHED), std::env::var(NO_CACHE).as_deref() == Ok("1"));
    if cached && no_cache {
        return Err(Unavailable::new(format!("the driver's cache on disk is off: {NO_CACHE} is 1")).into());
    }
    let text = if cached { c_string(text(kernels, salt))? } else { CString::default() };
    let first = c_string(name(salt, 0))?;
    let what = match &compiled {
        Some(_) => "code for this GPU",
        None if cached => "PTX that is the same each time, in the driver's cache on disk",
        None if no_cache => "PTX, compiled each time",
        None => "PTX, compiled each time, and written to the driver's cache on disk (CUDA_CACHE_DISABLE is not 1)",
    };
    let about = format!("cuModuleLoadData of {kernels} kernels, {what}; unloaded before the next, untimed");
    let modules = Modules { counter: Counter::new(context)?, context, kernels, salt, text, first, cached, compiled };
    Ok(Box::new(Measured::taking(modules, about)))
}

struct Modules<'m> {
    counter: Counter<'m>,
    context: &'m Context,
    kernels: u32,
    /// The salt of the next text.
    salt: u64,
    text: CString,
    /// The first kernel's name.
    first: CString,
    cached: bool,
    compiled: Option<Compiled>,
}

impl<'m> Take for Modules<'m> {
    type Held = Module<'m>;
    const CHECKS: Checks = Checks::Bytes;

    fn ready(&mut self) -> Result<(), Error> {
        if self.compiled.is_none() && !self.cached {
            self.salt = self.salt.wrapping_add(1);
            self.text = c_string(text(self.kernels, self.salt))?;
            self.first = c_string(name(self.salt, 0))?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> Result<Module<'m>, Error> {
        Ok(match &self.compiled {
            Some(compiled) => Module::from_compiled(self.context, compiled)?,
            None => Module::from_ptx_text(self.context, &self.text)?,
        })
    }

    /// Launches its first kernel.
    fn check(&mut self, module: &Module<'m>) -> Result<Option<Wrong>, Error> {
        self.counter.launch(module, &self.first)?;
        self.counter.compare()
    }
}

fn open_lazy<'m>(machine: &'m Machine, call: &Call, _: &crate::Wanted) -> Open<'m> {
    let (context, kernels) = (machine.context()?, call.number);
    if !context.loads_lazily()? {
        let reason = "CUDA loads whole modules here: set CUDA_MODULE_LOADING=LAZY";
        return Err(Unavailable::new(reason).into());
    }
    let salt = fastrand::u64(..);
    let compiled = Compiled::from_ptx(context, &text(kernels, salt))?;
    let names = (0..kernels).map(|n| c_string(name(salt, n))).collect::<Result<_, _>>()?;
    Ok(Box::new(Lazy { module: None, counter: Counter::new(context)?, context, compiled, names, used: 0 }))
}

/// A module that was compiled once and is loaded again whenever all its kernels have been used. It is not compiled again.
struct Lazy<'m> {
    // Before the word that its kernels name.
    module: Option<Module<'m>>,
    counter: Counter<'m>,
    context: &'m Context,
    compiled: Compiled,
    names: Vec<CString>,
    /// Kernels of the module that have been launched.
    used: usize,
}

impl<'m> Lazy<'m> {
    fn ready(&mut self) -> Result<(), Error> {
        if self.module.is_none() || self.used == self.names.len() {
            self.counter.stream.synchronize()?;
            self.module = None;
            self.module = Some(Module::from_compiled(self.context, &self.compiled)?);
            self.used = 0;
        }
        Ok(())
    }
}

impl Opened for Lazy<'_> {
    fn about(&self) -> String {
        format!("the first launch of one of {} kernels that are loaded when they are first used", self.names.len())
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        self.ready()?;
        Ok(Box::new(FirstLaunches(self)))
    }
}

struct FirstLaunches<'s, 'm>(&'s mut Lazy<'m>);

impl Subject for FirstLaunches<'_, '_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn renew(&mut self) -> Result<(), Error> {
        self.0.ready()
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        let lazy = &mut *self.0;
        if lazy.used == lazy.names.len() {
            // It was not renewed: its time is not meaningful, but it is still a first launch.
            lazy.ready()?;
        }
        let (Some(module), Some(name)) = (&lazy.module, lazy.names.get(lazy.used)) else { return Err(Error::Idle) };
        lazy.counter.launch(module, name)?;
        lazy.used += 1;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.0.counter.stream.is_done()?)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.0.counter.stream.synchronize()?)
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.0.counter.compare()
    }
}
