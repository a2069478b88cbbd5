//! One thing that was tried, and the result.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Yes,
    No,
    /// Neither good nor bad.
    Info,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: String,
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// Why it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Recording a CUDA program is impossible without it.
    pub required: bool,
}

impl Check {
    fn new(name: &str, verdict: Verdict, detail: String, reason: &str) -> Check {
        let reason = (!reason.is_empty()).then(|| reason.to_string());
        Check { name: name.into(), verdict, detail, reason, required: false }
    }

    pub fn yes(name: &str, detail: impl Into<String>) -> Check {
        Check::new(name, Verdict::Yes, detail.into(), "")
    }

    pub fn no(name: &str, detail: impl Into<String>, reason: &str) -> Check {
        Check::new(name, Verdict::No, detail.into(), reason)
    }

    pub fn info(name: &str, detail: impl Into<String>, reason: &str) -> Check {
        Check::new(name, Verdict::Info, detail.into(), reason)
    }

    pub fn required(mut self) -> Check {
        self.required = true;
        self
    }

    pub fn because(mut self, reason: &str) -> Check {
        self.reason = Some(reason.into());
        self
    }
}
