//! Where profiles are stored.

use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable that names the profile.
pub const VARIABLE: &str = "DOORBELL_PROFILE";
/// Within the folder of all programs' settings.
pub const FOLDER: &str = "doorbell";

/// `$DOORBELL_PROFILE`, else `doorbell/profile.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`. The software GPU's profile is
/// `profile.soft.toml` there, so that it never replaces the real one. `None` if none of the variables is set.
pub fn default_path(soft: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(VARIABLE) {
        return Some(path);
    }
    // The specification requires that relative paths are ignored.
    let config = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let config = config.or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join(FOLDER).join(if soft { "profile.soft.toml" } else { "profile.toml" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_before_the_settings_folder() {
        let of = |soft: bool, set: &[(&str, &str)]| {
            let get = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            default_path(soft, get).map(|path| path.display().to_string())
        };
        let (home, xdg) = (("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x"));
        assert_eq!(of(false, &[home]).as_deref(), Some("/home/a/.config/doorbell/profile.toml"));
        assert_eq!(of(true, &[home, xdg]).as_deref(), Some("/x/doorbell/profile.soft.toml"));
        assert_eq!(of(true, &[home, xdg, (VARIABLE, "p.toml")]).as_deref(), Some("p.toml"));
        let ignored = [home, ("XDG_CONFIG_HOME", "relative"), (VARIABLE, "")];
        assert_eq!(of(false, &ignored).as_deref(), Some("/home/a/.config/doorbell/profile.toml"));
        assert_eq!(of(false, &[]), None);
    }
}
