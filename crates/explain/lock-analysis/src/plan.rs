//! Plans: which calls of a program are answered in another way, and which lock follows which protocol.
//!
//! A plan is read from the command line (`pins,copies`; `pi,phase-fair`) or from a TOML file. It is written to the board that the
//! agent reads. The agent's results are read from the same board.
//!
//! Invariant: no text makes the parser panic. Text that cannot be read is an error with its line and a hint.

mod file;
pub mod fixes;
pub mod kernels;
mod names;
pub mod outcome;

use std::io;
use tape::policy::{Board, NAME, Rule as BoardRule, class, protocol};

/// The contents of the board.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Protocol of mutexes that no rule names; one of [`protocol`].
    pub mutex: u8,
    /// Protocol of rwlocks that no rule names.
    pub rwlock: u8,
    pub rules: Vec<Rule>,
    /// One real-time mutex around CUDA's launches and copies.
    pub guard: bool,
    /// [`tape::fix`]
    pub fixes: u32,
    /// With [`tape::fix::KERNELS`]: those that are loaded with their code.
    pub kernels: Vec<Kernel>,
}

/// A kernel that is loaded with its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The module that has the code, for readers of the report.
    pub library: Option<String>,
    pub name: String,
    /// [`tape::fix::Kernel::hash`]
    pub hash: u64,
}

/// The protocol of one lock, or of all locks of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// File name of the module, up to `.so`.
    pub module: String,
    /// Offset in the module; `None` for all its locks.
    pub offset: Option<u64>,
    /// One of [`protocol`].
    pub protocol: u8,
    /// One of [`class`]; 0 for both.
    pub class: u8,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The names on the command line are wrong.
    #[error("--lock-policy {list}: {what}")]
    Names { list: String, what: String },
    #[error("--fix {list}: there is no fix `{name}`")]
    Fixes { list: String, name: String },
    #[error("{path}: {cause}")]
    Read { path: String, cause: io::Error },
    #[error("{path}:{text}")]
    File { path: String, text: TextError },
}

/// What is wrong with the text of a plan.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {what}")]
pub struct TextError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
    pub hint: &'static str,
}

const HINT: &str = "policies: pi, ticket, boost (mutexes), phase-fair, boost (rwlocks), stock, guard (CUDA's calls); \
                    several with commas, such as `pi,phase-fair`; or a plan: a file that ends in .toml";

impl Error {
    /// What helps.
    pub fn hint(&self) -> String {
        match self {
            Error::Names { .. } => HINT.into(),
            Error::Fixes { .. } => fixes::HINT.into(),
            Error::Read { .. } => {
                "a plan is a file that `doorbell plan` writes; names have no slash and do not end in .toml".into()
            }
            Error::File { text, .. } => text.hint.into(),
        }
    }
}

/// The policy of CUDA's calls.
const GUARD: &str = "guard";

/// The number of the protocol of this name, in upper or lower case.
fn number(name: &str) -> Option<u8> {
    protocol::NAMES.iter().position(|n| !n.is_empty() && n.eq_ignore_ascii_case(name)).map(|n| n as u8)
}

/// Whether locks of this class can follow the policy.
fn suits(policy: u8, class: u8) -> bool {
    match policy {
        protocol::TICKET | protocol::PI => class == class::MUTEX,
        protocol::PHASE_FAIR => class == class::RWLOCK,
        _ => true,
    }
}

fn is_path(argument: &str) -> bool {
    argument.ends_with(".toml") || argument.contains('/')
}

fn class_name(class: u8) -> &'static str {
    if class == class::MUTEX { "mutexes" } else { "rwlocks" }
}

impl Plan {
    /// Reads the value of `--lock-policy`: names, or the path of a plan (it ends in `.toml` or has a slash in it).
    ///
    /// # Errors
    /// A file that cannot be read, or a text that is no plan.
    pub fn read(argument: &str) -> Result<Plan, Error> {
        if is_path(argument) { Plan::read_file(argument) } else { Plan::of_names(argument) }
    }

    /// Reads the value of `--fix`: names of fixes, or the path of a plan.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn read_fixes(argument: &str) -> Result<Plan, Error> {
        if is_path(argument) { Plan::read_file(argument) } else { fixes::of_names(argument) }
    }

    /// No lock follows another protocol than its own.
    pub fn leaves_locks_alone(&self) -> bool {
        let stock = [self.mutex, self.rwlock].iter().all(|p| *p == protocol::STOCK);
        stock && self.rules.is_empty() && !self.guard
    }

    fn read_file(argument: &str) -> Result<Plan, Error> {
        let path = || argument.to_owned();
        let text = std::fs::read_to_string(argument).map_err(|cause| Error::Read { path: path(), cause })?;
        Plan::parse(&text).map_err(|text| Error::File { path: path(), text })
    }

    /// Writes the board that the agent reads.
    pub fn write(&self, b: &mut Board) {
        b.magic = tape::policy::MAGIC;
        b.version = tape::policy::VERSION;
        b.mutex = self.mutex;
        b.rwlock = self.rwlock;
        b.guard = u8::from(self.guard);
        b.fixes.wanted = self.fixes;
        kernels::write(&self.kernels, &mut b.kernels);
        b.rules = self.rules.len() as u32;
        for (to, rule) in b.rule.iter_mut().zip(&self.rules) {
            let mut name = [0; NAME];
            for (to, from) in name.iter_mut().zip(rule.module.as_bytes()) {
                *to = *from;
            }
            let offset = rule.offset.unwrap_or(BoardRule::WHOLE);
            *to = BoardRule { module: name, offset, policy: rule.protocol, class: rule.class, ..BoardRule::NONE };
        }
    }
}
