//! Tests of `lockkeeper accounts` on copies of `All-Users`, beside a reader in Python that was written apart.

use std::path::{Path, PathBuf};
use std::process::Command;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::installed::on_path;
use crate::support::program::{ProgramOutput, problem_lines};

/// Name of the note of `gerrit:jdoe`, known from the description of the format.
const NOTE: &str = "7c2a55657d911109dbc930836e7a770fb946e8ef";

#[expect(
    clippy::disallowed_methods,
    reason = "programs are run as people run them"
)]
pub fn run(program: &str, args: &[&str], input: &str) -> ProgramOutput {
    use std::io::Write as _;
    use std::process::Stdio;

    let mut child = Command::new(on_path(program))
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "test")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "test@example.com")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_DATE"), "1772420645 +0000")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub fn accounts(args: &[&str]) -> ProgramOutput {
    let all = [&["accounts"], args].concat();
    run(env!("CARGO_BIN_EXE_lockkeeper"), &all, "")
}

pub fn independent(args: &[&str]) -> ProgramOutput {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent/all_users.py");
    let all = [&[program.to_str().unwrap()], args].concat();
    let said = run("python3", &all, "");
    assert!(said.err.is_empty(), "{}", said.err);
    said
}

/// A repository that is made by hand.
struct AllUsers {
    dir: tempfile::TempDir,
}

impl AllUsers {
    fn new() -> Self {
        let all = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        all.git(&["init", "--quiet", "--bare"], "");
        all
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn git(&self, args: &[&str], input: &str) -> String {
        let dir = self.path();
        let all = [&["-C", dir.to_str().unwrap()], args].concat();
        let said = run("git", &all, input);
        assert_eq!(said.code, 0, "git {args:?}: {}", said.err);
        said.out.trim().to_owned()
    }

    fn blob(&self, text: &str) -> String {
        self.git(&["hash-object", "-w", "--stdin"], text)
    }

    /// Sets a ref to a commit with these files.
    fn commit(&self, name: &str, files: &[(&str, &str)]) {
        let entries = files
            .iter()
            .map(|(path, text)| format!("100644 blob {}\t{path}\n", self.blob(text)));
        let tree = self.git(&["mktree"], &entries.collect::<String>());
        let commit = self.git(&["commit-tree", &tree, "-m", "Create account"], "");
        self.git(&["update-ref", name, &commit], "");
    }

    fn set(&self, name: &str, text: &str) {
        self.git(&["update-ref", name, &self.blob(text)], "");
    }

    fn check(&self) -> ProgramOutput {
        accounts(&["check", "--git", self.path().to_str().unwrap()])
    }
}

/// Puts lists whose order means nothing in order. A quoted word means the same without quotes if it has no blanks.
pub fn in_order(mut shown: Value) -> Value {
    for account in shown["accounts"].as_array_mut().unwrap() {
        let Some(watches) = account.get_mut("watches").and_then(Value::as_array_mut) else {
            continue;
        };
        watches.sort_by_key(|watch| watch["project"].as_str().unwrap().to_owned());
        for watch in watches
            .iter_mut()
            .flat_map(|watch| watch["notify"].as_array_mut().unwrap())
        {
            let types = watch["types"].as_array_mut().unwrap();
            types.sort_by_key(|word| word.as_str().unwrap().to_owned());
            let filter = watch["filter"].as_str().unwrap();
            watch["filter"] = json!(filter.replace("\"a;b\"", "a;b"));
        }
    }
    shown
}

#[test]
fn two_programs_read_the_same_from_a_thousand_accounts() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("all-users");
    let copy = copy.to_str().unwrap();
    independent(&["write", copy, "1000", "7"]);
    let ours = accounts(&["list", "--git", copy, "--json"]);
    assert_eq!((ours.code, ours.err.as_str()), (0, ""));
    let theirs = independent(&["show", copy]);
    let (ours, theirs) = (in_order(ours.json()), in_order(theirs.json()));
    let pairs = ours["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .zip(theirs["accounts"].as_array().unwrap());
    for (our, their) in pairs {
        assert_eq!(our, their);
    }
    assert_eq!(ours, theirs);
    assert_eq!(ours["accounts"].as_array().unwrap().len(), 1000);
    assert!(
        !ours.to_string().contains("bcrypt"),
        "hashes of passwords are not shown"
    );

    let checked = accounts(&["check", "--git", copy]);
    let errors: Vec<&str> = checked
        .out
        .lines()
        .filter(|line| !line.contains(": warning: "))
        .collect();
    assert_eq!((checked.code, errors), (0, Vec::new()));
    assert!(
        checked.err.starts_with("1000 accounts: 0 errors, "),
        "{}",
        checked.err
    );
}

#[test]
fn the_independent_reader_passes_its_own_tests() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent/self_test.py");
    let said = run("python3", &[tests.to_str().unwrap()], "");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}

#[test]
fn every_problem_of_a_copy_is_a_line_with_the_way_out() {
    let all = AllUsers::new();
    let properties = "[account]\n\tfulName = John\n\tpreferredEmail = x@example.com\n";
    all.commit("refs/users/00/1000000", &[("account.config", properties)]);
    all.commit(
        "refs/users/01/1000001",
        &[(
            "watch.config",
            "[project \"infra\"]\n\tnotify = * [ALLES]\n",
        )],
    );
    all.commit("refs/users/57/1000856", &[]);
    let note = "[externalId \"gerrit:jdoe\"]\n\taccountId = 1000000\n\temail = j@example.com\n";
    let other =
        "[externalId \"mailto:j@example.com\"]\n\taccountId = 1000001\n\temail = J@example.com\n";
    let moved = "[externalId \"x:1\"]\n\taccountId = 1000001\n";
    let wrong_name = "0".repeat(40);
    all.commit(
        "refs/meta/external-ids",
        &[
            (NOTE, note),
            ("6778061e24532504b5068bea827db02dab17da06", other),
            (&wrong_name, moved),
        ],
    );
    all.set("refs/sequences/accounts", "1000001\n");
    all.set("refs/starred-changes/17/17/1000009", "star\n");
    let said = all.check();
    assert_eq!(said.code, 1);
    assert_snapshot!(said.out, @"
    refs/users/57/1000856: error: `refs/users/57/1000856` has the wrong folder: write `refs/users/56/1000856`; rename or remove it
    refs/meta/external-ids: error: 6778061e24532504b5068bea827db02dab17da06: `j@example.com` belongs to several accounts: `mailto:j@example.com` of account 1000001, `gerrit:jdoe` of account 1000000; leave it on the external IDs of one account
    refs/meta/external-ids: warning: 0000000000000000000000000000000000000000: the note has the key `x:1` of another name; rename it to 825b938e1bf063c8ae74c6b0689861a0c2c0ae63
    refs/sequences/accounts: error: the next number is 1000001, but account 1000001 exists; write a number above all accounts
    refs/starred-changes/17/17/1000009: error: account 1000009 does not exist; remove the ref
    refs/users/00/1000000: warning: account.config:3: `x@example.com` is on no external ID of the account; use one of `j@example.com`, or link an external ID with this address first
    refs/users/00/1000000: warning: account.config:2: unknown key `fulName`; did you mean `fullName`?
    refs/users/01/1000001: warning: watch.config:2: unknown type `ALLES`; did you mean `ALL`?
    ");
    assert_eq!(said.err, "2 accounts: 4 errors, 4 warnings.\n");
    // A program reads the same.
    let path = all.path();
    let told = accounts(&["check", "--git", path.to_str().unwrap(), "--json"]);
    assert_eq!((told.code, told.err.as_str()), (1, ""));
    let told = told.json();
    assert_eq!(problem_lines(&told), said.out.lines().collect::<Vec<_>>());
    assert_eq!(
        (&told["accounts"], &told["errors"], &told["warnings"]),
        (&json!(2), &json!(4), &json!(4))
    );
    assert_eq!(told["caches"], Value::Null, "a copy has none");
    // The other program finds the same refs at fault.
    let dir = all.path();
    let theirs = independent(&["check", dir.to_str().unwrap()]);
    assert_eq!(theirs.code, 1);
    let refs = |text: &str| {
        let names = text.lines();
        let names = names.map(|line| line.split(':').next().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(refs(&said.out), refs(&theirs.out), "{}", theirs.out);
}

#[test]
fn an_account_that_cannot_be_read_hides_no_other() {
    let all = AllUsers::new();
    all.commit("refs/users/00/1000000", &[]);
    // One blob a thousand times costs its owner nothing.
    let blob = all.blob("x");
    let entries: Vec<String> = (0..1_001)
        .map(|n| format!("100644 blob {blob}\tfile{n}\n"))
        .collect();
    let tree = all.git(&["mktree"], &entries.concat());
    let commit = all.git(&["commit-tree", &tree, "-m", "Many"], "");
    all.git(&["update-ref", "refs/users/01/1000001", &commit], "");
    all.set("refs/users/02/1000002", "not a commit");
    all.commit("refs/users/03/1000003", &[]);
    all.commit("refs/meta/external-ids", &[]);
    let said = all.check();
    assert_eq!(said.code, 1);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.out);
    assert!(lines[0].starts_with("refs/users/01/1000001: error: the commit "));
    assert!(
        lines[0].contains("has more than 1000 files"),
        "{}",
        said.out
    );
    assert!(lines[1].starts_with("refs/users/02/1000002: error: an object cannot be read"));
    assert!(said.err.starts_with("2 accounts: 2 errors"), "{}", said.err);
    let listed = accounts(&["list", "--git", all.path().to_str().unwrap()]);
    assert_eq!(listed.out, "1000000\n1000003\n");
}

#[test]
fn a_copy_without_problems_is_listed_for_people() {
    let all = AllUsers::new();
    let properties = "[account]\n\tfullName = Jörg \"J\" Doe\n\tstatus = OOO\n\tactive = false\n";
    all.commit("refs/users/00/1000000", &[("account.config", properties)]);
    all.commit("refs/users/01/1000001", &[]);
    let note = "[externalId \"username:jdoe\"]\n\taccountId = 1000000\n";
    let name = "e0b751ae90ef039f320e097d7d212f490e933706";
    all.commit("refs/meta/external-ids", &[(name, note)]);
    let said = all.check();
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    assert_eq!(said.err, "2 accounts: 0 errors, 0 warnings.\n");
    let listed = accounts(&["list", "--git", all.path().to_str().unwrap()]);
    assert_snapshot!(listed.out, @"
    1000000 jdoe Jörg J Doe (OOO), inactive
    1000001
    ");
}

#[test]
fn what_is_no_copy_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let said = accounts(&["list", "--git", dir.path().to_str().unwrap()]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("is not a git repository"), "{}", said.err);
    let all = AllUsers::new();
    let path = all.path();
    let empty = accounts(&["list", "--git", path.to_str().unwrap()]);
    assert_eq!(empty.code, 0);
    assert!(
        empty.err.contains("The copy has no accounts"),
        "{}",
        empty.err
    );
    std::fs::write(path.join("refs/users"), "hello\n").unwrap();
    let broken = accounts(&["check", "--git", path.to_str().unwrap()]);
    assert_eq!(broken.code, 1);
    assert!(
        broken.err.contains("the ref \"refs/users\" cannot be read"),
        "{}",
        broken.err
    );
}
