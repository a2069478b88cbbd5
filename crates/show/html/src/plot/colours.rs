//! Colours and dashes of series, and their classes in a page.

/// Colours of Okabe and Ito, which can be distinguished by people who do not see red and green. Their yellow is left out, because it is too light
/// for a line.
pub(crate) const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9"];
pub(crate) const DASHES: [&str; 5] = ["", "8 4", "2 3", "10 3 2 3", "5 2 1 2 1 2"];

/// The class of a colour in a page's style sheet.
pub(crate) fn class(colour: &str) -> String {
    let of_series = COLOURS.iter().position(|c| *c == colour);
    match (of_series, colour) {
        (Some(n), _) => format!("c{n}"),
        (None, "#dddddd") => "grid".into(),
        (None, "#f0f0f0") => "fine".into(),
        (None, "#9a9a9a") => "others".into(),
        (None, "#B00020") => "bad".into(),
        (None, _) => "ink".into(),
    }
}

/// The class of dashes in a page's style sheet.
pub(crate) fn dashes(dash: &str) -> Option<usize> {
    DASHES.iter().position(|d| *d == dash).filter(|n| *n > 0)
}
