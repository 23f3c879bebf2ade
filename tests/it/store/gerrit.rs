//! Import of the accounts of a Gerrit server: what is used, what has no effect, and what is refused.

use std::collections::BTreeSet;
use std::path::Path;

use insta::assert_snapshot;
use lockkeeper::features::accounts::AllUsers;
use lockkeeper::git::LocalCopy;
use lockkeeper::kit::reconcile::TickResult;
use serde_json::{Value, json};

use super::accounts::import;
use crate::accounts::run;
use crate::support::accounts::assert_sound;
use crate::support::db::{TestDb, store_test};
use crate::support::gerrit::{ANN, BEN, Gerrit, NEW};
use crate::support::program::{ProgramOutput, lockkeeper, problem_lines};

store_test!(
    accounts_of_gerrit_are_imported_as_they_are,
    a_program_reads_what_an_import_leaves_out,
    parts_without_effect_are_in_nobodys_way,
    what_could_be_read_in_two_ways_is_not_imported,
    a_copy_of_somebody_who_may_not_read_external_ids_is_not_imported,
);

/// Refs that are not imported.
const LEFT_OUT: [&str; 9] = [
    "refs/draft-comments/17/17/1000000",
    "refs/groups/50/5057f3cbd3519d6ab69364429a89ffdffba50f73",
    "refs/meta/config",
    "refs/meta/group-names",
    "refs/sequences/changes",
    "refs/sequences/groups",
    "refs/starred-changes/18/18/1000001",
    "refs/starred-changes/19/19/1000009",
    "refs/users/57/1000856",
];

/// Imports a copy with `--json`.
fn import_for_program(db: &TestDb, dir: &Path) -> ProgramOutput {
    let dir = dir.to_str().unwrap();
    lockkeeper(
        &["accounts", "import", "git"],
        &db.url,
        &[dir, "--json"],
        &[],
    )
}

async fn a_program_reads_what_an_import_leaves_out(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    Gerrit::after_years().write(dir.path());
    let told = import_for_program(db, dir.path());
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    let told = told.json();
    assert_eq!(told["imported"], 4);
    let lines = problem_lines(&told);
    for name in LEFT_OUT {
        let line = format!("{name}: left out: ");
        assert!(
            lines.iter().any(|told| told.starts_with(&line)),
            "{name}: {told}"
        );
    }
    let warning = "refs/users/00/1000000: warning: account.config:4: unknown key `displayName`; ";
    assert!(lines.iter().any(|told| told.starts_with(warning)), "{told}");
    assert_sound(db);
    // The server is no longer empty. Only people read why.
    let again = import_for_program(db, dir.path());
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    assert!(
        again
            .err
            .contains("accounts are imported into a server without any"),
        "{}",
        again.err
    );
}

async fn accounts_of_gerrit_are_imported_as_they_are(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    Gerrit::after_years().write(dir.path());
    let imported = import(db, dir.path());
    assert_eq!(
        (imported.code, imported.err.as_str()),
        (0, "Imported 4 accounts.\n"),
        "{}",
        imported.out
    );
    let path = dir.path().to_str().unwrap();
    let merge = run(
        "git",
        &["-C", path, "rev-parse", "refs/users/02/1000002^"],
        "",
    )
    .out;
    assert_snapshot!(imported.out.replace(merge.trim(), "MERGE"), @r#"
    refs/users/default: left out: preferences.config:2: `changesPerPage` cannot be `5`; write a number from 10 to 100
    refs/meta/external-ids: left out: 21449cb17cccada8363784ed69aba400797970ae:2: account 1000009 does not exist; write the number of an account, or remove the note
    refs/meta/external-ids: left out: 28b05b6cb738d5aaf04fa082761081d02445f648:1: `username:Cyd` is not an external ID; use lower-case letters, digits, `.`, `_`, `@`, `+` and `-`, with a letter or digit first and last
    refs/meta/external-ids: left out: 940c42bf47f30918a4c49f1ad4e15f3278dbb0e8:3: the password is not `bcrypt:<cost 4 to 31>:<base64 of 16 bytes>:<base64 of 24 bytes>`; generate a new password, or remove the line
    refs/meta/external-ids: left out: aa9df97ce5be0748d00c2ffa4f3bbd44696c9606: the note has the key `gerrit:Cyd` of another name; rename it to d492525cbb15147bb45b6522c60828660d26af5f
    refs/meta/external-ids: left out: b0aa45292408d437ebda267d099eab02704808b3:1: no `]` after the name of a section; write `[section]` or `[section "name"]` in one line
    refs/meta/external-ids: left out: bb0b325f96f16826f1c0a7af49691c4711945b40:3: `email`: `ben` is not an e-mail address such as `john@example.com`; correct the address, or remove the line
    refs/meta/external-ids: left out: d35514736146439b7277437016cdb40d7fb65497:1: `jdoe` is not an external ID; write `<scheme>:<id>`
    refs/users/01/1000001: left out: authorized_keys:1: DSA keys are not accepted; make a new one with `ssh-keygen -t ed25519`
    refs/users/01/1000001: left out: authorized_keys:2: the RSA key has 1024 bits, fewer than 2048; make a new one with `ssh-keygen -t ed25519`
    refs/users/01/1000001: left out: authorized_keys:6: the key cannot be decoded; copy the whole line of the `.pub` file
    refs/users/01/1000001: left out: preferences.config:3: `theme` cannot be `SOLARIZED`; use one of `AUTO`, `LIGHT`, `DARK`
    refs/users/01/1000001: left out: preferences.config:2: `changesPerPage` cannot be `200`; write a number from 10 to 100
    refs/users/01/1000001: left out: preferences.config:5: `context` cannot be `5000`; write a number from -1 to 1000
    refs/users/01/1000001: left out: watch.config:2: unknown filter `file:`; use one of `branch`, `dir`, `workspace`, `project`, `author`, `label`, `owner`, `is`
    refs/users/01/1000001: left out: watch.config:3: unknown filter `message:`; use one of `branch`, `dir`, `workspace`, `project`, `author`, `label`, `owner`, `is`
    refs/users/01/1000001: left out: watch.config:5: `branch:` cannot be `^release/.*`; write a glob such as `release-*` instead of a regular expression
    refs/users/01/1000001: left out: watch.config:6: unknown filter `visibleto:`; use one of `branch`, `dir`, `workspace`, `project`, `author`, `label`, `owner`, `is`
    refs/users/01/1000001: left out: watch.config:7: unknown filter `message:`; use one of `branch`, `dir`, `workspace`, `project`, `author`, `label`, `owner`, `is`
    refs/users/01/1000001: left out: watch.config:8: `NOT status:merged` is not a condition; write `branch:`, `dir:`, `workspace:`, `project:`, `author:`, `label:`, `owner:`, `is:`, or `*` alone for everything
    refs/users/01/1000001: left out: watch.config:9: unknown type `REVIEWS`; use one of `NEW_CHANGES`, `NEW_PATCHSETS`, `ALL_COMMENTS`, `SUBMITTED_CHANGES`, `ABANDONED_CHANGES`, `PLANS`, `APPLIES`, `LOCKS`, `WAITS`, `APPLY_LOCKS`, `DRIFT`, `ALL`
    refs/users/01/1000001: left out: watch.config:10: `branch:main` has no types at its end; write `<filter> [<types>]` such as `* [ALL]`, in double quotes if there is a `#` or `;`
    refs/users/01/1000001: left out: watch.config:12: `owner:` cannot be `cyd`; write `owner:self`
    refs/users/02/1000002: left out: account.config:3: `boss@example.com` is on no external ID of the account; use one of `cyd@example.com`, or link an external ID with this address first
    refs/users/02/1000002: left out: preferences.config:2: no `=` after `theme`; write `key = value`
    refs/users/02/1000002: left out: watch.config:1: no `]` after the name of a section; write `[section]` or `[section "name"]` in one line
    refs/draft-comments/17/17/1000000: left out: this version does not use it
    refs/groups/50/5057f3cbd3519d6ab69364429a89ffdffba50f73: left out: this version does not use it
    refs/meta/config: left out: error: project.config: no group has the capability `administrateServer`; add `administrateServer = group Administrators` below `[capability]`. The rules of a new installation are in effect
    refs/meta/group-names: left out: this version does not use it
    refs/sequences/changes: left out: this version does not use it
    refs/sequences/groups: left out: this version does not use it
    refs/starred-changes/18/18/1000001: left out: line 2: the label `ignore` is not in order; sort the labels by their bytes, each once
    refs/starred-changes/19/19/1000009: left out: account 1000009 does not exist; remove the ref
    refs/users/57/1000856: left out: `refs/users/57/1000856` has the wrong folder: write `refs/users/56/1000856`
    refs/users/default: warning: preferences.config:4: unknown section `my`; use one of `general`, `diff`, `edit`
    refs/users/00/1000000: warning: account.config:4: unknown key `displayName`; use one of `fullName`, `preferredEmail`, `status`, `active`
    refs/users/01/1000001: warning: authorized_keys:7: `# EXPIRES` makes the key a comment; write `expiry-time="20301231Z"` in front of the key instead
    refs/users/01/1000001: warning: preferences.config:7: unknown key `syntaxHighlighting`; use one of `context`, `lineLength`, `tabSize`, `fontSize`, `showTabs`, `lineWrapping`, `ignoreWhitespace`, `hideTopMenu`, `manualReview`
    refs/users/02/1000002: warning: the commit MERGE is a merge; the history is that of its first parent
    "#);

    // Everything else is there, with the same ids.
    let there = LocalCopy::open(dir.path()).unwrap();
    let is_imported = |name: &str| !LEFT_OUT.contains(&name) && name != "refs/users/self";
    let wanted: Vec<(String, String)> = there
        .refs()
        .filter(|(name, _)| is_imported(name))
        .map(|(name, id)| (name.to_owned(), id.to_string()))
        .collect();
    let (refs, _) = db.store().account_refs().await.unwrap();
    let refs = refs.into_iter().map(|(name, id)| (name, id.to_string()));
    assert_eq!(refs.collect::<Vec<_>>(), wanted);

    let index = db.store().account_index().await.unwrap();
    let rows = index.accounts.iter();
    let rows = rows.map(|row| {
        (
            row.username.as_deref(),
            row.preferred_email.as_deref(),
            row.active,
        )
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            (Some("ann"), Some("ann@example.com"), true),
            (Some("ben"), Some("ben@example.com"), true),
            (None, None, false),
            (None, None, true),
        ]
    );
    let watching = index.watches.keys().map(|account| account.get());
    assert_eq!(watching.collect::<Vec<_>>(), [ANN, BEN]);
    let infra = BTreeSet::from(["infra".to_owned()]);
    assert!(index.watches.values().all(|projects| *projects == infra));
    let keys: Vec<&str> = index.external_ids.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "gerrit:ann",
            "gerrit:ben",
            "https://openid.example.com/ann",
            "mailto:ann@example.com",
            "mailto:ben@example.com",
            "mailto:cyd@example.com",
            "username:ann",
            "username:ben",
        ]
    );
    let emails: Vec<&str> = index.emails.keys().map(String::as_str).collect();
    assert_eq!(
        emails,
        ["ann@example.com", "ben@example.com", "cyd@example.com"]
    );
    let stars: Vec<(u32, u32)> = index
        .stars
        .keys()
        .map(|(account, change)| (account.get(), change.get()))
        .collect();
    assert_eq!(stars, [(ANN, 17), (BEN, 20)]);

    let shown = lockkeeper(&["accounts", "show"], &db.url, &["ben", "--json"], &[]).json();
    let valid = shown["ssh_keys"].as_array().unwrap().iter();
    let valid = valid.map(|key| {
        (
            key["seq"].as_u64().unwrap(),
            key["valid"] == Value::Bool(true),
        )
    });
    assert_eq!(
        valid.collect::<Vec<_>>(),
        [(1, false), (2, false), (4, false), (5, true), (6, false)]
    );
    assert_eq!(
        shown["watches"],
        json!([{"project": "infra", "notify": [{
            "filter": "(branch:main OR branch:stable) -owner:self",
            "types": ["SUBMITTED_CHANGES"],
        }]}])
    );
    // Neither the command nor the hourly check has anything to correct.
    assert_sound(db);
    let users = AllUsers::new(db.store().clone(), "localhost");
    let sound = TickResult {
        looked_at: 4,
        repaired: 0,
    };
    assert_eq!(users.check().await.unwrap(), sound);
}

async fn parts_without_effect_are_in_nobodys_way(db: &TestDb) {
    const KEY: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGyR38MlvwdIM/kfZdonHZKYMi/7Kf/EQ4ZGabEamlaU1VDOpqbtZAxwvmQ7mgX8D1SMVKuiAO3dbAcFtJDLwdY= ben@new";
    let dir = tempfile::tempdir().unwrap();
    Gerrit::after_years().write(dir.path());
    assert_eq!(import(db, dir.path()).code, 0);
    let accounts = |command: &str, args: &[&str]| -> ProgramOutput {
        let said = lockkeeper(&["accounts", command], &db.url, args, &[]);
        assert_eq!(said.code, 0, "{command} {args:?}: {}", said.err);
        said
    };
    accounts("set", &["ben", "--status", "OOO"]);
    assert_eq!(accounts("keys", &["ben", "--add", KEY]).out, "7\n");
    assert_sound(db);
    // The first commit has no files, and the next one has those of Gerrit. The keys stay as they are.
    let history = accounts("history", &["ben"]).out;
    let commits: Vec<&str> = history.lines().map(|line| &line[..12]).collect();
    assert_eq!(commits.len(), 4, "{history}");
    for commit in [commits[3], commits[2]] {
        accounts("restore", &["ben", commit]);
        assert_sound(db);
    }
    let watched = accounts("show", &["ben", "--json"]).json();
    assert_eq!(watched["watches"][0]["project"], "infra", "{watched}");

    // What has an effect moves to another account.
    accounts("merge", &["ben", "ann"]);
    let merged = accounts("show", &["ann", "--json"]).json();
    let filters = merged["watches"][0]["notify"].as_array().unwrap();
    assert_eq!(filters.len(), 3, "{merged}");
    let keys = merged["ssh_keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2, "{merged}");
    assert_eq!(keys[1]["key"], KEY);
    assert_sound(db);

    // A name that nobody can use may be given to somebody, and so may that of an account that is gone.
    accounts("link", &["1000002", "username:cyd"]);
    assert_eq!(
        accounts("show", &["cyd", "--json"]).json()["_account_id"],
        1_000_002
    );
    let created = accounts("create", &["zoe", "--link", "gerrit:gone"]);
    assert_eq!(created.out, "1000010\n");
    assert_sound(db);
    let left = accounts("check", &[]).out;
    for gone in ["username:Cyd", "1000009"] {
        assert!(!left.contains(gone), "{left}");
    }
}

/// Damage to the repository of a server.
type GerritDamage = fn(&mut Gerrit);

async fn what_could_be_read_in_two_ways_is_not_imported(db: &TestDb) {
    let cases: [(GerritDamage, &str); 8] = [
        (
            |gerrit| {
                gerrit.link("gerrit:x", "gerrit:x", NEW, "\temail = Ben@example.com\n");
            },
            "`ben@example.com` belongs to several accounts: ",
        ),
        (
            |gerrit| gerrit.link("username:ben2", "username:ben2", BEN, ""),
            "account 1000001 has 2 user names; keep one of them",
        ),
        (
            |gerrit| {
                let flat = gerrit
                    .notes
                    .iter()
                    .map(|(path, text)| (path.replace('/', ""), text.clone()));
                let first = flat.take(1).collect::<Vec<_>>();
                gerrit.notes.extend(first);
            },
            "refs/meta/external-ids: error: refs/meta/external-ids: the note 082fe682ed716cea89273d3f90c40d257d2f6e17 is there twice",
        ),
        (
            |gerrit| {
                gerrit.notes.insert("README".to_owned(), "x".to_owned());
            },
            "refs/meta/external-ids: error: refs/meta/external-ids: `README` is not a note",
        ),
        (
            |gerrit| gerrit.put(BEN, "account.config", "[account\n"),
            "refs/users/01/1000001: error: account.config:1: invalid section header",
        ),
        (
            |gerrit| gerrit.put(BEN, "account.config", "[account]\n\tactive = maybe\n"),
            "refs/users/01/1000001: error: account.config:2: `active`: `maybe` is not a boolean",
        ),
        (
            |gerrit| gerrit.sequence = NEW + 1,
            "the next number is 1000004, but account 1000009 has an external ID, which a new account would get",
        ),
        (
            |gerrit| {
                gerrit.notes.retain(|_, text| !text.contains("1000009"));
                gerrit.sequence = NEW;
            },
            "the next number is 1000003, but account 1000003 exists",
        ),
    ];
    for (change, line) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut gerrit = Gerrit::after_years();
        change(&mut gerrit);
        gerrit.write(dir.path());
        let refused = import(db, dir.path());
        assert_eq!(refused.code, 1, "{line}: {}", refused.out);
        let told = import_for_program(db, dir.path());
        assert_eq!(
            (told.code, told.err.as_str()),
            (
                1,
                "Nothing was imported. Correct the errors in the copy first.\n"
            )
        );
        let told = told.json();
        assert_eq!(told["imported"], 0);
        assert_eq!(
            problem_lines(&told),
            refused.out.lines().collect::<Vec<_>>()
        );
        assert!(refused.out.contains(line), "{line}: {}", refused.out);
        assert!(
            refused.err.contains("Nothing was imported."),
            "{}",
            refused.err
        );
        assert_eq!(db.store().account_refs().await.unwrap().0, []);
    }
}

async fn a_copy_of_somebody_who_may_not_read_external_ids_is_not_imported(db: &TestDb) {
    let dir = tempfile::tempdir().unwrap();
    Gerrit::after_years().write(dir.path());
    let path = dir.path().to_str().unwrap();
    let ids = "refs/meta/external-ids";
    run("git", &["-C", path, "update-ref", "-d", ids], "");
    let line = "refs/meta/external-ids: error: the copy has accounts, but not their external IDs; make it as the user of \
                `--web-basic-auth`, or as an account with the capability `accessDatabase`";
    let checked = lockkeeper(&["accounts", "check"], &db.url, &["--git", path], &[]);
    let imported = import(db, dir.path());
    for said in [checked, imported] {
        assert_eq!(said.code, 1, "{}", said.err);
        assert!(said.out.lines().any(|told| told == line), "{}", said.out);
    }
    let index = db.store().account_index().await.unwrap();
    assert!(index.refs.is_empty(), "{:?}", index.refs);
}
