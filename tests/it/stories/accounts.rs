//! Stories about people on the forge who have an account on the server.

use insta::assert_snapshot;
use lockkeeper::features::accounts::{AllUsers, NewAccount};
use lockkeeper_accounts::external_ids::{ExternalIdKey, ForgeScheme};
use sha2::{Digest, Sha256};

use crate::support::accounts::by_ops;
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(an_inactive_account_has_no_command_carried_out_until_it_is_active_again);

/// Returns the number that the emulator gives a user.
fn number(login: &str) -> u64 {
    let hash = Sha256::digest(login);
    let first: [u8; 4] = hash[..4].try_into().unwrap();
    u64::from(u32::from_be_bytes(first) % 100_000_000) + 1
}

async fn an_inactive_account_has_no_command_carried_out_until_it_is_active_again(backend: Backend) {
    let mut bot = Bot::new(backend, &[("network/main.tf", "# a network\n")]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# a wider network\n")])
        .await;
    bot.heard(pull);
    let users = AllUsers::new(bot.store().clone(), "lockkeeper.test");
    let key = ExternalIdKey::forge(ForgeScheme::GitHub, "github.test", number("olga")).unwrap();
    let new = NewAccount {
        external_ids: vec![key],
        ..NewAccount::default()
    };
    let account = users.create(&by_ops(), &new).await.unwrap();
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
