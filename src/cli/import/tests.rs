//! The command in this process, on files of `tests/fixtures/bolt` and a SQLite database.

use insta::assert_snapshot;

use super::super::ExitStatus;
use super::super::tests::call;

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/bolt/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code and output of an import into a database of its own, with paths replaced.
fn import(dir: &std::path::Path, file: &str, more: &[&str]) -> (ExitStatus, String) {
    let (file, data) = (fixture(file), dir.display().to_string());
    let mut args = vec!["import", "atlantis", "--boltdb", &file, "--data-dir", &data];
    args.extend(more);
    let (exit, out, err) = call(&args);
    let text = format!("{out}{err}")
        .replace(&data, "DATA")
        .replace(env!("CARGO_MANIFEST_DIR"), "SRC");
    (exit, text)
}

#[test]
fn a_trial_writes_nothing_and_says_what_would_happen() {
    let dir = tempfile::tempdir().unwrap();
    let (exit, out) = import(dir.path(), "current.db", &[]);
    assert_eq!(exit, ExitStatus::Success, "{out}");
    assert_snapshot!(out, @r#"
    From  SRC/tests/fixtures/bolt/current.db
    To    sqlite:DATA/lockkeeper.db (does not exist yet)

    Locks: 3 would be imported
      would be imported  git.example.com/acme/web/app/default           #3   eve  2026-02-27 13:03 UTC
      would be imported  github.com/acme/infra/./staging                #12  ada  2026-02-27 13:03 UTC
      would be imported  github.com/acme/infra/infra/net/default (net)  #12  bob  2026-02-27 13:03 UTC

    Apply lock: all applies are stopped
      would be imported  since 2026-02-27 11:03 UTC, by somebody in Atlantis: taken over from Atlantis, where applies were stopped

    Pull requests: 1
      would be imported  github.com/acme/infra#12
                           plan again     dir infra/net workspace default project net: planned
                           nothing to do  dir . workspace staging: applied
                           nothing to do  dir dns workspace default: planned_no_changes

    Plan files are not imported. Plan projects that are marked "plan again" before you apply them.

    Nothing was written. To write it, run the same command with --write.
    "#);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_written_is_there_the_second_time() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        import(dir.path(), "current.db", &["--write"])
            .1
            .contains("Locks: 3 imported\n")
    );
    let (exit, out) = import(dir.path(), "current.db", &["--write"]);
    assert_eq!(exit, ExitStatus::Success, "{out}");
    assert_snapshot!(out, @r#"
    From  SRC/tests/fixtures/bolt/current.db
    To    sqlite:DATA/lockkeeper.db

    Locks: 3 already there
      already there  git.example.com/acme/web/app/default           #3   eve  2026-02-27 13:03 UTC
      already there  github.com/acme/infra/./staging                #12  ada  2026-02-27 13:03 UTC
      already there  github.com/acme/infra/infra/net/default (net)  #12  bob  2026-02-27 13:03 UTC

    Apply lock: all applies are stopped
      already there  since 2026-02-27 11:03 UTC, by somebody in Atlantis: taken over from Atlantis, where applies were stopped

    Pull requests: 1
      already there      github.com/acme/infra#12
                           plan again     dir infra/net workspace default project net: planned
                           nothing to do  dir . workspace staging: applied
                           nothing to do  dir dns workspace default: planned_no_changes

    Plan files are not imported. Plan projects that are marked "plan again" before you apply them.

    Everything was written, and read back without a difference.
    "#);
    let (exit, trial) = import(dir.path(), "current.db", &[]);
    assert_eq!(exit, ExitStatus::Success);
    assert!(trial.contains("Locks: 3 already there"), "{trial}");
}

#[test]
fn old_keys_are_the_same_locks() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        import(dir.path(), "old.db", &["--write"])
            .1
            .contains("Locks: 2 imported\n")
    );
    let (_, out) = import(dir.path(), "current.db", &[]);
    assert!(
        out.contains("Locks: 1 would be imported, 2 already there"),
        "{out}"
    );
}

#[test]
fn what_cannot_be_taken_over_fails_the_whole_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let (exit, out) = import(dir.path(), "broken.db", &["--write"]);
    assert_eq!(exit, ExitStatus::Failure, "{out}");
    assert_snapshot!(out, @"
    From  SRC/tests/fixtures/bolt/broken.db
    To    sqlite:DATA/lockkeeper.db

    Locks: 3 NOT IMPORTED, 1 skipped
      skipped       acme/infra/api/default/net
                    it belongs to no pull request: Atlantis' API took the lock for a request that has ended
      NOT IMPORTED  acme/infra/elsewhere/default/
                    its key and its value do not match; the value is about `acme/infra/infra/net/default/net`
      NOT IMPORTED  acme/infra/infra/net/default/net
                    it does not name the host of the repository; name the host with --host
      NOT IMPORTED  acme/infra/x/default/
                    its value cannot be read: key must be a string at line 1 column 2

    Pull requests: 1
      skipped            github.com::acme/infra::12: the pull request was closed

    Some records cannot be imported. The reasons are above.

    Everything was written, and read back without a difference.
    ");
    let (_, out) = import(
        dir.path(),
        "broken.db",
        &["--host", "github.com", "--write"],
    );
    assert!(out.contains("1 imported"), "{out}");
}

#[test]
fn programs_get_json() {
    let dir = tempfile::tempdir().unwrap();
    let (exit, out) = import(dir.path(), "current.db", &["--json"]);
    assert_eq!(exit, ExitStatus::Success);
    assert_snapshot!(out, @r#"
    {
      "from": "SRC/tests/fixtures/bolt/current.db",
      "to": "sqlite:DATA/lockkeeper.db (does not exist yet)",
      "written": false,
      "verified": null,
      "wrong": [],
      "locks": [
        {
          "atlantis_key": "acme/web/app/default/",
          "host": "git.example.com",
          "repo": "acme/web",
          "dir": "app",
          "workspace": "default",
          "project": null,
          "pull": 3,
          "pull_url": "https://git.example.com/acme/web/pull/3",
          "holder": "eve",
          "since": "2026-02-27T13:03:05.123456789Z",
          "outcome": "taken",
          "reason": null
        },
        {
          "atlantis_key": "acme/infra/./staging/",
          "host": "github.com",
          "repo": "acme/infra",
          "dir": ".",
          "workspace": "staging",
          "project": null,
          "pull": 12,
          "pull_url": "https://github.com/acme/infra/pull/12",
          "holder": "ada",
          "since": "2026-02-27T13:03:05.123456789Z",
          "outcome": "taken",
          "reason": null
        },
        {
          "atlantis_key": "acme/infra/infra/net/default/net",
          "host": "github.com",
          "repo": "acme/infra",
          "dir": "infra/net",
          "workspace": "default",
          "project": "net",
          "pull": 12,
          "pull_url": "https://github.com/acme/infra/pull/12",
          "holder": "bob",
          "since": "2026-02-27T13:03:05.123456789Z",
          "outcome": "taken",
          "reason": null
        }
      ],
      "pulls": [
        {
          "pull": "github.com/acme/infra#12",
          "url": "https://github.com/acme/infra/pull/12",
          "outcome": "taken",
          "reason": null,
          "projects": [
            {
              "dir": "infra/net",
              "workspace": "default",
              "project": "net",
              "status": "planned",
              "then": "plan_again"
            },
            {
              "dir": ".",
              "workspace": "staging",
              "project": null,
              "status": "applied",
              "then": "nothing"
            },
            {
              "dir": "dns",
              "workspace": "default",
              "project": null,
              "status": "planned_no_changes",
              "then": "nothing"
            }
          ]
        }
      ],
      "apply_lock": {
        "outcome": "taken",
        "holder": "somebody in Atlantis",
        "since": "2026-02-27T11:03:05Z",
        "reason": "taken over from Atlantis, where applies were stopped"
      }
    }
    "#);
}

#[test]
fn what_cannot_be_read_is_said_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.db");
    std::fs::write(&cut, &std::fs::read(fixture("many.db")).unwrap()[..9000]).unwrap();
    let cut = cut.display().to_string();
    for (args, expected) in [
        (
            vec!["--boltdb", "/nowhere/atlantis.db"],
            "cannot import /nowhere/atlantis.db: the file cannot be read: No such file",
        ),
        (vec!["--boltdb", "/"], "cannot import /atlantis.db"),
        (
            vec!["--boltdb", &cut],
            "the file is truncated: it has 9000 bytes of at least",
        ),
        (
            vec!["--boltdb", &fixture("strange.db")],
            "but not one of Atlantis",
        ),
        (
            vec!["--boltdb", &fixture("generate.go")],
            "the file is not a bbolt database",
        ),
        (
            vec!["--redis", "redis://:hunter2@127.0.0.1:1/0"],
            "redis://127.0.0.1:1/0 cannot be reached",
        ),
        (
            vec!["--redis", "rediss://:hunter2@127.0.0.1:1/0"],
            "rediss://127.0.0.1:1/0 cannot be reached",
        ),
        (
            vec!["--redis", "http://:hunter2@x"],
            "the text is not the URL of a Redis",
        ),
        (
            vec!["--redis-url-file", "/nowhere"],
            "--redis-url-file: cannot read /nowhere",
        ),
    ] {
        let data = dir.path().display().to_string();
        let all: Vec<&str> = ["import", "atlantis", "--data-dir", &data]
            .into_iter()
            .chain(args)
            .collect();
        let (exit, _, err) = call(&all);
        assert_eq!(exit, ExitStatus::Failure, "{err}");
        assert!(
            err.contains(expected) && !err.contains("hunter2"),
            "{expected}: {err}"
        );
    }
}

#[test]
fn a_wrong_call_is_a_usage_error() {
    for args in [
        vec!["import"],
        vec!["import", "atlantis"],
        vec!["import", "atlantis", "--boltdb", "x", "--redis", "y"],
        vec!["import", "atlantis", "--boltdb", "x", "--host", "a b"],
        vec![
            "import",
            "atlantis",
            "--boltdb",
            "x",
            "--database-url",
            "mysql://x",
        ],
    ] {
        assert_eq!(call(&args).0, ExitStatus::Usage, "{args:?}");
    }
}
