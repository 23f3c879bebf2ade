//! What people write, and what the bot makes of it.

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
    commands_that_are_known_but_not_available_say_so,
);

async fn help_is_given(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    assert_snapshot!(bot.ask(pull, "lockkeeper help").await, @"");
    assert_snapshot!(bot.machine_line(pull), @"");
    assert_snapshot!(bot.ask(pull, "lockkeeper plan --help").await, @"");
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
    assert_snapshot!(bot.ask(pull, "lockkeeper paln -d network").await, @"");
    assert_snapshot!(bot.machine_line(pull), @"");
    assert_snapshot!(bot.ask(pull, "lockkeeper plan --workspce=staging").await, @"");
    assert_snapshot!(bot.ask(pull, "lockkeeper apply -d ../other").await, @"");
    assert_snapshot!(bot.ask(pull, "terraform plan").await, @"");
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
    assert_eq!(bot.heard(pull), [""; 0]);
    assert_snapshot!(bot.deliveries().await[2..].join("\n"), @"");
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
    assert_eq!(bot.heard(pull), [""; 0], "other servers may listen to these names");
    assert_snapshot!(bot.ask(pull, "sluice unlcok").await, @"");
    bot.end(&[]).await;
}

async fn the_bot_never_answers_itself(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    bot.say(pull, "lockkeeper help").await;
    let own = bot.github.comments(REPO, pull).unwrap().pop().unwrap();
    assert_eq!(own.author, LOGIN);
    bot.answer(pull);
    let before = bot.deliveries().await.len();
    // A command, but written with the bot's own account.
    bot.github.comment(REPO, pull, LOGIN, "lockkeeper help").await.unwrap();
    // The bot's comment, repeated by somebody else: perhaps another Lockkeeper.
    bot.github.comment(REPO, pull, "mallory", &own.body).await.unwrap();
    let hidden = own.body.lines().last().unwrap();
    bot.github.comment(REPO, pull, "mallory", &format!("lockkeeper help\n\n{hidden}")).await.unwrap();
    bot.settle().await;
    assert_snapshot!(bot.deliveries().await[before - 1..].join("\n"), @"");
    bot.heard(pull).iter().for_each(|text| assert_eq!(text, "lockkeeper help", "nothing but what was written"));
    bot.end(&[]).await;
}

async fn commands_that_are_known_but_not_available_say_so(backend: Backend) {
    let (mut bot, pull) = Bot::talking(backend, &[]).await;
    assert_snapshot!(bot.ask(pull, "lockkeeper cancel").await, @"");
    assert_snapshot!(bot.machine_line(pull), @"");
    for text in ["lockkeeper import a b", "lockkeeper state rm a", "lockkeeper version", "lockkeeper approve_policies"] {
        let answer = bot.ask(pull, text).await;
        assert!(answer.contains("is not part of this version of Lockkeeper"), "{text}: {answer}");
    }
    bot.end(&[]).await;
}
