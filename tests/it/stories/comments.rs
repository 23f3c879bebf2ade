//! Stories about comments that contain commands, words or the bot's own text.

use insta::assert_snapshot;

use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    help_is_given,
    the_name_of_the_bot_alone_is_answered_with_help,
    a_wrong_command_is_answered_with_the_place_and_the_way_out,
    talk_about_commands_is_ignored,
    a_command_runs_however_it_is_marked_up,
    the_bot_listens_to_the_names_it_was_given,
    the_bot_never_answers_itself,
    an_approval_without_policy_checks_is_explained,
);

async fn help_is_given(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    assert_snapshot!(bot.ask(pull, "lockkeeper help").await, @"
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
      lockkeeper help
          this overview

    Flags:
      -h, --help             After a command: show its usage.
    ```
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"help","id":"ID","pull":1,"head":null,"outcome":"success","projects":[]} -->"#);
    assert_snapshot!(bot.ask(pull, "lockkeeper plan --help").await, @"
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
    bot.end(&[]).await;
}

async fn the_name_of_the_bot_alone_is_answered_with_help(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let alone = bot.ask(pull, "lockkeeper").await;
    assert_eq!(alone, bot.ask(pull, "lockkeeper help").await);
    bot.end(&[]).await;
}

async fn a_wrong_command_is_answered_with_the_place_and_the_way_out(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    assert_snapshot!(bot.ask(pull, "lockkeeper paln -d network").await, @"
    **Nothing was run**: `paln` is not a command. Did you mean `plan`? Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `help`.

    ```text
    lockkeeper paln -d network
               ^^^^
    ```

    `lockkeeper help` lists the commands.
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"help","id":"ID","pull":1,"head":null,"outcome":"refused","reason":"not_understood","projects":[]} -->"#);
    assert_snapshot!(bot.ask(pull, "lockkeeper plan --workspce=staging").await, @"
    **Nothing was run**: `--workspce=staging` is not a flag of `plan`. Did you mean `--workspace`?

    ```text
    lockkeeper plan --workspce=staging
                    ^^^^^^^^^^^^^^^^^^
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
    assert_snapshot!(bot.ask(pull, "lockkeeper apply -d ../other").await, @"
    **Nothing was run**: `--dir` cannot be `../other`: it leaves the repository.

    ```text
    lockkeeper apply -d ../other
                        ^^^^^^^^
    ```

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
    assert_snapshot!(bot.ask(pull, "terraform plan").await, @"
    **Nothing was run**: comments for this bot start with `lockkeeper`, not with `terraform`. Did you mean that?

    ```text
    lockkeeper plan
    ```

    `lockkeeper help` lists the commands.
    ");
    bot.end(&[]).await;
}

async fn talk_about_commands_is_ignored(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let talk = [
        "> lockkeeper help",
        "I would try\n\nlockkeeper help",
        "lockkeeper help\n\nwould do it",
        "- lockkeeper help",
        "# lockkeeper help",
        "Try `lockkeeper help` some time",
        "`lockkeeper help` would do it",
        "```\nlockkeeper help\n```\nwould do it",
        "[lockkeeper help](https://example.com)",
        "<!-- lockkeeper help -->",
        "<b>lockkeeper help</b>",
        "I like lockkeeper",
        "run the tests, please",
    ];
    for text in talk {
        bot.github.comment(REPO, pull, "alice", text).await.unwrap();
    }
    bot.settle().await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    assert_snapshot!(bot.deliveries().await[2..].join("\n"), @"
    issue_comment ignored: the comment starts with a quotation
    issue_comment ignored: the comment has more than one line of text
    issue_comment ignored: the comment has more than one line of text
    issue_comment ignored: the comment starts with a list
    issue_comment ignored: the comment is a heading
    issue_comment ignored: the comment does not start with a word for the bot
    issue_comment ignored: the comment starts with code and has other text as well
    issue_comment ignored: the comment has more than one line of text
    issue_comment ignored: the comment starts with a link or an image
    issue_comment ignored: the comment starts with HTML
    issue_comment ignored: the comment starts with HTML
    issue_comment ignored: the comment does not start with a word for the bot
    issue_comment ignored: the comment does not start with a word for the bot
    ");
    bot.end(&[]).await;
}

async fn a_command_runs_however_it_is_marked_up(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let help = bot.ask(pull, "lockkeeper help").await;
    for text in [
        "  LockKeeper HELP\r\n",
        "`lockkeeper help`",
        "```\nlockkeeper help\n```",
        "```shell\nlockkeeper help\n```\n",
        "@lockbot help",
        "run help",
    ] {
        assert_eq!(bot.ask(pull, text).await, help, "{text}");
    }
    bot.end(&[]).await;
}

async fn the_bot_listens_to_the_names_it_was_given(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[("executable-name", "sluice,lock")]).await;
    let help = bot.ask(pull, "sluice help").await;
    assert!(help.contains("sluice plan"), "{help}");
    assert_eq!(bot.ask(pull, "lock help").await, help);
    assert_eq!(bot.ask(pull, "@lockbot help").await, help);
    bot.say(pull, "lockkeeper help").await;
    bot.say(pull, "atlantis help").await;
    assert_eq!(
        bot.read_comments(pull),
        [""; 0],
        "other servers may listen to these names"
    );
    assert_snapshot!(bot.ask(pull, "sluice unlcok").await, @"
    **Nothing was run**: `unlcok` is not a command. Did you mean `unlock`? Commands here: `plan`, `apply`, `cancel`, `unlock`, `explain`, `approve_policies`, `version`, `help`.

    ```text
    sluice unlcok
           ^^^^^^
    ```

    `sluice help` lists the commands.
    ");
    bot.end(&[]).await;
}

async fn the_bot_never_answers_itself(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.say(pull, "lockkeeper help").await;
    let own = bot.github.comments(REPO, pull).unwrap().pop().unwrap();
    assert_eq!(own.author, LOGIN);
    bot.answer(pull);
    let before = bot.deliveries().await.len();
    // This is a command, but written with the bot's own account.
    bot.github
        .comment(REPO, pull, LOGIN, "lockkeeper help")
        .await
        .unwrap();
    // Somebody else, perhaps another Lockkeeper, repeats the bot's comment.
    bot.github
        .comment(REPO, pull, "mallory", &own.body)
        .await
        .unwrap();
    let hidden = own.body.lines().last().unwrap();
    bot.github
        .comment(
            REPO,
            pull,
            "mallory",
            &format!("lockkeeper help\n\n{hidden}"),
        )
        .await
        .unwrap();
    bot.settle().await;
    assert_snapshot!(bot.deliveries().await[before - 1..].join("\n"), @"
    issue_comment ignored: the comment is Lockkeeper's own
    issue_comment ignored: the comment is Lockkeeper's own
    issue_comment ignored: the comment ends with the hidden line of a Lockkeeper, so it is not a command
    issue_comment ignored: the comment ends with the hidden line of a Lockkeeper, so it is not a command
    ");
    bot.read_comments(pull)
        .iter()
        .for_each(|text| assert_eq!(text, "lockkeeper help", "nothing but what was written"));
    bot.end(&[]).await;
}

async fn an_approval_without_policy_checks_is_explained(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    let reply = bot.ask(pull, "lockkeeper approve_policies").await;
    assert_eq!(
        reply.lines().next(),
        Some(
            "**Approve Policies refused**: plans of this repository are not checked against policies, so there is nothing \
             to approve."
        )
    );
    let line = bot.machine_line(pull);
    assert!(line.contains(r#""command":"approve_policies""#), "{line}");
    assert!(line.contains(r#""reason":"policy_checks_off""#), "{line}");
    bot.end(&[]).await;
}
