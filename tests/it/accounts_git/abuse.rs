//! Attacks by somebody with an account, without git where git would not do it.

use reqwest::StatusCode;

use crate::support::office::{Clone, Office, WATCH};

/// A pack without objects: header, and its checksum.
const EMPTY_PACK: [u8; 32] = [
    0x50, 0x41, 0x43, 0x4b, 0, 0, 0, 2, 0, 0, 0, 0, 0x02, 0x9d, 0x08, 0x82, 0x3b, 0xd8, 0xa8, 0xea,
    0xb5, 0x10, 0xad, 0x6a, 0xc7, 0x5c, 0x82, 0x3c, 0xfd, 0x3e, 0xd3, 0x1e,
];
const PUSH_TYPE: &str = "application/x-git-receive-pack-request";

/// Returns a request to move the own branch.
fn push_body(old: &str, new: &str, pack: &[u8]) -> Vec<u8> {
    let line = format!("{old} {new} refs/users/self\0 report-status");
    let mut body = format!("{:04x}{line}0000", line.len() + 4).into_bytes();
    body.extend_from_slice(pack);
    body
}

fn tip(clone: &Clone) -> String {
    clone.git(&["rev-parse", "HEAD"]).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_of_the_commit_that_is_there_changes_nothing() {
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let tip = tip(&office.clone_of(&jdoe, "jdoe"));
    let before = office.accounts("show", &["jdoe", "--json"]).out;
    for pack in [&[][..], &EMPTY_PACK] {
        let url = format!("{}/git-receive-pack", office.url(&jdoe));
        let request = reqwest::Client::new().post(url);
        let request = request.header("content-type", PUSH_TYPE);
        let answer = request.body(push_body(&tip, &tip, pack));
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let report = answer.text().await.unwrap();
        assert!(
            report.contains("ng refs/users/self non-fast-forward"),
            "{report}"
        );
    }
    assert_eq!(office.accounts("show", &["jdoe", "--json"]).out, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_locked_out_during_a_push_does_not_get_back_in_by_it() {
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let clone = office.clone_of(&jdoe, "jdoe");
    let old = tip(&clone);
    clone.commit("watch.config", WATCH);
    let new = tip(&clone);
    clone.git(&[
        "-c",
        "alias.x=!git rev-list --objects HEAD ^HEAD~1 | git pack-objects -q pushed",
        "x",
    ]);
    let is_pack = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "pack");
    let mut files = std::fs::read_dir(&clone.dir).unwrap();
    let pack = files.find_map(|file| Some(file.unwrap().path()).filter(is_pack));
    let body = push_body(&old, &new, &std::fs::read(pack.unwrap()).unwrap());

    let request = ("POST", "/All-Users/git-receive-pack", PUSH_TYPE);
    let lock_out = || assert_eq!(office.accounts("deactivate", &["jdoe"]).code, 0);
    let answer = office.with_late_body(request, &jdoe, &body, lock_out).await;
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
    let shown = office.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["inactive"], true, "{shown}");
    assert_eq!(office.accounts("activate", &["jdoe"]).code, 0);
    let history = office.accounts("history", &["jdoe"]).out;
    assert!(!history.contains("Edit"), "{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_keeps_nobody_from_being_locked_out() {
    const LIMIT: usize = 64 * 1024;
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let clone = office.clone_of(&jdoe, "jdoe");
    let mut text =
        String::from("[account]\n\tfullName = J. Doe\n\tpreferredEmail = jdoe@example.com\n");
    while text.len() < LIMIT {
        let line = (LIMIT - text.len()).min(64);
        text.extend(["#", &"x".repeat(line.saturating_sub(2)), "\n"]);
    }
    text.truncate(LIMIT);
    clone.commit("account.config", &text);
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);

    let locked_out = office.accounts("deactivate", &["jdoe"]);
    assert_eq!(locked_out.code, 0, "{}", locked_out.err);
    let shown = office.accounts("show", &["jdoe", "--json"]).json();
    let kept = (&shown["inactive"], &shown["name"], &shown["email"]);
    assert_eq!(
        kept,
        (&true.into(), &"J. Doe".into(), &"jdoe@example.com".into()),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_utf8_and_packs_of_many_objects_are_refused() {
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let clone = office.clone_of(&jdoe, "jdoe");
    let blob = clone.git(&["rev-parse", "HEAD:account.config"]);
    let mut listing = format!("100644 blob {}\t", blob.trim()).into_bytes();
    listing.extend_from_slice(b"name-\xff\n");
    std::fs::write(clone.dir.join(".git/listing"), listing).unwrap();
    let tree = clone.git(&["-c", "alias.x=!git mktree < .git/listing", "x"]);
    let commit = clone.git(&["commit-tree", "-p", "HEAD", "-m", "x", tree.trim()]);
    let refused = clone.refused(&["origin", &format!("{}:refs/users/self", commit.trim())]);
    assert!(refused.contains("is not UTF-8"), "{refused}");

    let old = tip(&clone);
    let mut pack = EMPTY_PACK;
    pack[8..12].copy_from_slice(&20_001u32.to_be_bytes());
    let url = format!("{}/git-receive-pack", office.url(&jdoe));
    let request = reqwest::Client::new().post(url);
    let request = request.header("content-type", PUSH_TYPE);
    let answer = request.body(push_body(&old, commit.trim(), &pack));
    let report = answer.send().await.unwrap().text().await.unwrap();
    assert!(report.contains("ng refs/users/self"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_refused_although_a_later_commit_removes_it() {
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let clone = office.clone_of(&jdoe, "jdoe");
    clone.commit("large", &"x".repeat(64 * 1024 + 1));
    clone.git(&["rm", "--quiet", "large"]);
    clone.commit("small", "x");
    let refused = clone.refused(&["origin", "HEAD:refs/users/self"]);
    assert!(
        refused.contains("`large` has 65537 bytes in a commit before the newest one, and a file has at most 65536"),
        "{refused}"
    );
}

/// git does this for each command if the address names the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_password_is_no_guess() {
    let office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let ask = async |credentials: &str| {
        let (user, password) = credentials.split_once(':').unwrap();
        let url = format!(
            "{}/All-Users/info/refs?service=git-upload-pack",
            office.server.url()
        );
        let request = reqwest::Client::new().get(url);
        let answer = request.basic_auth(user, Some(password)).send().await;
        answer.unwrap().status()
    };
    for number in 0..30 {
        let status = ask(&format!("user{number}:")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{number}");
    }
    assert_eq!(ask(&jdoe).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_as_large_as_it_may_be_takes_no_more_but_a_lock_out() {
    let mut office = Office::open().await;
    let (_, jdoe) = office.person("jdoe");
    let clone = office.clone_of(&jdoe, "jdoe");
    clone.git(&["rm", "--quiet", "account.config"]);
    std::fs::create_dir(clone.dir.join("notes")).unwrap();
    for number in 0..99 {
        std::fs::write(clone.dir.join(format!("notes/{number}")), "x").unwrap();
    }
    clone.commit("last", "x");
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let one_more = office.accounts("set", &["jdoe", "--status", "OOO"]);
    assert_eq!(one_more.code, 1);
    assert!(
        one_more.err.contains("there are 101 files"),
        "{}",
        one_more.err
    );
    let locked_out = office.accounts("deactivate", &["jdoe"]);
    assert_eq!(locked_out.code, 0, "{}", locked_out.err);
    // The file that says so is one too many.
    let fault = "refs/users/00/1000000: error: user branch: there are 101 files; keep at most 100";
    office.faults.push(fault);
}
