//! Attacks by somebody with an account, without git where git would not do it.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_hash::ObjectId;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sha1::{Digest as _, Sha1};

use crate::support::accounts_fixture::{ADMIN, AccountsFixture, WATCH, git, object_id, words_of};
use crate::support::rows::account_objects;

/// A pack without objects: header, and its checksum.
const EMPTY_PACK: [u8; 32] = [
    0x50, 0x41, 0x43, 0x4b, 0, 0, 0, 2, 0, 0, 0, 0, 0x02, 0x9d, 0x08, 0x82, 0x3b, 0xd8, 0xa8, 0xea,
    0xb5, 0x10, 0xad, 0x6a, 0xc7, 0x5c, 0x82, 0x3c, 0xfd, 0x3e, 0xd3, 0x1e,
];
pub(super) const PUSH_TYPE: &str = "application/x-git-receive-pack-request";

/// Returns a request to move the own branch.
pub(super) fn push_body(old: &str, new: &str, pack: &[u8]) -> Vec<u8> {
    let line = format!("{old} {new} refs/users/self\0 report-status side-band-64k");
    let mut body = format!("{:04x}{line}0000", line.len() + 4).into_bytes();
    body.extend_from_slice(pack);
    body
}

/// Posts a push, and returns the report with the lines for people.
async fn post(fixture: &AccountsFixture, credentials: &str, body: Vec<u8>) -> String {
    let url = format!("{}/git-receive-pack", fixture.url(credentials));
    let request = reqwest::Client::new().post(url);
    let request = request.header("content-type", PUSH_TYPE);
    let answer = request.body(body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.text().await.unwrap()
}

/// Returns a pack with one object, whose header claims this type and size. The base is that of a delta.
fn small_pack(kind: u8, mut size: usize, base: &[u8], content: &[u8]) -> Vec<u8> {
    let mut pack = EMPTY_PACK[..8].to_vec();
    pack.extend_from_slice(&[0, 0, 0, 1]);
    let low = |bits: usize| u8::try_from(bits).unwrap();
    let mut byte = (kind << 4) | low(size & 15);
    size >>= 4;
    while size > 0 {
        pack.push(byte | 0x80);
        byte = low(size & 0x7f);
        size >>= 7;
    }
    pack.push(byte);
    pack.extend_from_slice(base);
    let mut zlib = ZlibEncoder::new(pack, Compression::fast());
    zlib.write_all(content).unwrap();
    let mut pack = zlib.finish().unwrap();
    let sum = Sha1::digest(&pack);
    pack.extend_from_slice(sum.as_slice());
    pack
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_of_the_commit_that_is_there_changes_nothing() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let tip = fixture.clone_of(&jdoe, "jdoe").tip();
    let before = fixture.accounts("show", &["jdoe", "--json"]).out;
    for pack in [&[][..], &EMPTY_PACK] {
        let report = post(&fixture, &jdoe, push_body(&tip, &tip, pack)).await;
        assert!(
            report.contains("ng refs/users/self non-fast-forward"),
            "{report}"
        );
    }
    assert_eq!(fixture.accounts("show", &["jdoe", "--json"]).out, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_locked_out_during_a_push_does_not_get_back_in_by_it() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let old = clone.tip();
    clone.commit("watch.config", WATCH);
    let body = push_body(&old, &clone.tip(), &clone.pack_since(&old));

    let request = ("POST", "/All-Users/git-receive-pack", PUSH_TYPE);
    let lock_out = || assert_eq!(fixture.accounts("deactivate", &["jdoe"]).code, 0);
    let answer = fixture
        .with_late_body(request, &jdoe, &body, lock_out)
        .await;
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    assert_eq!(shown["inactive"], true, "{shown}");
    assert_eq!(fixture.accounts("activate", &["jdoe"]).code, 0);
    let history = fixture.accounts("history", &["jdoe"]).out;
    assert!(!history.contains("Edit"), "{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_keeps_nobody_from_being_locked_out() {
    const LIMIT: usize = 64 * 1024;
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
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

    let locked_out = fixture.accounts("deactivate", &["jdoe"]);
    assert_eq!(locked_out.code, 0, "{}", locked_out.err);
    let shown = fixture.accounts("show", &["jdoe", "--json"]).json();
    let kept = (&shown["inactive"], &shown["name"], &shown["email"]);
    assert_eq!(
        kept,
        (&true.into(), &"J. Doe".into(), &"jdoe@example.com".into()),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_utf8_and_packs_of_many_objects_are_refused() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let blob = clone.git(&["rev-parse", "HEAD:account.config"]);
    let mut listing = format!("100644 blob {}\t", blob.trim()).into_bytes();
    listing.extend_from_slice(b"name-\xff\n");
    std::fs::write(clone.dir.join(".git/listing"), listing).unwrap();
    let tree = clone.git(&["-c", "alias.x=!git mktree < .git/listing", "x"]);
    let commit = clone.git(&["commit-tree", "-p", "HEAD", "-m", "x", tree.trim()]);
    let refused = clone.refused(&["origin", &format!("{}:refs/users/self", commit.trim())]);
    assert!(refused.contains("is not UTF-8"), "{refused}");

    let mut pack = EMPTY_PACK;
    pack[8..12].copy_from_slice(&20_001u32.to_be_bytes());
    let body = push_body(&clone.tip(), commit.trim(), &pack);
    let report = post(&fixture, &jdoe, body).await;
    assert!(
        report.contains("the push has 20001 objects; the limit is 20000"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_pack_with_a_huge_object_does_not_get_the_memory_for_it() {
    const DIRECTORY: u8 = 2;
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let old = fixture.clone_of(&jdoe, "jdoe").tip();
    let pack = small_pack(DIRECTORY, 1 << 30, &[], b"");
    let report = post(&fixture, &jdoe, push_body(&old, &"1".repeat(40), &pack)).await;
    let why = "the pushed objects are not accepted: fatal: Out of memory";
    assert!(report.contains(why), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_refused_although_a_later_commit_removes_it() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
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
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let ask = async |credentials: &str| {
        let (user, password) = credentials.split_once(':').unwrap();
        let url = format!(
            "{}/All-Users/info/refs?service=git-upload-pack",
            fixture.server.url()
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
    let mut fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    clone.git(&["rm", "--quiet", "account.config"]);
    std::fs::create_dir(clone.dir.join("notes")).unwrap();
    for number in 0..99 {
        std::fs::write(clone.dir.join(format!("notes/{number}")), "x").unwrap();
    }
    clone.commit("last", "x");
    let pushed = clone.push(&["origin", "HEAD:refs/users/self"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let one_more = fixture.accounts("set", &["jdoe", "--status", "OOO"]);
    assert_eq!(one_more.code, 1);
    assert!(
        one_more.err.contains("there are 101 files"),
        "{}",
        one_more.err
    );
    let locked_out = fixture.accounts("deactivate", &["jdoe"]);
    assert_eq!(locked_out.code, 0, "{}", locked_out.err);
    // The file that says so is one too many.
    fixture.has_unusable = true;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_a_full_history_takes_no_pushes_and_can_be_changed() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let mut random = StdRng::seed_from_u64(7);
    let mut large = || {
        for file in 0..15 {
            let mut content = vec![0; 64 * 1024];
            random.fill_bytes(&mut content);
            std::fs::write(clone.dir.join(file.to_string()), content).unwrap();
        }
        clone.git(&["add", "--all"]);
        clone.git(&["commit", "--quiet", "--message", "Edit"]);
    };
    // A push may have 4 MiB, with the files of its newest commit twice.
    let mut taken = 0;
    let refused = loop {
        (0..3).for_each(|_| large());
        let pushed = clone.push(&["--quiet", "origin", "HEAD:refs/users/self"]);
        if pushed.code != 0 {
            break words_of(&pushed);
        }
        taken += 1;
        assert!(taken < 12, "35 MiB and more were taken");
    };
    assert!(taken >= 10, "{taken} taken: {refused}");
    assert!(
        refused.contains(
            "remote: error: the history of the account has more than 32 MiB, so it takes no more pushes; change the \
             account with the API or `lockkeeper accounts`, or let somebody with `accessDatabase` push"
        ),
        "{refused}"
    );
    assert!(
        refused.contains("HEAD -> refs/users/self (the account is full)"),
        "{refused}"
    );
    let status = fixture.api(Method::PUT, &jdoe, "/self/status");
    let status = status.json(&json!({"status": "OOO"})).send().await;
    assert_eq!(status.unwrap().status(), StatusCode::OK);
    let removed = fixture.accounts("set", &["jdoe", "--status", ""]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    // What has no meaning can be removed by the administrator of the server.
    clone.git(&["fetch", "--quiet", "origin", "refs/users/self"]);
    clone.git(&["checkout", "--quiet", "FETCH_HEAD"]);
    clone.git(&["rm", "--quiet", "0"]);
    clone.git(&["config", "user.email", "ops@lockkeeper.test"]);
    clone.git(&["commit", "--quiet", "--message", "Edit"]);
    let pushed = clone.push(&[&fixture.url(ADMIN), "HEAD:refs/users/00/1000000"]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
}

/// git on the client packs nothing that leads to an object that is not there, so these packs are made by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_objects_that_name_hidden_ones_are_refused_and_cannot_be_fetched() {
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    fixture.person("kim");
    let all = fixture.mirror(ADMIN, "all.git");
    let id = |name: &str| object_id(&all, name);
    let commit = id("refs/users/01/1000001");
    let tree = id("refs/users/01/1000001^{tree}");
    let blob = id("refs/users/01/1000001:account.config");
    let notes = id("refs/meta/external-ids");
    let clone = fixture.clone_of(&jdoe, "jdoe");
    let old = clone.tip();
    let database = fixture.server.database();
    let stored = account_objects(&database).await;

    let mut pushes = Vec::new();
    let mut secrets = vec![commit.clone(), tree.clone(), blob.clone(), notes.clone()];
    for (entry, reason) in [
        (
            format!("100644 blob {blob}\taccount.config"),
            "unpacker error",
        ),
        (format!("040000 tree {tree}\tnotes"), "unpacker error"),
        (
            format!("160000 commit {commit}\tmodule"),
            "invalid account configuration",
        ),
    ] {
        let dir = clone.directory(&format!("{entry}\n"));
        let steal = clone.git(&["commit-tree", "-p", "HEAD", "-m", "steal", &dir]);
        let steal = steal.trim().to_owned();
        pushes.push((steal.clone(), clone.pack(&[&steal, &dir]), reason));
        secrets.extend([steal, dir]);
    }
    // A commit with their whole directory.
    let person = "jdoe <jdoe@example.com> 1772420645 +0000";
    let text = format!("tree {tree}\nparent {old}\nauthor {person}\ncommitter {person}\n\nsteal\n");
    std::fs::write(clone.dir.join(".git/text"), text).unwrap();
    let steal = clone.git(&["hash-object", "-t", "commit", "-w", ".git/text"]);
    let steal = steal.trim().to_owned();
    pushes.push((steal.clone(), clone.pack(&[&steal]), "unpacker error"));
    secrets.push(steal.clone());
    // Their file with another line below it: the file itself is not in the pack.
    let size = git(&all, &["cat-file", "-s", &blob]).out;
    let size: u8 = size.trim().parse().unwrap();
    let delta = [size, size + 2, 0x90, size, 2, b'#', b'\n'];
    let base = ObjectId::from_hex(blob.as_bytes()).unwrap();
    let thin = small_pack(7, delta.len(), base.as_bytes(), &delta);
    pushes.push((steal, thin, "unpacker error"));
    // Their commit as it is.
    pushes.push((commit.clone(), EMPTY_PACK.to_vec(), "non-fast-forward"));
    for (new, pack, reason) in &pushes {
        let report = post(&fixture, &jdoe, push_body(&old, new, pack)).await;
        let refused = format!("ng refs/users/self {reason}\n");
        assert!(report.contains(&refused), "{new}: {report}");
    }

    // A client that has none of it gets none of it.
    let late = fixture.empty("late", "jdoe@example.com");
    let url = fixture.url(&jdoe);
    for version in ["protocol.version=0", "protocol.version=2"] {
        for secret in &secrets {
            let fetch = ["-c", version, "fetch", "--quiet", &url, secret];
            let said = git(&late.dir, &fetch);
            assert!(said.err.contains("not our ref"), "{secret}: {}", said.err);
        }
    }
    // The server does not even say that it has an object.
    let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
    let have = |id: &str| line(&format!("have {id}\n"));
    let want = line(&format!("want {old} multi_ack_detailed no-done\n"));
    let ask = async |haves: &str| {
        let body = format!("{want}0000{haves}0000");
        let kind = "application/x-git-upload-pack-request";
        let request = reqwest::Client::new().post(format!("{url}/git-upload-pack"));
        let request = request.header("content-type", kind).body(body);
        request.send().await.unwrap().bytes().await.unwrap()
    };
    let guessed: String = secrets.iter().map(|id| have(id)).collect();
    assert_eq!(&ask(&guessed).await[..], b"0008NAK\n");
    let own = ask(&have(&old)).await;
    assert!(own.starts_with(line(&format!("ACK {old} common\n")).as_bytes()));

    assert_eq!(account_objects(&database).await, stored);
    let quarantine = fixture.server.data_dir().join("all-users/pushed");
    assert_eq!(std::fs::read_dir(quarantine).unwrap().count(), 0);
    let listed = clone.git(&["ls-remote", "origin", "refs/users/self"]);
    assert_eq!(listed, format!("{old}\trefs/users/self\n"));
}

/// Guesses at git and at the API count together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_make_their_address_wait_and_no_other() {
    const LISTING: &str = "/All-Users/info/refs?service=git-upload-pack";
    const OWN: &str = "/api/accounts/self";
    let fixture = AccountsFixture::open().await;
    let (_, jdoe) = fixture.person("jdoe");
    let ask = async |from: &str, path: &str, credentials: &str| {
        let address: IpAddr = from.parse().unwrap();
        let client = reqwest::Client::builder().no_proxy().local_address(address);
        let (user, password) = credentials.split_once(':').unwrap();
        let url = format!("{}{path}", fixture.server.url());
        let request = client.build().unwrap().get(url);
        let answer = request.basic_auth(user, Some(password)).send().await;
        let answer = answer.unwrap();
        let waits = answer.headers().contains_key("retry-after");
        (answer.status().as_u16(), waits)
    };
    let (mallory, other) = ("127.0.0.2", "127.0.0.1");
    // Ten are free, and after each further one the wait is twice as long: after the thirteenth, four seconds.
    let mut guesses = 0;
    while guesses < 13 {
        let path = if guesses % 2 == 0 { LISTING } else { OWN };
        match ask(mallory, path, &format!("jdoe:guess-{guesses}")).await {
            (401, false) => guesses += 1,
            (429, true) if guesses > 10 => tokio::time::sleep(Duration::from_millis(50)).await,
            answered => panic!("guess {guesses}: {answered:?}"),
        }
    }
    for path in [LISTING, OWN] {
        assert_eq!(ask(mallory, path, &jdoe).await, (429, true), "{path}");
        assert_eq!(ask(other, path, &jdoe).await, (200, false), "{path}");
    }
    let said = git(fixture.dir.path(), &["ls-remote", &fixture.url(&jdoe)]);
    assert_eq!(said.code, 0, "{}", said.err);
}
