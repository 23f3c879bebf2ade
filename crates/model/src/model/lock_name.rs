//! Reads the classic text form of a lock's identifier: `owner/repo/path/workspace`, and the forms around it that
//! people and Atlantis use.
//!
//! ```text
//! [host/]owner/repo/path/workspace[/[project]]
//! ```
//!
//! Atlantis writes four parts with a slash at the end when the project has no name; earlier releases wrote three
//! (reference 7.1). Paths, and the names of some repositories and projects, contain slashes themselves. A text alone
//! can therefore have several readings. For that reason, a name is compared with the locks that are held, and never
//! taken apart on its own.

use std::fmt;
use std::str::FromStr;

use super::lock::{Lock, LockKey};
use super::project::ProjectName;
use super::repo::RepoId;

/// Reason why a text cannot be the name of a lock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLockName {
    /// The text has too few segments.
    #[error(
        "it has fewer than four parts; write `owner/repo/path/workspace`, with the path `.` for the root"
    )]
    TooShort,
    /// The text has two slashes in a row, or begins with one.
    #[error("it has an empty part; write `owner/repo/path/workspace`")]
    EmptyPart,
    /// The text has a NUL or another control character.
    #[error("it has a control character")]
    Control,
    /// The text is longer than any real name.
    #[error("it is longer than {} bytes", LockName::MAX_BYTES)]
    TooLong,
}

/// A lock as people write it. [`Self::fit`] compares it with locks that are held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockName {
    /// Text without the slash at the end.
    text: String,
    has_slash: bool,
}

/// Quality of a match between a name and a lock. The best fit wins; two equally good ones are ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchQuality {
    /// Host, repository, path and workspace match. The name of the project was left out.
    WithoutProject,
    /// All parts match, including the name of the project or its absence.
    Exact,
}

impl LockName {
    /// Maximum length in bytes, above that of repository, path, workspace and project name together.
    pub const MAX_BYTES: usize = 2600;

    /// Checks the form only, and not if such a lock is held.
    pub fn new(text: &str) -> Result<Self, InvalidLockName> {
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidLockName::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidLockName::Control);
        }
        let (body, has_slash) = text
            .strip_suffix('/')
            .map_or((text, false), |body| (body, true));
        if body.split('/').any(str::is_empty) {
            return Err(InvalidLockName::EmptyPart);
        }
        if body.split('/').count() < 4 {
            return Err(InvalidLockName::TooShort);
        }
        Ok(Self {
            text: body.to_owned(),
            has_slash,
        })
    }

    /// Returns the name of a lock in Atlantis' database, page and API: always with the slash after the workspace.
    pub fn of_atlantis(key: &LockKey, project: Option<&ProjectName>) -> String {
        format!(
            "{key}/{}",
            project.map(ProjectName::as_str).unwrap_or_default()
        )
    }

    /// Returns false if the lock cannot be one of this repository. The check is cheaper than [`Self::fit`] and never
    /// wrong about that.
    pub fn may_be_of(&self, repo: &RepoId) -> bool {
        self.after(repo.full_name()).is_some() || self.after(&repo.to_string()).is_some()
    }

    /// Returns how well the name fits the lock, if it does. Repositories are compared without regard to case,
    /// everything else with it.
    pub fn fit(&self, lock: &Lock) -> Option<MatchQuality> {
        self.fit_key(&lock.key, lock.project.name.as_ref())
    }

    /// Works like [`Self::fit`], for a key and the project it was taken for.
    pub fn fit_key(&self, key: &LockKey, project: Option<&ProjectName>) -> Option<MatchQuality> {
        let repo = key.repo.full_name();
        let reading = |rest: Option<&str>| self.fit_rest(rest?, key, project);
        reading(self.after(repo)).max(reading(self.after(&key.repo.to_string())))
    }

    /// Returns the text after the repository and a slash.
    fn after(&self, repo: &str) -> Option<&str> {
        // Lower-casing can change the length of a text, so it is done segment by segment.
        let count = repo.split('/').count();
        let end = self.text.match_indices('/').nth(count - 1)?.0;
        let (start, rest) = self.text.split_at(end);
        (start.to_lowercase() == repo).then(|| &rest[1..])
    }

    fn fit_rest(
        &self,
        rest: &str,
        key: &LockKey,
        project: Option<&ProjectName>,
    ) -> Option<MatchQuality> {
        let rest = rest
            .strip_prefix(key.dir.as_str())?
            .strip_prefix('/')?
            .strip_prefix(key.workspace.as_str())?;
        match (rest.strip_prefix('/'), project) {
            (None, None) if rest.is_empty() => Some(MatchQuality::Exact),
            (None, Some(_)) if rest.is_empty() => Some(MatchQuality::WithoutProject),
            (Some(name), Some(project)) if !self.has_slash && name == project.as_str() => {
                Some(MatchQuality::Exact)
            }
            (None | Some(_), None | Some(_)) => None,
        }
    }

    /// Returns the lock that fits best. `Err` has the first two that fit equally well.
    pub fn choose(
        &self,
        held: impl IntoIterator<Item = Lock>,
    ) -> Result<Option<Lock>, Box<(Lock, Lock)>> {
        let mut fitting: Vec<(MatchQuality, Lock)> = held
            .into_iter()
            .filter_map(|lock| Some((self.fit(&lock)?, lock)))
            .collect();
        let Some(best) = fitting.iter().map(|(fit, _)| *fit).max() else {
            return Ok(None);
        };
        fitting.retain(|(fit, _)| *fit == best);
        let mut best = fitting.into_iter().map(|(_, lock)| lock);
        match (best.next(), best.next()) {
            (Some(one), Some(other)) => Err(Box::new((one, other))),
            (one, _) => Ok(one),
        }
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.has_slash { "/" } else { "" })
    }
}

impl FromStr for LockName {
    type Err = InvalidLockName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::model::{Person, ProjectKey, PullRef, Subject};

    fn lock(repo: &str, dir: &str, workspace: &str, name: &str) -> Lock {
        let project = ProjectKey {
            dir: dir.parse().unwrap(),
            workspace: workspace.parse().unwrap(),
            name: name.parse().ok(),
        };
        let pull = PullRef {
            repo: repo.parse().unwrap(),
            subject: Subject::pull(7),
        };
        Lock {
            id: Uuid::nil().into(),
            key: LockKey::of(&pull.repo, &project),
            project,
            pull,
            title: None,
            pull_url: String::new(),
            holder: Person::of_login(""),
            reason: String::new(),
            taken_at: DateTime::UNIX_EPOCH,
            active_at: DateTime::UNIX_EPOCH,
        }
    }

    fn fit(name: &str, lock: &Lock) -> Option<MatchQuality> {
        LockName::new(name).ok()?.fit(lock)
    }

    #[test]
    fn a_lock_is_found_by_every_classic_spelling() {
        let held = lock("github.com/acme/infra", "infra/net", "Prod", "vpc");
        for (name, expected) in [
            (
                "acme/infra/infra/net/Prod",
                Some(MatchQuality::WithoutProject),
            ),
            (
                "acme/infra/infra/net/Prod/",
                Some(MatchQuality::WithoutProject),
            ),
            ("Acme/Infra/infra/net/Prod/vpc", Some(MatchQuality::Exact)),
            (
                "github.com/acme/infra/infra/net/Prod",
                Some(MatchQuality::WithoutProject),
            ),
            (
                "GitHub.com/acme/infra/infra/net/Prod/vpc",
                Some(MatchQuality::Exact),
            ),
            ("", None),
            ("acme/infra", None),
            ("acme/infra/infra/net/prod", None),
            ("acme/infra/infra/net/Production", None),
            ("acme/infra/infra/net/Prod/db", None),
            ("acme/infra/infra/net/Prod/vpc/", None),
            ("acme/infra/infra/net/Prod//", None),
            ("ácme/infra/infra/net/Prod", None),
            ("gitlab.com/acme/infra/infra/net/Prod", None),
            ("acme/infra/Infra/net/Prod", None),
        ] {
            assert_eq!(fit(name, &held), expected, "{name}");
        }
        let unnamed = lock("github.com/acme/infra", ".", "default", "");
        for (name, expected) in [
            ("acme/infra/./default", Some(MatchQuality::Exact)),
            ("acme/infra/./default/", Some(MatchQuality::Exact)),
            ("acme/infra/./default/vpc", None),
            ("acme/infra/default", None),
        ] {
            assert_eq!(fit(name, &unnamed), expected, "{name}");
        }
    }

    #[test]
    fn the_segments_of_the_repository_decide_what_is_path() {
        let (group, short) = (
            lock("gitlab.com/org/group/repo", "a", "default", ""),
            lock("github.com/org/group", "repo/a", "default", ""),
        );
        let name = LockName::new("org/group/repo/a/default/").unwrap();
        assert_eq!(
            name.choose([group.clone(), short.clone()]),
            Err(Box::new((group.clone(), short.clone())))
        );
        assert_eq!(name.choose([group.clone()]), Ok(Some(group.clone())));
        let name = LockName::new("github.com/org/group/repo/a/default").unwrap();
        assert_eq!(name.choose([group, short.clone()]), Ok(Some(short)));
    }

    #[test]
    fn the_exact_name_wins_and_two_exact_ones_are_ambiguous() {
        let (named, other) = (
            lock("h.test/a/b", "d", "w", "x"),
            lock("other.test/a/b", "d", "w", ""),
        );
        assert_eq!(
            LockName::new("a/b/d/w/x")
                .unwrap()
                .choose([named.clone(), other.clone()]),
            Ok(Some(named.clone()))
        );
        assert_eq!(
            LockName::new("a/b/d/w/")
                .unwrap()
                .choose([named.clone(), other.clone()]),
            Ok(Some(other))
        );
        let deeper = lock("h.test/a/b", "d/w", "x", "");
        assert!(
            LockName::new("a/b/d/w/x")
                .unwrap()
                .choose([named, deeper.clone()])
                .is_err()
        );
        assert_eq!(
            LockName::new("a/b/d/w/x/")
                .unwrap()
                .choose([deeper.clone()]),
            Ok(Some(deeper))
        );
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        for (text, expected) in [
            ("acme/infra", InvalidLockName::TooShort),
            ("acme/infra/default", InvalidLockName::TooShort),
            ("", InvalidLockName::EmptyPart),
            ("/acme/infra/a/b", InvalidLockName::EmptyPart),
            ("acme//infra/a/b", InvalidLockName::EmptyPart),
            ("acme/infra/a/b\n", InvalidLockName::Control),
        ] {
            assert_eq!(LockName::new(text), Err(expected), "{text:?}");
        }
        assert_eq!(
            LockName::new(&"a/".repeat(2000)),
            Err(InvalidLockName::TooLong)
        );
    }

    fn locks() -> impl Strategy<Value = Lock> {
        let repo = prop::sample::select(vec![
            "github.com/acme/infra",
            "gitlab.com/acme/infra/net",
            "git.test:8443/a/b",
        ]);
        let dir = "(\\.|[a-zA-Z0-9_. é-]{1,4}[a-z](/[a-z]{1,3}){0,2})";
        (
            repo,
            dir,
            "[a-zA-Z0-9_]{1,4}",
            "([a-z]{1,3}(/[a-z]{1,3})?)?",
        )
            .prop_map(|(repo, dir, workspace, name)| lock(repo, &dir, &workspace, &name))
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,60}|[a/.]{0,40}", held in locks()) {
            if let Ok(name) = LockName::new(&text) {
                prop_assert_eq!(name.to_string(), text);
                let _ = name.fit(&held);
            }
        }

        #[test]
        fn every_spelling_of_a_lock_finds_it(held in locks()) {
            let classic = held.key.to_string();
            let atlantis = LockName::of_atlantis(&held.key, held.project.name.as_ref());
            let host = held.key.repo.host();
            let repo = held.key.repo.full_name();
            let upper = format!("{}{}", repo.to_uppercase(), &classic[repo.len()..]);
            let with_host = format!("{host}/{atlantis}");
            for text in [classic.clone(), format!("{classic}/"), atlantis.clone(), with_host, upper] {
                prop_assert!(fit(&text, &held).is_some(), "{}", text);
            }
            prop_assert_eq!(fit(&atlantis, &held), Some(MatchQuality::Exact));
            prop_assert!(LockName::new(&classic).unwrap().may_be_of(&held.key.repo));
        }

        #[test]
        fn a_name_with_its_host_means_one_key(a in locks(), b in locks()) {
            let name = format!("{}/{}", a.key.repo.host(), a.key);
            if a.key != b.key && b.project.name.is_none() {
                prop_assert_eq!(fit(&format!("{name}/"), &b), None);
            }
        }

        #[test]
        fn what_cannot_be_of_a_repository_fits_none_of_its_locks(a in locks(), b in locks()) {
            let name = LockName::new(&a.key.to_string()).unwrap();
            prop_assert!(name.may_be_of(&b.key.repo) || name.fit(&b).is_none());
        }
    }
}
