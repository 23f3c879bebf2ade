//! Reads the tags of a repository from its forge.
//!
//! Mirrors have no tags, because plans do not need them. What a tag leads to is mostly on a branch, so the mirror has it.
//! One list from the forge has the tags and the commit of the default branch (`HEAD`), which needs no branch by name: it is
//! right also while somebody chooses another default branch. Nothing is written here, and no lock of the mirror is taken, so
//! no plan waits for it.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_registry::tags::TagName;

use super::remote::Checked;
use super::{GitError, Mirror, Remote, advertise};
use crate::model::CommitSha;
use crate::process::Captured;

const TAGS: &[u8] = b"refs/tags/";

/// Tags of a repository at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgeTags {
    /// Newest commit of the default branch. `None`: the repository has no commits.
    pub head: Option<CommitSha>,
    /// Tags that may name a version, with the objects that they lead to. These are commits, but nobody has checked that.
    pub tags: BTreeMap<TagName, CommitSha>,
    /// Number of tags with names that are not safe to use.
    pub left_out: usize,
}

impl Mirror {
    /// Returns the tags that the forge has now. Needs no mirror.
    pub async fn forge_tags(&self, remote: &Remote<'_>) -> Result<ForgeTags, GitError> {
        let doing = format!("list the tags of {}", self.repo);
        let remote = self.check(&doing, remote)?;
        let list = match self.ls_tags(&remote).await? {
            Some(list) => list,
            None => self.ls_remote_all(&doing, &remote).await?,
        };
        read(&list).map_err(|problem| GitError::other(doing, problem))
    }

    /// Runs `git ls-remote`, which lists all refs of the forge.
    async fn ls_remote_all(&self, doing: &str, remote: &Checked<'_>) -> Result<Captured, GitError> {
        let cmd = self
            .git_to(remote)
            .cap(advertise::MAX_BYTES)
            .args(["ls-remote", "--quiet"])
            .operands([remote.url()]);
        let output = self.call(doing, &cmd).await?;
        if output.is_success() {
            Ok(output.stdout)
        } else {
            Err(remote.failure(doing, &output))
        }
    }

    /// Returns those of the commits that are in the history of a fetched commit, which includes the commit itself. Every
    /// commit on the way is verified by its id.
    pub async fn in_history(
        &self,
        of: &CommitSha,
        commits: BTreeSet<CommitSha>,
    ) -> Result<BTreeSet<CommitSha>, GitError> {
        let of = of.clone();
        self.read_objects("walk through the default branch", move |objects| {
            objects.in_history(&of, &commits)
        })
        .await
    }
}

/// Reads lines such as `1234…\tHEAD`, `1234…\trefs/tags/v1` and `5678…\trefs/tags/v1^{}`. A list that is cut off is refused
/// as a whole, because tags missing from it would count as removed.
fn read(list: &Captured) -> Result<ForgeTags, String> {
    if list.truncated {
        return Err(format!(
            "the list of tags is longer than {} MiB",
            advertise::MAX_BYTES >> 20
        ));
    }
    let mut read = ForgeTags::default();
    let mut objects: BTreeMap<TagName, CommitSha> = BTreeMap::new();
    if list.bytes.is_empty() {
        return Ok(read);
    }
    let lines = list.bytes.strip_suffix(b"\n");
    let lines = lines.ok_or("the list of tags ends in the middle of a line")?;
    for line in lines.split(|byte| *byte == b'\n') {
        if line.starts_with(b"ref: ") {
            continue;
        }
        let (id, name) = advertise::parts(line)
            .ok_or("a line of the list of tags does not consist of an id and a name")?;
        if name == b"HEAD" {
            read.head = Some(id);
            continue;
        }
        let Some(name) = name.strip_prefix(TAGS) else {
            continue;
        };
        let (name, is_object) = match name.strip_suffix(b"^{}") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let name = std::str::from_utf8(name).ok();
        let Some(name) = name.and_then(|name| name.parse::<TagName>().ok()) else {
            read.left_out += usize::from(!is_object);
            continue;
        };
        if name.numbers().is_none() {
            continue;
        }
        let known = if is_object {
            objects.insert(name, id)
        } else {
            read.tags.insert(name, id)
        };
        if known.is_some() {
            return Err("the list of tags has a tag twice".to_owned());
        }
        if read.tags.len() > advertise::MAX_REFS {
            return Err(format!("there are more than {} tags", advertise::MAX_REFS));
        }
    }
    for (name, id) in objects {
        if let Some(tag) = read.tags.get_mut(&name) {
            *tag = id;
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<ForgeTags, String> {
        let ids = [("#", 'a'), ("@", 'b')];
        let text = ids.iter().fold(text.to_owned(), |text, (mark, id)| {
            text.replace(mark, &id.to_string().repeat(40))
        });
        read(&Captured {
            bytes: text.into_bytes(),
            truncated: false,
        })
    }

    #[test]
    fn a_tag_leads_to_its_commit_and_head_is_the_default_branch() {
        let read = read_text(
            "ref: refs/heads/main\tHEAD\n#\tHEAD\n@\trefs/heads/v9.9.9\n#\trefs/tags/v1.0.0\n#\trefs/tags/v1.1.0\n\
             @\trefs/tags/v1.1.0^{}\n#\trefs/tags/nightly\n#\trefs/tags/<b>1.0.0\n#\trefs/tags/<b>1.0.0^{}\n",
        );
        let read = read.unwrap();
        let shown: Vec<String> = read
            .tags
            .iter()
            .map(|(name, id)| format!("{name} {}", &id.as_str()[..1]))
            .collect();
        assert_eq!(shown, ["v1.0.0 a", "v1.1.0 b"]);
        assert_eq!(read.left_out, 1);
        assert_eq!(read.head.unwrap().as_str(), "a".repeat(40));
        assert_eq!(read_text(""), Ok(ForgeTags::default()));
    }

    #[test]
    fn a_list_that_is_not_whole_is_no_list() {
        for text in [
            "#\trefs/tags/v1.0.0",
            "#\trefs/tags/v1.0.0\n#\trefs/tags/v1.0.0\n",
            "x\trefs/tags/v1.0.0\n",
            "#\n",
        ] {
            assert!(read_text(text).is_err(), "{text:?}");
        }
        let cut_off = Captured {
            bytes: b"x".to_vec(),
            truncated: true,
        };
        assert!(read(&cut_off).is_err());
    }
}
