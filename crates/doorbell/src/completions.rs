//! `doorbell completions`: what a shell needs to complete arguments.

use std::process::ExitCode;

/// Writes completions for a shell to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell completions bash > ~/.local/share/bash-completion/completions/doorbell
  doorbell completions zsh > ~/.zfunc/_doorbell")]
pub struct Args {
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self, cli: &mut clap::Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, cli, "doorbell", &mut text);
        report::table::to_stdout(|out| Ok(out.write_all(&text)?))?;
        Ok(ExitCode::SUCCESS)
    }
}
