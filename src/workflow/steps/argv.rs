//! Builds the argument vectors of the built-in steps. Words of a comment appear in two places only: as allowed flags
//! before `--`, and as operands after it. All versions of both tools accept `--` before the operands of these
//! commands.

use std::ffi::OsString;
use std::path::Path;

use super::CommentWords;

/// Builds `plan` with an output file, and with a file of variables if there is one.
pub(super) fn plan(
    file: &Path,
    workflow: Vec<OsString>,
    given: CommentWords<'_>,
    vars: Option<&Path>,
) -> Vec<OsString> {
    let own = ["plan", "-input=false", "-refresh"].map(OsString::from);
    let vars = vars.map(|vars| joined("-var-file=", vars));
    own.into_iter()
        .chain([joined("-out=", file)])
        .chain(workflow)
        .chain(of_comment(given))
        .chain(vars)
        .collect()
}

/// Builds `show` of a plan file as JSON.
pub(super) fn show(file: &Path, workflow: Vec<OsString>) -> Vec<OsString> {
    let own = ["show", "-json"].map(OsString::from);
    own.into_iter()
        .chain(workflow)
        .chain(["--".into(), file.into()])
        .collect()
}

/// Builds `apply` of a plan file.
pub(super) fn apply(
    file: &Path,
    workflow: Vec<OsString>,
    given: CommentWords<'_>,
) -> Vec<OsString> {
    let own = ["apply", "-input=false"].map(OsString::from);
    own.into_iter()
        .chain(workflow)
        .chain(of_comment(given))
        .chain(["--".into(), file.into()])
        .collect()
}

/// Builds `import` or `state rm`.
pub(super) fn change_state(
    words: &[&str],
    workflow: Vec<OsString>,
    given: CommentWords<'_>,
) -> Vec<OsString> {
    let operands = given.operands.iter().map(OsString::from);
    let own = words.iter().map(OsString::from);
    own.chain(workflow)
        .chain(of_comment(given))
        .chain(["--".into()])
        .chain(operands)
        .collect()
}

/// Builds `workspace select` or `workspace new`.
pub(super) fn workspace(how: &str, name: &str) -> Vec<OsString> {
    ["workspace", how, "--", name].map(OsString::from).into()
}

fn of_comment(given: CommentWords<'_>) -> impl Iterator<Item = OsString> {
    given.extra.iter().map(OsString::from)
}

fn joined(flag: &str, value: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(value);
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{BotNames, Command, CommandName, CommentReading, ExtraArgs, Grammar};

    fn texts(words: Vec<OsString>) -> Vec<String> {
        words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn every_operand_stands_behind_two_dashes() {
        let (extra, operands) = (
            ["-lock=false".to_owned()],
            ["a.b".to_owned(), "id".to_owned()],
        );
        let (file, given) = (
            Path::new("/s/plan"),
            CommentWords {
                extra: &extra,
                operands: &operands,
            },
        );
        let of_workflow = || vec![OsString::from("-x")];
        let vars = Some(Path::new("env/prod.tfvars"));
        for (words, expected) in [
            (
                plan(file, of_workflow(), given, vars),
                "plan -input=false -refresh -out=/s/plan -x -lock=false -var-file=env/prod.tfvars",
            ),
            (show(file, of_workflow()), "show -json -x -- /s/plan"),
            (
                apply(file, of_workflow(), given),
                "apply -input=false -x -lock=false -- /s/plan",
            ),
            (
                change_state(&["state", "rm"], of_workflow(), given),
                "state rm -x -lock=false -- a.b id",
            ),
            (workspace("select", "prod"), "workspace select -- prod"),
        ] {
            assert_eq!(texts(words).join(" "), expected);
        }
    }

    /// Returns the arguments that built-in steps get from a command, without the fixed ones.
    fn of_comment_alone(command: &Command) -> Option<(CommandName, Vec<String>)> {
        let (file, none) = (Path::new("/PLAN"), Vec::new);
        let words = match command {
            Command::Plan(plan) => {
                self::plan(file, none(), CommentWords::only(&plan.extra_args), None)
            }
            Command::Apply(apply) => {
                self::apply(file, none(), CommentWords::only(&apply.extra_args))
            }
            Command::Import(import) => {
                let operands = [import.address.clone(), import.id.clone()];
                change_state(
                    &["import"],
                    none(),
                    CommentWords {
                        extra: &import.extra_args,
                        operands: &operands,
                    },
                )
            }
            Command::StateRm(rm) => {
                let given = CommentWords {
                    extra: &rm.extra_args,
                    operands: &rm.addresses,
                };
                change_state(&["state", "rm"], none(), given)
            }
            Command::Unlock
            | Command::Cancel(_)
            | Command::Explain(_)
            | Command::ApprovePolicies(_)
            | Command::Version(_)
            | Command::Help(_) => return None,
        };
        Some((command.name(), texts(words)))
    }

    proptest! {
        #[test]
        fn no_word_of_a_comment_reaches_a_tool_but_allowed_flags_and_operands_behind_two_dashes(
            comment in a_hostile_comment()
        ) {
            let grammar = Grammar::new(BotNames::new(&["lockkeeper"], None)).with_allowed(&CommandName::ALL);
            let CommentReading::Command(command) = grammar.read(&comment) else { return Ok(()) };
            let Some((name, words)) = of_comment_alone(&command) else { return Ok(()) };
            let own: &[&str] = if name == CommandName::Plan {
                &["plan", "-input=false", "-refresh", "-out=/PLAN"]
            } else if name == CommandName::Apply {
                &["apply", "-input=false"]
            } else if name == CommandName::Import {
                &["import"]
            } else {
                &["state", "rm"]
            };
            let behind: &[&str] = if name == CommandName::Apply { &["--", "/PLAN"] } else { &[] };
            prop_assert_eq!(&words[..own.len()], own);
            let given = &words[own.len()..words.len() - behind.len()];
            prop_assert_eq!(&words[words.len() - behind.len()..], behind);
            let flags = given.iter().position(|word| word == "--").unwrap_or(given.len());
            prop_assert!(ExtraArgs::default().check(name, &given[..flags], &[]).is_ok(), "{:?}", words);
            prop_assert!(given[..flags].iter().all(|word| word.starts_with('-') && !word.starts_with("--")));
            prop_assert!(given[..flags].iter().all(|word| !word.contains("json-into") && !word.contains("auto-approve")));
            let operands = given.get(flags + 1..).unwrap_or_default();
            prop_assert!(operands.iter().all(|word| word == "-" || !word.starts_with('-')), "{:?}", words);
        }
    }

    /// Generates commands with flags of real tools in all spellings, in every place.
    fn a_hostile_comment() -> impl Strategy<Value = String> {
        let command = prop::sample::select(vec![
            "plan",
            "apply",
            "import a.b id",
            "state rm a.b",
            "import",
            "state rm",
        ]);
        let word = prop_oneof![
            3 => prop::sample::select(vec![
                "--", "-destroy", "--destroy", "-auto-approve", "-json-into", "-json-into=x", "-target=a", "-target", "a.b",
                "-var=a=b", "-var-file=x", "-lock=false", "-lock-timeout=1s", "-parallelism=2", "-help", "-version", "-v",
                "-h", "-no-color", "-refresh-only", "-state=x", "-out=x", "-", "-d", ".", "''", "-w", "-version",
            ])
            .prop_map(str::to_owned),
            1 => "[-a-z=./'\"]{0,12}",
        ];
        (
            command,
            prop::collection::vec(word, 0..6),
            prop::collection::vec("-[a-z-]{1,9}(=[a-z]{0,3})?", 0..2),
        )
            .prop_map(|(command, words, more)| {
                format!(
                    "lockkeeper {command} {} -- {}",
                    words.join(" "),
                    more.join(" ")
                )
            })
    }
}
