//! Stories of the access control: who administrates, who reads more than their own branch, and how that ends.

use std::path::Path;

use insta::assert_snapshot;

use super::without_ids;
use crate::accounts_api::see_pulls;
use crate::support::accounts_fixture::{ADMIN, AccountsFixture, Clone, WATCH, git, words_of};
use crate::support::db::execute_on;
use crate::support::program::{ProgramOutput, lockkeeper};

const REF: &str = "refs/meta/config";

/// Creates an administrator, and returns their number and their credentials.
fn administrator(fixture: &AccountsFixture, name: &str) -> (String, String) {
    let (number, credentials) = fixture.person(name);
    let added = fixture.accounts("groups", &["Administrators", "--add", name]);
    assert_eq!(added.code, 0, "{}", added.err);
    (number, credentials)
}

/// Returns a clone with the access control as it is.
fn config(fixture: &AccountsFixture, credentials: &str, email: &str, dir: &str) -> Clone {
    let clone = fixture.empty(dir, email);
    clone.git(&["remote", "add", "origin", &fixture.url(credentials)]);
    clone.git(&["fetch", "--quiet", "origin", REF]);
    clone.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    clone
}

fn push(clone: &Clone) {
    let pushed = clone.push(&["origin", &format!("HEAD:{REF}")]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
}

/// Returns the refs that somebody is shown.
fn refs(fixture: &AccountsFixture, credentials: &str) -> Vec<String> {
    let said = git(
        fixture.dir.path(),
        &["ls-remote", &fixture.url(credentials)],
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let names = said
        .out
        .lines()
        .map(|line| line.split_once('\t').unwrap().1);
    names
        .filter(|name| *name != "HEAD")
        .map(str::to_owned)
        .collect()
}

fn import(fixture: &AccountsFixture, copy: &Path) -> ProgramOutput {
    let copy = copy.to_str().unwrap();
    let database = fixture.server.database();
    lockkeeper(&["accounts", "import", "git"], &database, &[copy], &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_administrator_gives_a_group_a_look_at_all_branches_and_takes_it_away() {
    let fixture = AccountsFixture::open().await;
    let created = fixture.accounts("create", &["root", "--group", "Administrators"]);
    assert_eq!(
        (created.code, created.out.as_str()),
        (0, "1000000\n"),
        "{}",
        created.err
    );
    let password = fixture.accounts("password", &["root"]).out;
    let root = format!("root:{}", password.trim());
    let (kim, kims) = fixture.person("kim");
    fixture.person("jdoe");
    let listed = fixture.accounts("groups", &[]).out;
    assert_eq!(listed, "Administrators: 1000000 root\n");

    // A new server shows which rules hold, so that they can be changed.
    let clone = config(&fixture, &root, "1000000@lockkeeper.test", "config");
    let rules = clone.git(&["show", "HEAD:project.config"]);
    assert_snapshot!("the rules of a new server", rules);
    assert_eq!(
        refs(&fixture, &kims),
        ["refs/users/01/1000001", "refs/users/self"]
    );
    assert!(refs(&fixture, &root).contains(&"refs/meta/external-ids".to_owned()));

    clone.commit(
        "project.config",
        &format!("{rules}[access \"refs/users/*\"]\n\tread = group Auditors\n"),
    );
    clone.commit(
        "groups.config",
        &format!(
            "[group \"Administrators\"]\n\tmember = 1000000\n[group \"Auditors\"]\n\tmember = {kim}\n"
        ),
    );
    push(&clone);
    let listed = fixture.accounts("groups", &[]).out;
    assert_eq!(
        listed,
        "Administrators: 1000000 root\nAuditors: 1000001 kim\n"
    );
    assert_eq!(
        refs(&fixture, &kims),
        [
            "refs/users/00/1000000",
            "refs/users/01/1000001",
            "refs/users/02/1000002",
            "refs/users/self"
        ]
    );
    let auditor = fixture.clone_of(&kims, "auditor");
    auditor.git(&["fetch", "--quiet", "origin", "refs/users/02/1000002"]);
    let theirs = auditor.git(&["rev-parse", "FETCH_HEAD"]);
    // A look is no change.
    auditor.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    auditor.commit("watch.config", WATCH);
    let refused = auditor.refused(&["origin", "HEAD:refs/users/02/1000002"]);
    assert_snapshot!("a look is no change", without_ids(&refused));

    let removed = fixture.accounts("groups", &["Auditors", "--remove", "kim"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert_eq!(
        refs(&fixture, &kims),
        ["refs/users/01/1000001", "refs/users/self"]
    );
    // Nothing that kim could fetch before is left for a fetch by its id.
    let late = fixture.empty("late", "kim@example.com");
    let fetched = git(
        &late.dir,
        &["fetch", "--quiet", &fixture.url(&kims), theirs.trim()],
    );
    assert_ne!(fetched.code, 0, "an object of another account was fetched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_control_that_breaks_a_rule_is_refused() {
    let fixture = AccountsFixture::open().await;
    let (number, root) = administrator(&fixture, "root");
    let (kim, kims) = fixture.person("kim");
    let clone = config(&fixture, &root, "root@example.com", "config");
    let start = clone.git(&["rev-parse", "HEAD"]);
    let before = fixture.accounts("groups", &[]).out;
    let mut said = String::new();
    let mut attempt = |what: &str, file: &str, text: &str| {
        clone.commit(file, text);
        let refused = clone.refused(&["origin", &format!("HEAD:{REF}")]);
        said.extend(["# ", what, "\n", &without_ids(&refused), "\n\n"]);
        clone.git(&["reset", "--quiet", "--hard", start.trim()]);
    };
    let groups = |text: &str| format!("[group \"Administrators\"]\n\tmember = {number}\n{text}");
    attempt("no config file", "project.config", "[access\n");
    attempt("no administrator", "groups.config", "[group \"Others\"]\n");
    attempt(
        "no rule about administrators",
        "project.config",
        "[capability]\n\taccessDatabase = group Administrators\n",
    );
    attempt(
        "an unknown group",
        "project.config",
        "[access \"refs/users/*\"]\n\tread = group Adminstrators\n[capability]\n\tadministrateServer = group Administrators\n",
    );
    attempt(
        "an unknown account",
        "groups.config",
        &groups("\tmember = 1000007\n"),
    );
    attempt(
        "a circle",
        "groups.config",
        &groups("[group \"A\"]\n\tinclude = group B\n[group \"B\"]\n\tinclude = group A\n"),
    );
    attempt(
        "everybody as administrator",
        "project.config",
        "[capability]\n\tadministrateServer = group Registered Users\n",
    );
    attempt("rights", "rights.config", "[server]\n\tread = group A\n");
    fixture.accounts("deactivate", &["kim"]);
    attempt(
        "an administrator who is locked out",
        "groups.config",
        &format!("[group \"Administrators\"]\n\tmember = {kim}\n"),
    );
    fixture.accounts("activate", &["kim"]);
    assert_snapshot!(said);
    assert_eq!(fixture.accounts("groups", &[]).out, before);

    // Others are not let near it.
    let clone = fixture.clone_of(&kims, "kim");
    clone.git(&["checkout", "--quiet", "--orphan", "mine"]);
    let mine = format!("[group \"Administrators\"]\n\tmember = {kim}\n");
    clone.commit("groups.config", &mine);
    let refused = clone.refused(&["origin", &format!("HEAD:{REF}")]);
    assert_snapshot!("without the capability", without_ids(&refused));
    let fetched = git(&clone.dir, &["fetch", "--quiet", "origin", REF]);
    assert_ne!(fetched.code, 0, "the access control was fetched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_gives_nobody_the_branch_or_the_keys_of_somebody_with_more_power() {
    let fixture = AccountsFixture::open().await;
    let (root, root_credentials) = administrator(&fixture, "root");
    let (_, helper) = fixture.person("helper");
    let (jdoe, _) = fixture.person("jdoe");
    let added = fixture.accounts("groups", &["Helpdesk", "--add", "helper", "--new"]);
    assert_eq!(added.code, 0, "{}", added.err);
    let rules = config(&fixture, &root_credentials, "root@example.com", "config");
    let old = rules.git(&["show", "HEAD:project.config"]);
    let more = "[access \"refs/users/*\"]\n\tread = group Helpdesk\n\tpush = group Helpdesk\n";
    rules.commit("project.config", &format!("{old}{more}"));
    push(&rules);

    let clone = fixture.clone_of(&helper, "helper");
    let mut said = String::new();
    let mut attempt = |branch: &str, file: &str, text: &str| {
        clone.git(&["fetch", "--quiet", "origin", branch]);
        clone.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
        clone.commit(file, text);
        let pushed = clone.push(&["origin", &format!("HEAD:{branch}")]);
        let outcome = match pushed.code {
            0 => "accepted".to_owned(),
            _ => without_ids(&words_of(&pushed)),
        };
        said.extend(["# ", file, " of ", branch, "\n", &outcome, "\n\n"]);
    };
    let (jdoe, root) = (
        format!("refs/users/02/{jdoe}"),
        format!("refs/users/00/{root}"),
    );
    attempt(&jdoe, "watch.config", WATCH);
    attempt(&jdoe, "authorized_keys", "# DELETED\n");
    attempt(&jdoe, "account.config", "[account]\n\tactive = false\n");
    attempt(&root, "watch.config", WATCH);
    assert_snapshot!(said);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_push_what_the_web_user_may_push() {
    let fixture = AccountsFixture::open().await;
    let (_, root) = administrator(&fixture, "root");
    let (jdoe, _) = fixture.person("jdoe");
    let clone = fixture.clone_of(&root, "root");
    let branch = format!("refs/users/01/{jdoe}");
    clone.git(&["fetch", "--quiet", "origin", &branch]);
    clone.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    clone.commit("account.config", "[account]\n\tactive = false\n");
    let pushed = clone.push(&["origin", &format!("HEAD:{branch}")]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let shown = fixture.accounts("show", &["jdoe"]).out;
    assert!(shown.contains("inactive"), "{shown}");

    // Not even they make or remove an account by a push.
    let mut said = String::new();
    let removal = format!(":{branch}");
    for (what, refspec) in [
        ("an account that is not there", "HEAD:refs/users/07/1000007"),
        ("the removal of an account", removal.as_str()),
        ("the removal of one's own", ":refs/users/self"),
    ] {
        let refused = clone.refused(&["origin", refspec]);
        said.extend(["# ", what, "\n", &refused, "\n\n"]);
    }
    assert_snapshot!(said, @"
    # an account that is not there
    remote: error: refs/users/07/1000007 does not exist; `lockkeeper accounts create` makes an account
     ! [remote rejected] HEAD -> refs/users/07/1000007 (not allowed to create user branch)

    # the removal of an account
    remote: error: refs/users/01/1000001 stays as long as its account; `lockkeeper accounts deactivate` locks the account out
     ! [remote rejected] refs/users/01/1000001 (not allowed to delete user branch)

    # the removal of one's own
    remote: error: refs/users/00/1000000 stays as long as its account; `lockkeeper accounts deactivate` locks the account out
     ! [remote rejected] refs/users/self (not allowed to delete user branch)
    ");

    clone.git(&["checkout", "--quiet", "--orphan", "defaults"]);
    clone.git(&["rm", "-rfq", "--ignore-unmatch", "."]);
    clone.commit("preferences.config", "[diff]\n\ttabSize = 4\n");
    let pushed = clone.push(&["origin", "HEAD:refs/users/default"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);

    // `self` is the branch of the account that asks, also for those who read everything.
    let (_, other) = administrator(&fixture, "other");
    let own = |credentials: &str| {
        let url = fixture.url(credentials);
        let said = git(fixture.dir.path(), &["ls-remote", &url, "refs/users/self"]);
        said.out.split_once('\t').unwrap().0.to_owned()
    };
    let tip = |name: &str| {
        let said = git(
            fixture.dir.path(),
            &["ls-remote", &fixture.url(ADMIN), name],
        );
        said.out.split_once('\t').unwrap().0.to_owned()
    };
    assert_eq!(own(&root), tip("refs/users/00/1000000"));
    assert_eq!(own(&other), tip("refs/users/02/1000002"));
    assert_eq!(own(&root), tip("refs/users/00/1000000"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stars_and_the_sequence_are_pushed_with_access_to_the_database() {
    let fixture = AccountsFixture::open().await;
    let (root, credentials) = administrator(&fixture, "root");
    see_pulls(&fixture, 3).await;
    let clone = fixture.clone_of(&credentials, "root");
    let blob = |text: &str| {
        let file = clone.dir.join("text");
        std::fs::write(&file, text).unwrap();
        let id = clone.git(&["hash-object", "-w", "text"]).trim().to_owned();
        std::fs::remove_file(file).unwrap();
        id
    };
    // git wants `--force` wherever a ref leads to no commit.
    let push = |text: &str, name: &str| {
        clone.push(&["--force", "origin", &format!("{}:{name}", blob(text))])
    };
    let star = |change: u32| format!("refs/starred-changes/{change:02}/{change}/{root}");
    for (labels, change) in [("blue\nstar", 1), ("ignore", 2)] {
        let pushed = push(labels, &star(change));
        assert_eq!(pushed.code, 0, "{}", pushed.err);
    }
    let pushed = push("1000100", "refs/sequences/accounts");
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let shown = fixture.accounts("show", &["root", "--json"]).json();
    assert_eq!(
        shown["starred_changes"],
        serde_json::json!([
            {"change": 1, "labels": ["blue", "star"]},
            {"change": 2, "labels": ["ignore"]},
        ]),
        "{shown}"
    );
    assert_eq!(fixture.accounts("create", &["next"]).out, "1000100\n");
    let removed = clone.push(&["origin", &format!(":{}", star(2))]);
    assert_eq!(removed.code, 0, "{}", removed.err);

    let mut said = String::new();
    let mut attempt = |what: &str, text: &str, name: &str| {
        let refused = clone.refused(&["--force", "origin", &format!("{}:{name}", blob(text))]);
        said.extend(["# ", what, "\n", &without_ids(&refused), "\n\n"]);
    };
    attempt("labels that are not sorted", "star\nblue", &star(3));
    attempt("a change that was never seen", "star", &star(4));
    attempt(
        "an account that is not there",
        "star",
        "refs/starred-changes/01/1/1000007",
    );
    attempt("no number", "many", "refs/sequences/accounts");
    attempt(
        "a number that was given",
        "1000100",
        "refs/sequences/accounts",
    );
    attempt(
        "a number below the highest account",
        "1000050",
        "refs/sequences/accounts",
    );
    attempt("an empty text", "", "refs/sequences/accounts");
    attempt("a line break", "1000200\n", "refs/sequences/accounts");
    attempt("all numbers", "2147483647", "refs/sequences/accounts");
    let gone = clone.refused(&["origin", ":refs/sequences/accounts"]);
    said.extend(["# no sequence\n", &without_ids(&gone)]);
    assert_snapshot!(said);

    // Others may fetch their own stars, and change them by the API only.
    let (number, jdoe) = fixture.person("jdoe");
    let starred = fixture.api(reqwest::Method::PUT, &jdoe, "/self/starred.changes/1");
    assert_eq!(starred.send().await.unwrap().status(), 204);
    let own = format!("refs/starred-changes/01/1/{number}");
    assert!(refs(&fixture, &jdoe).contains(&own));
    assert!(!refs(&fixture, &jdoe).contains(&star(1)));
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let refused = clone.refused(&["origin", &format!(":{own}")]);
    assert_snapshot!(
        "a star of somebody without the capability",
        without_ids(&refused)
    );
}

/// Without the ref, the numbers of the accounts say what is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_is_begun_again_is_above_all_accounts() {
    let fixture = AccountsFixture::open().await;
    let (_, credentials) = administrator(&fixture, "root");
    assert_eq!(fixture.person("jdoe").0, "1000001");
    // Nothing of Lockkeeper does this. The row of the highest account is lost with the ref.
    for damage in [
        "DELETE FROM account_refs WHERE name = 'refs/sequences/accounts'",
        "DELETE FROM accounts WHERE number = 1000001",
        "UPDATE account_updates SET number = number + 1",
    ] {
        execute_on(&fixture.server.database(), damage).await;
    }
    let checked = fixture.accounts("check", &[]).out;
    let missing =
        "refs/sequences/accounts: error: there is no next number, but account 1000001 exists; ";
    assert!(checked.starts_with(missing), "{checked}");
    let created = fixture.accounts("create", &["next"]);
    assert_eq!(created.code, 1, "{}", created.out);
    assert!(
        created
            .err
            .contains("the next number would be 1000000, but account 1000001 exists"),
        "{}",
        created.err
    );

    let clone = fixture.clone_of(&credentials, "root");
    let target = |number: &str| {
        std::fs::write(clone.dir.join("number"), number).unwrap();
        let blob = clone.git(&["hash-object", "-w", "number"]);
        format!("{}:refs/sequences/accounts", blob.trim())
    };
    for number in ["1", "1000000", "1000001"] {
        let refused = clone.refused(&["--force", "origin", &target(number)]);
        let why = format!(
            "error: {number} was given already, or is below a number that was; write 1000002 or more"
        );
        assert!(refused.contains(&why), "{refused}");
        assert!(refused.contains("(invalid sequence)"), "{refused}");
    }
    let pushed = clone.push(&["--force", "origin", &target("1000002")]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    assert_eq!(fixture.accounts("create", &["next"]).out, "1000002\n");
    let url = fixture.server.database();
    let again = lockkeeper(&["reindex", "accounts"], &url, &[], &[]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memberships_go_with_their_account() {
    let fixture = AccountsFixture::open().await;
    administrator(&fixture, "root");
    administrator(&fixture, "old");
    fixture.person("new");
    let merged = fixture.accounts("merge", &["old", "new"]);
    assert_eq!(merged.code, 0, "{}", merged.err);
    assert_eq!(
        fixture.accounts("groups", &[]).out,
        "Administrators: 1000000 root, 1000002 new\n"
    );
    fixture.accounts("deactivate", &["new"]);
    let deleted = fixture.accounts("delete", &["new"]);
    assert_eq!(deleted.code, 0, "{}", deleted.err);
    assert_eq!(
        fixture.accounts("groups", &[]).out,
        "Administrators: 1000000 root\n"
    );
    let unknown = fixture.accounts("groups", &["Adminstrators", "--add", "root"]);
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (
            1,
            "error: there is no group `Adminstrators`; did you mean `Administrators`?\n"
        )
    );
    let other = fixture.accounts("groups", &["Leads", "--add", "root"]);
    assert_eq!(
        (other.code, other.err.as_str()),
        (
            1,
            "error: there is no group `Leads`; add `--new` to create it\n"
        )
    );
    let new = fixture.accounts("groups", &["Operators", "--add", "root", "--new"]);
    assert_eq!(new.code, 0, "{}", new.err);
    assert_eq!(
        fixture.accounts("groups", &["Operators"]).out,
        "Operators: 1000000 root\n"
    );
    let unknown = fixture.accounts("groups", &["Operatros"]);
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (
            1,
            "error: there is no group `Operatros`; did you mean `Operators`?\n"
        )
    );
    let last = fixture.accounts("groups", &["Administrators", "--remove", "root"]);
    assert_snapshot!("the last administrator goes", last.err);
    let again = fixture.accounts("groups", &["Administrators", "--add", "root"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let none = fixture.accounts("groups", &["Operators", "--remove", "old"]);
    assert_eq!(none.code, 1, "{}", none.err);
    let unknown = fixture.accounts("create", &["x", "--group", "Operatros"]);
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (
            1,
            "error: there is no group `Operatros`; did you mean `Operators`?\n"
        )
    );
    // A copy takes groups and rules along, unless nobody could administrate the server by them.
    let copy = fixture.mirror(ADMIN, "copy.git");
    let other = AccountsFixture::open().await;
    let imported = import(&other, &copy);
    assert_eq!(
        (imported.code, imported.out.as_str()),
        (0, ""),
        "{}",
        imported.err
    );
    assert_eq!(
        other.accounts("groups", &[]).out,
        "Administrators: 1000000 root\nOperators: 1000000 root\n"
    );
    git(&copy, &["symbolic-ref", "HEAD", "refs/meta/config"]);
    let gerrit = other.dir.path().join("gerrit");
    let said = git(
        other.dir.path(),
        &[
            "clone",
            "--quiet",
            "--no-tags",
            copy.to_str().unwrap(),
            "gerrit",
        ],
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let gerrit = Clone { dir: gerrit };
    gerrit.git(&["config", "user.email", "g@example.com"]);
    gerrit.git(&["config", "user.name", "g"]);
    gerrit.commit(
        "project.config",
        "[access]\n\tinheritFrom = All-Projects\n[access \"refs/users/${shardeduserid}\"]\n\
         \tread = group Registered Users\n\tpush = group Registered Users\n",
    );
    gerrit.git(&["push", "--quiet", "origin", &format!("HEAD:{REF}")]);
    let third = AccountsFixture::open().await;
    let imported = import(&third, &copy);
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert_snapshot!("rules of a Gerrit server are left out", imported.out);
    let added = third.accounts("groups", &["Administrators", "--add", "root"]);
    assert_eq!(added.code, 0, "{}", added.err);
    let root = third.accounts("password", &["root"]).out;
    let root = format!("root:{}", root.trim());
    assert!(refs(&third, &root).contains(&REF.to_owned()));
}
