//! Pushes refs of a served repository to another server, where a copy of them follows.
//!
//! Each ref is moved only from where it was seen (`--force-with-lease`), and the server compares again when it moves
//! them. So a process that was paused in the middle cannot replace a newer state by its older one.

use std::collections::BTreeMap;

use gix_hash::ObjectId;

use super::advertise::BadList;
use super::{GitError, GitSettings, RefName, Remote, ServedRepo};
use crate::process::{CallOutput, Captured, Cmd};

/// Maximum size of a list of refs in bytes, enough for three millions.
const MAX_LISTING: usize = 256 * 1024 * 1024;
/// Maximum number of refs in one push. They are arguments of git, and Linux limits the size of all arguments.
const MAX_MOVES: usize = 1_000;
/// Maximum number of refused refs that an error names.
const NAMED: usize = 3;

/// Ref of another server, and where a push moves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteMove {
    /// Name of the ref.
    pub name: RefName,
    /// Object that the ref points to there. `None`: it does not exist.
    pub from: Option<ObjectId>,
    /// New object. `None` removes the ref.
    pub to: Option<ObjectId>,
}

impl RemoteMove {
    /// Returns the option that makes git compare the ref first.
    fn expected(&self) -> String {
        format!("--force-with-lease={}:{}", self.name, hex(self.from))
    }

    /// Returns the source and the target of the push. A plus in front would let git push without the comparison.
    fn spec(&self) -> String {
        format!("{}:{}", hex(self.to), self.name)
    }
}

/// Returns an empty text for a ref that does not exist.
fn hex(id: Option<ObjectId>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

impl Remote<'_> {
    /// Returns all refs of the repository, without those whose names are not safe to hand to git.
    pub async fn refs(
        &self,
        settings: &GitSettings,
    ) -> Result<BTreeMap<RefName, ObjectId>, GitError> {
        let doing = "list the refs";
        let remote = self.check(doing, settings.allow_file)?;
        // A list needs no repository here, so the directory need not be one.
        let cmd = remote.git_in(settings, &settings.data_dir, None);
        let cmd = cmd
            .cap(MAX_LISTING)
            .args(["ls-remote", "--quiet", "--refs"])
            .operands([remote.url()]);
        let output = call(doing, &cmd).await?;
        if !output.is_success() {
            return Err(remote.failure(doing, &output));
        }
        read(&output.stdout).map_err(|error| GitError::other(doing, error))
    }
}

impl ServedRepo {
    /// Moves refs of a repository on another server, 1,000 at a time: all of these, or none. An error means that those
    /// of earlier pushes were moved.
    pub async fn push(&self, remote: &Remote<'_>, moves: &[RemoteMove]) -> Result<(), GitError> {
        let doing = "push";
        let remote = remote.check(doing, self.settings.allow_file)?;
        for moves in moves.chunks(MAX_MOVES) {
            let cmd = remote.git_in(&self.settings, &self.dir, None);
            let cmd = cmd
                .args(["push", "--porcelain", "--atomic", "--no-verify"])
                .args(moves.iter().map(RemoteMove::expected))
                .operands([remote.url().to_owned()])
                .operands(moves.iter().map(RemoteMove::spec));
            let output = call(doing, &cmd).await?;
            if output.is_success() {
                continue;
            }
            let error = remote.failure(doing, &output);
            let refused = refused_refs(&output.stdout.text());
            if refused.is_empty() {
                return Err(error);
            }
            let message = format!("{}: {}", refused.join(", "), error.into_message());
            return Err(GitError::other(doing, message));
        }
        Ok(())
    }
}

async fn call(doing: &str, cmd: &Cmd) -> Result<CallOutput, GitError> {
    let output = cmd.output().await;
    output.map_err(|error| GitError::from_process(doing, error))
}

/// Reads the output of `git ls-remote`: lines such as `1234…\trefs/heads/main`.
fn read(list: &Captured) -> Result<BTreeMap<RefName, ObjectId>, String> {
    if list.truncated {
        return Err(format!(
            "the list of refs is longer than {} MiB",
            MAX_LISTING >> 20
        ));
    }
    let bad = |line: usize| BadList::Line(line + 1).to_string();
    let mut refs = BTreeMap::new();
    for (at, line) in list.text().lines().enumerate() {
        let parts = line.split_once('\t');
        let (id, name) = parts.ok_or_else(|| bad(at))?;
        let id = ObjectId::from_hex(id.as_bytes()).map_err(|_| bad(at))?;
        if let Ok(name) = RefName::new(name) {
            refs.insert(name, id);
        }
    }
    Ok(refs)
}

/// Returns the refs that the server did not move, and its reasons. git writes
/// `!\t<source>:<ref>\t[remote rejected] (hook declined)`, also for refs that are fine beside others that are not.
fn refused_refs(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("!\t"));
    let refused = lines.filter_map(|line| {
        let (spec, reason) = line.split_once('\t')?;
        let (_, name) = spec.rsplit_once(':')?;
        (!reason.contains("(atomic push fail")).then(|| format!("{name} {reason}"))
    });
    refused.take(NAMED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ref_is_named_with_its_reason_and_those_beside_it_are_not() {
        let said = "To https://git.example.com/x.git\n\
                    !\t1234:refs/meta/config\t[remote rejected] (hook declined)\n\
                    !\t:refs/users/00/1000000\t[remote rejected] (atomic push failure)\n\
                    !\t(delete):refs/users/01/1000001\t[rejected] (stale info)\n\
                    Done\n";
        assert_eq!(
            refused_refs(said),
            [
                "refs/meta/config [remote rejected] (hook declined)",
                "refs/users/01/1000001 [rejected] (stale info)"
            ]
        );
        assert_eq!(refused_refs("Done\n"), [""; 0]);
    }

    #[test]
    fn a_list_of_refs_is_read_whole_or_not_at_all() {
        let list = |text: &str, truncated| {
            let bytes = text.replace('#', &"ab".repeat(20)).into_bytes();
            read(&Captured { bytes, truncated })
        };
        let refs = list("#\trefs/users/00/1000000\n#\trefs/users/../x\n", false).unwrap();
        let names: Vec<&str> = refs.keys().map(RefName::as_str).collect();
        assert_eq!(names, ["refs/users/00/1000000"]);
        assert_eq!(list("", false), Ok(BTreeMap::new()));
        assert_eq!(
            list("#\trefs/users/00/1000000\n", true),
            Err("the list of refs is longer than 256 MiB".to_owned())
        );
        for broken in [
            "<html>\n",
            "# refs/users/00/1000000\n",
            "ab\trefs/users/00/1000000\n",
        ] {
            let line = Err(BadList::Line(1).to_string());
            assert_eq!(list(broken, false), line, "{broken}");
        }
    }
}
