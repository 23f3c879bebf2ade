//! Leaves out refs whose objects git refuses.
//!
//! The need: git checks objects on arrival (`fetch.fsckObjects`) and refuses a whole exchange for one bad object. A
//! single bad branch would keep all others from coming. So the commits are then requested in halves until the bad
//! ones are found. Their refs are left out of the mirror and named; all others are fetched. Limits bound the number
//! of refused refs and of exchanges. Beyond them, the history itself is bad, and the whole mirror fails.
//!
//! The refs that were left out are noted with their commits, so that later fetches do not request them again. Another
//! commit under the same ref is requested as usual. Upkeep drops the notes once a day, because a newer git may decide
//! differently.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tracing::warn;

use super::mirror::remove_all;
use super::remote::Checked;
use super::{GitError, Mirror, RefList, RefName, classify, place};
use crate::model::CommitSha;
use crate::process::CallOutput;

/// Maximum number of refs that may be left out of a mirror.
const MAX_REFUSED: usize = 10;
/// Maximum number of exchanges with the forge to find the refused commits.
const MAX_EXCHANGES: usize = 150;
/// Prefix of the refs that keep the results of a fetch in parts until all refs are moved.
const PARTS: &str = "refs/lockkeeper/parts/";

/// Ref that is left out of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRef {
    /// Full name of the ref.
    pub name: RefName,
    /// Commit of the ref at the forge.
    pub commit: CommitSha,
    /// Message of git about the object.
    pub why: String,
}

impl std::fmt::Display for RefusedRef {
    /// Formats as `refs/heads/x (1234abcd): error: object …: hasDotgit: contains '.git'`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.commit.short(), self.why)
    }
}

/// Returns the refs of a forge without those that are left out here.
pub fn without_refused(there: &RefList, refused: &[RefusedRef]) -> RefList {
    let is_refused = |name: &RefName, id: &CommitSha| {
        refused
            .iter()
            .any(|refused| refused.name == *name && refused.commit == *id)
    };
    there
        .iter()
        .filter(|(name, id)| !is_refused(name, id))
        .map(|(name, id)| (name.clone(), id.clone()))
        .collect()
}

/// Result of fetching commits in parts.
pub(super) enum PartialFetch {
    /// All commits came except these, each with the reason.
    Without(BTreeMap<String, String>),
    /// The forge no longer has one of the commits.
    Gone,
}

impl Mirror {
    /// Returns the refs that the last fetches have noted as left out; none without a mirror.
    pub fn refused(&self) -> Vec<RefusedRef> {
        let text = fs::read_to_string(self.dir().join(place::REFUSED)).unwrap_or_default();
        text.lines().filter_map(read_note).collect()
    }

    /// Notes the refs that are left out of the mirror, and logs new ones.
    pub(super) fn note_refused(&self, doing: &str, refused: &[RefusedRef]) -> Result<(), GitError> {
        let known = self.refused();
        for one in refused.iter().filter(|one| !known.contains(one)) {
            warn!(repo = %self.repo, reference = %one.name, commit = %one.commit, why = one.why,
                "The mirror leaves out a ref because git refuses its content; push another commit to it, or delete it");
        }
        let file = self.dir().join(place::REFUSED);
        let lines = refused
            .iter()
            .map(|one| format!("{} {} {}\n", one.commit, one.name, one.why));
        let text = lines.collect::<Vec<_>>().concat();
        let noted = if refused.is_empty() {
            remove_all(&file)
        } else {
            fs::write(file, text)
        };
        noted.map_err(GitError::from_io(doing))
    }

    /// Removes the notes, so that the next fetch requests the refs again.
    pub(super) fn forget_refused(&self) -> std::io::Result<()> {
        remove_all(&self.dir().join(place::REFUSED))
    }

    /// Fetches commits in halves after git refused `first`, the exchange with all of them.
    pub(super) async fn sift(
        &self,
        remote: &Checked<'_>,
        doing: &str,
        ids: Vec<&str>,
        first: &CallOutput,
    ) -> Result<PartialFetch, GitError> {
        let whole = remote.failure(doing, first);
        let mut refused = BTreeMap::new();
        let mut open = vec![(ids, why(&whole))];
        let mut exchanges = 0;
        while let Some((ids, why_not)) = open.pop() {
            if let [id] = ids[..] {
                refused.insert(id.to_owned(), why_not);
                if refused.len() > MAX_REFUSED {
                    return Err(whole);
                }
                continue;
            }
            let (one, other) = ids.split_at(ids.len() / 2);
            for half in [other, one] {
                exchanges += 1;
                if exchanges > MAX_EXCHANGES {
                    return Err(whole);
                }
                let output = self.fetch_ids(remote, doing, half).await?;
                let stderr = output.stderr.text();
                if output.is_success() {
                    self.keep_part(doing, half).await?;
                } else if classify::is_fsck(&stderr) {
                    open.push((half.to_vec(), why(&remote.failure(doing, &output))));
                } else if classify::is_refused_commit(&stderr) {
                    return Ok(PartialFetch::Gone);
                } else {
                    return Err(remote.failure(doing, &output));
                }
            }
        }
        self.clear_unfinished_packs()
            .map_err(GitError::from_io(doing))?;
        Ok(PartialFetch::Without(refused))
    }

    /// Fetches commits by their ids.
    pub(super) async fn fetch_ids(
        &self,
        remote: &Checked<'_>,
        doing: &str,
        ids: &[&str],
    ) -> Result<CallOutput, GitError> {
        let list = ids
            .iter()
            .map(|id| format!("{id}\n"))
            .collect::<Vec<_>>()
            .concat();
        let cmd = self
            .fetch_cmd(remote)
            .arg("--stdin")
            .operands([remote.name(self)])
            .input(list);
        self.call(doing, &cmd).await
    }

    /// Keeps the objects of a part under refs, so that the server does not send them again with the next part.
    async fn keep_part(&self, doing: &str, ids: &[&str]) -> Result<(), GitError> {
        let list = ids
            .iter()
            .map(|id| format!("update {PARTS}{id} {id}\n"))
            .collect::<Vec<_>>()
            .concat();
        self.run(
            doing,
            self.git()
                .args(["update-ref", "--no-deref", "--stdin"])
                .input(list),
        )
        .await
        .map(drop)
    }

    /// Removes the refs of parts. A killed process may leave some, and the next sync removes them like any other ref.
    pub(super) async fn drop_parts(&self, doing: &str) -> Result<(), GitError> {
        let list = self
            .run(
                doing,
                self.git()
                    .args(["for-each-ref", "--format=delete %(refname)", PARTS]),
            )
            .await?;
        if list.stdout.bytes.is_empty() {
            return Ok(());
        }
        let cmd = self
            .git()
            .args(["update-ref", "--no-deref", "--stdin"])
            .input(list.stdout.bytes);
        self.run(doing, cmd).await.map(drop)
    }
}

/// Returns the refs of refused commits.
pub(super) fn refs_of(refs: &RefList, refused: &BTreeMap<String, String>) -> Vec<RefusedRef> {
    let of = |(name, id): (&RefName, &CommitSha)| {
        let why = refused.get(id.as_str())?.clone();
        Some(RefusedRef {
            name: name.clone(),
            commit: id.clone(),
            why,
        })
    };
    refs.iter().filter_map(of).collect()
}

/// Returns the commits in the list that were refused before, under any name.
pub(super) fn known_among(refs: &RefList, known: &[RefusedRef]) -> BTreeMap<String, String> {
    let wanted: BTreeSet<&CommitSha> = refs.iter().map(|(_, id)| id).collect();
    let still = known
        .iter()
        .filter(|refused| wanted.contains(&refused.commit));
    still
        .map(|refused| (refused.commit.as_str().to_owned(), refused.why.clone()))
        .collect()
}

/// Returns the first line of an error message.
pub(super) fn why(error: &GitError) -> String {
    error
        .clone()
        .into_message()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn read_note(line: &str) -> Option<RefusedRef> {
    let mut words = line.splitn(3, ' ');
    let (commit, name, why) = (
        words.next()?.parse().ok()?,
        RefName::new(words.next()?).ok()?,
        words.next()?,
    );
    Some(RefusedRef {
        name,
        commit,
        why: why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_ref_that_moved_on_is_no_longer_refused() {
        let id = |c: char| c.to_string().repeat(40).parse::<CommitSha>().unwrap();
        let name = |text: &str| RefName::new(text).unwrap();
        let line = format!(
            "{} refs/heads/bad error: object 12: hasDotgit: contains '.git'",
            id('b')
        );
        let refused = read_note(&line).unwrap();
        assert_eq!(
            refused.to_string(),
            format!(
                "refs/heads/bad ({}): error: object 12: hasDotgit: contains '.git'",
                id('b').short()
            )
        );
        assert!(
            ["", "x refs/heads/a y", "refs/heads/a"]
                .iter()
                .all(|line| read_note(line).is_none())
        );
        let there: RefList = [
            ("refs/heads/bad", 'b'),
            ("refs/heads/main", 'a'),
            ("refs/pull/1/head", 'b'),
        ]
        .map(|(ref_name, c)| (name(ref_name), id(c)))
        .into_iter()
        .collect();
        let known = known_among(&there, std::slice::from_ref(&refused));
        let all = refs_of(&there, &known);
        assert_eq!(
            all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["refs/heads/bad", "refs/pull/1/head"]
        );
        assert_eq!(without_refused(&there, &all).len(), 1);
        let moved: RefList = [(name("refs/heads/bad"), id('c'))].into_iter().collect();
        assert_eq!(without_refused(&moved, &all), moved);
        assert!(known_among(&moved, &all).is_empty());
    }
}
