//! Full names of refs.

use std::fmt;

use crate::model::BranchName;

/// Why a text is not the full name of a ref.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the full name of a git ref (`refs/heads/main`, `refs/pull/12/head`)")]
pub struct InvalidRefName(String);

/// The full name of a ref, safe to hand to git, e.g. `refs/pull/12/head`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefName(String);

impl RefName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, InvalidRefName> {
        let invalid = || InvalidRefName(text.chars().take(200).collect());
        let rest = text.strip_prefix("refs/").filter(|rest| rest.contains('/')).ok_or_else(invalid)?;
        BranchName::new(rest).map_err(|_| invalid())?;
        Ok(Self(text.to_owned()))
    }

    /// `refs/heads/<branch>`.
    pub fn branch(branch: &BranchName) -> Self {
        Self(format!("refs/heads/{branch}"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_names_that_git_cannot_misread() {
        for text in
            ["main", "refs/main", "-refs/heads/x", "refs/heads/a..b", "refs/heads/x:y", "+refs/heads/x", "refs/heads/*"]
        {
            assert!(RefName::new(text).is_err(), "{text}");
        }
        assert_eq!(RefName::branch(&"a/b".parse().unwrap()), RefName::new("refs/heads/a/b").unwrap());
        assert!(RefName::new("refs/pull/12/head").is_ok());
    }
}
