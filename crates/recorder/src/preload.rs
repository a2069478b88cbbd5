//! The libraries that are loaded into the program, as memory files, and the command that starts it with them.

use crate::memory::{memfd, path_of};
use crate::program::Program;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tape::session::environment;

/// Kept until the program has loaded them: it opens them by this process's number.
pub struct Preload {
    agent: File,
    soft: Option<File>,
}

impl Preload {
    /// The bytes of the agent, and of the software GPU if the program is to find that one.
    pub fn new(agent: &[u8], soft: Option<&[u8]>) -> io::Result<Preload> {
        let agent = memfd(c"doorbell-agent.so", agent, 0)?;
        let soft = soft.map(|b| memfd(c"doorbell-softgpu.so", b, 0)).transpose()?;
        Ok(Preload { agent, soft })
    }

    /// Starts `program` with `words`, its name and arguments, before what the environment preloads already.
    pub fn command(&self, program: &Program, words: &[OsString]) -> Command {
        let mut preload = OsString::from(path_of(&self.agent));
        if let Some(s) = &self.soft {
            preload.push(":");
            preload.push(path_of(s));
        }
        let was = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        if !was.is_empty() {
            preload.push(":");
            preload.push(&was);
        }
        let name = words.first().cloned().unwrap_or_default();
        let mut command = Command::new(&program.path);
        command.arg0(program.arg0.as_ref().unwrap_or(&name)).args(&program.first_args);
        command.args(words.get(1..).unwrap_or(&[]));
        command.env("LD_PRELOAD", &preload).env(environment::PRELOAD_WAS, &was);
        command
    }
}
