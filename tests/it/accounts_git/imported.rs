//! Accounts from a Gerrit server, on a running server: parts without effect may stay, and new ones are refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::accounts_fixture::{ADMIN, AccountsFixture};
use crate::support::gerrit::{Gerrit, WATCHES};
use crate::support::program::lockkeeper;

/// Imports the accounts, and returns the credentials of Ben.
fn import(fixture: &mut AccountsFixture) -> String {
    let copy = fixture.dir.path().join("gerrit.git");
    Gerrit::after_years().write(&copy);
    let copy = copy.to_str().unwrap();
    let database = fixture.server.database();
    let imported = lockkeeper(&["accounts", "import", "git"], &database, &[copy], &[]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    fixture.has_unusable = true;
    let password = fixture.accounts("password", &["ben"]);
    assert_eq!(password.code, 0, "{}", password.err);
    format!("ben:{}", password.out.trim())
}

async fn get(fixture: &AccountsFixture, credentials: &str, path: &str) -> Value {
    let answer = fixture.api(Method::GET, credentials, path).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_passes_over_what_has_no_effect() {
    let mut fixture = AccountsFixture::open().await;
    let ben = import(&mut fixture);
    let general = get(&fixture, &ben, "/self/preferences").await;
    assert_eq!(
        (&general["theme"], &general["changes_per_page"]),
        (&json!("AUTO"), &json!(25))
    );
    let diff = get(&fixture, &ben, "/self/preferences.diff").await;
    assert_eq!(
        (&diff["context"], &diff["tab_size"]),
        (&json!(10), &json!(4))
    );
    let whole = get(&fixture, ADMIN, "/ann/preferences.diff").await;
    assert_eq!(whole["context"], -1);
    let keys = get(&fixture, &ben, "/self/sshkeys").await;
    let valid = keys.as_array().unwrap().iter().map(|key| &key["valid"]);
    assert_eq!(
        valid.collect::<Vec<_>>(),
        [false, false, false, true, false]
    );
    // Two of these files cannot be read at all.
    for path in [
        "preferences",
        "preferences.diff",
        "watched.projects",
        "sshkeys",
    ] {
        get(&fixture, ADMIN, &format!("/1000002/{path}")).await;
    }
    let new = json!([{"project": "infra", "filter": "branch:dev", "notify_all_comments": true}]);
    let added = fixture.api(Method::POST, &ben, "/self/watched.projects");
    let added = added.json(&new).send().await.unwrap();
    assert_eq!(added.status(), 200);
    let watches: Value = added.json().await.unwrap();
    assert_eq!(watches.as_array().unwrap().len(), 2, "{watches}");
    let clone = fixture.clone_of(&ben, "ben");
    let file = std::fs::read_to_string(clone.dir.join("watch.config")).unwrap();
    let with_new = WATCHES.replace(
        "\tnotify = branch:main\n",
        "\tnotify = branch:main\n\tnotify = branch:dev [ALL_COMMENTS]\n",
    );
    let mut lines: Vec<&str> = file.lines().collect();
    let mut wanted: Vec<&str> = with_new.lines().collect();
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "{file}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_keeps_what_has_no_effect_and_adds_nothing_to_it() {
    let mut fixture = AccountsFixture::open().await;
    let ben = import(&mut fixture);
    let clone = fixture.clone_of(&ben, "ben");
    let push = ["origin", "HEAD:refs/users/self"];
    let mine = WATCHES.replace("branch:stable", "branch:old");
    clone.commit("watch.config", &mine);
    let pushed = clone.push(&push);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    assert!(
        pushed
            .err
            .contains("remote: warning: watch.config:3: unknown filter `message:`"),
        "{}",
        pushed.err
    );
    let keys = std::fs::read_to_string(clone.dir.join("authorized_keys")).unwrap();
    for (file, text, line) in [
        (
            "watch.config",
            mine.replace("message:foo", "message:bar"),
            "remote: error: watch.config:3: unknown filter `message:`",
        ),
        (
            "watch.config",
            format!("{mine}\tnotify = owner:cyd [ALL]\n"),
            "remote: error: watch.config:13: `owner:` cannot be `cyd`",
        ),
        (
            "preferences.config",
            "[diff]\n\tcontext = 5001\n".to_owned(),
            "remote: error: preferences.config:2: `context` cannot be `5001`",
        ),
        (
            "authorized_keys",
            format!("{keys}ssh-dss AAAAB3 ben@new\n"),
            "remote: error: authorized_keys:8: DSA keys are not accepted",
        ),
    ] {
        clone.commit(file, &text);
        let refused = clone.refused(&push);
        assert!(refused.contains(line), "{refused}");
        clone.git(&["reset", "--quiet", "--hard", "HEAD~"]);
    }
    // Fewer of them are fine.
    let fewer = mine.lines().filter(|line| !line.contains("message:"));
    let fewer: Vec<String> = fewer.map(|line| format!("{line}\n")).collect();
    clone.commit("watch.config", &fewer.concat());
    let pushed = clone.push(&push);
    assert_eq!(pushed.code, 0, "{}", pushed.err);

    // Notes that are no external IDs can be removed.
    let ids = fixture.empty("ids", "ops@lockkeeper.test");
    ids.git(&["remote", "add", "origin", &fixture.url(ADMIN)]);
    ids.git(&["fetch", "--quiet", "origin", "refs/meta/external-ids"]);
    ids.git(&["checkout", "--quiet", "FETCH_HEAD"]);
    let files = ids.git(&["ls-files"]);
    let unusable = [
        "21449cb17cccada8363784ed69aba400797970ae",
        "aa9df97ce5be0748d00c2ffa4f3bbd44696c9606",
        "b0aa45292408d437ebda267d099eab02704808b3",
    ];
    for name in unusable {
        let mut paths = files.lines();
        let path = paths.find(|path| path.replace('/', "") == name).unwrap();
        ids.git(&["rm", "--quiet", path]);
    }
    ids.git(&["commit", "--quiet", "--message", "Remove Notes"]);
    let pushed = ids.push(&["origin", "HEAD:refs/meta/external-ids"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let checked = fixture.accounts("check", &[]);
    assert_eq!(checked.code, 0, "{}", checked.out);
    for name in unusable {
        assert!(!checked.out.contains(name), "{}", checked.out);
    }
}
