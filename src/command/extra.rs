//! Extra arguments: what stands after `--` and is handed to Terraform. They come from anybody who may comment
//! (P8), so some flags are refused, and files they name are found for the caller to judge.

/// Flags that move Terraform to another directory or to other plugins (reference 1.1, step 12).
const DEFAULT_BLOCKED: [&str; 2] = ["chdir", "plugin-dir"];

/// Flags that name a file for Terraform to write, a state of its own, or code of another directory (`-config` of an
/// import). With them, who may comment could overwrite any file of the server (P8), run what is no part of the pull, or
/// have another plan made than the one that is kept. No setting allows them.
const FILES: [&str; 6] = ["backup", "config", "generate-config-out", "out", "state", "state-out"];

/// Terraform flags that an operator forbids, by name without dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedArgs(Vec<String>);

impl Default for BlockedArgs {
    fn default() -> Self {
        Self::new(DEFAULT_BLOCKED)
    }
}

impl BlockedArgs {
    /// The entries of `--blocked-extra-args`, with or without dashes. They replace the default ones.
    pub fn new<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Self {
        let names = entries.into_iter().map(|entry| bare(entry.as_ref()).to_lowercase());
        Self(names.filter(|name| !name.is_empty()).collect())
    }

    /// The entry that forbids the argument: its name, with any number and kind of dashes before it, alone or
    /// followed by `=`.
    pub(super) fn rule_against(&self, argument: &str) -> Option<&str> {
        let name = flag_name(argument)?;
        self.0.iter().map(String::as_str).find(|entry| *entry == name)
    }
}

/// Whether the argument is a flag that decides which files Terraform writes.
pub(super) fn chooses_file(argument: &str) -> bool {
    flag_name(argument).is_some_and(|name| FILES.contains(&name.as_str()))
}

fn flag_name(argument: &str) -> Option<String> {
    let is_flag = argument.trim_start().starts_with(is_dash);
    is_flag.then(|| bare(argument).split('=').next().unwrap_or_default().trim().to_lowercase())
}

/// The text without the dashes before it.
fn bare(text: &str) -> &str {
    text.trim().trim_start_matches(is_dash)
}

/// Hyphen, minus and everything that text editors turn them into.
pub(super) fn is_dash(c: char) -> bool {
    matches!(
        c,
        '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' | '\u{2e3a}' | '\u{2e3b}'
    )
}

/// The var files of extra arguments that do not stay inside the project's directory: absolute, starting with `~`,
/// or climbing with `..`. The caller compares them with `--var-file-allowlist` (reference 1.6, step 8).
///
/// Both spellings count (`-var-file X`, `--var-file=X`), and each argument is looked at by itself, so that no
/// order of arguments can hide one: `-var -var-file=/x` is reported although Terraform would not read the file.
pub fn var_files_outside(arguments: &[String]) -> Vec<&str> {
    let following = arguments.iter().skip(1).map(Some).chain([None]);
    let named = arguments.iter().zip(following).filter_map(|(argument, next)| var_file(argument, next));
    named.filter(|path| !stays_inside(path)).collect()
}

fn var_file<'a>(argument: &'a str, next: Option<&'a String>) -> Option<&'a str> {
    let rest = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?.strip_prefix("var-file")?;
    if rest.is_empty() { next.map(String::as_str) } else { rest.strip_prefix('=') }
}

fn stays_inside(path: &str) -> bool {
    if path.is_empty() || path.starts_with(['/', '~', '\\']) {
        return false;
    }
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_flags_are_found_in_every_spelling() {
        let blocked = BlockedArgs::new(["-chdir", "--Plugin-Dir"]);
        for argument in [
            "-chdir",
            "--chdir",
            "-chdir=/",
            "--chdir=/",
            "---chdir",
            "\u{2013}chdir",
            "\u{2014}chdir=x",
            "\u{2212}chdir",
            " -chdir",
            "-CHDIR=/",
            "-plugin-dir",
            "--plugin-dir=x",
            "-chdir =x",
        ] {
            assert!(blocked.rule_against(argument).is_some(), "{argument}");
        }
        for argument in ["chdir", "--plugin-dirx", "-chdirx=1", "-target=-chdir", "x-chdir", "-", ""] {
            assert_eq!(blocked.rule_against(argument), None, "{argument}");
        }
    }

    #[test]
    fn flags_that_choose_files_are_found_in_every_spelling() {
        for argument in ["-out=/etc/passwd", "--out", "\u{2013}OUT=x", "-state=x", "-state-out=x", "-backup=-"] {
            assert!(chooses_file(argument), "{argument}");
        }
        for argument in ["out", "-output=x", "-target=-out", "-lock-timeout=5m", "-refresh=false"] {
            assert!(!chooses_file(argument), "{argument}");
        }
    }

    #[test]
    fn an_own_list_replaces_the_default() {
        assert_eq!(BlockedArgs::default().rule_against("-chdir=x"), Some("chdir"));
        let own = BlockedArgs::new(["destroy"]);
        assert_eq!(own.rule_against("-destroy"), Some("destroy"));
        assert_eq!(own.rule_against("-chdir=x"), None);
        assert_eq!(BlockedArgs::new(["", "--"]).rule_against("--"), None);
    }

    fn outside(arguments: &[&str]) -> Vec<String> {
        let owned: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        var_files_outside(&owned).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn var_files_inside_are_fine() {
        for arguments in [
            &["-var-file", "prod.tfvars"][..],
            &["--var-file=env/prod.tfvars"],
            &["-var-file=./a/../b=c.tfvars"],
            &["-var", "path=/etc/passwd"],
            &["-var-files=/x"],
            &["-var-file"],
            &[],
        ] {
            assert_eq!(outside(arguments), Vec::<String>::new(), "{arguments:?}");
        }
    }

    #[test]
    fn var_files_outside_are_named() {
        for (arguments, path) in [
            (&["-var-file", "/etc/x"][..], "/etc/x"),
            (&["--var-file", "../x"], "../x"),
            (&["-var-file=../x"], "../x"),
            (&["--var-file=/a=b"], "/a=b"),
            (&["-var-file=a/../../x"], "a/../../x"),
            (&["-var-file=~/x"], "~/x"),
            (&["-var-file="], ""),
            (&["-var", "-var-file=/x"], "/x"),
            (&["-var-file", "ok", "--var-file", "/y"], "/y"),
        ] {
            assert_eq!(outside(arguments), [path], "{arguments:?}");
        }
    }
}
