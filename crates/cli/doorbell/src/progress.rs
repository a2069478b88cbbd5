//! One line on standard error with the progress of a long command; absent if standard error is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {wide_msg}") {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Replaces the line.
    pub fn show(&self, text: &str) {
        self.bar.set_message(text.to_owned());
        self.bar.tick();
    }

    /// Prints a line that stays.
    pub fn ended(&self, text: &str) {
        self.clear();
        say!("{text}");
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
