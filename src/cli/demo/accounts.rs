//! A person of the story who edits their account with git.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::objects::CommitPerson;

use super::stage::DemoStage;
use crate::features::accounts::{AccountsActor, AllUsers, NewAccount};
use crate::model::{Actor, Cause, Origin};
use crate::process::{CallOutput, Cmd};
use crate::secret::Secret;

/// User name of the account.
pub(super) const OLGA: &str = "olga";

/// Change that the person pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountPush {
    /// Watch of the repository of the story.
    Watch,
    /// The address of another person as the preferred one.
    ForeignAddress,
}

impl AccountPush {
    /// Returns the changed file and its new content.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Watch => (
                "watch.config",
                "[project \"github.com/acme/infrastructure\"]\n\tnotify = dir:network/** [APPLIES, LOCKS]\n",
            ),
            Self::ForeignAddress => (
                "account.config",
                "[account]\n\tfullName = Olga\n\tpreferredEmail = alice@example.com\n",
            ),
        }
    }

    /// Returns the message of the commit.
    fn message(self) -> &'static str {
        match self {
            Self::Watch => "Watch the network",
            Self::ForeignAddress => "Use another address",
        }
    }

    /// Describes what the person does.
    pub fn title(self) -> String {
        let (file, _) = self.file();
        format!("{OLGA} edits {file}: git push origin HEAD:refs/users/self")
    }
}

/// Returns the accounts of the server of the story.
pub(super) fn accounts(stage: &DemoStage) -> AllUsers {
    AllUsers::new(stage.server.ctx().store.clone(), "localhost")
}

/// Edits a file in a new clone, and pushes it. Returns what git prints.
pub(super) async fn push(stage: &DemoStage, push: AccountPush) -> anyhow::Result<String> {
    let password = password(stage).await?;
    let folder = tempfile::tempdir_in(&stage.people).context("cannot create a folder")?;
    let clone = Clone {
        dir: folder.path().to_owned(),
        path: stage.path.clone(),
        password,
    };
    let url = format!("{}All-Users", stage.dashboard());
    clone.git(&["init", "--quiet"]).await?;
    clone.git(&["remote", "add", "origin", &url]).await?;
    clone
        .git(&["fetch", "--quiet", "origin", "refs/users/self"])
        .await?;
    clone.git(&["checkout", "--quiet", "FETCH_HEAD"]).await?;
    let (file, content) = push.file();
    std::fs::write(folder.path().join(file), content).context("cannot write into the clone")?;
    clone.git(&["add", file]).await?;
    clone
        .git(&["commit", "--quiet", "--message", push.message()])
        .await?;
    let pushed = ["push", "origin", "HEAD:refs/users/self"];
    let pushed = clone.run(&pushed).await?;
    let said = String::from_utf8_lossy(&pushed.stderr.bytes).into_owned();
    // The address of the server is in the title of the demo already.
    let is_new =
        |line: &&str| !line.starts_with("To http") && !line.starts_with("error: failed to push");
    let lines = said.lines().map(str::trim_end).filter(is_new);
    // The transcript shows answers as Markdown.
    Ok(format!(
        "```\n{}\n```",
        lines.collect::<Vec<_>>().join("\n")
    ))
}

/// Returns a new password of the account, which is created if it is not there.
async fn password(stage: &DemoStage) -> anyhow::Result<Secret> {
    let users = accounts(stage);
    let by = AccountsActor {
        author: CommitPerson::new("Demo", "demo@localhost"),
        cause: Cause::new(Actor::new("demo", Origin::Cli), "the demo"),
        expected: None,
        signed_in: None,
    };
    if let Some(row) = users.find(OLGA).await? {
        return Ok(users.generate_password(&by, row.number).await?);
    }
    let email = format!("{OLGA}@example.com");
    let new = NewAccount {
        username: Some(ExternalIdKey::username(OLGA)?),
        full_name: Some("Olga".to_owned()),
        email: Some(email.parse().context("the address of the demo")?),
        ..NewAccount::default()
    };
    let number = users.create(&by, &new).await?;
    Ok(users.generate_password(&by, number).await?)
}

/// Clone of the person.
struct Clone {
    dir: PathBuf,
    path: String,
    password: Secret,
}

impl Clone {
    async fn git(&self, args: &[&str]) -> anyhow::Result<()> {
        let output = self.run(args).await?;
        ensure!(
            output.is_success(),
            "git {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr.bytes)
        );
        Ok(())
    }

    async fn run(&self, args: &[&str]) -> anyhow::Result<CallOutput> {
        let password = format!("{OLGA}:{}", self.password.expose());
        let header = format!("Authorization: Basic {}", BASE64_STANDARD.encode(password));
        let cmd = Cmd::new("git")
            .args(args)
            .dir(&self.dir)
            .env("PATH", &self.path)
            .env("HOME", &self.dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .env("GIT_AUTHOR_NAME", "Olga")
            .env("GIT_AUTHOR_EMAIL", format!("{OLGA}@example.com"))
            .env("GIT_COMMITTER_NAME", "Olga")
            .env("GIT_COMMITTER_EMAIL", format!("{OLGA}@example.com"))
            // Not in the arguments, which other users of the machine can read.
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "http.extraHeader")
            .env("GIT_CONFIG_VALUE_0", header);
        Ok(cmd.output().await?)
    }
}
