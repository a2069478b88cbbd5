//! Virtual machines whose memory is hidden from the host, and so from devices.

use crate::tree::Tree;

/// The kind of confidential guest (TDX or SEV-SNP), as its kernel shows it.
pub(crate) fn kind(tree: &Tree) -> Option<&'static str> {
    let processor = tree.text("proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "tdx_guest") || tree.path("dev/tdx_guest").exists() {
        return Some("Intel TDX");
    }
    tree.path("dev/sev-guest").exists().then_some("AMD SEV-SNP")
}
