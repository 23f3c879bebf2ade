//! Reads a request for an apply lock from a page, the API or the command line. All three are read here, so that they mean
//! the same and report the same problems.

use chrono::{DateTime, NaiveDateTime, Utc};

use crate::model::{
    Actor, ApplyScope, Cause, InvalidReason, Reason, RepoId, RepoPath, minute, text_enum,
};

text_enum! {
    /// Field of a request.
    pub enum ApplyLockField {
        /// Repository of the applies.
        Repo = "repo",
        /// Directory in the repository.
        Dir = "dir",
        /// Reason for people whose applies are stopped.
        Reason = "reason",
        /// Time at which the lock expires.
        Until = "until",
    }
}

/// Problem with a field, in sentences that say what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyLockProblem {
    pub field: ApplyLockField,
    pub text: String,
}

impl ApplyLockProblem {
    /// Creates a problem of a field from its sentences.
    pub fn new(field: ApplyLockField, text: impl Into<String>) -> Self {
        Self {
            field,
            text: text.into(),
        }
    }

    /// Returns the problem of an end in the past.
    pub fn over(ends_at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        let (end, now) = (minute(ends_at), minute(now));
        Self::new(
            ApplyLockField::Until,
            format!("{end} is in the past: it is {now} now. Give a time in the future."),
        )
    }
}

/// Fields of a request. Empty means not given.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyLockFields<'a> {
    /// `host/owner/name`, or empty for the whole server.
    pub repo: &'a str,
    /// Directory, or empty for the whole repository.
    pub dir: &'a str,
    /// Reason for people whose applies are stopped.
    pub reason: &'a str,
    /// End time, in UTC if no zone is given, or empty for no end.
    pub until: &'a str,
}

impl ApplyLockFields<'_> {
    /// Returns the scope of the fields, or their problems.
    pub fn scope(&self) -> Result<ApplyScope, Vec<ApplyLockProblem>> {
        let mut problems = Vec::new();
        let repo = non_empty(self.repo).and_then(|text| kept(&mut problems, repo(text)));
        let dir = non_empty(self.dir).and_then(|text| kept(&mut problems, dir(text)));
        if dir.is_some() && non_empty(self.repo).is_none() {
            let text =
                "A directory needs its repository. Give that too, as in github.com/acme/infra.";
            problems.push(ApplyLockProblem::new(ApplyLockField::Repo, text));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(repo.map_or(ApplyScope::Server, |repo| ApplyScope::in_repo(repo, dir)))
    }

    /// Returns the request, or all of its problems.
    pub fn new_lock(&self) -> Result<NewApplyLock, Vec<ApplyLockProblem>> {
        let mut problems = Vec::new();
        let scope = self.scope().map_err(|found| problems.extend(found)).ok();
        let reason = kept(&mut problems, reason(self.reason));
        let ends_at = non_empty(self.until).and_then(|text| kept(&mut problems, time(text)));
        match (scope, reason) {
            (Some(scope), Some(reason)) if problems.is_empty() => Ok(NewApplyLock {
                scope,
                reason,
                ends_at,
            }),
            _ => Err(problems),
        }
    }
}

/// Request for an apply lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApplyLock {
    /// Scope of the applies to stop.
    pub scope: ApplyScope,
    /// Reason for people whose applies are stopped.
    pub reason: Reason,
    /// Time at which the lock expires.
    pub ends_at: Option<DateTime<Utc>>,
}

impl NewApplyLock {
    /// Returns the cause for the audit log: the user and the reason.
    pub fn cause(&self, actor: Actor) -> Cause {
        Cause::new(actor, self.reason.as_str())
    }
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn kept<T>(problems: &mut Vec<ApplyLockProblem>, read: Result<T, ApplyLockProblem>) -> Option<T> {
    read.map_err(|problem| problems.push(problem)).ok()
}

fn reason(text: &str) -> Result<Reason, ApplyLockProblem> {
    let wrong = |text: String| ApplyLockProblem::new(ApplyLockField::Reason, text);
    let too_long = |InvalidReason(chars)| {
        wrong(format!(
            "The reason has {chars} characters, and the maximum is {}. Use a shorter reason.",
            Reason::MAX_CHARS
        ))
    };
    let read = Reason::read(text).map_err(too_long)?;
    read.ok_or_else(|| {
        wrong(
            "Give a short reason, so that people whose applies are stopped know what to wait for."
                .to_owned(),
        )
    })
}

fn repo(text: &str) -> Result<RepoId, ApplyLockProblem> {
    let text = text
        .trim_start_matches("https://")
        .trim_end_matches('/')
        .trim_end_matches(".git");
    text.parse().map_err(|error| {
        let text = format!("{error}. Write it with its host, as in github.com/acme/infra.");
        ApplyLockProblem::new(ApplyLockField::Repo, text)
    })
}

fn dir(text: &str) -> Result<RepoPath, ApplyLockProblem> {
    text.parse().map_err(|error| {
        let text = format!("{error}. Write it from the root of the repository, as in network/eu.");
        ApplyLockProblem::new(ApplyLockField::Dir, text)
    })
}

/// Formats besides RFC 3339: the format of the page's field, and common spellings.
const WITH_ZONE: [&str; 2] = ["%Y-%m-%dT%H:%M%#z", "%Y-%m-%dT%H:%M:%S%#z"];
const IN_UTC: [&str; 2] = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
/// Maximum length of a text that is read as a time.
const TIME_CHARS: usize = 40;

fn time(text: &str) -> Result<DateTime<Utc>, ApplyLockProblem> {
    let plain = text
        .strip_suffix("UTC")
        .unwrap_or(text)
        .trim_end()
        .replacen(' ', "T", 1);
    let with_zone = WITH_ZONE
        .iter()
        .filter_map(|format| DateTime::parse_from_str(&plain, format).ok());
    let in_utc = IN_UTC
        .iter()
        .filter_map(|format| NaiveDateTime::parse_from_str(&plain, format).ok());
    let mut found = DateTime::parse_from_rfc3339(&plain)
        .into_iter()
        .chain(with_zone)
        .map(|time| time.to_utc());
    let found = found
        .next()
        .or_else(|| in_utc.map(|time| time.and_utc()).next());
    found.filter(|_| text.len() <= TIME_CHARS && plain.as_bytes().get(4) == Some(&b'-')).ok_or_else(|| {
        let shown: String = text.chars().take(TIME_CHARS).collect();
        let text =
            format!("`{shown}` is not a date and time. Write it in UTC, as in 2026-12-24T18:00Z, or leave it out.");
        ApplyLockProblem::new(ApplyLockField::Until, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields<'a>(repo: &'a str, dir: &'a str) -> ApplyLockFields<'a> {
        ApplyLockFields {
            repo,
            dir,
            reason: "freeze",
            until: "",
        }
    }

    fn problems(fields: ApplyLockFields<'_>) -> String {
        let problems = fields.new_lock().unwrap_err();
        let lines = problems
            .iter()
            .map(|problem| format!("{}: {}", problem.field, problem.text));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_not_said_widens_the_scope() {
        let infra: RepoId = "github.com/acme/infra".parse().unwrap();
        let path = ApplyScope::Path {
            repo: infra.clone(),
            dir: "network".parse().unwrap(),
        };
        for (repo, dir, scope) in [
            ("", " ", ApplyScope::Server),
            ("github.com/Acme/Infra", "", ApplyScope::Repo(infra.clone())),
            (
                " https://github.com/acme/infra.git ",
                ".",
                ApplyScope::Repo(infra),
            ),
            ("github.com/acme/infra", "/network/", path),
        ] {
            assert_eq!(fields(repo, dir).scope().unwrap(), scope, "{repo} {dir}");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_with_the_way_out() {
        let all = ApplyLockFields {
            repo: "infra",
            dir: "../x",
            reason: " \n",
            until: "tomorrow",
        };
        insta::assert_snapshot!(problems(all), @"
        repo: `infra` is not a repository: expected `host/owner/name`. Write it with its host, as in github.com/acme/infra.
        dir: `../x` leaves the repository. Write it from the root of the repository, as in network/eu.
        reason: Give a short reason, so that people whose applies are stopped know what to wait for.
        until: `tomorrow` is not a date and time. Write it in UTC, as in 2026-12-24T18:00Z, or leave it out.
        ");
        insta::assert_snapshot!(problems(fields("", "network")), @"repo: A directory needs its repository. Give that too, as in github.com/acme/infra.");
        let long = "x".repeat(301);
        let long = ApplyLockFields {
            reason: &long,
            ..ApplyLockFields::default()
        };
        insta::assert_snapshot!(problems(long), @"reason: The reason has 301 characters, and the maximum is 300. Use a shorter reason.");
    }

    #[test]
    fn times_are_utc_unless_they_say_otherwise() {
        for text in [
            "2026-12-24T18:00Z",
            "2026-12-24T18:00",
            "2026-12-24 18:00",
            " 2026-12-24 18:00 UTC ",
            "2026-12-24T18:00:00Z",
            "2026-12-24T18:00:00",
            "2026-12-24T19:00+01:00",
            "2026-12-24T19:00:00+0100",
        ] {
            let lock = ApplyLockFields {
                reason: "x",
                until: text,
                ..ApplyLockFields::default()
            }
            .new_lock()
            .unwrap();
            assert_eq!(
                lock.ends_at.map(minute).as_deref(),
                Some("2026-12-24 18:00 UTC"),
                "{text}"
            );
        }
        for text in [
            "2026-12-24",
            "18:00",
            "24.12.2026 18:00",
            "2026-13-01T00:00Z",
            "+12026-12-24T18:00Z",
            "3d",
        ] {
            let lock = ApplyLockFields {
                reason: "x",
                until: text,
                ..ApplyLockFields::default()
            }
            .new_lock();
            assert_eq!(lock.unwrap_err()[0].field, ApplyLockField::Until, "{text}");
        }
    }
}
