//! Stores the configuration of a repository for a command whose hooks may have written it. No commit contains such a
//! file, and its checkout is on one replica only. The plans of the command are applied with the same configuration.

use std::collections::HashMap;

use crate::model::{CommandId, CommitSha, PullRef, RepoPath, RunId};
use crate::store::{Result, Store, execute, free_text, on_pool};

/// Configuration of a command: the file and its text; `None`: there was no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenConfig(pub Option<(RepoPath, String)>);

type CommandConfigColumns = (Option<RepoPath>, String);

impl From<CommandConfigColumns> for WrittenConfig {
    fn from((file, text): CommandConfigColumns) -> Self {
        Self(file.map(|file| (file, text)))
    }
}

impl Store {
    /// Stores the configuration of a command. It replaces one that an earlier attempt stored.
    pub async fn command_config_keep(
        &self,
        command: CommandId,
        config: &WrittenConfig,
    ) -> Result<()> {
        let (file, text) = config
            .0
            .as_ref()
            .map(|(file, text)| (file, text.as_str()))
            .unzip();
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO command_configs (command, file, text) VALUES ($1, $2, $3) \
             ON CONFLICT (command) DO UPDATE SET file = excluded.file, text = excluded.text",
            command,
            file,
            free_text(text.unwrap_or_default()).as_ref(),
        )?;
        tx.commit().await
    }

    /// Returns the configuration that was stored for a command. `None`: nothing was stored, and the command used that
    /// of a commit.
    pub async fn command_config(&self, command: CommandId) -> Result<Option<WrittenConfig>> {
        on_pool!(self, db => sqlx::query_as::<_, CommandConfigColumns>("SELECT file, text FROM command_configs WHERE command = $1")
            .bind(command).fetch_optional(db))
        .map(|row| row.map(WrittenConfig::from))
    }

    /// Returns commands with a stored configuration, by their runs that made plans of a pull. Leaves out discarded
    /// plans.
    pub async fn plan_configs(&self, pull: &PullRef) -> Result<HashMap<RunId, CommandId>> {
        on_pool!(self, db => sqlx::query_as::<_, (RunId, CommandId)>(
            "SELECT r.id, r.command FROM plans p JOIN runs r ON r.id = p.run JOIN command_configs c ON c.command = r.command \
             WHERE p.repo = $1 AND p.pull = $2 AND p.state <> 'discarded'")
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))
        .map(|rows| rows.into_iter().collect())
    }

    /// Returns the configuration that was stored for the newest command on a commit, whether or not its plans still
    /// exist.
    pub async fn command_config_of_head(
        &self,
        pull: &PullRef,
        head: &CommitSha,
    ) -> Result<Option<WrittenConfig>> {
        on_pool!(self, db => sqlx::query_as::<_, CommandConfigColumns>(
            "SELECT c.file, c.text FROM commands o JOIN command_configs c ON c.command = o.id \
             WHERE o.repo = $1 AND o.pull = $2 AND o.head = $3 ORDER BY o.created_at DESC, o.id DESC LIMIT 1")
            .bind(&pull.repo).bind(pull.subject).bind(head).fetch_optional(db))
        .map(|row| row.map(WrittenConfig::from))
    }
}
