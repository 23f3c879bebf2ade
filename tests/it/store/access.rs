//! Races for the access control of `All-Users`.

use std::sync::Arc;

use lockkeeper::features::accounts::{
    AccountsActor, AccountsError, AllUsers, NewAccount, SignedInAccount,
};
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::refs::AccountId;
use tokio::task::JoinSet;

use crate::support::accounts::by_ops;
use crate::support::db::{TestDb, store_test};
use crate::support::program::lockkeeper;

store_test!(
    members_that_come_and_go_at_once_are_neither_lost_nor_left_behind,
    a_member_that_is_deleted_at_the_same_moment_is_in_no_group,
    whoever_lost_their_rights_since_they_signed_in_changes_nothing,
);

async fn create(users: &AllUsers, name: &str) -> AccountId {
    let new = NewAccount {
        username: Some(ExternalIdKey::username(name).unwrap()),
        ..NewAccount::default()
    };
    users.create(&by_ops(), &new).await.unwrap()
}

/// Returns the groups as the command line prints them, after a check of every rule.
fn groups(db: &TestDb) -> String {
    let checked = lockkeeper(&["accounts", "check"], &db.url, &[], &[]);
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (0, ""),
        "{}",
        checked.err
    );
    lockkeeper(&["accounts", "groups"], &db.url, &[], &[]).out
}

async fn members_that_come_and_go_at_once_are_neither_lost_nor_left_behind(db: &TestDb) {
    let servers: Vec<Arc<AllUsers>> = (0..4)
        .map(|_| Arc::new(AllUsers::new(db.store().clone(), "localhost")))
        .collect();
    let mut accounts = Vec::new();
    for number in 0..16 {
        accounts.push(create(&servers[0], &format!("kim{number}")).await);
    }
    let mut tasks = JoinSet::new();
    for (number, account) in accounts.iter().copied().enumerate() {
        let users = Arc::clone(&servers[number % servers.len()]);
        tasks.spawn(async move {
            let by = by_ops();
            users.add_to_group(&by, account, "Night", true).await?;
            if number % 2 == 0 {
                users.remove_from_group(&by, account, "Night").await?;
            }
            Ok::<_, AccountsError>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    let left = accounts.iter().enumerate();
    let left = left.filter(|(number, _)| number % 2 == 1);
    let left: Vec<String> = left
        .map(|(number, account)| format!("{account} kim{number}"))
        .collect();
    assert_eq!(
        groups(db),
        format!("Night: {}\nAdministrators: no members\n", left.join(", "))
    );
}

async fn a_member_that_is_deleted_at_the_same_moment_is_in_no_group(db: &TestDb) {
    let servers = [(); 2].map(|()| Arc::new(AllUsers::new(db.store().clone(), "localhost")));
    for round in 0..8 {
        let account = create(&servers[0], &format!("kim{round}")).await;
        let add = Arc::clone(&servers[0]);
        let delete = Arc::clone(&servers[1]);
        let (by, by_other) = (by_ops(), by_ops());
        let (added, deleted) = tokio::join!(
            add.add_to_group(&by, account, "Administrators", false),
            delete.delete(&by_other, account)
        );
        deleted.unwrap();
        assert!(
            matches!(added, Ok(()) | Err(AccountsError::NoAccount(_))),
            "{added:?}"
        );
    }
    assert_eq!(groups(db), "Administrators: no members\n");
}

async fn whoever_lost_their_rights_since_they_signed_in_changes_nothing(db: &TestDb) {
    let users = AllUsers::new(db.store().clone(), "localhost");
    let (root, jdoe) = (create(&users, "root").await, create(&users, "jdoe").await);
    users
        .add_to_group(&by_ops(), root, "Administrators", false)
        .await
        .unwrap();
    let access = db.store().account_ref("refs/meta/config").await.unwrap();
    let by_root = AccountsActor {
        signed_in: Some(SignedInAccount {
            account: root,
            password: None,
            access,
        }),
        ..by_ops()
    };
    users.set_active(&by_root, jdoe, false).await.unwrap();
    users
        .remove_from_group(&by_ops(), root, "Administrators")
        .await
        .unwrap();
    let refused = users.set_active(&by_root, jdoe, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the access control was changed at this moment; try again"
    );

    // Nor does anybody act for others who is locked out.
    let access = db.store().account_ref("refs/meta/config").await.unwrap();
    let again = AccountsActor {
        signed_in: by_root.signed_in.map(|by| SignedInAccount { access, ..by }),
        ..by_ops()
    };
    users.set_active(&by_ops(), root, false).await.unwrap();
    for account in [jdoe, root] {
        let refused = users.set_active(&again, account, true).await.unwrap_err();
        assert!(matches!(refused, AccountsError::LockedOut), "{refused}");
    }
    let row = users.find("jdoe").await.unwrap().unwrap();
    assert!(!row.active);
}
