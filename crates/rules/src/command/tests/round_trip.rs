//! Tests the rules that apply to every command and every comment.

use proptest::prelude::*;

use super::*;
use crate::model::MergeMethod;

fn a_target() -> impl Strategy<Value = CommandTarget> {
    let dir = "[a-z*\\[\\]{}$'\" -]{1,3}(/[a-z_.-]{1,5}){0,2}"
        .prop_filter_map("a directory", |text| DirArgument::new(&text).ok());
    let workspace = "[a-z&#'é]{1,6}".prop_filter_map("a workspace", |text| {
        crate::model::WorkspaceName::new(&text).ok()
    });
    let place =
        (prop::option::of(dir), prop::option::of(workspace)).prop_map(|(dir, workspace)| {
            match (dir, workspace) {
                (None, None) => CommandTarget::Generic,
                (dir, workspace) => CommandTarget::DirWorkspace { dir, workspace },
            }
        });
    let project = "[-a-z0-9_./~]{1,8}".prop_filter_map("a project", |text| {
        ProjectSelector::new(&text).map(CommandTarget::Project)
    });
    prop_oneof![place, project]
}

fn words(least: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ -~é]{0,8}", least..4).prop_filter("no blocked argument", |words| {
        words.iter().all(|word| !word.contains("dir"))
    })
}

/// Generates extra arguments that both commands take.
fn extra_args() -> impl Strategy<Value = Vec<String>> {
    let flag = prop_oneof![
        prop::sample::select(vec!["-lock", "-lock=true", "-lock=false"]).prop_map(str::to_owned),
        "-lock-timeout=[0-9]{1,4}(ms|s|m|h)",
    ];
    prop::collection::vec(flag, 0..4)
}

/// Generates operands, which are words that are not flags.
fn operands(least: usize) -> impl Strategy<Value = Vec<String>> {
    words(least).prop_filter("no flag", |words| {
        words
            .iter()
            .all(|word| word == "-" || !word.starts_with('-'))
    })
}

fn merge_options() -> impl Strategy<Value = MergeOptions> {
    let by = prop::sample::select(MergeMethod::ALL.to_vec()).prop_map(MergeOptions::By);
    prop_oneof![
        Just(MergeOptions::AsConfigured),
        Just(MergeOptions::Never),
        by
    ]
}

fn a_command() -> impl Strategy<Value = Command> {
    let merge = merge_options();
    let set = prop::option::of("[!-~]{1,6}");
    let name = prop::option::of(prop::sample::select(CommandName::ALL.to_vec()))
        .prop_map(|topic| Command::Help(HelpCommand { topic }));
    let located = || (a_target(), any::<bool>());
    prop_oneof![
        (located(), extra_args()).prop_map(|((target, verbose), extra_args)| Command::Plan(
            PlanCommand {
                target,
                verbose,
                extra_args,
                head: None,
            }
        )),
        (located(), merge, extra_args()).prop_map(|((target, verbose), merge, extra_args)| {
            Command::Apply(ApplyCommand {
                target,
                verbose,
                merge,
                extra_args,
                written_at: None,
            })
        }),
        (located(), set, any::<bool>()).prop_map(|((target, verbose), policy_set, clear)| {
            Command::ApprovePolicies(ApprovePoliciesCommand {
                target,
                verbose,
                policy_set,
                clear,
                person: None,
                written_at: None,
            })
        }),
        located().prop_map(|(target, verbose)| Command::Version(VersionCommand {
            target,
            verbose,
            head: None,
        })),
        (located(), operands(2), extra_args()).prop_map(
            |((target, verbose), operands, extra_args)| {
                let (address, id) = (operands[0].clone(), operands[1].clone());
                Command::Import(ImportCommand {
                    target,
                    verbose,
                    address,
                    id,
                    extra_args,
                    head: None,
                })
            }
        ),
        (located(), operands(1), extra_args()).prop_map(
            |((target, verbose), addresses, extra_args)| {
                Command::StateRm(StateRmCommand {
                    target,
                    verbose,
                    addresses,
                    extra_args,
                    head: None,
                })
            }
        ),
        name,
        Just(Command::Unlock),
        any::<bool>().prop_map(|force| Command::Cancel(CancelCommand { force })),
        a_target().prop_map(|target| Command::Explain(ExplainCommand { target })),
    ]
}

/// Generates comments from pieces of commands and of attacks on the parser.
fn a_hostile_comment() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "lockkeeper",
            "run",
            "@bot",
            "terraform",
            "plan",
            "apply",
            "import",
            "state",
            "rm",
            "unlock",
            "help",
            "-d",
            "--dir=",
            "-w",
            "-p",
            "--",
            "--verbose",
            "-h",
            "-",
            "=",
            "'",
            "\"",
            "\\",
            "`",
            "```",
            "\n",
            "\t",
            "#",
            "[x](y)",
            "<!--",
            "-->",
            "@acme",
            "\u{202e}",
            "\u{0}",
            "é",
            "|",
            "> ",
            "*",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    (
        prop::collection::vec((piece, prop::sample::select(vec!["", " ", " "])), 0..12),
        any::<bool>(),
    )
        .prop_map(|(pieces, ours)| {
            let start = if ours { "lockkeeper " } else { "" };
            pieces
                .into_iter()
                .fold(start.to_owned(), |text, (piece, gap)| text + &piece + gap)
        })
}

proptest! {
    #[test]
    fn printing_and_reading_agree(command in a_command()) {
        let comment = format!("``````\n{}\n``````", grammar().line(&command));
        prop_assert_eq!(grammar().read(&comment), CommentReading::Command(command));
    }

    #[test]
    fn commands_survive_storage(command in a_command()) {
        let json = serde_json::to_string(&command).unwrap();
        prop_assert_eq!(serde_json::from_str::<Command>(&json).unwrap(), command);
    }

    #[test]
    fn no_comment_makes_the_parser_panic_or_the_reply_act(comment in a_hostile_comment()) {
        match grammar().read(&comment) {
            CommentReading::Ignored(_) => {}
            CommentReading::Command(command) => {
                let again = format!("``````\n{}\n``````", grammar().line(&command));
                prop_assert_eq!(grammar().read(&again), CommentReading::Command(command));
            }
            CommentReading::Mistake(mistake) => {
                let rest = mistake.markdown().replace(MUTED_AT, "");
                prop_assert!(!rest.contains(['@', '\u{202e}', '\u{0}']), "{}", rest);
                prop_assert!(matches!(grammar().read(mistake.markdown()), CommentReading::Ignored(_)));
            }
        }
    }
}
