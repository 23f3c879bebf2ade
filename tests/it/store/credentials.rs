//! Tests of credentials of repositories: stored encrypted, each with its reference to a claim.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::claims::{ChangeCredential, CredentialError, CredentialStore};
use lockkeeper::credential::{GitAccess, SshAccess};
use lockkeeper::forges::{AccessError, RepoAccess as _};
use lockkeeper::model::LockEventKind::{Claimed, Registered, Unclaimed, Unregistered};
use lockkeeper::model::{CredentialId, OwnerName, RepoId, RepoUrl, Rights};
use lockkeeper::seal::{Keyring, OpenError, key_line};
use lockkeeper::secret::Secret;
use lockkeeper::store::Claim;

use crate::support::db::{TestDb, by, execute, store_test};

store_test!(
    a_credential_claims_its_repository_and_lets_go_of_it_at_the_end,
    nothing_is_kept_for_a_repository_of_another_owner,
    an_account_that_is_limited_makes_no_first_claim_by_a_credential,
    nothing_is_kept_without_a_key_an_owner_or_a_usable_value,
    a_credential_that_moves_takes_its_claim_along,
    a_credential_cannot_be_moved_to_what_another_owner_holds,
    the_one_added_last_is_used_and_that_is_noted,
    an_ssh_key_is_used_for_git_of_its_repository_alone,
    secrets_are_nowhere_in_the_database,
    a_row_that_was_tampered_with_does_not_open,
    another_key_is_given_in_batches_and_an_interruption_loses_nothing,
    what_cannot_be_read_is_named_and_the_rest_gets_the_key,
);

const TOKEN: &str = "ghp_0123456789abcdefghij";
const SSH_KEY: &str = include_str!("../support/ssh_key.pem");
const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMTwG+G2sXhDP0tfXH+59rEeg0gXEYYROOCsxU2Pp1/u";

fn keys(lines: &[(&str, u8)]) -> Arc<Keyring> {
    let key = |start: u8| std::array::from_fn(|at| start.wrapping_add(u8::try_from(at).unwrap()));
    let line = |(name, start): &(&str, u8)| {
        key_line(&name.parse().unwrap(), &key(*start))
            .expose()
            .to_owned()
    };
    Arc::new(Keyring::parse(&lines.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap())
}

fn with_keys(db: &TestDb, lines: &[(&str, u8)]) -> CredentialStore {
    CredentialStore::new(db.store().clone(), db.ids.clone(), Some(keys(lines)))
}

fn token(text: &str) -> GitAccess {
    GitAccess::Token {
        user: None,
        token: Secret::new(text),
    }
}

fn url(name: &str) -> RepoUrl {
    format!("https://github.com/acme/{name}").parse().unwrap()
}

fn repo(name: &str) -> RepoId {
    format!("github.com/acme/{name}").parse().unwrap()
}

async fn owner(db: &TestDb, name: &str) -> OwnerName {
    let name = OwnerName::new(name).unwrap();
    drop(db.store().owner_create(&name, by()).await.unwrap());
    name
}

async fn add(
    credentials: &CredentialStore,
    owner: &OwnerName,
    name: &str,
    text: &str,
) -> CredentialId {
    credentials
        .add(owner, &url(name), &token(text), (Rights::Whole, by()))
        .await
        .unwrap()
        .id
}

async fn claim(db: &TestDb, name: &str) -> Option<Claim> {
    db.store().claim_get(&url(name)).await.unwrap()
}

async fn secret_for(
    credentials: &CredentialStore,
    name: &str,
) -> Result<Option<String>, AccessError> {
    let held = credentials.for_api(&repo(name)).await?;
    Ok(held.map(|held| match held.access {
        GitAccess::Token { token, .. } => token.expose().to_owned(),
        other @ (GitAccess::App { .. } | GitAccess::Ssh(_)) => panic!("{other:?}"),
    }))
}

async fn an_account_that_is_limited_makes_no_first_claim_by_a_credential(db: &TestDb) {
    let (net, credentials) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let limited = (Rights::Limited, by());
    let refused = credentials
        .add(&net, &url("infra"), &token(TOKEN), limited)
        .await;
    assert!(matches!(refused, Err(CredentialError::Unclaimed(of)) if of == url("infra")));
    assert_eq!(claim(db, "infra").await, None);
    add(&credentials, &net, "infra", TOKEN).await;
    let second = credentials
        .add(&net, &url("infra"), &token(TOKEN), limited)
        .await
        .unwrap();
    let change = ChangeCredential {
        url: Some(url("dns")),
        access: None,
    };
    let refused = credentials.change(second.id, change, limited).await;
    assert!(matches!(refused, Err(CredentialError::Unclaimed(of)) if of == url("dns")));
    assert_eq!(
        (
            claim(db, "infra").await.unwrap().credentials,
            claim(db, "dns").await
        ),
        (2, None)
    );
}

async fn a_credential_claims_its_repository_and_lets_go_of_it_at_the_end(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let (one, two) = (
        add(&keys, &net, "infra", TOKEN).await,
        add(&keys, &net, "infra", TOKEN).await,
    );
    let held = claim(db, "infra").await.unwrap();
    assert_eq!((held.owner, held.credentials), (net.clone(), 2));
    let row = db.store().credential_get(one).await.unwrap().unwrap();
    assert_eq!(row.public.0.fingerprint.len(), 8);
    assert_eq!(
        (row.created_by.as_str(), row.key_id.as_str(), row.used_at),
        ("ada", "a", None)
    );
    assert!(
        db.store()
            .credential_remove(one, by())
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(db.store().credential_remove(one, by()).await.unwrap(), None);
    assert_eq!(claim(db, "infra").await.unwrap().credentials, 1);
    db.store().credential_remove(two, by()).await.unwrap();
    assert_eq!(claim(db, "infra").await, None);
    assert_eq!(
        db.store()
            .credential_list(None, None, None, 10)
            .await
            .unwrap(),
        []
    );
    let kinds: Vec<_> = db
        .store()
        .lock_event_list(10)
        .await
        .unwrap()
        .iter()
        .rev()
        .map(|event| event.event.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            Registered,
            Claimed,
            Registered,
            Registered,
            Unregistered,
            Unregistered,
            Unclaimed
        ]
    );
}

async fn nothing_is_kept_for_a_repository_of_another_owner(db: &TestDb) {
    let (net, web, keys) = (
        owner(db, "net").await,
        owner(db, "web").await,
        with_keys(db, &[("a", 1)]),
    );
    add(&keys, &net, "infra", TOKEN).await;
    let events = db.store().lock_event_list(50).await.unwrap().len();
    let refused = keys
        .add(&web, &url("infra"), &token(TOKEN), (Rights::Whole, by()))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("https://github.com/acme/infra is owned by `net`."),
        "{refused}"
    );
    let of_web = db.store().owner_get(&web).await.unwrap().unwrap().id;
    assert_eq!(
        db.store()
            .credential_list(Some(of_web), None, None, 10)
            .await
            .unwrap(),
        []
    );
    assert_eq!(db.store().lock_event_list(50).await.unwrap().len(), events);
}

async fn nothing_is_kept_without_a_key_an_owner_or_a_usable_value(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let none = CredentialStore::new(db.store().clone(), db.ids.clone(), None);
    let refused = none
        .add(&net, &url("infra"), &token(TOKEN), (Rights::Whole, by()))
        .await;
    assert!(
        matches!(refused, Err(CredentialError::NoKeys)),
        "{refused:?}"
    );
    let nobody = OwnerName::new("nobody").unwrap();
    let refused = keys
        .add(&nobody, &url("infra"), &token(TOKEN), (Rights::Whole, by()))
        .await;
    assert!(
        matches!(refused, Err(CredentialError::NoOwner(_))),
        "{refused:?}"
    );
    let refused = keys
        .add(&net, &url("infra"), &token("short"), (Rights::Whole, by()))
        .await;
    assert!(
        matches!(refused, Err(CredentialError::Invalid(_))),
        "{refused:?}"
    );
    assert_eq!(
        claim(db, "infra").await,
        None,
        "what was refused claims nothing"
    );
}

async fn a_credential_that_moves_takes_its_claim_along(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let id = add(&keys, &net, "infra", TOKEN).await;
    let to = |name| ChangeCredential {
        url: Some(url(name)),
        access: None,
    };
    keys.change(id, to("labs"), (Rights::Whole, by()))
        .await
        .unwrap();
    assert_eq!(claim(db, "infra").await, None);
    assert_eq!(claim(db, "labs").await.unwrap().credentials, 1);
    assert_eq!(secret_for(&keys, "infra").await.unwrap(), None);
    assert_eq!(
        secret_for(&keys, "labs").await.unwrap().as_deref(),
        Some(TOKEN),
        "its seal went with it"
    );
    let other = ChangeCredential {
        url: None,
        access: Some(token("ghp_another_token_here")),
    };
    keys.change(id, other, (Rights::Whole, by())).await.unwrap();
    assert_eq!(
        secret_for(&keys, "labs").await.unwrap().as_deref(),
        Some("ghp_another_token_here")
    );
    keys.change(id, to("infra"), (Rights::Whole, by()))
        .await
        .unwrap();
    assert_eq!(claim(db, "labs").await, None);
    db.store().credential_remove(id, by()).await.unwrap();
    let refused = keys.change(id, to("labs"), (Rights::Whole, by())).await;
    assert!(
        matches!(refused, Err(CredentialError::NotFound(_))),
        "{refused:?}"
    );
}

async fn a_credential_cannot_be_moved_to_what_another_owner_holds(db: &TestDb) {
    let (net, web, keys) = (
        owner(db, "net").await,
        owner(db, "web").await,
        with_keys(db, &[("a", 1)]),
    );
    let id = add(&keys, &net, "infra", TOKEN).await;
    add(&keys, &web, "labs", TOKEN).await;
    let before = db.store().credential_get(id).await.unwrap();
    let change = ChangeCredential {
        url: Some(url("labs")),
        access: Some(token("ghp_another_token_here")),
    };
    let refused = keys.change(id, change, (Rights::Whole, by())).await;
    assert!(
        matches!(&refused, Err(CredentialError::OwnedBy { owner, .. }) if *owner == web),
        "{refused:?}"
    );
    assert_eq!(db.store().credential_get(id).await.unwrap(), before);
    assert_eq!(
        secret_for(&keys, "infra").await.unwrap().as_deref(),
        Some(TOKEN)
    );
}

async fn the_one_added_last_is_used_and_that_is_noted(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    assert!(keys.for_api(&repo("infra")).await.unwrap().is_none());
    let old = add(&keys, &net, "infra", TOKEN).await;
    db.clock.advance(Duration::from_mins(1));
    let new = add(&keys, &net, "infra", "ghp_the_newer_token_0").await;
    assert_eq!(keys.for_api(&repo("Infra")).await.unwrap().unwrap().id, new);
    assert!(keys.for_ssh(&repo("infra")).await.unwrap().is_none());
    let used = |id| async move {
        db.store()
            .credential_get(id)
            .await
            .unwrap()
            .unwrap()
            .used_at
    };
    let first = db.now();
    assert_eq!((used(old).await, used(new).await), (None, Some(first)));
    db.clock.advance(Duration::from_secs(30));
    secret_for(&keys, "infra").await.unwrap();
    assert_eq!(used(new).await, Some(first), "not each use is written");
    db.clock.advance(Duration::from_hours(1));
    secret_for(&keys, "infra").await.unwrap();
    assert_eq!(used(new).await, Some(db.now()));
    db.store().credential_remove(new, by()).await.unwrap();
    assert_eq!(keys.for_api(&repo("infra")).await.unwrap().unwrap().id, old);
}

async fn an_ssh_key_is_used_for_git_of_its_repository_alone(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let ssh = |port| SshAccess {
        user: "git".to_owned(),
        port,
        key: Secret::new(SSH_KEY),
        known_hosts: format!("[github.com]:{port} {HOST_KEY}"),
    };
    let old = keys
        .add(
            &net,
            &url("infra"),
            &GitAccess::Ssh(ssh(2222)),
            (Rights::Whole, by()),
        )
        .await
        .unwrap()
        .id;
    db.clock.advance(Duration::from_mins(1));
    let new = keys
        .add(
            &net,
            &url("infra"),
            &GitAccess::Ssh(ssh(2223)),
            (Rights::Whole, by()),
        )
        .await
        .unwrap()
        .id;
    // A newer token does not replace the key, and the key cannot be used for the API.
    db.clock.advance(Duration::from_mins(1));
    add(&keys, &net, "labs", TOKEN).await;
    assert_eq!(secret_for(&keys, "infra").await.unwrap(), None);
    add(&keys, &net, "infra", TOKEN).await;
    assert_eq!(
        secret_for(&keys, "infra").await.unwrap().as_deref(),
        Some(TOKEN)
    );
    let used = |id| async move {
        db.store()
            .credential_get(id)
            .await
            .unwrap()
            .unwrap()
            .used_at
    };
    assert_eq!(used(new).await, None);
    assert_eq!(keys.for_ssh(&repo("Infra")).await.unwrap(), Some(ssh(2223)));
    assert_eq!((used(old).await, used(new).await), (None, Some(db.now())));
    for other in ["labs", "infra-2"] {
        assert_eq!(keys.for_ssh(&repo(other)).await.unwrap(), None, "{other}");
    }
    db.store().credential_remove(new, by()).await.unwrap();
    assert_eq!(keys.for_ssh(&repo("infra")).await.unwrap(), Some(ssh(2222)));
    db.store().credential_remove(old, by()).await.unwrap();
    assert_eq!(keys.for_ssh(&repo("infra")).await.unwrap(), None);
}

async fn secrets_are_nowhere_in_the_database(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    let id = add(&keys, &net, "infra", TOKEN).await;
    let sealed = db
        .store()
        .credential_sealed(id)
        .await
        .unwrap()
        .unwrap()
        .sealed
        .bytes;
    assert!(
        !sealed
            .windows(8)
            .any(|part| TOKEN.as_bytes().windows(8).any(|secret| secret == part))
    );
    let row = format!("{:?}", db.store().credential_get(id).await.unwrap());
    let events = format!("{:?}", db.store().lock_event_list(50).await.unwrap());
    assert!(
        !row.contains(TOKEN) && !events.contains(TOKEN),
        "{row} {events}"
    );
}

async fn a_row_that_was_tampered_with_does_not_open(db: &TestDb) {
    let (net, keys) = (owner(db, "net").await, with_keys(db, &[("a", 1), ("b", 2)]));
    let (one, two) = (
        add(&keys, &net, "infra", TOKEN).await,
        add(&keys, &net, "labs", TOKEN).await,
    );
    // Somebody with the password of the database copies the secret of one row to another.
    let steal = format!(
        "UPDATE credentials SET secret = (SELECT secret FROM credentials WHERE id = '{one}') WHERE id = '{two}'"
    );
    execute(db, &steal).await;
    let refused = secret_for(&keys, "labs").await.unwrap_err();
    let AccessError::Sealed {
        id,
        reason: OpenError::Refused(key),
    } = &refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((*id, key.as_str()), (two, "a"));
    execute(
        db,
        &format!("UPDATE credentials SET key_id = 'b' WHERE id = '{one}'"),
    )
    .await;
    assert!(secret_for(&keys, "infra").await.is_err());
    execute(
        db,
        &format!("UPDATE credentials SET key_id = 'gone' WHERE id = '{one}'"),
    )
    .await;
    assert_eq!(
        secret_for(&keys, "infra").await.unwrap_err().to_string(),
        format!(
            "cannot decrypt the credential {one} of the repository: it is encrypted with the key `gone`, which is not \
             in the file of --encryption-key-file. Add the line of that key again, below the first line"
        )
    );
    let none = CredentialStore::new(db.store().clone(), db.ids.clone(), None);
    assert!(
        secret_for(&none, "infra").await.is_err(),
        "without keys it is not as if there were no credential"
    );
}

async fn another_key_is_given_in_batches_and_an_interruption_loses_nothing(db: &TestDb) {
    let (net, old) = (owner(db, "net").await, with_keys(db, &[("a", 1)]));
    for n in 0..130 {
        add(&old, &net, &format!("repo-{n}"), TOKEN).await;
    }
    let both = with_keys(db, &[("b", 2), ("a", 1)]);
    let interrupted = both.clone();
    let cut_off = tokio::spawn(async move {
        interrupted
            .rotate(|done| panic!("interrupted on purpose after {done}"))
            .await
    });
    assert!(cut_off.await.unwrap_err().is_panic());
    let with = |key: &str| {
        let key = key.to_owned();
        async move {
            let rows = db
                .store()
                .credential_list(None, None, None, 1000)
                .await
                .unwrap();
            rows.iter().filter(|row| row.key_id.as_str() == key).count()
        }
    };
    assert_eq!((with("a").await, with("b").await), (30, 100));
    assert_eq!(
        secret_for(&both, "repo-0").await.unwrap().as_deref(),
        Some(TOKEN)
    );
    let mut told = Vec::new();
    let rotation = both.rotate(|done| told.push(done)).await.unwrap();
    assert!(rotation.is_complete());
    assert_eq!(
        (rotation.resealed, told, with("a").await),
        (30, vec![30], 0)
    );
    let only_new = with_keys(db, &[("b", 2)]);
    for n in [0, 99, 100, 129] {
        assert_eq!(
            secret_for(&only_new, &format!("repo-{n}"))
                .await
                .unwrap()
                .as_deref(),
            Some(TOKEN)
        );
    }
    assert_eq!(only_new.rotate(|_| {}).await.unwrap().resealed, 0);
}

async fn what_cannot_be_read_is_named_and_the_rest_gets_the_key(db: &TestDb) {
    let net = owner(db, "net").await;
    let lost = add(&with_keys(db, &[("lost", 9)]), &net, "infra", TOKEN).await;
    add(&with_keys(db, &[("a", 1)]), &net, "labs", TOKEN).await;
    let keys = with_keys(db, &[("b", 2), ("a", 1)]);
    let rotation = keys.rotate(|_| {}).await.unwrap();
    assert_eq!(
        (
            rotation.resealed,
            rotation.unreadable,
            rotation.is_complete()
        ),
        (1, 1, false)
    );
    assert_eq!(
        rotation.named,
        [(lost, OpenError::MissingKey("lost".parse().unwrap()))]
    );
    assert_eq!(
        secret_for(&keys, "labs").await.unwrap().as_deref(),
        Some(TOKEN)
    );
}
