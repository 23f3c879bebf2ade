//! Merges the arguments of a workflow with the default arguments of built-in steps (reference 6.6).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Returns the default arguments, except those whose flag the workflow sets too, and then the arguments of the
/// workflow: `-upgrade=false` replaces `-upgrade`.
pub(super) fn merged(own: &[&str], extra: Vec<OsString>) -> Vec<OsString> {
    let is_given = |flag: &&&str| {
        extra
            .iter()
            .any(|arg| name(arg) == name(OsStr::new(flag)) && is_flag(arg))
    };
    let mut all: Vec<OsString> = own
        .iter()
        .filter(|flag| !is_given(flag))
        .map(OsString::from)
        .collect();
    all.extend(extra);
    all
}

fn is_flag(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(b"-")
}

/// Returns the name of a flag; Terraform accepts one dash or two.
fn name(argument: &OsStr) -> &[u8] {
    let bytes = argument.as_bytes();
    let bare = bytes
        .strip_prefix(b"--")
        .or_else(|| bytes.strip_prefix(b"-"))
        .unwrap_or(bytes);
    bare.split(|byte| *byte == b'=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_of_the_workflow_takes_the_place_of_the_same_one_of_the_step() {
        let own = ["-input=false", "-upgrade"];
        for (extra, expected) in [
            (&[][..], &["-input=false", "-upgrade"][..]),
            (&["-upgrade=false"], &["-input=false", "-upgrade=false"]),
            (&["--upgrade=false"], &["-input=false", "--upgrade=false"]),
            (&["-input=true", "-upgrade"], &["-input=true", "-upgrade"]),
            (
                &["-upgraded", "upgrade"],
                &["-input=false", "-upgrade", "-upgraded", "upgrade"],
            ),
            (
                &["-backend-config", "-input"],
                &["-upgrade", "-backend-config", "-input"],
            ),
        ] {
            let given = extra.iter().map(OsString::from).collect();
            let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
            assert_eq!(merged(&own, given), expected, "{extra:?}");
        }
    }
}
