//! Parses names of repositories. Names keep their case for display, and are compared without regard to case.

use crate::EmulatorError;

/// Name of a repository: `owner/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FullName {
    pub(crate) owner: String,
    pub(crate) name: String,
}

impl FullName {
    /// Checks `owner/name`; the parts become directory names.
    pub(crate) fn parse(text: &str) -> Result<Self, EmulatorError> {
        let fine = |part: &str| {
            !part.is_empty()
                && part.len() <= 100
                && !part.starts_with(['.', '-'])
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        match text.split_once('/') {
            Some((owner, name))
                if fine(owner) && fine(name) && !name.to_ascii_lowercase().ends_with(".git") =>
            {
                Ok(Self {
                    owner: owner.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(EmulatorError::BadRepoName(text.to_owned())),
        }
    }

    /// Returns the lower-case form, for comparisons.
    pub(crate) fn key(&self) -> String {
        self.to_string().to_ascii_lowercase()
    }
}

impl std::fmt::Display for FullName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for text in [
            "acme",
            "acme/..",
            "../x",
            "acme/a/b",
            "acme/",
            "acme/x.git",
            "acme/a b",
            "",
        ] {
            assert!(FullName::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(FullName::parse("Acme/Infra").unwrap().key(), "acme/infra");
    }
}
