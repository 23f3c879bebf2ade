//! A repository as its forge identifies it.

use super::repo::RepoId;

/// A repository with the identifier that its forge gave it. The identifier never changes; the name is an attribute.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ForgeRepo {
    /// Identifier on the forge.
    pub id: u64,
    /// Name at the time of the message.
    pub repo: RepoId,
    /// Previous name, if the message reports a rename.
    #[serde(default)]
    pub was: Option<RepoId>,
}

impl ForgeRepo {
    /// Returns a repository with its current name.
    pub const fn new(id: u64, repo: RepoId) -> Self {
        Self {
            id,
            repo,
            was: None,
        }
    }

    /// Returns the name for the rows of a deleted repository whose name another one has taken. No repository of a
    /// forge can have this name, so no new rows appear under it.
    #[expect(
        clippy::missing_panics_doc,
        reason = "a name with a number at its end is one that a record may hold"
    )]
    #[must_use]
    pub fn displaced(&self) -> RepoId {
        RepoId::of_record(&format!("{}~{}", self.repo, self.id))
            .expect("a record may hold such a name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_new_comes_to_be_under_the_name_of_a_displaced_repository() {
        let repo = ForgeRepo::new(7, "github.com/acme/infra".parse().unwrap());
        assert_eq!(repo.displaced().to_string(), "github.com/acme/infra~7");
        assert!(repo.displaced().to_string().parse::<RepoId>().is_err());
        let url = crate::model::RepoUrl::of(&repo.displaced()).unwrap();
        assert_eq!(
            (url.as_str(), url.repo_id()),
            ("https://github.com/acme/infra~7", None),
            "claims go along"
        );
    }
}
