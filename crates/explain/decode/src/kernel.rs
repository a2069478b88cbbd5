//! Names of kernels.

use pushbuf::snapshot::Snapshot;
use std::collections::HashMap;
use std::rc::Rc;

/// The name of a kernel's symbol, and its name in the source.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    pub symbol: String,
    /// The symbol itself, if that is no C++ name.
    pub name: String,
}

impl Kernel {
    pub fn new(symbol: &[u8]) -> Kernel {
        let symbol = String::from_utf8_lossy(symbol).into_owned();
        let parsed = cpp_demangle::Symbol::new(&symbol).ok();
        let name = parsed.and_then(|parsed| parsed.demangle().ok());
        Kernel { name: name.unwrap_or_else(|| symbol.clone()), symbol }
    }
}

/// Maximum number of names kept.
pub const MOST: usize = 1 << 17;

/// A thread's call, by its number.
type Call = (i32, u32);

/// The kernel at an address, from a submission on.
type Named = (u64, Option<Rc<Kernel>>);

/// Kernels by the address of their code, learnt from launches by a handle. The kernel at an address changes when a
/// module is unloaded.
#[derive(Debug, Default)]
pub struct Codes {
    /// The latest one is last.
    of: HashMap<u64, Vec<Named>>,
    /// What the driver's objects for kernels name. Only of use where a launch has the same address and no handle.
    objects: HashMap<u64, Rc<Kernel>>,
    names: usize,
    /// The code that was named last, and by which submission and call.
    newest: Option<(u64, u64, Call)>,
    /// The process has made conditional nodes for graphs.
    pub conditional: bool,
    /// The process has enabled or disabled nodes of graphs: not each launch of a graph runs the same kernels.
    pub switched: bool,
    /// Graphs that kernels may launch.
    pub device_graphs: u64,
}

impl Snapshot for Codes {
    fn save(&self, to: &mut Vec<u8>) {
        let named = |(from, kernel): &Named| (*from, kernel.as_ref().map(|kernel| kernel.symbol.clone()));
        let all = self.of.iter().map(|(code, all)| (*code, all.iter().map(named).collect::<Vec<_>>()));
        all.collect::<Vec<_>>().save(to);
        self.objects.iter().map(|(at, kernel)| (*at, kernel.symbol.clone())).collect::<Vec<_>>().save(to);
        (self.conditional, self.switched).save(to);
        self.newest.save(to);
        self.device_graphs.save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Codes> {
        let mut codes = Codes::default();
        type Names = Vec<(u64, Option<String>)>;
        let all: Vec<(u64, Names)> = Snapshot::load(from)?;
        for (code, all) in all {
            codes.names += all.len();
            let kernel = |symbol: String| Rc::new(Kernel::new(symbol.as_bytes()));
            codes.of.insert(code, all.into_iter().map(|(from, symbol)| (from, symbol.map(kernel))).collect());
        }
        let objects: Vec<(u64, String)> = Snapshot::load(from)?;
        (codes.conditional, codes.switched) = Snapshot::load(from)?;
        codes.newest = Snapshot::load(from)?;
        codes.device_graphs = Snapshot::load(from)?;
        codes.objects = objects.into_iter().map(|(at, symbol)| (at, Rc::new(Kernel::new(symbol.as_bytes())))).collect();
        Some(codes)
    }
}

impl Codes {
    /// Notes that this submission of a call started the code under a handle of this kernel; `None`: of no known name.
    ///
    /// Of several submissions of one call the last one starts the kernel. Those before it start kernels of CUDA's, which prepare it.
    pub fn name(&mut self, code: u64, submission: u64, call: Option<Call>, kernel: Option<&Rc<Kernel>>) {
        if self.latest(code) == kernel || self.names >= MOST {
            return;
        }
        self.names += 1;
        self.of.entry(code).or_default().push((submission, kernel.cloned()));
        let named = call.filter(|_| kernel.is_some()).map(|call| (code, submission, call));
        let Some((before, by, of)) = std::mem::replace(&mut self.newest, named) else { return };
        if Some(of) == call && by != submission && before != code {
            self.names += 1;
            self.of.entry(before).or_default().push((submission, None));
        }
    }

    /// One of these words may be the address of the kernel's code.
    pub fn may_be_at(&mut self, words: impl Iterator<Item = u64>, kernel: &Rc<Kernel>) {
        for word in words {
            if self.objects.len() < MOST || self.objects.contains_key(&word) {
                self.objects.insert(word, Rc::clone(kernel));
            }
        }
    }

    /// The kernel under its latest name.
    pub fn latest(&self, code: u64) -> Option<&Rc<Kernel>> {
        self.of.get(&code).map_or_else(|| self.objects.get(&code), |all| all.last()?.1.as_ref())
    }

    /// The kernel under its name at a submission.
    pub fn at(&self, code: u64, submission: u64) -> Option<&Rc<Kernel>> {
        let Some(all) = self.of.get(&code) else { return self.objects.get(&code) };
        let known = all.partition_point(|(from, _)| *from <= submission);
        all.get(known.checked_sub(1)?)?.1.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_the_name_that_it_had_then() {
        let kernel = |name: &str| Rc::new(Kernel::new(name.as_bytes()));
        let (add, mul) = (kernel("_Z3addPi"), kernel("mul"));
        let mut codes = Codes::default();
        for (submission, now) in [(5, Some(&add)), (6, Some(&add)), (9, Some(&mul)), (12, None)] {
            codes.name(0x1000, submission, None, now);
        }
        let names: Vec<_> = [4, 5, 8, 9, 11, 12].map(|n| codes.at(0x1000, n).map(|k| k.name.as_str())).into();
        assert_eq!(names, [None, Some("add(int*)"), Some("add(int*)"), Some("mul"), Some("mul"), None]);
        assert!(codes.latest(0x1000).is_none() && codes.at(0x2000, 9).is_none());
        // The first launch of a kernel, which CUDA prepares by one of its own; then another call.
        codes.name(0x3000, 20, Some((7, 1)), Some(&add));
        codes.name(0x4000, 21, Some((7, 1)), Some(&add));
        codes.name(0x5000, 22, Some((7, 2)), Some(&mul));
        assert_eq!([0x3000, 0x4000, 0x5000].map(|code| codes.latest(code)), [None, Some(&add), Some(&mul)]);
    }
}
