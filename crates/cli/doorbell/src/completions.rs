//! `doorbell completions`: scripts with which a shell completes arguments.

use crate::help::Page;
use std::process::ExitCode;

/// Write completions for a shell to standard output
#[derive(Debug, clap::Args)]
#[command(after_help = Page::examples(&[
    ("doorbell completions bash > ~/.local/share/bash-completion/completions/doorbell", ""),
    ("doorbell completions zsh > ~/.zfunc/_doorbell", ""),
    ("doorbell completions fish > ~/.config/fish/completions/doorbell.fish", ""),
]))]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self, mut cli: clap::Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "doorbell", &mut text);
        terminal::table::to_stdout(|out| out.write_all(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}
