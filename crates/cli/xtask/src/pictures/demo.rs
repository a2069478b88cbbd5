//! What `doorbell demo` prints, as a picture.

use anyhow::{Context, bail};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Units of the picture.
const COLUMN: f64 = 7.3;
const LINE: usize = 18;
const MARGIN: usize = 14;
const COLUMNS: usize = 100;

/// Runs it on the software GPU and draws its lines.
pub fn draw(doorbell: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir().context("a folder for the demo")?;
    let out = Command::new(doorbell)
        .args(["demo", "--gpu", "soft"])
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .output()
        .with_context(|| format!("{}", doorbell.display()))?;
    let printed = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!("`doorbell demo` ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    // (The command's own path is this machine's.)
    Ok(svg(&printed.replace(&*doorbell.to_string_lossy(), "doorbell")))
}

fn svg(text: &str) -> String {
    let lines = text.lines().count();
    let (width, height) = ((COLUMNS as f64 * COLUMN) as usize + 2 * MARGIN, lines * LINE + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>What doorbell demo prints</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#10151c\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\" xml:space=\"preserve\">\n"
    );
    for (n, line) in text.lines().enumerate() {
        let fill = match line {
            _ if line.starts_with("$ ") => "#7ee787",
            _ if line.contains("held inside") || line.starts_with("longest") || line.starts_with("late") => "#ffa657",
            _ => "#dde4ec",
        };
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        let y = MARGIN + LINE * n + 13;
        // Writing to a text does not fail.
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{fill}\">{line}</text>");
    }
    svg + "</g>\n</svg>\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_line_is_a_text() {
        let svg = super::svg("$ a <b>\n  c & d\n");
        assert!(svg.contains(">$ a &lt;b></text>") && svg.contains(">  c &amp; d</text>"), "{svg}");
    }
}
