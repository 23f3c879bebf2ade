//! Tests Appendix B of the reference row by row, with `lockkeeper` in place of `atlantis`, then cases that the table
//! lacks. Where the reference's behaviour is a defect, the row says what is right and why.

use super::*;

#[test]
fn rows_about_help() {
    check(&[
        ("lockkeeper", "help"),
        ("run", "help"),
        ("@bot", "help"),
        ("bot help", "ignored: NotForUs"),
        // The reference shows the overview, but a person who names a command wants to know about that command.
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
    let other = Grammar::new(BotNames::new(&["keeper-sec"], None));
    assert_eq!(outcome_in(&other, "keeper-dev plan"), "ignored: NotForUs");
    assert_eq!(outcome_in(&other, "lockkeeper plan"), "ignored: NotForUs");
    let tool = Grammar::new(BotNames::new(&["lockkeeper", "terraform"], None));
    assert_eq!(outcome_in(&tool, "terraform plan"), "plan");
}

#[test]
fn rows_about_unknown_and_forbidden_commands() {
    let default = Grammar::new(BotNames::default());
    for (comment, expected) in [
        ("lockkeeper paln", "mistake: unknown_command"),
        ("lockkeeper import a b", "mistake: command_not_allowed"),
        ("lockkeeper import --help", "mistake: command_not_allowed"),
        (
            "lockkeeper approve_policies",
            "mistake: command_not_allowed",
        ),
        ("lockkeeper policy_check", "mistake: unknown_command"),
        ("lockkeeper help import", "help"),
    ] {
        assert_eq!(outcome_in(&default, comment), expected, "{comment}");
    }
    let nothing = Grammar::new(BotNames::default()).with_allowed(&[]);
    assert_eq!(
        outcome_in(&nothing, "lockkeeper plan"),
        "mistake: command_not_allowed"
    );
    assert_eq!(outcome_in(&nothing, "lockkeeper help"), "help");
}

#[test]
fn rows_about_flags() {
    check(&[
        ("lockkeeper plan foo", "mistake: unexpected_argument"),
        (
            "lockkeeper plan -d a foo -w b bar",
            "mistake: unexpected_argument",
        ),
        ("lockkeeper plan -e", "mistake: unknown_flag"),
        ("lockkeeper plan --abc", "mistake: unknown_flag"),
        ("lockkeeper plan -d", "mistake: missing_value"),
        ("lockkeeper plan -d a -d b", "plan -d b"),
        ("lockkeeper plan --verbose", "plan --verbose"),
        (
            "lockkeeper apply --auto-merge-disabled",
            "apply --auto-merge-disabled",
        ),
        (
            "lockkeeper apply --auto-merge-method squash",
            "apply --auto-merge-method squash",
        ),
        (
            "lockkeeper apply --auto-merge-method x --auto-merge-disabled",
            "mistake: conflicting_flags",
        ),
        // The reference reports this only after the apply.
        (
            "lockkeeper apply --auto-merge-method x",
            "mistake: bad_value",
        ),
        (
            "lockkeeper plan --auto-merge-disabled",
            "mistake: unknown_flag",
        ),
    ]);
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
        (
            "lockkeeper plan -- -target=a '-var=k=v w'",
            "plan -- '-target=a' '-var=k=v w'",
        ),
        // Atlantis hands these on; a value in a word of its own could be the operand.
        (
            "lockkeeper plan -- -var 'k=v w'",
            "mistake: argument_spelling",
        ),
        ("lockkeeper plan -- --destroy", "plan -- -destroy"),
        ("lockkeeper plan -- foo", "mistake: argument_spelling"),
        (
            "lockkeeper apply -- -destroy -auto-approve -json-into",
            "mistake: argument_not_allowed",
        ),
        (
            "lockkeeper apply -- -json-into",
            "mistake: blocked_argument",
        ),
        (
            "lockkeeper apply -- -auto-approve",
            "mistake: blocked_argument",
        ),
        ("lockkeeper apply -- -help", "mistake: blocked_argument"),
        ("lockkeeper apply -- -version", "mistake: blocked_argument"),
        ("lockkeeper plan -- -chdir=/", "mistake: blocked_argument"),
        ("lockkeeper plan -- -chdir /", "mistake: blocked_argument"),
        ("lockkeeper plan -- --chdir=/", "mistake: blocked_argument"),
        ("lockkeeper apply -- —chdir=/", "mistake: blocked_argument"),
        (
            "lockkeeper plan -- -plugin-dir=x",
            "mistake: blocked_argument",
        ),
        (
            "lockkeeper plan -- --plugin-dirx",
            "mistake: argument_not_allowed",
        ),
        (
            "lockkeeper plan -- -out=/etc/passwd",
            "mistake: blocked_argument",
        ),
        (
            "lockkeeper apply -- --state-out x",
            "mistake: blocked_argument",
        ),
        ("lockkeeper import a –chdir=x", "mistake: blocked_argument"),
    ]);
    let own = grammar().with_extra_args(ExtraArgs::new(BlockedArgs::new(["-destroy"]), Vec::new()));
    assert_eq!(
        outcome_in(&own, "lockkeeper plan -- --destroy"),
        "mistake: blocked_argument"
    );
    assert_eq!(
        outcome_in(&own, "lockkeeper plan -- -chdir=x"),
        "mistake: blocked_argument"
    );
    assert_eq!(
        outcome_in(&own, "lockkeeper plan -- -out=x"),
        "mistake: blocked_argument"
    );
}

#[test]
fn rows_about_the_other_commands() {
    check(&[
        ("lockkeeper unlock", "unlock"),
        ("lockkeeper unlock -d .", "mistake: unknown_flag"),
        ("lockkeeper unlock foo", "mistake: unexpected_argument"),
        // The reference accepts these and ignores them, but their author expects them to count.
        (
            "lockkeeper unlock -- -d .",
            "mistake: extra_arguments_not_used",
        ),
        ("lockkeeper cancel", "cancel"),
        ("lockkeeper cancel --force", "cancel --force"),
        (
            "lockkeeper approve_policies --policy-set s --clear-policy-approval",
            "approve_policies --policy-set s --clear-policy-approval",
        ),
        (
            "lockkeeper import addr id -- -var=a=b",
            "import addr id -- '-var=a=b'",
        ),
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
        (
            "lockkeeper import addr id -- -var=a=b",
            &["-var=a=b", "addr", "id"][..],
        ),
        (
            "lockkeeper state rm a b -- -lock=false",
            &["-lock=false", "a", "b"],
        ),
        (
            "lockkeeper plan -- -target=a '-var=k=v w'",
            &["-target=a", "-var=k=v w"],
        ),
    ] {
        let CommentReading::Command(command) = grammar().read(comment) else {
            panic!("{comment}")
        };
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
        let CommentReading::Command(command) = grammar().read(comment) else {
            panic!("{comment}")
        };
        assert_eq!(
            command.target().map(CommandTarget::is_targeted),
            Some(targeted),
            "{comment}"
        );
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
    let grammar = Grammar::new(BotNames::new(
        &["LockKeeper", "TF-Bot"],
        Some("Acme-App[bot]"),
    ));
    for comment in [
        "lockkeeper plan",
        "tf-bot PLAN",
        "TF-BOT plan",
        "Run plan",
        "@acme-app plan",
        "@Acme-App[bot] plan",
    ] {
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
        (
            &format!("lockkeeper plan -- {}", "x ".repeat(600)),
            "mistake: too_long",
        ),
        (
            &format!("lockkeeper plan -- {}", "-destroy ".repeat(500)),
            &format!("plan -- {}", "-destroy ".repeat(500).trim_end()),
        ),
    ]);
}
