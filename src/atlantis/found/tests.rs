//! Tests the conversion of records that Atlantis writes, and of invalid ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn lock_json() -> Value {
    json!({
        "Project": {"ProjectName": "net", "RepoFullName": "Acme/Infra", "Path": "infra/net"},
        "Pull": {
            "Num": 12, "URL": "https://git.example.com/Acme/Infra/pull/12", "Author": "ada", "State": 0,
            "BaseRepo": {"FullName": "Acme/Infra", "VCSHost": {"Hostname": "git.example.com", "Type": 0}},
        },
        "User": {"Username": "bob", "Teams": null},
        "Workspace": "default",
        "Time": "2026-02-27T14:03:05.123456789+01:00",
    })
}

fn understand(
    locks: &[(&str, Value)],
    pulls: &[(&str, Value)],
    host: Option<&str>,
) -> AtlantisRecords {
    let entries = |list: &[(&str, Value)]| {
        list.iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), value.to_string().into_bytes()))
            .collect()
    };
    let contents = Contents {
        locks: entries(locks),
        pulls: entries(pulls),
        apply_lock: None,
    };
    AtlantisRecords::understand(
        &contents,
        host.map(|host| host.parse().unwrap()).as_ref(),
        DateTime::UNIX_EPOCH,
    )
}

fn why(key: &str, value: Value, host: Option<&str>) -> String {
    let found = understand(&[(key, value)], &[], host);
    assert_eq!(found.locks, []);
    found.unusable[0].why.to_string()
}

fn with(path: &str, value: Value) -> Value {
    let mut lock = lock_json();
    *lock.pointer_mut(path).unwrap() = value;
    lock
}

const KEY: &str = "Acme/Infra/infra/net/default/net";

#[test]
fn a_lock_is_understood_under_both_forms_of_its_key() {
    for key in [KEY, "Acme/Infra/infra/net/default"] {
        let found = understand(&[(key, lock_json())], &[], None);
        let lock = &found.locks[0];
        assert_eq!(lock.lock_key().to_string(), "acme/infra/infra/net/default");
        assert_eq!(lock.pull.to_string(), "git.example.com/acme/infra#12");
        assert_eq!(
            lock.project.name.as_ref().map(ProjectName::as_str),
            Some("net")
        );
        assert_eq!(lock.holder, "bob");
        assert_eq!(
            lock.taken_at.unwrap().to_rfc3339(),
            "2026-02-27T13:03:05.123456789+00:00"
        );
    }
}

#[test]
fn the_host_is_the_one_on_record_else_the_one_of_the_address_else_the_flag() {
    let nameless = with("/Pull/BaseRepo/VCSHost/Hostname", json!(""));
    let mut bare = nameless.clone();
    bare["Pull"]["URL"] = json!("");
    for (lock, flag, expected) in [
        (lock_json(), Some("github.com"), "git.example.com"),
        (nameless, Some("github.com"), "git.example.com"),
        (bare.clone(), Some("github.com"), "github.com"),
    ] {
        let found = understand(&[(KEY, lock)], &[], flag);
        assert_eq!(found.locks[0].pull.repo.host().as_str(), expected);
    }
    assert_eq!(
        why(KEY, bare, None),
        "it does not name the host of the repository; name the host with --host"
    );
}

#[test]
fn what_is_not_on_record_is_filled_in_with_care() {
    let mut lock = with("/User/Username", json!(""));
    lock["Time"] = json!("0001-01-01T00:00:00Z");
    lock["Pull"]["URL"] = json!("javascript:alert(1)");
    let found = understand(&[(KEY, lock)], &[], None);
    assert_eq!(
        (found.locks[0].holder.as_str(), found.locks[0].taken_at),
        ("ada", None)
    );
    assert_eq!(
        found.locks[0].pull_url,
        "https://git.example.com/acme/infra/pull/12"
    );
}

#[test]
fn what_cannot_be_used_says_why() {
    let outside = "Acme/Infra/../x/default/net";
    for (key, value, expected) in [
        (
            KEY,
            with("/Pull/Num", json!(-3)),
            "it belongs to no pull request",
        ),
        (
            KEY,
            with("/Pull/Num", json!(0)),
            "it does not name its pull request",
        ),
        (
            "Acme/Infra/x/default/",
            lock_json(),
            "the value is about `Acme/Infra/infra/net/default/net`",
        ),
        (
            "Acme/Infra/x/default/",
            json!({}),
            "its key and its value do not match",
        ),
        (
            outside,
            with("/Project/Path", json!("../x")),
            "`../x` leaves the repository",
        ),
        (
            KEY,
            with("/Project/Path", json!(["x"])),
            "its value cannot be read: invalid type",
        ),
        (
            KEY,
            with("/Pull/BaseRepo/VCSHost/Hostname", json!("a b")),
            "`a b` is not a repository",
        ),
    ] {
        let said = why(key, value, None);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(
        UnusableReason::NotOfAPull.is_harmless()
            && !UnusableReason::NoPull.is_harmless()
            && !UnusableReason::NoHost.is_harmless()
    );
}

#[test]
fn the_oldest_lock_comes_first() {
    let mut older = with("/Project/ProjectName", json!("a"));
    older["Time"] = json!("2025-01-01T00:00:00Z");
    let found = understand(
        &[
            (KEY, lock_json()),
            ("Acme/Infra/infra/net/default/a", older),
        ],
        &[],
        None,
    );
    let names: Vec<_> = found
        .locks
        .iter()
        .map(|lock| lock.project.name.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(names, ["a", "net"]);
}

#[test]
fn statuses_say_what_is_left_to_do() {
    let project = |status: i64| json!({"Workspace": "default", "RepoRelDir": ".", "ProjectName": "", "Status": status});
    let pull = |state: i64| {
        let mut pull = lock_json()["Pull"].clone();
        pull["State"] = json!(state);
        json!({"Pull": pull, "Projects": (0..9).map(project).collect::<Vec<_>>()})
    };
    let key = "git.example.com::Acme/Infra::12";
    let found = understand(&[], &[(key, pull(0))], None);
    let words: Vec<String> = found.pulls[0]
        .projects
        .iter()
        .map(|project| format!("{} {}", project.status, project.then()))
        .collect();
    let expected = [
        "plan_errored plan_again",
        "planned plan_again",
        "planned_no_changes nothing",
        "apply_errored plan_again",
        "applied nothing",
        "plan_discarded nothing",
        "policy_check_errored plan_again",
        "policy_check_passed plan_again",
        "unknown plan_again",
    ];
    assert_eq!(words, expected);
    assert_eq!(
        understand(&[], &[(key, pull(1))], None).unusable[0].why,
        UnusableReason::Closed
    );
    assert!(matches!(
        understand(&[], &[("x::y/z::1", pull(0))], None).unusable[0].why,
        UnusableReason::KeyDiffers(_)
    ));
}

#[test]
fn a_stopped_apply_stays_stopped_whatever_its_record_says() {
    for (value, since) in [
        (
            r#"{"LockMetadata":{"UnixTime":1772190185},"CommandName":0}"#,
            "2026-02-27T11:03:05+00:00",
        ),
        ("broken", "1970-01-01T00:00:00+00:00"),
        (
            r#"{"LockMetadata":{"UnixTime":9223372036854775807}}"#,
            "1970-01-01T00:00:00+00:00",
        ),
    ] {
        let contents = Contents {
            apply_lock: Some(value.as_bytes().to_vec()),
            ..Contents::default()
        };
        let found = AtlantisRecords::understand(&contents, None, DateTime::UNIX_EPOCH);
        assert_eq!(
            found.apply_lock.unwrap().taken_at.to_rfc3339(),
            since,
            "{value}"
        );
    }
}

proptest! {
    #[test]
    fn every_record_is_either_understood_or_said_to_be_unusable(
        locks in prop::collection::vec(("\\PC{0,30}", "\\PC{0,60}"), 0..5),
        pulls in prop::collection::vec(("\\PC{0,30}", "\\PC{0,60}"), 0..5),
    ) {
        let bytes = |(key, value): (String, String)| (key.into_bytes(), value.into_bytes());
        let entries = |list: Vec<(String, String)>| list.into_iter().map(bytes).collect();
        let contents = Contents { locks: entries(locks), pulls: entries(pulls), apply_lock: None };
        let found = AtlantisRecords::understand(&contents, None, DateTime::UNIX_EPOCH);
        let seen = found.locks.len() + found.pulls.len() + found.unusable.len();
        prop_assert_eq!(seen, contents.locks.len() + contents.pulls.len());
    }
}
