//! Reference, Appendix B, row by row, with `lockkeeper` in place of `atlantis`; then what the table does not say.
//! Where the reference's behaviour is a defect, the row says what is right and why.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::quote::MUTED_AT;
use super::*;

fn grammar() -> Grammar {
    Grammar::new(Names::new(&["lockkeeper"], Some("bot"))).with_allowed(&CommandName::ALL)
}

/// What a comment comes to, in one line: the command as it would be typed, `mistake: reason`, or `ignored: why`.
fn outcome_in(grammar: &Grammar, comment: &str) -> String {
    match grammar.read(comment) {
        Reading::Command(command) => command.to_string(),
        Reading::Mistake(mistake) => format!("mistake: {}", mistake.reason()),
        Reading::Ignored(reason) => format!("ignored: {reason:?}"),
    }
}

fn outcome(comment: &str) -> String {
    outcome_in(&grammar(), comment)
}

fn check(rows: &[(&str, &str)]) {
    for (comment, expected) in rows {
        assert_eq!(outcome(comment), *expected, "{comment:?}");
    }
}

fn mistake_in(grammar: &Grammar, comment: &str) -> String {
    match grammar.read(comment) {
        Reading::Mistake(mistake) => mistake.markdown().replace(MUTED_AT, "@"),
        other => panic!("{comment:?} is no mistake but {other:?}"),
    }
}

fn mistake(comment: &str) -> String {
    mistake_in(&grammar(), comment)
}

#[test]
fn rows_about_help() {
    check(&[
        ("lockkeeper", "help"),
        ("run", "help"),
        ("@bot", "help"),
        ("bot help", "ignored: NotForUs"),
        // The reference shows the overview; who names a command wants to know about that command.
        ("lockkeeper help plan", "help plan"),
        ("lockkeeper help me", "help"),
        ("lockkeeper -h", "help"),
        ("lockkeeper --help", "help"),
        ("lockkeeper plan -h", "help plan"),
        ("lockkeeper plan foo --help", "help plan"),
        ("lockkeeper state --help", "help state"),
    ]);
}

#[test]
fn rows_about_the_form_of_the_comment() {
    check(&[
        ("LOCKKEEPER PLAN", "plan"),
        ("lockkeeper plan\n", "plan"),
        ("lockkeeper plan\n\n", "plan"),
        ("lockkeeper plan\nsecond line", "ignored: SeveralLines"),
        ("please run lockkeeper plan", "ignored: NotForUs"),
        ("`lockkeeper plan`", "plan"),
        // The reference means to allow fences but strips backticks only, and then sees several lines.
        ("```\nlockkeeper plan\n```", "plan"),
        ("```lockkeeper plan```", "plan"),
        ("`  lockkeeper help  `", "help"),
        ("`lockkeeper help", "help"),
        ("lockkeeper plan # note", "plan"),
        ("lockkeeper plan \"unclosed", "mistake: not_closed"),
    ]);
}

#[test]
fn rows_about_other_names() {
    check(&[
        ("terraform plan", "mistake: other_name"),
        ("tofu plan", "mistake: other_name"),
        ("lockkeepre plan", "mistake: other_name"),
        ("lockeeper plan", "mistake: other_name"),
        ("lockkeepe plan", "mistake: other_name"),
        ("lockeepers plan", "mistake: other_name"),
        ("locker plan", "ignored: NotForUs"),
        ("terraform plan\nis what I ran", "ignored: SeveralLines"),
    ]);
    let other = Grammar::new(Names::new(&["keeper-sec"], None));
    assert_eq!(outcome_in(&other, "keeper-dev plan"), "ignored: NotForUs");
    assert_eq!(outcome_in(&other, "lockkeeper plan"), "ignored: NotForUs");
    let tool = Grammar::new(Names::new(&["lockkeeper", "terraform"], None));
    assert_eq!(outcome_in(&tool, "terraform plan"), "plan");
}

#[test]
fn rows_about_unknown_and_forbidden_commands() {
    let default = Grammar::new(Names::default());
    for (comment, expected) in [
        ("lockkeeper paln", "mistake: unknown_command"),
        ("lockkeeper import a b", "mistake: command_not_allowed"),
        ("lockkeeper import --help", "mistake: command_not_allowed"),
        ("lockkeeper policy_check", "mistake: unknown_command"),
        ("lockkeeper help import", "help"),
    ] {
        assert_eq!(outcome_in(&default, comment), expected, "{comment}");
    }
    let nothing = Grammar::new(Names::default()).with_allowed(&[]);
    assert_eq!(outcome_in(&nothing, "lockkeeper plan"), "mistake: command_not_allowed");
    assert_eq!(outcome_in(&nothing, "lockkeeper help"), "help");
}

#[test]
fn rows_about_flags() {
    check(&[
        ("lockkeeper plan foo", "mistake: unexpected_argument"),
        ("lockkeeper plan -d a foo -w b bar", "mistake: unexpected_argument"),
        ("lockkeeper plan -e", "mistake: unknown_flag"),
        ("lockkeeper plan --abc", "mistake: unknown_flag"),
        ("lockkeeper plan -d", "mistake: missing_value"),
        ("lockkeeper plan -d a -d b", "plan -d b"),
        ("lockkeeper plan --verbose", "plan --verbose"),
        ("lockkeeper apply --auto-merge-disabled", "apply --auto-merge-disabled"),
        ("lockkeeper apply --auto-merge-method squash", "apply --auto-merge-method squash"),
        ("lockkeeper apply --auto-merge-method x --auto-merge-disabled", "mistake: conflicting_flags"),
        // The reference finds this out after the apply only.
        ("lockkeeper apply --auto-merge-method x", "mistake: bad_value"),
        ("lockkeeper plan --auto-merge-disabled", "mistake: unknown_flag"),
    ]);
    let gitlab = grammar().without_merge_methods();
    assert_eq!(
        outcome_in(&gitlab, "lockkeeper apply --auto-merge-method squash"),
        "mistake: merge_method_not_supported"
    );
}

#[test]
fn rows_about_places() {
    check(&[
        ("lockkeeper plan -d /", "plan -d ."),
        ("lockkeeper plan -d a/b/", "plan -d a/b"),
        ("lockkeeper plan -d /a", "plan -d a"),
        ("lockkeeper plan -d ..", "mistake: bad_value"),
        ("lockkeeper plan -d ./..", "mistake: bad_value"),
        ("lockkeeper plan -d a/../..", "mistake: bad_value"),
        ("lockkeeper plan -d /..", "plan -d ."),
        ("lockkeeper plan -d 'mod*/../x'", "mistake: bad_value"),
        ("lockkeeper plan -d '[a'", "mistake: bad_value"),
        ("lockkeeper plan -d './mod/*'", "plan -d 'mod/*'"),
        ("lockkeeper plan -w a/b", "mistake: bad_value"),
        ("lockkeeper plan -w ..", "mistake: bad_value"),
        ("lockkeeper plan -w .", "mistake: bad_value"),
        ("lockkeeper plan -w -x", "mistake: bad_value"),
        ("lockkeeper plan -w '~x'", "mistake: bad_value"),
        ("lockkeeper plan -w '$x'", "mistake: bad_value"),
        ("lockkeeper plan -w 'a b'", "mistake: bad_value"),
        ("lockkeeper plan -w 'a&b'", "plan -w 'a&b'"),
        ("lockkeeper plan -p x -d y", "mistake: conflicting_flags"),
        ("lockkeeper plan -p x -w y", "mistake: conflicting_flags"),
        ("lockkeeper plan -p x", "plan -p x"),
        ("lockkeeper plan -p 'x y'", "mistake: bad_value"),
    ]);
}

#[test]
fn rows_about_extra_arguments() {
    check(&[
        ("lockkeeper plan -- -target=a -var 'k=v w'", "plan -- '-target=a' -var 'k=v w'"),
        ("lockkeeper plan -- -chdir=/", "mistake: blocked_argument"),
        ("lockkeeper plan -- -chdir /", "mistake: blocked_argument"),
        ("lockkeeper plan -- --chdir=/", "mistake: blocked_argument"),
        ("lockkeeper apply -- —chdir=/", "mistake: blocked_argument"),
        ("lockkeeper plan -- -plugin-dir=x", "mistake: blocked_argument"),
        ("lockkeeper plan -- --plugin-dirx", "plan -- --plugin-dirx"),
        ("lockkeeper import a –chdir=x", "mistake: blocked_argument"),
    ]);
    let own = grammar().with_blocked(BlockedArgs::new(["-destroy"]));
    assert_eq!(outcome_in(&own, "lockkeeper plan -- --destroy"), "mistake: blocked_argument");
    assert_eq!(outcome_in(&own, "lockkeeper plan -- -chdir=x"), "plan -- '-chdir=x'");
}

#[test]
fn rows_about_the_other_commands() {
    check(&[
        ("lockkeeper unlock", "unlock"),
        ("lockkeeper unlock -d .", "mistake: unknown_flag"),
        ("lockkeeper unlock foo", "mistake: unexpected_argument"),
        // The reference accepts and forgets these; who writes them expects them to count.
        ("lockkeeper unlock -- -d .", "mistake: extra_arguments_not_used"),
        ("lockkeeper cancel", "cancel"),
        (
            "lockkeeper approve_policies --policy-set s --clear-policy-approval",
            "approve_policies --policy-set s --clear-policy-approval",
        ),
        ("lockkeeper import addr id -- -var a=b", "import addr id -- -var 'a=b'"),
        ("lockkeeper import addr", "mistake: missing_argument"),
        ("lockkeeper import a b c", "mistake: unexpected_argument"),
        ("lockkeeper state", "mistake: missing_argument"),
        ("lockkeeper state list", "mistake: unexpected_argument"),
        ("lockkeeper state rm", "mistake: missing_argument"),
        ("lockkeeper state -d x rm a b", "state rm -d x a b"),
        ("lockkeeper version", "version"),
    ]);
}

#[test]
fn operands_follow_the_extra_arguments_in_what_steps_see() {
    for (comment, expected) in [
        ("lockkeeper import addr id -- -var a=b", &["-var", "a=b", "addr", "id"][..]),
        ("lockkeeper state rm a b -- -lock=false", &["-lock=false", "a", "b"]),
        ("lockkeeper plan -- -target=a -var 'k=v w'", &["-target=a", "-var", "k=v w"]),
    ] {
        let Reading::Command(command) = grammar().read(comment) else { panic!("{comment}") };
        assert_eq!(command.comment_args(), expected);
    }
}

#[test]
fn a_command_for_particular_projects_is_targeted() {
    for (comment, targeted) in [
        ("lockkeeper plan", false),
        ("lockkeeper plan --verbose -- -target=a", false),
        ("lockkeeper plan -w staging", true),
        ("lockkeeper plan -d .", true),
        ("lockkeeper plan -p x", true),
    ] {
        let Reading::Command(command) = grammar().read(comment) else { panic!("{comment}") };
        assert_eq!(command.target().map(Target::is_targeted), Some(targeted), "{comment}");
    }
}

#[test]
fn everyday_language_is_left_alone() {
    check(&[
        ("run the tests again, don't wait", "ignored: NotForUs"),
        ("Terraform is fun", "ignored: NotForUs"),
        ("lockkeepers are people", "ignored: NotForUs"),
        ("run plans", "mistake: unknown_command"),
        ("run plan", "plan"),
        ("lockkeeper doesn't answer", "mistake: unknown_command"),
        ("lockkeeper plan doesn't work", "mistake: not_closed"),
    ]);
}

#[test]
fn every_word_for_the_bot_works_in_any_case() {
    let grammar = Grammar::new(Names::new(&["LockKeeper", "TF-Bot"], Some("Acme-App[bot]")));
    for comment in
        ["lockkeeper plan", "tf-bot PLAN", "TF-BOT plan", "Run plan", "@acme-app plan", "@Acme-App[bot] plan"]
    {
        assert_eq!(outcome_in(&grammar, comment), "plan", "{comment}");
    }
    assert!(grammar.is_own("acme-app[BOT]") && !grammar.is_own("acme-app"));
}

#[test]
fn long_comments_are_answered_only_when_they_are_for_us() {
    let long = "x ".repeat(Grammar::MAX_BYTES);
    check(&[
        (&long, "ignored: TooLong"),
        (&format!("lockkeeper plan\n{long}"), "ignored: TooLong"),
        (&format!("lockkeeper plan {long}"), "mistake: too_long"),
        (&format!("lockkeeper plan -- {}", "x ".repeat(600)), "mistake: too_long"),
        (&format!("lockkeeper plan -- {}", "x ".repeat(500)), &format!("plan -- {}", "x ".repeat(500).trim_end())),
    ]);
}

#[test]
fn the_overview_shows_what_is_allowed() {
    assert_snapshot!(Grammar::new(Names::default()).help(None), @"");
}

#[test]
fn the_overview_with_everything_allowed() {
    assert_snapshot!(grammar().help(None), @"");
}

#[test]
fn the_usage_of_apply() {
    assert_snapshot!(grammar().help(Some(CommandName::Apply)), @"");
}

#[test]
fn the_usage_of_state_rm() {
    assert_snapshot!(grammar().help(Some(CommandName::State)), @"");
}

#[test]
fn every_command_and_flag_is_explained() {
    for name in CommandName::ALL {
        let spec = name.spec();
        assert!(grammar().help(None).contains(spec.about), "{name}");
        let usage = spec.usage("lockkeeper");
        assert!(spec.flags.iter().all(|flag| usage.contains(flag.about) && !flag.about.is_empty()), "{name}");
        assert!(usage.lines().all(|line| line.chars().count() <= 140), "{name}: {usage}");
        for (line, _) in spec.examples {
            assert!(matches!(grammar().read(&format!("lockkeeper {line}")), Reading::Command(_)), "{line}");
        }
    }
}

#[test]
fn reply_to_a_misspelled_flag() {
    assert_snapshot!(mistake("lockkeeper plan -d infra --verbos"), @"");
}

#[test]
fn reply_to_a_flag_of_terraform_before_the_dashes() {
    assert_snapshot!(mistake("lockkeeper plan -destroy").lines().next().unwrap(), @"");
    assert_snapshot!(mistake("lockkeeper plan -target=aws_vpc.main").lines().next().unwrap(), @"");
}

#[test]
fn reply_to_a_misspelled_command() {
    assert_snapshot!(mistake("lockkeeper paln -d infra"), @"");
}

#[test]
fn reply_to_a_command_that_is_switched_off() {
    assert_snapshot!(mistake_in(&Grammar::new(Names::default()), "lockkeeper import a b"), @"");
}

#[test]
fn reply_to_another_name() {
    assert_snapshot!(mistake("terraform plan -d infra -- -var 'a=b c'"), @"");
}

#[test]
fn reply_to_unlocking_one_project() {
    assert_snapshot!(mistake("lockkeeper unlock -d ."), @"");
}

#[test]
fn reply_to_arguments_too_many() {
    assert_snapshot!(mistake("lockkeeper plan foo —verbose -d x"), @"");
}

/// The first sentence and the place of every other kind of mistake.
#[test]
fn replies_point_at_the_place() {
    let replies: Vec<String> = [
        "lockkeeper plan -d ../x",
        "lockkeeper plan -w 'a b' -- x",
        "lockkeeper plan -p x -d y",
        "lockkeeper plan -w -d x",
        "lockkeeper plan --verbose=often",
        "lockkeeper apply --auto-merge-method squish",
        "lockkeeper plan -- -target=x -chdir=/etc",
        "lockkeeper plan -d 'x",
        "lockkeeper plan \u{200b}-d x",
        "lockkeeper plan `-d x`",
        "lockkeeper import a",
        "lockkeeper state list",
        "lockkeeper --verbose plan",
        "lockkeeper unlock -- x",
        "lockkeeper plan “a b”",
    ]
    .into_iter()
    .map(|comment| {
        mistake(comment).lines().take_while(|line| !line.starts_with("Usage")).collect::<Vec<_>>().join("\n")
    })
    .collect();
    assert_snapshot!(replies.join("\n----\n"), @"");
}

#[test]
fn what_was_typed_cannot_act_in_the_reply() {
    for comment in [
        "lockkeeper plan ```@acme/everyone```",
        "lockkeeper @acme/everyone",
        "lockkeeper plan -d '..@acme/everyone'",
        "terraform plan @acme",
        "lockkeeper plan -w '@a b'",
        "@bot \u{202e}nalp @acme",
    ] {
        let Reading::Mistake(mistake) = grammar().read(comment) else { panic!("{comment}") };
        let rest = mistake.markdown().replace(MUTED_AT, "");
        assert!(!rest.contains(['@', '\u{202e}']), "{comment}: {rest}");
    }
}

#[test]
fn a_line_copied_from_a_reply_is_read_as_it_was_typed() {
    assert_eq!(outcome(&format!("lockkeeper import a me{MUTED_AT}example.org")), "import a 'me@example.org'");
}

fn a_target() -> impl Strategy<Value = Target> {
    let dir = "[a-z*\\[\\]{}$'\" -]{1,3}(/[a-z_.-]{1,5}){0,2}"
        .prop_filter_map("a directory", |text| DirSelector::new(&text).ok());
    let workspace =
        "[a-z&#'é]{1,6}".prop_filter_map("a workspace", |text| crate::model::WorkspaceName::new(&text).ok());
    let place =
        (prop::option::of(dir), prop::option::of(workspace)).prop_map(|(dir, workspace)| match (dir, workspace) {
            (None, None) => Target::Generic,
            (dir, workspace) => Target::DirWorkspace { dir, workspace },
        });
    let project =
        "[-a-z0-9_./~]{1,8}".prop_filter_map("a project", |text| ProjectSelector::new(&text).map(Target::Project));
    prop_oneof![place, project]
}

fn words(least: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ -~é]{0,8}", least..4)
        .prop_filter("no blocked argument", |words| words.iter().all(|word| !word.contains("dir")))
}

/// Operands: whatever is not a flag.
fn operands(least: usize) -> impl Strategy<Value = Vec<String>> {
    words(least).prop_filter("no flag", |words| words.iter().all(|word| word == "-" || !word.starts_with('-')))
}

fn a_merge_wish() -> impl Strategy<Value = MergeWish> {
    let by = prop::sample::select(MergeMethod::ALL.to_vec()).prop_map(MergeWish::By);
    prop_oneof![Just(MergeWish::AsConfigured), Just(MergeWish::Never), by]
}

fn a_command() -> impl Strategy<Value = Command> {
    let wish = a_merge_wish();
    let set = prop::option::of("[!-~]{1,6}");
    let name = prop::option::of(prop::sample::select(CommandName::ALL.to_vec()))
        .prop_map(|topic| Command::Help(HelpCommand { topic }));
    let located = || (a_target(), any::<bool>());
    prop_oneof![
        (located(), words(0)).prop_map(|((target, verbose), extra_args)| Command::Plan(PlanCommand {
            target,
            verbose,
            extra_args
        })),
        (located(), wish, words(0)).prop_map(|((target, verbose), merge, extra_args)| Command::Apply(ApplyCommand {
            target,
            verbose,
            merge,
            extra_args
        })),
        (located(), set, any::<bool>()).prop_map(|((target, verbose), policy_set, clear)| {
            Command::ApprovePolicies(ApprovePoliciesCommand { target, verbose, policy_set, clear })
        }),
        located().prop_map(|(target, verbose)| Command::Version(VersionCommand { target, verbose })),
        (located(), operands(2), words(0)).prop_map(|((target, verbose), operands, extra_args)| {
            let (address, id) = (operands[0].clone(), operands[1].clone());
            Command::Import(ImportCommand { target, verbose, address, id, extra_args })
        }),
        (located(), operands(1), words(0)).prop_map(|((target, verbose), addresses, extra_args)| {
            Command::StateRm(StateRmCommand { target, verbose, addresses, extra_args })
        }),
        name,
        Just(Command::Unlock),
        Just(Command::Cancel),
    ]
}

/// Pieces of which commands and attempts on the parser are made.
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
    (prop::collection::vec((piece, prop::sample::select(vec!["", " ", " "])), 0..12), any::<bool>()).prop_map(
        |(pieces, ours)| {
            let start = if ours { "lockkeeper " } else { "" };
            pieces.into_iter().fold(start.to_owned(), |text, (piece, gap)| text + &piece + gap)
        },
    )
}

proptest! {
    #[test]
    fn printing_and_reading_agree(command in a_command()) {
        let comment = format!("``````\n{}\n``````", grammar().line(&command));
        prop_assert_eq!(grammar().read(&comment), Reading::Command(command));
    }

    #[test]
    fn commands_survive_storage(command in a_command()) {
        let json = serde_json::to_string(&command).unwrap();
        prop_assert_eq!(serde_json::from_str::<Command>(&json).unwrap(), command);
    }

    #[test]
    fn no_comment_makes_the_parser_panic_or_the_reply_act(comment in a_hostile_comment()) {
        match grammar().read(&comment) {
            Reading::Ignored(_) => {}
            Reading::Command(command) => {
                let again = format!("``````\n{}\n``````", grammar().line(&command));
                prop_assert_eq!(grammar().read(&again), Reading::Command(command));
            }
            Reading::Mistake(mistake) => {
                let rest = mistake.markdown().replace(MUTED_AT, "");
                prop_assert!(!rest.contains(['@', '\u{202e}', '\u{0}']), "{}", rest);
                prop_assert!(matches!(grammar().read(mistake.markdown()), Reading::Ignored(_)));
            }
        }
    }
}
