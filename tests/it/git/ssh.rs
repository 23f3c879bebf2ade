//! git by SSH. The program `ssh` is a stand-in that writes down how it is called, and then serves the repository.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lockkeeper::credential::SshAccess;
use lockkeeper::git::{FetchRequest, Git, GitSettings, Head};
use lockkeeper::secret::Secret;
use lockkeeper::vcs::{GitCredentials, SshLogin};

use super::{PATH, World, main, pull_ref};

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

fn login() -> SshLogin {
    let access = SshAccess {
        user: "git".to_owned(),
        port: 2222,
        key: Secret::new("-----BEGIN…\nnot really a key\n-----END…"),
        known_hosts: "[github.com]:2222 ssh-ed25519 AAAA".to_owned(),
    };
    SshLogin::new(&access, "github.com").unwrap()
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
    let mirror =
        Git::new(GitSettings::new(world.path("by-ssh"), path)).mirror(&"github.com/acme/infra".parse().unwrap());
    let credentials = GitCredentials::by_ssh(login());
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
    assert_eq!((noted("mode").trim(), noted("key").as_str()), ("600", "-----BEGIN…\nnot really a key\n-----END…\n"));
    assert!(!words.contains("not really") && !noted("env").contains("not really"), "the key is in a file alone");
    assert!(!noted("env").contains("SSH_AUTH_SOCK"));
    drop(credentials);
    assert!(!std::path::Path::new(place.trim()).exists(), "the key is gone from the disk");
}
