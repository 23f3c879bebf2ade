//! Tests the texts that people read: help, usage, and the answers to wrong commands.

use insta::assert_snapshot;

use super::*;

#[test]
fn the_overview_shows_what_is_allowed() {
    assert_snapshot!(Grammar::new(BotNames::default()).help(None), @"
    **Lockkeeper** runs Terraform and OpenTofu for this pull request and keeps the locks. Write a command as a comment of its own, on one line.

    ```text
    lockkeeper COMMAND [FLAGS] [-- TERRAFORM ARGUMENTS]

    Commands:
      plan                   Show what would change.
      apply                  Make the planned changes.
      unlock                 Release all locks of this pull request and discard its plans.
      help                   Show this overview, or the usage of one command.

    Examples:
      lockkeeper plan
          every project that this pull request changes
      lockkeeper plan -d infra/net -- -target=aws_vpc.main
          one directory, one resource
      lockkeeper apply
          every plan of this pull request
      lockkeeper apply -d . -w staging
          one directory and workspace
      lockkeeper help
          this overview

    Flags:
      -h, --help             After a command: show its usage.
    ```
    ");
}

#[test]
fn the_overview_with_everything_allowed() {
    assert_snapshot!(grammar().help(None), @"
    **Lockkeeper** runs Terraform and OpenTofu for this pull request and keeps the locks. Write a command as a comment of its own, on one line.

    ```text
    lockkeeper COMMAND [FLAGS] [-- TERRAFORM ARGUMENTS]

    Commands:
      plan                   Show what would change.
      apply                  Make the planned changes.
      cancel                 Stop the queued and running commands of this pull request.
      unlock                 Release all locks of this pull request and discard its plans.
      explain                Show which projects would be planned, by which rule, and why the others would not.
      approve_policies       Approve plans that violate policies. Only owners of the policies can do this.
      version                Show which version of Terraform or OpenTofu a project uses.
      import ADDRESS ID      Import an existing resource into the state of one project.
      state rm ADDRESS...    Remove resources from the state without destroying them.
      help                   Show this overview, or the usage of one command.

    Examples:
      lockkeeper plan
          every project that this pull request changes
      lockkeeper plan -d infra/net -- -target=aws_vpc.main
          one directory, one resource
      lockkeeper apply
          every plan of this pull request
      lockkeeper apply -d . -w staging
          one directory and workspace
      lockkeeper explain
          why each project of this pull request is planned, or not
      lockkeeper import -d infra/net aws_vpc.main vpc-0a1b2c
          import an existing resource into the state
      lockkeeper state rm -d infra/net aws_vpc.old
          forget a resource without destroying it
      lockkeeper help
          this overview

    Flags:
      -h, --help             After a command: show its usage.
    ```
    ");
}

#[test]
fn the_usage_of_apply() {
    assert_snapshot!(grammar().help(Some(CommandName::Apply)), @"
    ```text
    Usage: lockkeeper apply [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [--auto-merge-disabled]
        [--auto-merge-method METHOD] [-- TERRAFORM ARGUMENTS]

    Make the planned changes.

    Flags:
      -d, --dir DIR                    Only this directory; a pattern such as 'modules/*' takes several.
      -w, --workspace WORKSPACE        Only in this Terraform workspace.
      -p, --project PROJECT            Only the project of this name; not together with -d or -w.
          --verbose                    Add the full output to the reply, including init.
          --auto-merge-disabled        Leave the pull request open even if everything was applied.
          --auto-merge-method METHOD   How to merge once everything was applied: merge, rebase or squash.
      -h, --help                       Show this text.

    Without -d, -w and -p it applies every plan of this pull request.
    ```
    ");
}

#[test]
fn the_usage_of_state_rm() {
    assert_snapshot!(grammar().help(Some(CommandName::State)), @r#"
    ```text
    Usage: lockkeeper state rm ADDRESS... [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose]
        [-- TERRAFORM ARGUMENTS]

    Remove resources from the state without destroying them.

    Flags:
      -d, --dir DIR                    Only this directory; a pattern such as 'modules/*' takes several.
      -w, --workspace WORKSPACE        Only in this Terraform workspace.
      -p, --project PROJECT            Only the project of this name; not together with -d or -w.
          --verbose                    Add the full output to the reply, including init.
      -h, --help                       Show this text.

    Put an address with quotes or brackets into single quotes: 'aws_instance.web["a"]'.
    ```
    "#);
}

#[test]
fn every_command_and_flag_is_explained() {
    for name in CommandName::ALL {
        let spec = name.spec();
        assert!(grammar().help(None).contains(spec.about), "{name}");
        let usage = spec.usage("lockkeeper");
        assert!(
            spec.flags
                .iter()
                .all(|flag| usage.contains(flag.about) && !flag.about.is_empty()),
            "{name}"
        );
        assert!(
            usage.lines().all(|line| line.chars().count() <= 120),
            "{name}: {usage}"
        );
        for (line, _) in spec.examples {
            assert!(
                matches!(
                    grammar().read(&format!("lockkeeper {line}")),
                    CommentReading::Command(_)
                ),
                "{line}"
            );
        }
    }
}

/// The first paragraph of the file of each command is its row of the table.
#[test]
fn module_docs_show_the_grammar() {
    for (name, source) in [
        (CommandName::Plan, include_str!("../plan.rs")),
        (CommandName::Apply, include_str!("../apply.rs")),
        (CommandName::Cancel, include_str!("../cancel.rs")),
        (CommandName::Unlock, include_str!("../unlock.rs")),
        (CommandName::Explain, include_str!("../explain.rs")),
        (
            CommandName::ApprovePolicies,
            include_str!("../approve_policies.rs"),
        ),
        (CommandName::Version, include_str!("../version.rs")),
        (CommandName::Import, include_str!("../import.rs")),
        (CommandName::State, include_str!("../state_rm.rs")),
        (CommandName::Help, include_str!("../help.rs")),
    ] {
        let documented: Vec<&str> = source
            .lines()
            .map_while(|line| line.strip_prefix("//! "))
            .collect();
        let usage = name.spec().usage("lockkeeper");
        let synopsis = usage
            .split("\n\n")
            .next()
            .unwrap()
            .replace("\n   ", "")
            .replace("Usage: lockkeeper ", "");
        assert_eq!(documented.join(" "), format!("`{synopsis}`"));
    }
}

#[test]
fn reply_to_a_misspelled_flag() {
    assert_snapshot!(mistake("lockkeeper plan -d infra --verbos"), @"
    **Nothing was run**: `--verbos` is not a flag of `plan`. Did you mean `--verbose`?

    ```text
    lockkeeper plan -d infra --verbos
                             ^^^^^^^^
    ```

    ```text
    Usage: lockkeeper plan [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]

    Show what would change.

    Flags:
      -d, --dir DIR                    Only this directory; a pattern such as 'modules/*' takes several.
      -w, --workspace WORKSPACE        Only in this Terraform workspace.
      -p, --project PROJECT            Only the project of this name; not together with -d or -w.
          --verbose                    Add the full output to the reply, including init.
      -h, --help                       Show this text.

    Without -d, -w and -p it plans every project that this pull request changes.
    ```
    ");
}

#[test]
fn reply_to_a_flag_of_terraform_before_the_dashes() {
    assert_snapshot!(mistake("lockkeeper plan -destroy").lines().next().unwrap(), @r"**Nothing was run**: `-destroy` is not a flag of `plan`. If Terraform is meant, write it after two dashes: `lockkeeper plan -- -destroy`");
    assert_snapshot!(mistake("lockkeeper plan -target=aws_vpc.main").lines().next().unwrap(), @r"**Nothing was run**: `-target=aws_vpc.main` is not a flag of `plan`. If Terraform is meant, write it after two dashes: `lockkeeper plan -- -target=aws_vpc.main`");
}

#[test]
fn reply_to_a_misspelled_command() {
    assert_snapshot!(mistake("lockkeeper paln -d infra"), @"
    **Nothing was run**: `paln` is not a command. Did you mean `plan`? Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `import`, `state`, `help`.

    ```text
    lockkeeper paln -d infra
               ^^^^
    ```

    `lockkeeper help` lists the commands.
    ");
}

#[test]
fn reply_to_a_command_that_is_switched_off() {
    assert_snapshot!(mistake_in(&Grammar::new(BotNames::default()), "lockkeeper import a b"), @"
    **Nothing was run**: `import` is disabled on this server; an administrator can allow it with `--allow-commands`. Commands here: `plan`, `apply`, `unlock`, `help`.

    ```text
    lockkeeper import a b
               ^^^^^^
    ```

    `lockkeeper help` lists the commands.
    ");
}

#[test]
fn reply_to_another_name() {
    assert_snapshot!(mistake("terraform plan -d infra -- -var 'a=b c'"), @"
    **Nothing was run**: comments for this bot start with `lockkeeper`, not with `terraform`. Did you mean that?

    ```text
    lockkeeper plan -d infra -- -var 'a=b c'
    ```

    `lockkeeper help` lists the commands.
    ");
}

#[test]
fn reply_to_unlocking_one_project() {
    assert_snapshot!(mistake("lockkeeper unlock -d ."), @"
    **Nothing was run**: `-d` is not a flag of `unlock`.

    ```text
    lockkeeper unlock -d .
                      ^^
    ```

    ```text
    Usage: lockkeeper unlock

    Release all locks of this pull request and discard its plans.

    Flags:
      -h, --help                       Show this text.

    It always concerns the whole pull request. To release the lock of one project only, open that lock on
    the dashboard and discard it there.
    ```
    ");
}

#[test]
fn reply_to_arguments_too_many() {
    assert_snapshot!(mistake("lockkeeper plan foo —verbose -d x"), @"
    **Nothing was run**: unexpected arguments `foo`, `—verbose`; `plan` takes flags only. That is a long dash; some editors replace two hyphens with it. Flags start with `--`.

    ```text
    lockkeeper plan foo —verbose -d x
                    ^^^ ^^^^^^^^
    ```

    ```text
    Usage: lockkeeper plan [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]

    Show what would change.

    Flags:
      -d, --dir DIR                    Only this directory; a pattern such as 'modules/*' takes several.
      -w, --workspace WORKSPACE        Only in this Terraform workspace.
      -p, --project PROJECT            Only the project of this name; not together with -d or -w.
          --verbose                    Add the full output to the reply, including init.
      -h, --help                       Show this text.

    Without -d, -w and -p it plans every project that this pull request changes.
    ```
    ");
}

/// Returns the replies without the usage at their end.
fn brief(comments: &[&str]) -> String {
    let reply = |comment: &&str| {
        mistake(comment)
            .split("\n\n```text\nUsage")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    comments
        .iter()
        .map(reply)
        .collect::<Vec<_>>()
        .join("\n----\n")
}

#[test]
fn replies_about_values() {
    assert_snapshot!(brief(&[
        "lockkeeper plan -d ../x",
        "lockkeeper plan -w 'a b' -- -destroy",
        "lockkeeper plan -p x -d y",
        "lockkeeper plan -w -d x",
        "lockkeeper plan --verbose=often",
        "lockkeeper apply --auto-merge-method squish",
    ]), @"
    **Nothing was run**: `--dir` cannot be `../x`: it leaves the repository.

    ```text
    lockkeeper plan -d ../x
                       ^^^^
    ```
    ----
    **Nothing was run**: `--workspace` cannot be `a b`: a workspace is at most 255 bytes long, is not `.`, does not start with `-` or `~`, and contains no slash, backslash, `..`, `$` or white space.

    ```text
    lockkeeper plan -w 'a b' -- -destroy
                       ^^^^^
    ```
    ----
    **Nothing was run**: `--project` and `--dir` cannot be used together.

    ```text
    lockkeeper plan -p x -d y
                       ^    ^
    ```
    ----
    **Nothing was run**: `--workspace` needs a value: `--workspace WORKSPACE`.

    ```text
    lockkeeper plan -w -d x
                    ^^
    ```
    ----
    **Nothing was run**: `--verbose` is a switch. Its value can be `true` or `false`, but not `often`.

    ```text
    lockkeeper plan --verbose=often
                    ^^^^^^^^^^^^^^^
    ```
    ----
    **Nothing was run**: `--auto-merge-method` cannot be `squish`: the methods are `merge`, `rebase` and `squash`.

    ```text
    lockkeeper apply --auto-merge-method squish
                                         ^^^^^^
    ```
    ");
}

#[test]
fn replies_about_the_form_of_the_line() {
    assert_snapshot!(brief(&[
        "lockkeeper plan -d 'x",
        "lockkeeper plan \u{200b}-d x",
        "lockkeeper plan `-d x`",
        "lockkeeper plan “a b”",
        "lockkeeper --verbose plan",
    ]), @r#"
    **Nothing was run**: the quotation mark `'` is not closed.

    ```text
    lockkeeper plan -d 'x
                       ^
    ```

    `lockkeeper help` lists the commands.
    ----
    **Nothing was run**: the command has an invisible character (U+200B), so readers see another text. Such characters often come from copied text. Type that part again.

    ```text
    lockkeeper plan \u{200b}-d x
                    ^^^^^^^^
    ```

    `lockkeeper help` lists the commands.
    ----
    **Nothing was run**: a part of the command is formatted as code, so readers see another text than the one typed. Put the whole line into a code block.

    ```text
    lockkeeper plan `-d x`
    ```

    `lockkeeper help` lists the commands.
    ----
    **Nothing was run**: unexpected arguments `“a`, `b”`; `plan` takes flags only. Those are curly quotation marks; only straight ones (`'` and `"`) group words.

    ```text
    lockkeeper plan “a b”
                    ^^ ^^
    ```
    ----
    **Nothing was run**: `--verbose` is in the place of a command; flags follow the command. Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `import`, `state`, `help`.

    ```text
    lockkeeper --verbose plan
               ^^^^^^^^^
    ```

    `lockkeeper help` lists the commands.
    "#);
}

#[test]
fn replies_about_arguments() {
    assert_snapshot!(brief(&[
        "lockkeeper plan -- -target=x -chdir=/etc",
        "lockkeeper plan -- -out=plan.bin",
        "lockkeeper unlock -- x",
        "lockkeeper import a",
        "lockkeeper state list",
    ]), @"
    **Nothing was run**: `-chdir=/etc` may not be passed to Terraform. The administrator of this server forbids `chdir` (`--blocked-extra-args`).

    ```text
    lockkeeper plan -- -target=x -chdir=/etc
                                 ^^^^^^^^^^^
    ```
    ----
    **Nothing was run**: `-out=plan.bin` may not be passed to Terraform: Lockkeeper chooses the files that are read and written, so that the plan you see is the stored plan.

    ```text
    lockkeeper plan -- -out=plan.bin
                       ^^^^^^^^^^^^^
    ```
    ----
    **Nothing was run**: `unlock` passes nothing to Terraform, so nothing is allowed after `--`.

    ```text
    lockkeeper unlock -- x
                      ^^ ^
    ```
    ----
    **Nothing was run**: `import` is missing its argument `ID`.

    ```text
    lockkeeper import a
    ```
    ----
    **Nothing was run**: after `state` comes `rm`, not `list`.

    ```text
    lockkeeper state list
                     ^^^^
    ```
    ");
}

#[test]
fn what_was_typed_cannot_act_in_the_reply() {
    for comment in [
        "lockkeeper plan ```@acme/everyone```",
        "lockkeeper @acme/everyone",
        "lockkeeper plan -d '../@acme/everyone'",
        "terraform plan @acme",
        "lockkeeper plan -w '@a b'",
        "@bot \u{202e}nalp @acme",
    ] {
        let CommentReading::Mistake(mistake) = grammar().read(comment) else {
            panic!("{comment}")
        };
        let rest = mistake.markdown().replace(MUTED_AT, "");
        assert!(!rest.contains(['@', '\u{202e}']), "{comment}: {rest}");
    }
}

#[test]
fn a_line_copied_from_a_reply_is_read_as_it_was_typed() {
    assert_eq!(
        outcome(&format!("lockkeeper import a me{MUTED_AT}example.org")),
        "import a me@example.org"
    );
}
