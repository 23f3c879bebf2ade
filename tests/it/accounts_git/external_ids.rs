//! Stories of administrators who change external IDs with git.

use lockkeeper_accounts::external_ids::ExternalIdKey;

use crate::support::accounts_fixture::{ADMIN, AccountsFixture, Clone, WATCH};

const REF: &str = "refs/meta/external-ids";

/// Returns the name of the note of an external ID.
fn name(key: &str) -> String {
    let key: ExternalIdKey = key.parse().unwrap();
    key.note_name().to_string()
}

fn note(key: &str, account: &str, more: &str) -> String {
    format!("[externalId \"{key}\"]\n\taccountId = {account}\n{more}")
}

/// Returns a clone of the administrator with the external IDs as they are, as a branch and as notes.
fn clone(fixture: &AccountsFixture, dir: &str) -> Clone {
    let clone = fixture.empty(dir, "ops@lockkeeper.test");
    clone.git(&["remote", "add", "origin", &fixture.url(ADMIN)]);
    again(&clone);
    clone
}

fn again(clone: &Clone) {
    let here = format!("+{REF}:refs/notes/external-ids");
    clone.git(&["fetch", "--quiet", "origin", &here]);
    clone.git(&["checkout", "--quiet", "--detach", "refs/notes/external-ids"]);
}

fn messages(fixture: &AccountsFixture, account: &str) -> Vec<String> {
    let history = fixture.accounts("history", &[account]).out;
    let message = |line: &str| line.rsplit("  ").next().unwrap().to_owned();
    history.lines().map(message).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_administrator_links_moves_and_unlinks_with_git_notes() {
    let fixture = AccountsFixture::open().await;
    let (jdoe, _) = fixture.person("jdoe");
    let (kim, _) = fixture.person("kim");
    let notes = clone(&fixture, "notes");
    let put = |key: &str, text: &str| {
        std::fs::write(notes.dir.join("note.txt"), text).unwrap();
        let ids = ["notes", "--ref", "external-ids"];
        let add = ["add", "-f", "-F", "note.txt", &name(key)];
        notes.git(&[&ids[..], &add].concat());
    };
    let push = || notes.push(&["origin", &format!("refs/notes/external-ids:{REF}")]);
    put("github:583231", &note("github:583231", &jdoe, ""));
    put("gitlab:7", &note("gitlab:7", &jdoe, "\tcomment = kept\n"));
    let pushed = push();
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let shown = fixture.accounts("show", &["jdoe"]).out;
    assert!(
        shown.contains("github:583231") && shown.contains("gitlab:7"),
        "{shown}"
    );
    // One commit for both, without a file, on the branch of the account that they concern.
    assert_eq!(messages(&fixture, "jdoe")[0], "Push External IDs");
    assert_eq!(messages(&fixture, "jdoe").len(), 3);
    assert_eq!(messages(&fixture, "kim")[0], "Generate HTTP Password");

    put("github:583231", &note("github:583231", &kim, ""));
    notes.git(&[
        "notes",
        "--ref",
        "external-ids",
        "remove",
        &name("gitlab:7"),
    ]);
    let pushed = push();
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let ids = |account: &str| {
        fixture.accounts("show", &[account, "--json"]).json()["external_ids"].clone()
    };
    assert_eq!(ids("jdoe").as_array().unwrap().len(), 2, "{}", ids("jdoe"));
    assert!(
        ids("kim").to_string().contains("github:583231"),
        "{}",
        ids("kim")
    );
    for account in ["jdoe", "kim"] {
        assert_eq!(messages(&fixture, account)[0], "Push External IDs");
    }
    // What was pushed is what is there, to the commit.
    let there = notes.git(&["ls-remote", "origin", REF]);
    let tip = notes.git(&["rev-parse", "refs/notes/external-ids"]);
    assert!(there.starts_with(tip.trim()), "{there}");
    fixture.assert_sound();
    // The command line goes on from there.
    let linked = fixture.accounts("link", &["jdoe", "gitlab:8"]);
    assert_eq!(linked.code, 0, "{}", linked.err);
    again(&notes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_and_external_ids_are_pushed_together_or_not_at_all() {
    let fixture = AccountsFixture::open().await;
    let (jdoe, _) = fixture.person("jdoe");
    let clone = clone(&fixture, "both");
    let branch = format!("refs/users/00/{jdoe}");
    let before = clone.git(&["ls-remote", "origin"]);
    let ids = |text: &str| {
        clone.git(&["checkout", "--quiet", "--detach", "refs/notes/external-ids"]);
        clone.commit(&name("github:7"), text);
        clone.git(&["update-ref", "refs/heads/ids", "HEAD"]);
    };
    ids(&note("github:8", &jdoe, ""));
    clone.git(&["fetch", "--quiet", "origin", &branch]);
    clone.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    clone.commit("watch.config", WATCH);
    clone.git(&["update-ref", "refs/heads/jdoe", "HEAD"]);
    let (ids_to, jdoe_to) = (format!("ids:{REF}"), format!("jdoe:{branch}"));
    let push = ["--atomic", "origin", &ids_to, &jdoe_to];
    let refused = clone.refused(&push);
    assert!(refused.contains("atomic push failed"), "{refused}");
    assert_eq!(clone.git(&["ls-remote", "origin"]), before);

    ids(&note("github:7", &jdoe, ""));
    let pushed = clone.push(&push);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["watches"][0]["project"], "github.com/acme/infra");
    let there = clone.git(&["ls-remote", "origin", &branch]);
    assert!(
        there.starts_with(clone.git(&["rev-parse", "jdoe"]).trim()),
        "{there}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_ids_that_break_a_rule_are_refused_with_the_way_out() {
    let fixture = AccountsFixture::open().await;
    let (jdoe, jdoes) = fixture.person("jdoe");
    let (kim, _) = fixture.person("kim");
    let clone = clone(&fixture, "ids");
    let before = clone.git(&["ls-remote", "origin"]);
    let mut told = String::new();
    let mut refused = |what: &str, change: &dyn Fn()| {
        change();
        let said = clone.refused(&["origin", &format!("HEAD:{REF}")]);
        let head = clone.git(&["rev-parse", "HEAD"]);
        let said = said.replace(head.trim(), "COMMIT");
        told.extend(["## ", what, "\n", said.as_str(), "\n"]);
        assert_eq!(clone.git(&["ls-remote", "origin"]), before, "{what}");
        again(&clone);
    };
    let good = note("github:7", &jdoe, "");
    let file = name("github:7");
    refused("another name", &|| clone.commit(&name("github:8"), &good));
    refused("no account", &|| {
        clone.commit(&file, &note("github:7", "1000009", ""));
    });
    refused("no configuration", &|| {
        clone.commit(&file, "[externalId \"github:7\"\n");
    });
    refused("no key", &|| clone.commit(&file, "[account]\n\tx = y\n"));
    refused("an invalid address", &|| {
        clone.commit(&file, &note("github:7", &jdoe, "\temail = jdoe\n"));
    });
    refused("an address of somebody else", &|| {
        clone.commit(
            &file,
            &note("github:7", &jdoe, "\temail = Kim@example.com\n"),
        );
    });
    refused("a password that cannot be decoded", &|| {
        let user = "username:jdoe";
        clone.commit(&name(user), &note(user, &jdoe, "\tpassword = secret\n"));
    });
    refused("a user name that is a number", &|| {
        let user = "username:1000001";
        clone.commit(&name(user), &note(user, &jdoe, ""));
    });
    refused("a second user name", &|| {
        let user = "username:zoe";
        clone.commit(&name(user), &note(user, &jdoe, ""));
    });
    refused("the preferred address goes", &|| {
        clone.git(&["rm", "--quiet", &name("mailto:kim@example.com")]);
        clone.git(&["commit", "--quiet", "--message", "Edit"]);
    });
    refused("a note twice", &|| {
        let (folder, rest) = file.split_at(2);
        std::fs::create_dir(clone.dir.join(folder)).unwrap();
        std::fs::write(clone.dir.join(&file), &good).unwrap();
        clone.commit(&format!("{folder}/{rest}"), &good);
    });
    refused("no note", &|| clone.commit("README", "Hello"));
    refused("somebody else's commit", &|| {
        std::fs::write(clone.dir.join(&file), &good).unwrap();
        clone.git(&["add", "--all"]);
        let kims = ["-c", "user.email=kim@example.com"];
        clone.git(&[&kims[..], &["commit", "--quiet", "--message", "Edit"]].concat());
    });
    refused("a merge", &|| {
        clone.commit(&file, &good);
        let tree = clone.git(&["rev-parse", "HEAD^{tree}"]);
        let parents = ["-p", "HEAD^", "-p", "HEAD", "-m", "Merge"];
        let merge = clone.git(&[&["commit-tree", tree.trim()], &parents[..]].concat());
        clone.git(&["checkout", "--quiet", merge.trim()]);
    });
    insta::assert_snapshot!(told);

    // Nobody else may, and the history stays.
    let own = fixture.clone_of(&jdoes, "jdoe");
    let prohibited = own.refused(&["origin", &format!("HEAD:{REF}")]);
    let why = "takes the capability `accessDatabase`";
    assert!(prohibited.contains(why), "{prohibited}");
    let removed = clone.refused(&["origin", &format!(":{REF}")]);
    assert!(removed.contains("prohibited"), "{removed}");
    let other = clone.git(&["commit-tree", "HEAD^{tree}", "-m", "Other"]);
    let rewritten = clone.refused(&["--force", "origin", &format!("{}:{REF}", other.trim())]);
    assert!(rewritten.contains("non-fast-forward"), "{rewritten}");
    assert_eq!(clone.git(&["ls-remote", "origin"]), before);
    assert_ne!(jdoe, kim);
}
