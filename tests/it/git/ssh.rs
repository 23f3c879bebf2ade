//! Tests of git over SSH: with a fake `ssh` that records its arguments, and with the real one at a real server.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use insta::assert_snapshot;
use lockkeeper::claims::CredentialStore;
use lockkeeper::credential::{GitAccess, SshAccess};
use lockkeeper::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts, TokenSource};
use lockkeeper::forges::{Forge as _, SshLogin};
use lockkeeper::git::{RefSelection, Remote, Synced};
use lockkeeper::model::{HostName, OwnerName, RepoId, RepoUrl, Rights, Sha256Digest};
use lockkeeper::seal::{Keyring, key_line};
use serde_json::json;

use super::*;
use crate::support::db::{TestDb, by, store_test};
use crate::support::sshd::Sshd;

store_test!(the_key_that_an_owner_gave_is_the_one_that_a_mirror_is_made_with);

const STAND_IN: &str = r#"#!/bin/sh
here=$(dirname "$0")
previous=
for word; do
    case $previous in
    -i) cat "$word" > "$here/key"; stat -c %a "$word" > "$here/mode"; dirname "$word" > "$here/place" ;;
    esac
    printf '%s\n' "$word" >> "$here/words"
    previous=$word
done
env > "$here/env"
exec git-upload-pack "$here/../srv/acme/infra.git"
"#;

fn login(place: &std::path::Path) -> SshLogin {
    let access = SshAccess {
        user: "git".to_owned(),
        port: 2222,
        key: Secret::new("-----BEGIN…\nnot really a key\n-----END…"),
        known_hosts: "[github.com]:2222 ssh-ed25519 AAAA".to_owned(),
    };
    SshLogin::new(&access, "github.com", place).unwrap()
}

#[tokio::test]
async fn git_goes_by_ssh_with_one_key_and_nothing_else_of_this_machine() {
    let world = World::new().await;
    let (_, head) = world.pull("main.tf=two").await;
    let bin = world.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("ssh"), STAND_IN).unwrap();
    std::fs::set_permissions(bin.join("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{PATH}", bin.display());
    let mirror = Git::new(GitSettings::new(world.path("by-ssh"), path))
        .mirror(&"github.com/acme/infra".parse().unwrap());
    let credentials = GitCredentials::by_ssh(login(&world.path("by-ssh/tmp")));
    let request = FetchRequest {
        url: "https://github.com/acme/infra.git",
        credentials: Some(&credentials),
        refs: &[main(), pull_ref()],
        wanted: Some(&head),
        deadline: Duration::from_mins(1),
    };
    assert_eq!(mirror.fetch(&request).await.unwrap().wanted, Head::Present);
    let noted = |name: &str| std::fs::read_to_string(bin.join(name)).unwrap();
    let place = noted("place");
    let words = noted("words").replace(place.trim(), "DIR");
    for expected in [
        "-F\n/dev/null\n-i\nDIR/key\n",
        "IdentitiesOnly=yes\n",
        "IdentityAgent=none\n",
        "UserKnownHostsFile=\"DIR/known_hosts\"\n",
        "GlobalKnownHostsFile=/dev/null\n",
        "StrictHostKeyChecking=yes\n",
        "BatchMode=yes\n",
        "-p\n2222\ngit@github.com\ngit-upload-pack '/acme/infra.git'\n",
    ] {
        assert!(words.contains(expected), "{expected} in {words}");
    }
    assert_eq!(
        (noted("mode").trim(), noted("key").as_str()),
        ("600", "-----BEGIN…\nnot really a key\n-----END…\n")
    );
    assert!(
        !words.contains("not really") && !noted("env").contains("not really"),
        "the key is in a file alone"
    );
    assert!(!noted("env").contains("SSH_AUTH_SOCK"));
    assert!(
        place.starts_with(&world.path("by-ssh/tmp").display().to_string()),
        "{place}"
    );
    drop(credentials);
    assert!(
        !std::path::Path::new(place.trim()).exists(),
        "the key is gone from the disk"
    );
}

const URL: &str = "https://127.0.0.1/acme/infra.git";

/// A server with the repository of the world. As forges do, it returns the address of LFS contents.
struct Server {
    world: World,
    sshd: Sshd,
}

impl Server {
    async fn start() -> Self {
        let world = World::new().await;
        let authorization = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let place = json!({"href": format!("{}/acme/infra.git/info/lfs", world.server.url), "header": {"Authorization": authorization}});
        let script = format!(
            "printf '%s\\n' \"$GIT_PROTOCOL $SSH_ORIGINAL_COMMAND\" >> {asked}\n\
             case $SSH_ORIGINAL_COMMAND in\n\
             \"git-upload-pack '/acme/infra.git'\") exec git upload-pack {repository} ;;\n\
             'git-lfs-authenticate /acme/infra.git download') printf '%s' '{place}' ;;\n\
             *) echo 'ERROR: Repository not found.' >&2; exit 1 ;;\n\
             esac",
            asked = world.path("asked").display(),
            repository = world.path("srv/acme/infra.git").display(),
        );
        let sshd = Sshd::start(&world.path("sshd"), &script).await;
        Self { world, sshd }
    }

    fn access(&self, key: &str, host: &str) -> SshAccess {
        SshAccess {
            user: self.sshd.user.clone(),
            port: self.sshd.port,
            key: Secret::new(&self.sshd.key(key)),
            known_hosts: self.sshd.known_hosts(host),
        }
    }

    fn login(&self, access: &SshAccess) -> GitCredentials {
        GitCredentials::by_ssh(
            SshLogin::new(access, "127.0.0.1", &self.world.path("by-ssh/tmp")).unwrap(),
        )
    }

    fn mirror(&self) -> Mirror {
        let settings = GitSettings::new(self.world.path("by-ssh"), PATH);
        Git::new(settings).mirror(&"127.0.0.1/acme/infra".parse().unwrap())
    }

    async fn sync(&self, access: &SshAccess, url: &str) -> Result<Synced, GitError> {
        let credentials = self.login(access);
        let remote = Remote {
            url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        self.mirror()
            .sync(
                &remote,
                &RefSelection {
                    branches: true,
                    pulls: [pull_ref()].into(),
                },
            )
            .await
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.world.path("asked")).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_real_server_is_reached_by_a_real_key() {
    let server = Server::start().await;
    let (base, head) = server.world.pull("main.tf=two").await;
    let access = server.access("key", "host");
    let shown = GitAccess::Ssh(access.clone())
        .check(&HostName::new("127.0.0.1").unwrap())
        .unwrap();
    let fingerprint = server
        .world
        .sh("ssh-keygen -l -f sshd/key | cut -d' ' -f2")
        .await;
    assert_eq!(
        (shown.fingerprint, shown.algorithm.as_deref()),
        (fingerprint, Some("ssh-ed25519"))
    );
    let synced = server
        .sync(&access, URL)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", server.sshd.log()));
    let refs: Vec<_> = synced
        .refs
        .iter()
        .map(|(name, id)| (name.clone(), id.clone()))
        .collect();
    assert_eq!(refs, [(main(), base), (pull_ref(), head.clone())]);
    assert!(server.mirror().has_commit(&head).await.unwrap());
    let asked = server.asked();
    assert!(
        asked
            .lines()
            .all(|line| line == "version=2 git-upload-pack '/acme/infra.git'")
            && !asked.is_empty(),
        "{asked}"
    );
    assert_eq!(
        std::fs::read_dir(server.world.path("by-ssh/tmp"))
            .unwrap()
            .count(),
        0,
        "the key is gone from the disk"
    );
}

async fn the_key_that_an_owner_gave_is_the_one_that_a_mirror_is_made_with(db: &TestDb) {
    let server = Server::start().await;
    let (base, head) = server.world.pull("main.tf=two").await;
    let repo: RepoId = "127.0.0.1/acme/infra".parse().unwrap();
    let (owner, url) = (OwnerName::new("net").unwrap(), RepoUrl::of(&repo).unwrap());
    drop(db.store().owner_create(&owner, by()).await.unwrap());
    let keys = Keyring::parse(
        key_line(&"a".parse().unwrap(), b"0123456789abcdef0123456789abcdef").expose(),
    )
    .unwrap();
    let given = CredentialStore::new(db.store().clone(), db.ids.clone(), Some(Arc::new(keys)));
    let id = given
        .add(
            &owner,
            &url,
            &GitAccess::Ssh(server.access("key", "host")),
            (Rights::Whole, by()),
        )
        .await
        .unwrap()
        .id;
    let auth = GitHubAuth::Token {
        user: None,
        token: TokenSource::Fixed(Secret::new("ghp_of_the_server")),
    };
    let endpoints = GitHubEndpoints::new("127.0.0.1", None).unwrap();
    let forge = GitHub::new(endpoints, auth, db.clock.clone(), Timeouts::default()).unwrap();
    let forge = forge.with_access(Arc::new(given), server.world.path("by-ssh/tmp"));
    let url = forge.clone_url(&repo);
    {
        let credentials = forge.git_credentials(&repo).await.unwrap();
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        let selection = RefSelection {
            branches: true,
            pulls: [pull_ref()].into(),
        };
        let synced = server.mirror().sync(&remote, &selection).await;
        let synced = synced.unwrap_or_else(|error| panic!("{error}\n{}", server.sshd.log()));
        assert_eq!(
            synced
                .refs
                .iter()
                .map(|(_, id)| id.clone())
                .collect::<Vec<_>>(),
            [base, head]
        );
    }
    assert!(
        server
            .asked()
            .starts_with("version=2 git-upload-pack '/acme/infra.git'\n"),
        "{}",
        server.asked()
    );
    assert!(
        db.store()
            .credential_get(id)
            .await
            .unwrap()
            .unwrap()
            .used_at
            .is_some()
    );
    assert_eq!(
        std::fs::read_dir(server.world.path("by-ssh/tmp"))
            .unwrap()
            .count(),
        0,
        "the key is gone from the disk"
    );
    let other = forge
        .git_credentials(&"127.0.0.1/acme/other".parse().unwrap())
        .await
        .unwrap();
    assert!(other.ssh.is_none(), "it is for one repository");
    db.store().credential_remove(id, by()).await.unwrap();
    assert!(
        forge.git_credentials(&repo).await.unwrap().ssh.is_none(),
        "it was taken back"
    );
}

#[tokio::test]
async fn who_is_not_who_they_say_is_told_apart() {
    let server = Server::start().await;
    let told = async |access: &SshAccess, url: &str| {
        let error = server.sync(access, url).await.unwrap_err();
        let text = format!("{error:?}").replace(&server.sshd.port.to_string(), "PORT");
        text.replace(&format!("{}@", server.sshd.user), "USER@")
    };
    let host = told(&server.access("key", "other_host"), URL).await;
    assert_snapshot!(host, @r#"Other { doing: "list the refs of 127.0.0.1/acme/infra", message: "Host key for [127.0.0.1]:PORT has changed and you have requested strict checking.\nHost key verification failed.\nThe key of the host does not match the SSH credential. If the host has a new key, compare the output of `ssh-keyscan` with the keys that the host publishes, and replace the known hosts by these lines: add the credential again, or write them into the file of the setting." }"#);
    let key = told(&server.access("other_key", "host"), URL).await;
    assert_snapshot!(key, @r#"AuthFailed { doing: "list the refs of 127.0.0.1/acme/infra", message: "USER@127.0.0.1: Permission denied (publickey)." }"#);
    let closed = SshAccess {
        port: 1,
        known_hosts: String::new(),
        ..server.access("key", "host")
    };
    assert_snapshot!(told(&closed, URL).await, @r#"Unreachable { doing: "list the refs of 127.0.0.1/acme/infra", message: "ssh: connect to host 127.0.0.1 port 1: Connection refused" }"#);
    assert_eq!(server.asked(), "", "nothing was asked of anybody");
    let missing = told(
        &server.access("key", "host"),
        "https://127.0.0.1/acme/none.git",
    )
    .await;
    assert_snapshot!(missing, @r#"NotFound { doing: "list the refs of 127.0.0.1/acme/infra", message: "ERROR: Repository not found." }"#);
}

#[tokio::test]
async fn contents_kept_with_lfs_are_where_the_server_says() {
    let server = Server::start().await;
    let content = "kept elsewhere\n".repeat(100);
    let id = Sha256Digest::of(content.as_bytes()).to_string();
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {}\n",
        content.len()
    );
    std::fs::write(server.world.path("work/x.bin"), pointer).unwrap();
    std::fs::write(
        server.world.path("work/.gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .unwrap();
    server
        .world
        .server
        .log
        .lock()
        .unwrap()
        .lfs
        .insert(id, content.clone());
    let (base, head) = server.world.pull("").await;
    let access = server.access("key", "host");
    server.sync(&access, URL).await.unwrap();
    let (mirror, credentials) = (server.mirror(), server.login(&access));
    let remote = Remote {
        url: URL,
        credentials: Some(&credentials),
        deadline: Duration::from_mins(1),
    };
    let files = mirror
        .bring_lfs(&remote, &head)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", server.asked()));
    let workspace = WorkspaceName::default();
    let (strategy, extent) = (CheckoutStrategy::Branch, &Extent::Whole);
    let wanted = CheckoutRequest {
        pull: PULL,
        workspace: &workspace,
        head: &head,
        base: &base,
        strategy,
        extent,
    };
    let checkout = ready(mirror.prepare(&wanted).await.unwrap());
    mirror.place_lfs(&checkout, files).await.unwrap();
    assert_eq!(read(&checkout, "x.bin"), content);
}
