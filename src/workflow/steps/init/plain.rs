//! Detects commands of the administrator that do one `init` and nothing else, so that they may use the provider
//! cache.
//!
//! The cache gives each `init` a directory of its own, and new packages in it belong to all projects afterwards. So
//! nothing else may have that directory: no second `init` at the same time, and no program that runs code of the pull
//! request. A plan does that, and with some configurations an `init` does too (`programs.rs`). The `init` also
//! has to run in the project's directory, because the links there are changed to lead to the store afterwards. A
//! command that is not certain to qualify fetches its own packages: that is slower, but safe.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::config::workflow::Shell;

/// Shells that parse a command as the rules below assume.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Characters that begin a second command, or change the boundaries of words. Expansion of variables gives words,
/// never these.
const SYNTAX: &[char] = &[
    '\n', ';', '&', '|', '<', '>', '(', ')', '`', '#', '\\', '\'', '"', '!', '~',
];

/// Variables that the shell sets itself. A pull request chooses the name of its directory.
const OF_SHELL: [&str; 3] = ["PWD", "OLDPWD", "_"];

/// Text that may bring options from a comment, or that says where packages come from.
const UNSURE: [&str; 4] = ["plugin-dir", "from-module", "COMMENT_ARGS", "$@"];

/// Returns true if the command is `terraform init` or `tofu init` with options, and nothing else.
pub(in super::super) fn is_plain_init(shell: &Shell, command: &str) -> bool {
    let command = command.replace("\\\n", " ");
    let command = command.trim();
    // A program with a relative path is one of the checkout.
    let is_installed = |program: &str| program.starts_with('/') || !program.contains('/');
    if !is_installed(&shell.program) || !command.split_whitespace().next().is_some_and(is_installed)
    {
        return false;
    }
    let shell = shell.program.rsplit('/').next().unwrap_or_default();
    if !SHELLS.contains(&shell)
        || command.contains(SYNTAX)
        || UNSURE.iter().any(|text| command.contains(text))
    {
        return false;
    }
    let mut words = command.split_whitespace();
    words.next().is_some_and(is_program)
        && words.next() == Some("init")
        && words.all(|word| word.starts_with('-'))
}

/// Returns the words of such a command as the shell expands them. `None`: a value has characters that make several words of one,
/// only the shell knows it, or the command expands more than the names of variables.
pub(super) fn expanded_words(
    command: &str,
    variables: &BTreeMap<OsString, OsString>,
) -> Option<Vec<OsString>> {
    let command = command.replace("\\\n", " ");
    let expanded = |word: &str| {
        let mut parts = word.split('$');
        let mut all = parts.next()?.to_owned();
        for part in parts {
            let (name, rest) = match part.strip_prefix('{') {
                Some(part) => part.split_once('}')?,
                None => part.split_at(part.find(|c: char| !is_of_name(c)).unwrap_or(part.len())),
            };
            let is_name = !name.is_empty()
                && name.chars().all(is_of_name)
                && !name.starts_with(|c: char| c.is_ascii_digit());
            let value = variables.get(OsStr::new(name))?.to_str()?;
            let is_split = value.contains(|c: char| c.is_whitespace() || "*?[".contains(c));
            if !is_name || is_split || OF_SHELL.contains(&name) {
                return None;
            }
            all.push_str(value);
            all.push_str(rest);
        }
        Some(OsString::from(all))
    };
    // A shell with other separators would make other words.
    if variables.contains_key(OsStr::new("IFS")) || command.contains(['*', '?', '[']) {
        return None;
    }
    command.split_whitespace().map(expanded).collect()
}

fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Accepts `terraform`, `tofu1.10.0`, `/usr/bin/terraform$ATLANTIS_TERRAFORM_VERSION` and the like.
fn is_program(word: &str) -> bool {
    const NAMES: [&str; 4] = [
        "terraform",
        "tofu",
        "$ATLANTIS_TERRAFORM_DISTRIBUTION",
        "${ATLANTIS_TERRAFORM_DISTRIBUTION}",
    ];
    const VERSIONS: [&str; 3] = [
        "",
        "$ATLANTIS_TERRAFORM_VERSION",
        "${ATLANTIS_TERRAFORM_VERSION}",
    ];
    let name = word.rsplit('/').next().unwrap_or_default();
    let mut versions = NAMES.iter().filter_map(|known| name.strip_prefix(known));
    versions.any(|version| VERSIONS.contains(&version) || semver::Version::parse(version).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_only_if_the_shell_makes_one_of_each() {
        let variables: BTreeMap<OsString, OsString> = [
            ("WORKSPACE", "prod"),
            ("DIR", "/a/b c"),
            ("GLOB", "a*"),
            ("PWD", "/srv"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let words = |command: &str| {
            let words = expanded_words(command, &variables)?;
            Some(
                words
                    .into_iter()
                    .map(|word| word.into_string().unwrap())
                    .collect::<Vec<_>>()
                    .join("|"),
            )
        };
        for (command, expected) in [
            ("terraform init", Some("terraform|init")),
            (
                "terraform init -backend-config=${WORKSPACE}.hcl-x",
                Some("terraform|init|-backend-config=prod.hcl-x"),
            ),
            (
                "terraform init \\\n  -upgrade",
                Some("terraform|init|-upgrade"),
            ),
            ("terraform init -x=$DIR", None),
            ("terraform init -x=$GLOB", None),
            ("terraform init -x=$PWD", None),
            ("terraform init -x=$UNSET", None),
            ("terraform init -x=*", None),
            ("terraform init -x=${WORKSPACE:-y}", None),
            ("terraform init -x=$1", None),
            ("terraform init -x=$", None),
        ] {
            assert_eq!(words(command).as_deref(), expected, "{command}");
        }
        let other = [(OsString::from("IFS"), OsString::from("-"))].into();
        assert_eq!(expanded_words("terraform init", &other), None);
    }

    #[test]
    fn a_program_of_the_checkout_is_not_plain() {
        for command in ["./terraform init", "bin/terraform init", "../tofu init"] {
            assert!(!is_plain_init(&Shell::default(), command), "{command}");
        }
        let shell = Shell {
            program: "./sh".to_owned(),
            args: vec!["-c".to_owned()],
        };
        assert!(!is_plain_init(&shell, "terraform init"));
    }

    #[test]
    fn one_init_and_nothing_else_is_plain() {
        for command in [
            "terraform init",
            "tofu init -input=false\n",
            "terraform1.5.7 init -backend-config=$WORKSPACE.hcl",
            "terraform$ATLANTIS_TERRAFORM_VERSION init -input=false",
            "terraform${ATLANTIS_TERRAFORM_VERSION} init \\\n  -upgrade",
            "$ATLANTIS_TERRAFORM_DISTRIBUTION init",
            "/usr/local/bin/terraform init",
        ] {
            assert!(is_plain_init(&Shell::default(), command), "{command}");
        }
        let bash = Shell {
            program: "/bin/bash".to_owned(),
            args: vec!["-ec".to_owned()],
        };
        assert!(is_plain_init(&bash, "terraform init"));
    }

    #[test]
    fn whatever_may_do_more_or_something_else_is_not() {
        for command in [
            "",
            "terraform",
            "terraform plan",
            "terraform -chdir=sub init",
            "TF_DATA_DIR=x terraform init",
            "cd sub && terraform init",
            "terraform init && terraform plan",
            "terraform init & terraform init",
            "terraform init | tee log",
            "terraform init\nterraform plan",
            "terraform init # and more",
            "terraform init -backend-config=$(cat ../key)",
            "terraform init `cat args`",
            "terraform init -plugin-dir=vendor",
            "terraform init -from-module=git::https://example.com/x",
            "terraform init $COMMENT_ARGS",
            "terraform init 'a b'",
            "terraform init ../other",
            "terraform init $EXTRA",
            "terraform-docs init",
            "terraformx init",
            "terragrunt run-all init",
            "xargs terraform init",
        ] {
            assert!(!is_plain_init(&Shell::default(), command), "{command}");
        }
        let python = Shell {
            program: "python3".to_owned(),
            args: vec!["-c".to_owned()],
        };
        assert!(!is_plain_init(&python, "terraform init"));
    }
}
