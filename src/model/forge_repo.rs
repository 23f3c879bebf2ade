//! A repository as its forge identifies it.

use super::repo::RepoId;

/// A repository with the identifier that its forge gave it. It keeps the identifier for good; the name is an attribute.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ForgeRepo {
    /// The forge's own identifier.
    pub id: u64,
    /// Name at the moment when this was told.
    pub repo: RepoId,
    /// Name before, where that is what is told.
    #[serde(default)]
    pub was: Option<RepoId>,
}

impl ForgeRepo {
    /// A repository under the name it has.
    pub const fn new(id: u64, repo: RepoId) -> Self {
        Self {
            id,
            repo,
            was: None,
        }
    }

    /// Name under which the rows of a repository go on that is gone and whose name another one has taken. No repository of a
    /// forge can have it, so nothing new comes to be under it.
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
