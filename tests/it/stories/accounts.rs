//! Stories about people on the forge who have an account on the server.

use insta::assert_snapshot;
use lockkeeper::features::accounts::{AllUsers, NewAccount};
use lockkeeper::features::apply_locks::SetApplyLock;
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::{
    AccountId, Actor, ApplyScope, Cause, LockEvent, LockEventKind, Origin, Person,
};
use lockkeeper_accounts::external_ids::{ExternalIdKey, ForgeScheme};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::accounts::by_ops;
use crate::support::bot::Bot;
use crate::support::db::{Backend, execute, story};
use crate::support::program::lockkeeper;

story!(
    an_inactive_account_has_no_command_carried_out_until_it_is_active_again,
    everything_that_somebody_does_has_their_account_beside_the_login,
    two_logins_of_one_account_are_one_pair_of_eyes,
    a_server_finds_wrong_tables_by_itself_and_names_wrong_branches,
);

/// Returns the number that the emulator gives a user.
fn number(login: &str) -> u64 {
    let hash = Sha256::digest(login);
    let first: [u8; 4] = hash[..4].try_into().unwrap();
    u64::from(u32::from_be_bytes(first) % 100_000_000) + 1
}

/// Creates the account of somebody with these logins on the forge.
async fn account_of(bot: &Bot, logins: &[&str]) -> (AllUsers, AccountId) {
    let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
    let key = |login: &&str| {
        ExternalIdKey::forge(ForgeScheme::GitHub, "github.test", number(login)).unwrap()
    };
    let new = NewAccount {
        full_name: Some("Olga Ops".to_owned()),
        external_ids: logins.iter().map(key).collect(),
        ..NewAccount::default()
    };
    let account = users.create(&by_ops(), &new).await.unwrap();
    (users, account)
}

async fn an_inactive_account_has_no_command_carried_out_until_it_is_active_again(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# a network\n")]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# a wider network\n")])
        .await;
    bot.read_comments(pull);
    let (users, account) = account_of(&bot, &["olga"]).await;
    users.set_active(&by_ops(), account, false).await.unwrap();

    bot.hear(pull, "olga", "lockkeeper plan").await;
    assert_snapshot!(bot.answer(pull), @"**Your account on this server is inactive**, so your commands are not carried out. It has the number 1000000. An administrator can activate it with `lockkeeper accounts activate 1000000`.");
    // Everybody else goes on.
    bot.hear(pull, "alice", "lockkeeper plan").await;
    let answer = bot.answer(pull);
    assert!(answer.starts_with("Ran Plan for"), "{answer}");

    users.set_active(&by_ops(), account, true).await.unwrap();
    bot.hear(pull, "olga", "lockkeeper plan").await;
    let answer = bot.answer(pull);
    assert!(answer.starts_with("Ran Plan for"), "{answer}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn everything_that_somebody_does_has_their_account_beside_the_login(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# a network\n")]).await;
    let (_, account) = account_of(&bot, &["olga"]).await;
    let url = bot.db.url.clone();
    let call = |args: &[&str]| lockkeeper(&["locks", args[0]], &url, &args[1..], &[]);
    let first = bot
        .open_pull("wider", &[("network/main.tf", "# a wider network\n")])
        .await;
    bot.say(first, "lockkeeper unlock").await;
    bot.hear(first, "olga", "lockkeeper plan").await;
    let second = bot
        .open_pull("longer", &[("network/main.tf", "# a longer network\n")])
        .await;
    bot.hear(second, "olga", "lockkeeper plan").await;

    let set = ["set", "1000000", "--status", "OOO"];
    let set = lockkeeper(&["accounts", set[0]], &url, &set[1..], &[]);
    assert_eq!(set.code, 0, "{}", set.err);
    // The name and the status are those of today, not those of the moment when the lock was taken.
    let shown = call(&["show", "acme/infra/network/default"]);
    assert!(
        shown.out.contains("/pull/1), olga (Olga Ops, OOO)\n"),
        "{}",
        shown.out
    );
    let lines: Vec<&str> = shown.out.lines().skip(4).collect();
    assert_snapshot!(lines.join("\n"), @"
    Queue: 1
      1. #2 by olga (Olga Ops, OOO) since 2026-03-02T09:00:00Z
    History, newest first:
      2026-03-02T09:00:00Z queued #2 by alice (pull): planned when the pull request changed
      2026-03-02T09:00:00Z taken #1 by olga (Olga Ops, OOO) (comment): planned by comment
      2026-03-02T09:00:00Z released #1 by alice (comment): unlocked by comment
      2026-03-02T09:00:00Z taken #1 by alice (pull): planned when the pull request changed
    ");
    let list = call(&["list"]);
    assert!(
        list.out.contains("#1 by olga (Olga Ops, OOO) since"),
        "{}",
        list.out
    );
    let facts = call(&["show", "acme/infra/network/default", "--json"]).json();
    assert_eq!(
        facts["lock"]["account"],
        json!({"number": 1_000_000, "name": "Olga Ops", "status": "OOO"})
    );
    assert_eq!(facts["lock"]["holder"], "olga");
    assert_eq!(facts["waiters"][0]["account"], facts["lock"]["account"]);

    let store = bot.store();
    let commands = store.command_list(1).await.unwrap();
    assert_eq!(commands[0].asker().to_string(), "olga (Olga Ops, OOO)");
    let events = store.lock_event_list(100).await.unwrap();
    let taken = |event: &&LockEvent| event.event.kind == LockEventKind::Taken;
    let event = events.iter().find(taken).unwrap();
    assert_eq!(event.event.cause.actor.account, Some(account));
    assert_eq!(event.who().to_string(), "olga (Olga Ops, OOO)");

    // The next in the queue gets the lock with the account of the person who planned there.
    bot.say(first, "lockkeeper unlock").await;
    let held = holder(&bot).await;
    assert_eq!(held.to_string(), "olga (Olga Ops, OOO)");

    let cause = by_olga(account);
    let set = bot
        .store()
        .apply_lock_set(&ApplyScope::Server, None, &cause)
        .await
        .unwrap();
    let listed = bot.store().apply_lock_list().await.unwrap().remove(0);
    assert!(
        matches!(&set, SetApplyLock::Set(lock) if *lock == listed),
        "{set:?}"
    );
    assert_eq!(listed.holder.to_string(), "olga (Olga Ops, OOO)");
    // A deleted account keeps its number in what it did.
    for way in ["deactivate", "delete"] {
        let done = lockkeeper(&["accounts", way], &url, &["1000000"], &[]);
        assert_eq!(done.code, 0, "{}", done.err);
    }
    let held = holder(&bot).await;
    assert_eq!(
        (held.to_string(), held.account.map(|account| account.number)),
        ("olga".to_owned(), Some(account))
    );
    bot.read_comments(first);
    bot.read_comments(second);
    bot.end(&["acme/infra/network/default by #2"]).await;
}

/// Returns the holder of the only lock.
async fn holder(bot: &Bot) -> Person {
    bot.store().lock_list().await.unwrap().remove(0).holder
}

fn by_olga(account: AccountId) -> Cause {
    let actor = Actor::new("olga", Origin::Page).with_account(Some(account));
    Cause::new(actor, "for the release")
}

async fn two_logins_of_one_account_are_one_pair_of_eyes(backend: Backend) {
    let flags = [(
        "repo-config-json",
        r#"{"repos": [{"id": "/.*/", "four_eyes": true}]}"#,
    )];
    let files = [("network/main.tf", "# fake: add 2 change 1 destroy 0\n")];
    let mut bot = Bot::with(backend, &files, &flags).await;
    account_of(&bot, &["olga", "bob"]).await;
    let pull = bot
        .open_pull(
            "wider",
            &[("network/main.tf", "# fake: add 3 change 1 destroy 0\n")],
        )
        .await;
    bot.hear(pull, "olga", "lockkeeper plan").await;
    bot.read_comments(pull);
    bot.hear(pull, "bob", "lockkeeper apply").await;
    let answer = bot.answer(pull);
    let why = "and `olga` (by comment) made the plan, which is another login of the same account of this server. Nothing \
               was applied, and the plan is kept.";
    assert!(answer.contains(why), "{answer}");
    bot.hear(pull, "alice", "lockkeeper apply").await;
    let answer = bot.answer(pull);
    assert!(answer.starts_with("Ran Apply for"), "{answer}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_server_finds_wrong_tables_by_itself_and_names_wrong_branches(backend: Backend) {
    let bot = Bot::new(backend, &[("network/main.tf", "# a network\n")]).await;
    let tick = async || bot.replica.tick("accounts").await;
    let looked = |looked_at, repaired| TickResult {
        looked_at,
        repaired,
    };
    assert_eq!(tick().await.unwrap(), looked(0, 0));
    let (users, account) = account_of(&bot, &["olga"]).await;
    assert_eq!(tick().await.unwrap(), looked(1, 0));
    // Nothing of Lockkeeper does this.
    execute(&bot.db, "UPDATE accounts SET full_name = 'Mallory'").await;
    assert_eq!(tick().await.unwrap(), looked(1, 1));
    let row = users.find(&account.to_string()).await.unwrap().unwrap();
    assert_eq!(row.full_name.as_deref(), Some("Olga Ops"));
    execute(&bot.db, "DELETE FROM accounts").await;
    assert_eq!(tick().await.unwrap(), looked(1, 1));
    assert!(users.find(&account.to_string()).await.unwrap().is_some());
    assert_eq!(tick().await.unwrap(), looked(1, 0));

    let stray = "INSERT INTO account_refs (name, object_id) SELECT 'refs/other/stray', object_id FROM account_refs \
                 WHERE name = 'refs/users/00/1000000'";
    execute(&bot.db, stray).await;
    execute(&bot.db, "UPDATE accounts SET full_name = 'Mallory'").await;
    let failed = tick().await.unwrap_err();
    let failed = failed.to_string();
    assert!(
        failed.starts_with("the accounts break 1 rule: refs/other/stray: error: "),
        "{failed}"
    );
    // It keeps no tables from being made again.
    let row = users.find(&account.to_string()).await.unwrap().unwrap();
    assert_eq!(row.full_name.as_deref(), Some("Olga Ops"));
    bot.end(&[]).await;
}
