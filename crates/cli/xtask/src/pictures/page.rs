//! Screenshots: a page that `doorbell report` writes of data in the tree, drawn by Chromium.

use super::png::Picture;
use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a picture is of.
pub struct Shot {
    /// Files and folders for `doorbell report`: of the tree, or of the packed runs in crates/cli/xtask/pictures.
    of: &'static [&'static str],
    width: u32,
    height: u32,
    /// Done to the page before it is drawn, as a reader would with the keyboard or by scrolling.
    script: &'static str,
}

pub const REPORT: Shot = Shot { of: &["bandwidth/run.json"], width: 1180, height: 960, script: "" };

pub const REPORT_TWO: Shot = Shot { of: &["before", "after"], width: 1180, height: 1080, script: "" };

/// Scrolled to a picture. Chromium draws a page without its upper part correctly, but not always one that is scrolled.
pub const REPORT_PHONE: Shot = Shot {
    of: &["before", "after"],
    width: 360,
    height: 760,
    script: "const section = document.getElementById('distributions-of-both').closest('section');
             while (section.previousElementSibling) section.previousElementSibling.remove();
             document.querySelector('nav').remove();",
};

/// A script that types into the timeline's search, and presses its keys.
macro_rules! timeline_script {
    ($script:literal) => {
        concat!(
            "const canvas = document.querySelector('#timeline-view canvas'), find = document.querySelector('#timeline-tools input');
             const type = (word) => { find.value = word; find.dispatchEvent(new Event('input')); };
             const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key }));
             ",
            $script
        )
    };
}

/// docs/pictures/timeline.c, recorded with `--locks=waits --gpu-times`: the time around the module that it loads, and the wait.
pub const TIMELINE: Shot = Shot {
    of: &["crates/explain/decode/fixtures/h100-module-load.doorbell"],
    width: 1100,
    height: 765,
    script: timeline_script!(
        "const section = document.getElementById('timeline-view').closest('section');
             while (section.previousElementSibling) section.previousElementSibling.remove();
             document.querySelectorAll('nav, body > header').forEach((part) => part.remove());
             type('cuMemcpyHtoD');
             press('n');
             if (!document.getElementById('timeline-lines').textContent.includes('held it')) throw new Error('no call that waits is chosen');
             type('');"
    ),
};

/// A kernel that one call launched is chosen, and what ran around it is in view.
pub const TIMELINE_KERNELS: Shot = Shot {
    of: &["crates/explain/decode/fixtures/h200-programmatic.doorbell"],
    width: 1100,
    height: 996,
    script: timeline_script!(
        "document.getElementById('why').closest('section').remove();
             press('Home');
             for (let i = 0; i < 10; i++) press('+');
             type('plain');
             press('k');
             press('k');
             if (!document.getElementById('timeline-said').textContent.startsWith('plain(')) throw new Error('no kernel of this name is chosen');
             type('');"
    ),
};

/// Each with its experiment: `bandwidth` on an H200; `before` and `after` without a GPU, where the second holds the mutex 100 ns longer.
const RUNS: [&str; 2] = ["bandwidth.tar.gz", "two-runs.tar.gz"];
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Tools {
    doorbell: PathBuf,
    browser: PathBuf,
    /// For pages, unpacked runs and the browser's profile.
    work: PathBuf,
}

/// The command: as given, or of the environment, or the newest that was built.
pub fn doorbell(given: Option<PathBuf>, target: &Path) -> anyhow::Result<PathBuf> {
    match given.or_else(|| env::var_os("DOORBELL").map(PathBuf::from)) {
        Some(path) => path.canonicalize().with_context(|| format!("the command doorbell, {}", path.display())),
        None => newest(target).with_context(|| {
            format!(
                "no command doorbell in {}. Build it with `cargo build -p doorbell`, or give one with --doorbell FILE",
                target.display()
            )
        }),
    }
}

impl Tools {
    pub fn find(doorbell: Option<PathBuf>, browser: Option<PathBuf>, target: &Path) -> anyhow::Result<Tools> {
        let doorbell = self::doorbell(doorbell, target)?;
        let browser = match browser {
            Some(path) => path.canonicalize().with_context(|| format!("--browser {}", path.display()))?,
            None => installed().with_context(|| {
                format!(
                    "none of {} is in $PATH, and a browser draws the pages. Install one (Debian: apt install chromium), or \
                     give one with --browser FILE",
                    BROWSERS.join(", ")
                )
            })?,
        };
        let work = target.join("pictures");
        if work.exists() {
            fs::remove_dir_all(&work).with_context(|| format!("{}", work.display()))?;
        }
        fs::create_dir_all(&work).with_context(|| format!("{}", work.display()))?;
        for name in RUNS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures").join(name);
            let file = fs::File::open(&path).with_context(|| format!("{}", path.display()))?;
            tar::Archive::new(GzDecoder::new(file)).unpack(&work).with_context(|| format!("{}", path.display()))?;
        }
        Ok(Tools { doorbell, browser, work })
    }

    /// The bytes of a PNG file.
    pub fn shoot(&self, shot: &Shot, root: &Path) -> anyhow::Result<Vec<u8>> {
        let page = self.page(shot, root)?;
        let picture = self.work.join("picture.png");
        let _ = fs::remove_file(&picture);
        let mut browser = Command::new(&self.browser);
        browser
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-default-apps", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", self.work.join("profile").display()))
            .arg(format!("--window-size={},{}", shot.width, shot.height))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        wait(&mut browser)?;
        let bytes = fs::read(&picture)
            .with_context(|| format!("{} drew no picture. Try it by hand: {browser:?}", self.browser.display()))?;
        let picture = Picture::read(&bytes).with_context(|| format!("what {} drew", self.browser.display()))?;
        if (picture.width, picture.height) != (shot.width, shot.height) {
            bail!(
                "{} drew {} x {} pixels instead of {} x {}: use another version of it",
                self.browser.display(),
                picture.width,
                picture.height,
                shot.width,
                shot.height
            );
        }
        if picture.corner() == FAILED {
            bail!(
                "the script of {} failed: {:?} is not as it expects (crates/cli/xtask/src/pictures/page.rs)",
                page.display(),
                shot.of
            );
        }
        picture.packed()
    }

    /// The page as doorbell writes it, with the script at its end.
    fn page(&self, shot: &Shot, root: &Path) -> anyhow::Result<PathBuf> {
        let page = self.work.join("page.html");
        let mut report = Command::new(&self.doorbell);
        report.current_dir(&self.work).arg("report");
        for of in shot.of {
            let path = root.join(of);
            report.arg(if path.exists() { path } else { PathBuf::from(of) });
        }
        crate::dist::output(report.args(["--force", "-o"]).arg(&page))?;
        if !shot.script.is_empty() {
            let text = fs::read_to_string(&page).with_context(|| format!("{}", page.display()))?;
            fs::write(&page, scripted(&text, shot.script)?).with_context(|| format!("{}", page.display()))?;
        }
        Ok(page)
    }
}

/// What a page shows whose script failed: a picture is all that the browser returns.
const FAILED: [u8; 3] = [255, 0, 255];

/// The page's policy allows its own script only: it goes.
fn scripted(page: &str, script: &str) -> anyhow::Result<String> {
    let policy = "<meta http-equiv=\"Content-Security-Policy\"";
    let parts = page.split_once(policy).and_then(|(head, rest)| Some((head, rest.split_once('>')?.1)));
    let parts = parts.and_then(|(head, rest)| Some((head, rest.rsplit_once("</body>")?)));
    let (head, (body, end)) = parts.context("the page that doorbell wrote has no policy, or no end of its body")?;
    let [red, green, blue] = FAILED;
    let failed =
        format!("document.documentElement.innerHTML = '<body style=\"background: rgb({red} {green} {blue})\">';");
    Ok(format!("{head}{body}<script>try {{ {script} }} catch {{ {failed} }}</script></body>{end}"))
}

fn newest(target: &Path) -> Option<PathBuf> {
    let built = ["release", "debug"].map(|profile| target.join(profile).join("doorbell"));
    let built = built.into_iter().filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)));
    built.max().map(|(_, path)| path)
}

fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    BROWSERS.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

fn wait(command: &mut Command) -> anyhow::Result<()> {
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("{command:?}: {status}");
            }
            return Ok(());
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            bail!("{command:?}: not done after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_put_at_the_end_of_a_page_whose_policy_goes() {
        let page = "<head><meta http-equiv=\"Content-Security-Policy\" content=\"x\"><title>t</title></head><body>b</body></html>";
        let made = scripted(page, "f();").unwrap();
        assert!(made.starts_with("<head><title>t</title></head><body>b<script>try { f(); } catch {"), "{made}");
        assert!(made.ends_with("</script></body></html>"), "{made}");
        assert!(scripted("<body></body>", "f()").is_err());
    }

    #[test]
    fn the_data_of_each_shot_are_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let mut packed = Vec::new();
        for name in RUNS {
            let file = fs::File::open(root.join("crates/cli/xtask/pictures").join(name)).unwrap();
            for entry in tar::Archive::new(GzDecoder::new(file)).entries().unwrap() {
                packed.push(entry.unwrap().path().unwrap().into_owned());
            }
        }
        for shot in [REPORT, REPORT_TWO, REPORT_PHONE, TIMELINE, TIMELINE_KERNELS] {
            for of in shot.of {
                assert!(root.join(of).exists() || packed.iter().any(|path| path.starts_with(of)), "{of}");
            }
        }
    }
}
