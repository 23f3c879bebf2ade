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
                "The forge refused the credentials. If the owner of the repository added one for it (`lockkeeper \
                 credentials list --url URL` shows it), Lockkeeper uses only that one: replace it with a valid one \
                 (`lockkeeper credentials change`), or, if the message says that a key is missing, restore that key \
                 in the file of --encryption-key-file. Otherwise check that the token of the server (--gh-token, \
                 --gh-token-file) is valid and may read the contents of the repository, or that the GitHub App is \
                 installed on it with that permission. Then request a sync, or push."
            }
            Self::NotFound => {
                "The repository does not exist under this name, or the credentials may not see it. Give the account \
                 or the GitHub App access to it; if it was renamed or deleted, remove it from --repo-allowlist."
            }
            Self::Unreachable => {
                "The forge did not answer or closed the connection. Check the network, the proxy and the status of \
                 the forge. Lockkeeper retries automatically."
            }
            Self::TimedOut => {
                "The sync took too long. Check the forge and the connection to it. If the repository is very large, \
                 increase --fetch-timeout. Lockkeeper retries automatically."
            }
            Self::Corrupt => {
                "The mirror on this disk is damaged. The next attempt replaces it automatically. If this happens \
                 again, check the disk of --data-dir."
            }
            Self::Verification => {
                "The fetched refs differ from the refs that the forge advertises. Lockkeeper compares them again \
                 automatically, and replaces the mirror after the second time. If this keeps happening, look for a \
                 proxy that returns old answers of the forge."
            }
            Self::Interrupted => {
                "The server ended or lost its lease before the sync ended. Lockkeeper retries automatically. If this \
                 keeps happening, find out why the server is killed, or raise --sync-lease-timeout."
            }
            Self::Other => {
                "The message says what happened. The log of that server has more details. Lockkeeper retries \
                 automatically."
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
