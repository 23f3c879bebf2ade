//! Failures of mirror syncs, and their fixes.

use chrono::TimeDelta;

use crate::model::text::text_enum;

text_enum! {
    /// Kind of a failed attempt.
    pub enum FailureKind {
        /// The forge refused the credentials.
        Authentication = "authentication",
        /// The forge does not know the repository, or hides it from this server.
        NotFound = "not_found",
        /// The forge did not answer, or broke off.
        Unreachable = "unreachable",
        /// The attempt took too long.
        TimedOut = "timed_out",
        /// The mirror on this disk is damaged.
        Corrupt = "corrupt",
        /// The fetched references differ from those that the forge advertises.
        Verification = "verification",
        /// The server ended, or lost its claim, before the attempt did.
        Interrupted = "interrupted",
        /// Any other failure. The message describes it.
        Other = "other",
    }
}

/// Failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Description of the failure, without secrets.
    pub message: String,
}

impl FailureKind {
    /// Returns true if a person must act first, so that an early retry is useless.
    pub const fn needs_somebody(self) -> bool {
        match self {
            Self::Authentication | Self::NotFound => true,
            Self::Unreachable
            | Self::TimedOut
            | Self::Corrupt
            | Self::Verification
            | Self::Interrupted
            | Self::Other => false,
        }
    }

    /// Returns the wait after the first failure. It doubles with each failure that follows.
    pub const fn first_wait(self) -> TimeDelta {
        if self.needs_somebody() {
            TimeDelta::minutes(10)
        } else {
            TimeDelta::seconds(30)
        }
    }

    /// Returns the maximum wait after a failure.
    pub const fn longest_wait(self) -> TimeDelta {
        if self.needs_somebody() {
            TimeDelta::hours(24)
        } else {
            TimeDelta::hours(1)
        }
    }

    /// Returns the fix, in a sentence or two for administrators.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Authentication => {
                "The forge refused the credentials. If the owner of the repository gave one for it (`lockkeeper credentials \
                 list --url URL` shows it), that one is used and no other: put one in its place that is valid (`lockkeeper \
                 credentials change`), or, if the message says that a key is missing, put that back into the file of \
                 --encryption-key-file. Otherwise check that the token of the server (--gh-token, --gh-token-file) is valid \
                 and may read the contents of the repository, or that the GitHub App is installed on it with that \
                 permission. Then ask for a sync, or push."
            }
            Self::NotFound => {
                "The repository does not exist under this name, or the credentials may not see it. Give the account or \
                 the GitHub App access to it; if it was renamed or deleted, take it off --repo-allowlist."
            }
            Self::Unreachable => {
                "The forge did not answer or broke off. Check the network, the proxy and the forge's own status; it is \
                 tried again by itself."
            }
            Self::TimedOut => {
                "It took too long. Check that the forge answers, and the line to it; if the repository is very large, give \
                 it more time (--fetch-timeout). It is tried again by itself."
            }
            Self::Corrupt => {
                "The copy on this disk is damaged; the next attempt makes it anew by itself. If it happens again, check \
                 the disk of --data-dir."
            }
            Self::Verification => {
                "What was fetched is not what the forge advertises. It is compared again by itself, and after the second \
                 time made anew; if it keeps happening, look for a proxy that keeps old answers of the forge."
            }
            Self::Interrupted => {
                "The server ended or lost its claim before the sync did. It is tried again by itself; if it keeps \
                 happening, see why the server is killed, or raise --sync-lease-timeout."
            }
            Self::Other => {
                "The message says what happened; more is in the log of that server. It is tried again by itself."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_fix_in_whole_sentences() {
        for kind in FailureKind::ALL {
            let fix = kind.fix();
            assert!(
                fix.ends_with('.') && fix.len() > 40 && !fix.contains("  "),
                "{kind}: {fix}"
            );
            assert!(kind.first_wait() < kind.longest_wait());
        }
    }

    #[test]
    fn only_what_somebody_has_to_mend_is_slowed_down() {
        let slow: Vec<_> = FailureKind::ALL
            .iter()
            .filter(|kind| kind.needs_somebody())
            .collect();
        assert_eq!(slow, [&FailureKind::Authentication, &FailureKind::NotFound]);
    }
}
