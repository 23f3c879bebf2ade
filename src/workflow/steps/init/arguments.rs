//! Reads arguments of `init`, as the tool does.

use std::ffi::{OsStr, OsString};

/// Variables with arguments for `init`.
pub(super) const ARGUMENTS: [&str; 2] = ["TF_CLI_ARGS", "TF_CLI_ARGS_init"];

/// Option that makes `init` fetch a configuration first.
pub(super) const FROM_MODULE: &str = "-from-module";

/// Options whose value can be a word of its own.
const WITH_VALUE: [&str; 8] = [
    "backend-config",
    "from-module",
    "lock-timeout",
    "lockfile",
    "plugin-dir",
    "test-directory",
    "var",
    "var-file",
];

/// Returns the arguments of the first part. The last option counts. Left out are `-cloud`, which contradicts it, and
/// `-lockfile`, which would refuse what the second part puts right.
pub(super) fn fetching(args: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "-lockfile" || arg == "--lockfile" {
            // Its value is the next word.
            args.next();
        } else if !is_option(arg, "lockfile") && !is_option(arg, "cloud") {
            kept.push(arg.clone());
        }
    }
    kept.push("-backend=false".into());
    kept
}

/// Returns true for an option with or without a value, such as `-upgrade` and `--upgrade=true`.
pub(super) fn is_option(arg: &OsStr, name: &str) -> bool {
    let arg = arg.to_string_lossy();
    let option = arg.strip_prefix('-').unwrap_or_default();
    let option = option.strip_prefix('-').unwrap_or(option);
    option
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Returns the first argument behind `init` that is neither an option nor the value of one.
pub(super) fn operand(args: &[OsString]) -> Option<&OsStr> {
    let mut is_value = true;
    for arg in args {
        let is_free = !is_value && !arg.to_string_lossy().starts_with('-');
        if is_free || arg == "-" || arg == "--" {
            return Some(arg);
        }
        is_value = WITH_VALUE.iter().any(|name| {
            let text = arg.to_string_lossy();
            is_option(arg, name) && !text.contains('=')
        });
    }
    None
}

/// Returns true if the tool reads the arguments of a variable as they stand: as options without quotes.
pub(super) fn are_plain(args: &OsStr) -> bool {
    args.to_str().is_some_and(|args| {
        let is_option = |word: &str| word.starts_with('-') && word != "-" && word != "--";
        !args.contains(['\'', '"', '\\', '`', '$', '#']) && args.split_whitespace().all(is_option)
    })
}

/// Returns true if arguments of `init` say where packages come from, or where the configuration itself comes from.
pub(super) fn names_packages(args: &OsStr) -> bool {
    let args = args.to_string_lossy();
    args.contains("-plugin-dir") || args.contains(FROM_MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_first_part_has_no_backend_whatever_the_arguments_say() {
        for (given, expected) in [
            (
                "init -input=false -upgrade",
                "init -input=false -upgrade -backend=false",
            ),
            (
                "init -backend=true -backend-config=key=x-backend=false",
                "init -backend=true -backend-config=key=x-backend=false -backend=false",
            ),
            (
                "init --cloud=false -lockfile=readonly",
                "init -backend=false",
            ),
            (
                "init -lockfile readonly -upgrade",
                "init -upgrade -backend=false",
            ),
        ] {
            assert_eq!(fetching(&words(given)), words(expected), "{given}");
        }
    }

    #[test]
    fn an_argument_that_is_no_option_can_be_a_directory() {
        for (given, expected) in [
            ("init -input=false", None),
            ("init -backend-config prod.hcl -upgrade", None),
            ("init ../other", Some("../other")),
            ("init -upgrade ../other", Some("../other")),
            ("init -backend-config=prod.hcl other", Some("other")),
            ("init --", Some("--")),
            ("init -upgrade -", Some("-")),
        ] {
            let found = operand(&words(given)).map(|word| word.to_str().unwrap().to_owned());
            assert_eq!(found.as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn arguments_of_a_variable_hide_nothing() {
        for (given, expected) in [
            ("", true),
            ("-no-color -upgrade=false", true),
            ("-plug\"in-dir\"=./m", false),
            ("-from-m\\odule=x", false),
            ("-cl'oud'=true", false),
            ("-backend-config prod.hcl", false),
            ("--", false),
            ("-upgrade -", false),
        ] {
            assert_eq!(are_plain(OsStr::new(given)), expected, "{given}");
        }
    }
}
