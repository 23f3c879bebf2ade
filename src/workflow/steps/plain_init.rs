//! Detects commands of the administrator that do one `init` and nothing else, so that they may use the provider
//! cache.
//!
//! The cache gives each `init` a directory of its own, and new packages in it belong to all projects afterwards. So
//! nothing else may have that directory: no second `init` at the same time, and no program that runs code of the pull
//! request. A plan does that, and with some configurations an `init` does too (`init_programs.rs`). The `init` also
//! has to run in the project's directory, because the links there are changed to lead to the store afterwards. A
//! command that is not certain to qualify fetches its own packages: that is slower, but safe.

use crate::config::workflow::Shell;

/// Shells that parse a command as the rules below assume.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Characters that begin a second command, or change the boundaries of words. Expansion of variables gives words,
/// never these.
const SYNTAX: &[char] = &[
    '\n', ';', '&', '|', '<', '>', '(', ')', '`', '#', '\\', '\'', '"', '!', '~',
];

/// Text that may bring options from a comment, or that says where packages come from.
const UNSURE: [&str; 4] = ["plugin-dir", "from-module", "COMMENT_ARGS", "$@"];

/// Returns true if the command is `terraform init` or `tofu init` with options, and nothing else.
pub(super) fn is_plain_init(shell: &Shell, command: &str) -> bool {
    let command = command.replace("\\\n", " ");
    let command = command.trim();
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
