//! Stories of accounts on a running server: people clone, fetch and push with unchanged git, and administrators use
//! `lockkeeper accounts`.

mod abuse;
mod access;
mod external_ids;
mod imported;

use insta::assert_snapshot;

use self::abuse::{PUSH_TYPE, push_body};
use crate::support::accounts_fixture::{
    ADMIN, AccountsFixture, Clone, WATCH, end_late, git, object_id, words_of,
};
use crate::support::db::{Backend, TestDb, execute_on, story};
use crate::support::program::lockkeeper;
use crate::support::rows::account_objects;

story!(
    of_two_pushes_at_the_same_moment_one_is_stored,
    nothing_of_a_refused_push_is_kept,
);

/// Replaces ids of commits, which differ in each run.
fn without_ids(said: &str) -> String {
    let mut words = String::new();
    for word in said.split_inclusive(char::is_whitespace) {
        let is_id =
            word.trim_end().len() == 40 && word.trim_end().bytes().all(|b| b.is_ascii_hexdigit());
        words.push_str(if is_id { "COMMIT " } else { word });
    }
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_clones_their_account_edits_it_and_pushes_it_back() {
    let fixture = AccountsFixture::open().await;
    let (number, jdoe) = fixture.person("jdoe");
    let (_, _kim) = fixture.person("kim");
    assert_eq!(number, "1000000");

    let clone = fixture.clone_of(&jdoe, "jdoe");
    assert_eq!(
        clone.git(&["show", "HEAD:account.config"]),
        "[account]\n\tpreferredEmail = jdoe@example.com\n"
    );
    clone.commit("watch.config", WATCH);
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);

    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(
        shown["watches"][0]["project"], "github.com/acme/infra",
        "{shown}"
    );
    // Later changes continue the history of the person.
    let set = fixture.accounts("set", &["jdoe", "--status", "OOO"]);
    assert_eq!(set.code, 0, "{}", set.err);
    let history = fixture.accounts("history", &["jdoe"]).out;
    let messages: Vec<&str> = history
        .lines()
        .map(|line| line.rsplit("  ").next().unwrap())
        .collect();
    assert_eq!(
        messages,
        [
            "Change Properties",
            "Edit",
            "Generate HTTP Password",
            "Create Account"
        ]
    );
    let line = fixture.accounts("list", &[]).out;
    assert_eq!(
        line,
        "1000000 jdoe <jdoe@example.com> (OOO)\n1000001 kim <kim@example.com>\n"
    );

    // A copy has everything, and keeps every rule.
    let copy = fixture.mirror(ADMIN, "copy.git");
    let refs = git(&copy, &["for-each-ref", "--format=%(refname)"]).out;
    assert_eq!(
        refs,
        "refs/meta/config\nrefs/meta/external-ids\nrefs/sequences/accounts\nrefs/users/00/1000000\nrefs/users/01/1000001\n"
    );
    let checked = crate::accounts::accounts(&["check", "--git", copy.to_str().unwrap()]);
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (0, ""),
        "{}",
        checked.err
    );
}

/// A copy without the branch of external IDs is one of somebody who may not read it, and is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_accounts_without_external_ids_is_whole() {
    let fixture = AccountsFixture::open().await;
    let created = fixture.accounts("create", &["--full-name", "Olga Ops"]);
    assert_eq!(created.out, "1000000\n", "{}", created.err);
    let copy = fixture.mirror(ADMIN, "copy.git");
    let copy = copy.to_str().unwrap();
    let checked = crate::accounts::accounts(&["check", "--git", copy]);
    assert_eq!((checked.code, checked.out.as_str()), (0, ""));
    let fresh = TestDb::new(Backend::Sqlite).await;
    let imported = lockkeeper(&["accounts", "import", "git"], &fresh.url, &[copy], &[]);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "the row in the database has other properties than the branch")]
async fn no_story_ends_with_a_broken_rule() {
    let fixture = AccountsFixture::open().await;
    fixture.person("jdoe");
    let damage = "UPDATE accounts SET full_name = 'x'";
    execute_on(&fixture.server.database(), damage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_breaks_a_rule_is_refused_with_the_way_out() {
    let fixture = AccountsFixture::open().await;
    let (number, jdoe) = fixture.person("jdoe");
    fixture.person("kim");
    let before = git(&fixture.mirror(ADMIN, "before.git"), &["for-each-ref"]).out;
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let start = clone.git(&["rev-parse", "HEAD"]);
    let start = start.trim();
    let own = format!("HEAD:refs/users/00/{number}");
    let mut said = String::new();
    let mut attempt = |what: &str, clone: &Clone, args: &[&str]| {
        let refused = without_ids(&clone.refused(args));
        said.extend(["# ", what, "\n", &refused, "\n\n"]);
        clone.git(&["reset", "--quiet", "--hard", start]);
    };

    clone.commit("account.config", "[account\n");
    attempt(
        "not a config file",
        &clone,
        &["origin", "HEAD:refs/users/self"],
    );
    clone.commit(
        "account.config",
        "[account]\n\tpreferredEmail = kim@example.com\n",
    );
    attempt("a foreign address", &clone, &["origin", &own]);
    clone.commit("account.config", "[account]\n\tactive = false\n");
    attempt(
        "locking oneself out",
        &clone,
        &["origin", "HEAD:refs/users/self"],
    );
    clone.commit(
        "watch.config",
        "[project \"x\"]\n\tnotify = colour:red [SOMETIMES]\n",
    );
    attempt("a wrong watch", &clone, &["origin", "HEAD:refs/users/self"]);
    clone.commit("authorized_keys", "ssh-ed25519 AAAA me\n");
    attempt("a wrong key", &clone, &["origin", "HEAD:refs/users/self"]);
    clone.commit("preferences.config", "[diff]\n\ttabSize = wide\n");
    attempt(
        "a wrong preference",
        &clone,
        &["origin", "HEAD:refs/users/self"],
    );
    std::fs::write(clone.dir.join("x"), "x").unwrap();
    clone.git(&["add", "x"]);
    clone.git(&[
        "-c",
        "user.email=kim@example.com",
        "commit",
        "--quiet",
        "-m",
        "x",
    ]);
    attempt(
        "a foreign committer",
        &clone,
        &["origin", "HEAD:refs/users/self"],
    );
    clone.git(&["checkout", "--quiet", "--orphan", "other"]);
    clone.commit("y", "y");
    attempt(
        "another history",
        &clone,
        &["--force", "origin", "HEAD:refs/users/self"],
    );
    clone.git(&["checkout", "--quiet", "-B", "side", start]);
    clone.commit("side", "1");
    clone.git(&["checkout", "--quiet", "-B", "own", start]);
    clone.commit("own", "2");
    clone.git(&["merge", "--quiet", "--no-ff", "-m", "merge", "side"]);
    attempt("a merge", &clone, &["origin", "HEAD:refs/users/self"]);
    attempt(
        "another account",
        &clone,
        &["origin", "HEAD:refs/users/01/1000001"],
    );
    attempt(
        "a wrong folder",
        &clone,
        &["origin", "HEAD:refs/users/01/1000000"],
    );
    attempt(
        "an account that is not there",
        &clone,
        &["origin", "HEAD:refs/users/07/1000007"],
    );
    attempt(
        "external IDs",
        &clone,
        &["origin", "HEAD:refs/meta/external-ids"],
    );
    attempt(
        "the defaults",
        &clone,
        &["origin", "HEAD:refs/users/default"],
    );
    attempt("any other ref", &clone, &["origin", "HEAD:refs/heads/main"]);
    attempt("a removal", &clone, &["origin", ":refs/users/self"]);
    let mut tree = clone.tree("", 0);
    for _ in 0..20 {
        tree = clone.tree(&tree, 1);
    }
    let deep = clone.git(&["commit-tree", "-p", "HEAD", "-m", "deep", &tree]);
    let deep = format!("{}:refs/users/self", deep.trim());
    attempt(
        "many directories inside each other",
        &clone,
        &["origin", &deep],
    );
    // Thirty directories with thirty directories each, and so on: a few hundred bytes.
    let mut tree = clone.tree("", 0);
    for _ in 0..10 {
        tree = clone.tree(&tree, 30);
    }
    let bomb = clone.git(&["commit-tree", "-p", "HEAD", "-m", "bomb", &tree]);
    let bomb = format!("{}:refs/users/self", bomb.trim());
    attempt("directories without end", &clone, &["origin", &bomb]);
    clone.commit("watch.config", WATCH);
    attempt(
        "a good ref with a bad one",
        &clone,
        &[
            "--atomic",
            "origin",
            "HEAD:refs/users/self",
            "HEAD:refs/heads/main",
        ],
    );
    clone.commit("watch.config", WATCH);
    attempt(
        "one ref by two names",
        &clone,
        &["--atomic", "origin", "HEAD:refs/users/self", &own],
    );
    assert_snapshot!(said);
    let after = git(&fixture.mirror(ADMIN, "after.git"), &["for-each-ref"]).out;
    assert_eq!(before, after, "a refused push leaves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_at_the_objects_of_others() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    fixture.person("kim");
    let all = fixture.mirror(ADMIN, "all.git");
    let id = |name: &str| object_id(&all, name);
    let theirs = id("refs/users/01/1000001:account.config");
    let notes = id("refs/meta/external-ids");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let refs = clone.git(&["ls-remote", "origin"]);
    assert!(
        !refs.contains("external-ids") && !refs.contains("1000001"),
        "{refs}"
    );

    // An id is no key to what it names.
    for version in ["0", "2"] {
        for id in [&theirs, &notes] {
            let protocol = format!("protocol.version={version}");
            let said = git(&clone.dir, &["-c", &protocol, "fetch", "origin", id]);
            assert_ne!(said.code, 0, "{version} {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_push_goes_on_top_of_the_one_before_it() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let (laptop, desktop) = (fixture.clone_of(&jdoe, "jdoe"), {
        let dir = fixture.dir.path().join("desktop");
        let said = git(
            fixture.dir.path(),
            &["clone", "--quiet", &fixture.url(&jdoe), "desktop"],
        );
        assert_eq!(said.code, 0, "{}", said.err);
        let clone = Clone { dir };
        clone.git(&["config", "user.name", "jdoe"]);
        clone.git(&["config", "user.email", "jdoe@example.com"]);
        clone.git(&["fetch", "--quiet", "origin", "refs/users/self"]);
        clone.git(&["checkout", "--quiet", "FETCH_HEAD"]);
        clone
    });
    laptop.commit("watch.config", WATCH);
    desktop.commit("preferences.config", "[diff]\n\ttabSize = 4\n");
    assert_eq!(laptop.push(&["origin", "HEAD:refs/users/self"]).code, 0);
    let late = desktop.refused(&["origin", "HEAD:refs/users/self"]);
    assert!(late.contains("fetch first"), "{late}");
    desktop.git(&["pull", "--quiet", "--rebase", "origin", "refs/users/self"]);
    let again = desktop.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["preferences"]["diff"]["tabSize"], "4");
    assert_eq!(shown["watches"][0]["project"], "github.com/acme/infra");
}

async fn of_two_pushes_at_the_same_moment_one_is_stored(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let database = fixture.server.database();
    for round in 0..5 {
        let old = clone.tip();
        let pushes = ["laptop", "desktop"].map(|name| {
            clone.git(&["checkout", "--quiet", "--detach", &old]);
            clone.commit(name, &format!("{name} {round}"));
            let new = clone.tip();
            let body = push_body(&old, &new, &clone.pack_since(&old));
            (new, body)
        });
        let stored = account_objects(&database).await;
        // Both have signed in, and the server waits for what they push.
        let request = ("POST", "/All-Users/git-receive-pack", PUSH_TYPE);
        let [(first, one), (second, other)] = &pushes;
        let begun = (
            fixture.begin_late(request, &jdoe, one.len()).await,
            fixture.begin_late(request, &jdoe, other.len()).await,
        );
        let reports = tokio::join!(end_late(begun.0, one), end_late(begun.1, other));
        let accepted = |report: &str| report.contains("\n0017ok refs/users/self\n");
        let late = |report: &str| {
            let reason = "failed to update ref: lock failure, fetch first";
            report.contains(&format!("ng refs/users/self {reason}\n"))
        };
        let winner = match (&reports.0, &reports.1) {
            (one, other) if accepted(one) && late(other) => first,
            (one, other) if late(one) && accepted(other) => second,
            (one, other) => panic!("round {round}: {one}\n{other}"),
        };
        let listed = clone.git(&["ls-remote", "origin", "refs/users/self"]);
        assert_eq!(listed, format!("{winner}\trefs/users/self\n"));
        // A commit, a directory and a file: those of the other one are not kept.
        let now = account_objects(&database).await;
        assert_eq!(now, stored + 3, "round {round}");
        clone.git(&["checkout", "--quiet", "--detach", winner]);
    }
}

async fn nothing_of_a_refused_push_is_kept(backend: Backend) {
    let fixture = AccountsFixture::on(backend).await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let (start, database) = (clone.tip(), fixture.server.database());
    let quarantine = fixture.server.data_dir().join("all-users/pushed");
    let stored = account_objects(&database).await;
    let own = ["origin", "HEAD:refs/users/self"];
    let beside = ["HEAD:refs/heads/main"];
    let with_another = [&["--atomic"][..], &own[..], &beside[..]].concat();
    for (file, text, push, reason) in [
        // Refused for what it says, for what it changes, and for a ref beside it.
        (
            "account.config",
            "[account\n",
            &own[..],
            "invalid account configuration",
        ),
        (
            "account.config",
            "[account]\n\tactive = false\n",
            &own[..],
            "invalid account configuration",
        ),
        (
            "watch.config",
            WATCH,
            &with_another[..],
            "atomic push failed",
        ),
    ] {
        clone.commit(file, text);
        let refused = clone.refused(push);
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(account_objects(&database).await, stored, "{refused}");
        assert_eq!(std::fs::read_dir(&quarantine).unwrap().count(), 0);
        clone.git(&["reset", "--quiet", "--hard", &start]);
    }
    // The same file alone is kept: a commit, a directory and the file.
    clone.commit("watch.config", WATCH);
    let pushed = clone.push(&own);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    assert_eq!(account_objects(&database).await, stored + 3);
    assert_eq!(std::fs::read_dir(&quarantine).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing_and_tells_what_git_knows_without_the_server() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let start = clone.tip();
    let before = git(&fixture.mirror(ADMIN, "before.git"), &["for-each-ref"]).out;
    let own = "HEAD:refs/users/self";
    let dry = || {
        let said = clone.push(&["--dry-run", "--porcelain", "origin", own]);
        (said.code, said.out)
    };
    let push = || clone.push(&["--porcelain", "origin", own]);
    clone.commit("watch.config", WATCH);
    let good = dry();
    let moved = format!("{}..{}", &start[..7], &clone.tip()[..7]);
    assert!(good.1.contains(&moved), "{}", good.1);
    // git does not ask the server, whose verdict only a push brings.
    clone.commit("account.config", "[account\n");
    assert_eq!(dry().0, 0);
    let after = git(&fixture.mirror(ADMIN, "after.git"), &["for-each-ref"]).out;
    assert_eq!(before, after);
    let refused = push();
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .out
            .contains("[remote rejected] (invalid account configuration)"),
        "{}",
        refused.out
    );

    clone.git(&["reset", "--quiet", "--hard", "HEAD^"]);
    let pushed = push();
    assert_eq!((pushed.code, pushed.out), good);
    // What does not continue the branch is refused without the server.
    clone.git(&["reset", "--quiet", "--hard", &start]);
    clone.commit("x", "x");
    let behind = dry();
    let refused = push();
    assert!(
        behind.1.contains("[rejected] (non-fast-forward)"),
        "{}",
        behind.1
    );
    assert_eq!((refused.code, refused.out), behind);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_keys_are_warnings_with_the_nearest_name() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    clone.commit(
        "account.config",
        "[account]\n\tpreferredEmail = jdoe@example.com\n\tfulName = John Doe\n",
    );
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let said = words_of(&pushed);
    let warning =
        "remote: warning: account.config:3: unknown key `fulName`; did you mean `fullName`?\n";
    assert!(said.starts_with(warning), "{said}");
    // The file stays as it is.
    let there = fixture.clone_of(&jdoe, "there");
    assert_eq!(there.tip(), clone.tip());
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["name"], serde_json::Value::Null, "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_for_clients_is_made_again() {
    let fixture = AccountsFixture::open().await;
    let (number, jdoe) = fixture.person("jdoe");
    fixture.clone_of(&jdoe, "first");
    let copy = fixture
        .server
        .data_dir()
        .join(format!("all-users/{number}.git"));
    let mut cut_off = 0;
    for folder in std::fs::read_dir(copy.join("objects")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&file, "").unwrap();
            cut_off += 1;
        }
    }
    assert!(cut_off > 3, "{cut_off} objects");
    let clone = fixture.clone_of(&jdoe, "second");
    assert!(
        clone
            .git(&["show", "HEAD:account.config"])
            .contains("jdoe@example.com")
    );
    fixture.server.logged("is made again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_active_accounts_with_the_right_password_get_in() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let attempt = |credentials: &str| {
        let said = git(
            fixture.dir.path(),
            &["ls-remote", &fixture.url(credentials)],
        );
        (said.code, said.err)
    };
    assert_eq!(attempt(&jdoe).0, 0);
    assert_eq!(attempt(&jdoe.to_uppercase().replace("JDOE", "JDoe")).0, 128);
    assert_eq!(attempt("nobody:x").0, 128);
    assert_eq!(attempt("").0, 128);
    // The browser of somebody who has signed in sends nothing on behalf of another page.
    let push = format!("{}/git-receive-pack", fixture.url(ADMIN));
    let page = reqwest::Client::new()
        .post(push)
        .header("content-type", "text/plain");
    let refused = page.body("0000").send().await.unwrap();
    assert_eq!(refused.status(), 415);
    // A name of another site that leads here is no way in.
    let listing = format!("{}/info/refs?service=git-upload-pack", fixture.url(ADMIN));
    let page = reqwest::Client::new()
        .get(listing)
        .header("host", "evil.example");
    assert_eq!(page.send().await.unwrap().status(), 421);
    assert_eq!(fixture.accounts("deactivate", &["jdoe"]).code, 0);
    let (code, error) = attempt(&jdoe);
    assert_eq!(code, 128);
    assert!(error.contains("The account is inactive"), "{error}");
    assert_eq!(fixture.accounts("activate", &["jdoe"]).code, 0);
    assert_eq!(attempt(&jdoe).0, 0);
    assert_eq!(fixture.accounts("password", &["jdoe", "--remove"]).code, 0);
    assert_eq!(attempt(&jdoe).0, 128);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_with_a_cut_off_history_can_push() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.empty("shallow", "jdoe@example.com");
    let url = fixture.url(&jdoe);
    clone.git(&["fetch", "--quiet", "--depth=1", &url, "refs/users/self"]);
    clone.git(&["checkout", "--quiet", "FETCH_HEAD"]);
    assert_eq!(clone.git(&["rev-list", "--count", "HEAD"]).trim(), "1");

    clone.commit("watch.config", WATCH);
    let pushed = clone.push(&[&url, "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let history = fixture.accounts("history", &["jdoe"]).out;
    assert_eq!(history.lines().count(), 3, "{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_copy_of_the_administrator_follows_a_database_from_a_backup() {
    let fixture = AccountsFixture::open().await;
    let (number, _) = fixture.person("jdoe");
    let before = fixture.mirror(ADMIN, "before.git");
    let refs = git(&before, &["for-each-ref"]).out;
    let copy = fixture.server.data_dir().join("all-users/all.git");
    let tip = git(&before, &["rev-parse", "refs/meta/external-ids"]).out;
    let remove = |id: &str| {
        let file = copy.join(format!("objects/{}/{}", &id[..2], id[2..].trim()));
        std::fs::remove_file(file).unwrap();
    };

    // The last object in the copy is none of the database, as after a backup was restored.
    let newest = "999 0123456789012345678901234567890123456789";
    std::fs::write(copy.join("lockkeeper-last"), newest).unwrap();
    remove(&tip);
    let after = fixture.mirror(ADMIN, "after.git");
    assert_eq!(git(&after, &["for-each-ref"]).out, refs);
    // A file is lost, and nothing else says so.
    remove(&tip);
    let user = format!("refs/users/00/{number}");
    remove(&git(&before, &["rev-parse", &format!("{user}^{{tree}}")]).out);
    let healed = fixture.mirror(ADMIN, "healed.git");
    assert_eq!(git(&healed, &["for-each-ref"]).out, refs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_moves_to_another_server_with_its_password() {
    let old = AccountsFixture::open().await;
    let (number, jdoe) = old.person("jdoe");
    let copy = old.mirror(ADMIN, "copy.git");
    // Gerrit has accepted a submodule in the branch of an account.
    let user = format!("refs/users/00/{number}");
    let start = git(&copy, &["rev-parse", &user]).out;
    let start = start.trim();
    std::fs::write(
        copy.join("listing"),
        format!("160000 commit {start}\tmodule\n"),
    )
    .unwrap();
    let run = |args: &[&str]| {
        let person = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
        let said = git(&copy, &[&person[..], args].concat());
        assert_eq!(said.code, 0, "{args:?} {}", said.err);
        said.out.trim().to_owned()
    };
    let tree = run(&["-c", "alias.x=!git mktree < listing", "x"]);
    let with = run(&["commit-tree", "-p", start, "-m", "module", &tree]);
    let old_tree = format!("{start}^{{tree}}");
    let without = run(&["commit-tree", "-p", &with, "-m", "gone", &old_tree]);
    run(&["update-ref", &user, &without]);

    let new = AccountsFixture::open().await;
    let imported = lockkeeper(
        &["accounts", "import", "git"],
        &new.server.database(),
        &[copy.to_str().unwrap()],
        &[],
    );
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    let clone = new.clone_of(&jdoe, "jdoe");
    assert_eq!(clone.git(&["rev-parse", "HEAD"]).trim(), without);
    clone.commit("watch.config", WATCH);
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_an_account_has_fetched_is_a_complete_one() {
    let old = AccountsFixture::open().await;
    let (number, jdoe) = old.person("jdoe");
    let added = old.accounts("groups", &["Administrators", "--add", "jdoe"]);
    assert_eq!(added.code, 0, "{}", added.err);
    let copy = old.mirror(&jdoe, "copy.git");
    let own = git(&copy, &["rev-parse", "refs/users/self"]).out;
    let branch = format!("refs/users/00/{number}");
    assert_eq!(git(&copy, &["rev-parse", &branch]).out, own);
    let path = copy.to_str().unwrap();
    let checked = crate::accounts::accounts(&["check", "--git", path]);
    assert_eq!((checked.code, checked.out.as_str()), (0, ""));

    let new = AccountsFixture::open().await;
    let imported = lockkeeper(
        &["accounts", "import", "git"],
        &new.server.database(),
        &[path],
        &[],
    );
    assert_eq!(
        (imported.code, imported.out.as_str()),
        (0, ""),
        "{}",
        imported.err
    );
    let again = new.mirror(&jdoe, "again.git");
    let refs = ["for-each-ref"];
    assert_eq!(git(&again, &refs).out, git(&copy, &refs).out);
    // The branch of nobody who is known.
    git(&copy, &["update-ref", "-d", &branch]);
    let checked = crate::accounts::accounts(&["check", "--git", path]);
    let lost = "refs/users/self: error: it stands for the branch of the caller, and no account is at this commit";
    assert!(checked.out.contains(lost), "{}", checked.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_administrator_pushes_preferences_for_everybody() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.empty("defaults", "ops@lockkeeper.test");
    clone.git(&["remote", "add", "origin", &fixture.url(ADMIN)]);
    let push = ["origin", "HEAD:refs/users/default"];
    clone.commit("preferences.config", "[diff]\n\ttabSize = wide\n");
    let refused = clone.refused(&push);
    assert!(
        refused.contains("remote: error: preferences.config:2: "),
        "{refused}"
    );
    clone.commit("preferences.config", "[diff]\n\ttabSize = 4\n");
    let pushed = clone.push(&push);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    clone.commit("preferences.config", "[diff]\n\ttabSize = 2\n");
    let pushed = clone.push(&push);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let removed = clone.refused(&["origin", ":refs/users/default"]);
    assert!(removed.contains("prohibited"), "{removed}");
    clone.git(&["checkout", "--quiet", "--orphan", "other"]);
    clone.commit("x", "x");
    let rewritten = clone.refused(&["--force", "origin", "HEAD:refs/users/default"]);
    assert!(rewritten.contains("non-fast-forward"), "{rewritten}");

    // They hold for everybody, who can read them.
    let preferences = fixture.api(reqwest::Method::GET, &jdoe, "/self/preferences.diff");
    let preferences: serde_json::Value = preferences.send().await.unwrap().json().await.unwrap();
    assert_eq!(preferences["tab_size"], 2, "{preferences}");
    let own = fixture.clone_of(&jdoe, "jdoe");
    let listed = own.git(&["ls-remote", "origin", "refs/users/default"]);
    assert!(listed.contains("refs/users/default"), "{listed}");
}
