//! Reads the list of refs that a forge advertises.
//!
//! The list is hostile input. Names that are not safe to hand to git are left out. A list that is cut off, too long
//! or contradicts itself is refused as a whole, because refs missing from it would be removed here.

use tracing::warn;

use super::remote::Checked;
use super::{GitError, Mirror, RefList, RefName, RefSelection, Remote};
use crate::model::CommitSha;
use crate::process::Captured;

/// Maximum size of a list of refs in bytes, enough for about a million refs.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of refs in a mirror.
pub(super) const MAX_REFS: usize = 200_000;

/// Parsed list of refs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdvertisedRefs {
    pub(super) refs: RefList,
    /// Number of branches with names that are not safe to hand to git.
    pub(super) left_out: usize,
}

/// Reason why a list of refs cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadList {
    #[error("line {0} of the list of refs does not consist of an id and a name")]
    Line(usize),
    #[error("the list of refs ends in the middle of a line")]
    CutOff,
    #[error("the list of refs is longer than {} MiB", MAX_BYTES >> 20)]
    TooLong,
    #[error("there are more than {MAX_REFS} branches and pull requests to mirror")]
    TooMany,
    #[error("the list of refs names `{0}` twice")]
    Twice(RefName),
}

impl Mirror {
    /// Returns the refs that the forge advertises now, limited to the wanted ones. Needs no mirror.
    pub async fn advertised(
        &self,
        remote: &Remote<'_>,
        wanted: &RefSelection,
    ) -> Result<RefList, GitError> {
        let remote = self.check(&self.listing(), remote)?;
        self.list(&remote, wanted).await
    }

    pub(super) fn listing(&self) -> String {
        format!("list the refs of {}", self.repo)
    }

    pub(super) async fn list(
        &self,
        remote: &Checked<'_>,
        wanted: &RefSelection,
    ) -> Result<RefList, GitError> {
        let list = match self.ls_refs(remote, wanted).await? {
            Some(list) => list,
            None => self.ls_remote(remote, wanted).await?,
        };
        let read = read(&list, wanted).map_err(|error| GitError::other(self.listing(), error))?;
        if read.left_out > 0 {
            warn!(repo = %self.repo, count = read.left_out, "The mirror leaves out refs with names that are not safe for git");
        }
        Ok(read.refs)
    }

    /// Runs `git ls-remote`. When pulls are wanted, it lists all refs of the forge.
    async fn ls_remote(
        &self,
        remote: &Checked<'_>,
        wanted: &RefSelection,
    ) -> Result<Captured, GitError> {
        let doing = self.listing();
        let mut cmd = self
            .git_to(remote)
            .cap(MAX_BYTES)
            .args(["ls-remote", "--quiet"]);
        if wanted.pulls.is_empty() {
            cmd = cmd.arg("--heads");
        }
        let output = self.call(&doing, &cmd.operands([remote.url()])).await?;
        if output.is_success() {
            Ok(output.stdout)
        } else {
            Err(remote.failure(&doing, &output))
        }
    }
}

/// Predicate that selects refs by name.
type RefPredicate<'a> = &'a dyn Fn(&RefName) -> bool;

/// Reads every ref of a list in the format of `git ls-remote`.
pub(super) fn read_all(list: &Captured) -> Result<RefList, BadList> {
    read_those(list, &|_| true).map(|read| read.refs)
}

/// Reads the wanted refs of a list.
pub(super) fn read(list: &Captured, wanted: &RefSelection) -> Result<AdvertisedRefs, BadList> {
    let read = read_those(list, &|name| wanted.includes(name))?;
    Ok(AdvertisedRefs {
        left_out: if wanted.branches { read.left_out } else { 0 },
        ..read
    })
}

/// Reads lines such as `1234…\trefs/heads/main\n`. Skips `ref: refs/heads/main\tHEAD`, `1234…\tHEAD` and
/// `1234…\trefs/tags/v1^{}`.
fn read_those(list: &Captured, keep: RefPredicate<'_>) -> Result<AdvertisedRefs, BadList> {
    if list.truncated {
        return Err(BadList::TooLong);
    }
    let mut read = AdvertisedRefs {
        refs: RefList::default(),
        left_out: 0,
    };
    if list.bytes.is_empty() {
        return Ok(read);
    }
    let lines = list.bytes.strip_suffix(b"\n").ok_or(BadList::CutOff)?;
    for (at, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if line.starts_with(b"ref: ") {
            continue;
        }
        let (id, name) = parts(line).ok_or(BadList::Line(at + 1))?;
        read.add(id, name, keep)?;
    }
    Ok(read)
}

pub(super) fn parts(line: &[u8]) -> Option<(CommitSha, &[u8])> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let id = std::str::from_utf8(&line[..tab])
        .ok()
        .and_then(|id| CommitSha::new(id).ok())?;
    Some((id, &line[tab + 1..])).filter(|(_, name)| !name.is_empty())
}

impl AdvertisedRefs {
    fn add(&mut self, id: CommitSha, name: &[u8], keep: RefPredicate<'_>) -> Result<(), BadList> {
        let Some(name) = std::str::from_utf8(name)
            .ok()
            .and_then(|name| RefName::new(name).ok())
        else {
            self.left_out += usize::from(name.starts_with(b"refs/heads/"));
            return Ok(());
        };
        if !keep(&name) {
            return Ok(());
        }
        if self.refs.len() == MAX_REFS {
            return Err(BadList::TooMany);
        }
        if self.refs.add(name.clone(), id) {
            Ok(())
        } else {
            Err(BadList::Twice(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_text(text: &[u8]) -> Result<AdvertisedRefs, BadList> {
        let pulls = [RefName::new("refs/pull/12/head").unwrap()].into();
        read(
            &Captured {
                bytes: text.to_vec(),
                truncated: false,
            },
            &RefSelection {
                branches: true,
                pulls,
            },
        )
    }

    fn names(text: &str) -> (Vec<String>, usize) {
        let read = read_text(text.replace('#', &"ab".repeat(20)).as_bytes()).unwrap();
        (
            read.refs.iter().map(|(name, _)| name.to_string()).collect(),
            read.left_out,
        )
    }

    #[test]
    fn heads_symbolic_refs_and_peeled_tags_are_read_over() {
        let list = "ref: refs/heads/main\tHEAD\n#\tHEAD\n#\trefs/heads/main\n#\trefs/heads/a/b\n#\trefs/pull/12/head\n\
                    #\trefs/pull/12/merge\n#\trefs/tags/v1\n#\trefs/tags/v1^{}\n";
        assert_eq!(
            names(list).0,
            ["refs/heads/a/b", "refs/heads/main", "refs/pull/12/head"]
        );
        assert_eq!(read_text(b"").unwrap().refs, RefList::default());
    }

    #[test]
    fn names_that_git_could_misread_are_left_out_and_counted() {
        let list = "#\trefs/heads/../../config\n#\trefs/heads/-x\n#\trefs/heads/a b\n#\trefs/heads/x.lock\n\
                    #\trefs/heads/@{1}\n#\trefs/pull/../x\n#\trefs/heads/a\tb\n";
        assert_eq!(names(list), (vec!["refs/heads/-x".to_owned()], 5));
        let not_utf8 = [b"ab".repeat(20), b"\trefs/heads/\xFF\n".to_vec()].concat();
        assert_eq!(read_text(&not_utf8).unwrap().left_out, 1);
    }

    #[test]
    fn a_list_that_is_not_whole_is_refused() {
        let id = "ab".repeat(20);
        for (list, problem) in [
            (format!("{id}\trefs/heads/main"), BadList::CutOff),
            (
                format!("{id}\trefs/heads/main\n{}", &id[..7]),
                BadList::CutOff,
            ),
            (
                format!("{}\trefs/heads/main\n", &id[..39]),
                BadList::Line(1),
            ),
            (
                format!("{id}\tHEAD\n{id} refs/heads/main\n"),
                BadList::Line(2),
            ),
            (format!("{id}\t\n"), BadList::Line(1)),
            ("\n".to_owned(), BadList::Line(1)),
            ("<html>\n".to_owned(), BadList::Line(1)),
            (
                format!("{id}\trefs/heads/a\n{id}\trefs/heads/a\n"),
                BadList::Twice(RefName::new("refs/heads/a").unwrap()),
            ),
        ] {
            assert_eq!(read_text(list.as_bytes()), Err(problem), "{list}");
        }
        let cut = Captured {
            bytes: Vec::new(),
            truncated: true,
        };
        assert_eq!(read(&cut, &RefSelection::default()), Err(BadList::TooLong));
    }

    #[test]
    fn there_is_a_limit_to_the_number_of_refs() {
        let id = "ab".repeat(20);
        let list: Vec<String> = (0..=MAX_REFS)
            .map(|n| format!("{id}\trefs/heads/{n}\n"))
            .collect();
        let list = list.concat();
        assert_eq!(read_text(list.as_bytes()), Err(BadList::TooMany));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_selected_and_safe(text in "((ab){20}\t(refs/(heads|pull|tags)/[a12./@ -]{0,4}(/head)?|HEAD)\n|[a\t\n]){0,6}") {
            if let Ok(read) = read_text(text.as_bytes()) {
                for (name, _) in read.refs.iter() {
                    prop_assert!(RefName::new(name.as_str()).is_ok());
                    prop_assert!(name.as_str().starts_with("refs/heads/") || name.as_str() == "refs/pull/12/head");
                }
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(read_text(&bytes));
        }
    }
}
