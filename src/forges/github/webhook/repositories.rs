//! Reads deliveries about repositories as a whole: pushes, renames, deletions, and the access of the App.

use super::payload::{PayloadError, ignored, repo_id};
use super::shape::{GrantPayload, InstallPayload, Repository, RepositoryPayload};
use crate::forges::ParsedDelivery;
use crate::model::{Event, ForgeRepo, HostName, RepoId, RepositoryChange, RepositoryEventKind};

/// Converts a `push` delivery.
pub(super) fn pushed(
    payload: &RepositoryPayload,
    host: &HostName,
) -> Result<ParsedDelivery, PayloadError> {
    Ok(ParsedDelivery {
        event: news_of(payload, host)?,
        repositories: identified([&payload.repository], host),
    })
}

/// Converts a `repository` delivery.
pub(super) fn changed(
    payload: &RepositoryPayload,
    host: &HostName,
) -> Result<ParsedDelivery, PayloadError> {
    Ok(ParsedDelivery {
        event: news_of(payload, host)?,
        repositories: renamed(payload, host).into_iter().collect(),
    })
}

fn news_of(payload: &RepositoryPayload, host: &HostName) -> Result<Event, PayloadError> {
    let kind = kind_of(payload.action.as_deref());
    let repo = repo_id(host, &payload.repository.full_name)?;
    Ok(Event::Repositories {
        news: vec![RepositoryChange { repo, kind }],
    })
}

/// Returns the repositories that have an identifier and a valid name.
pub(super) fn identified<'a>(
    repos: impl IntoIterator<Item = &'a Repository>,
    host: &HostName,
) -> Vec<ForgeRepo> {
    repos
        .into_iter()
        .filter_map(|one| Some(ForgeRepo::new(one.id?, repo_id(host, &one.full_name).ok()?)))
        .collect()
}

/// Returns the repository of a `repository` event, with its previous name if its name or owner has changed.
fn renamed(payload: &RepositoryPayload, host: &HostName) -> Option<ForgeRepo> {
    let repo = repo_id(host, &payload.repository.full_name).ok()?;
    let is_renamed = kind_of(payload.action.as_deref()) == RepositoryEventKind::Renamed;
    let was = old_name(payload, &repo)
        .filter(|_| is_renamed)
        .and_then(|old| RepoId::new(host.clone(), &old).ok());
    let was = was.filter(|was| *was != repo);
    // A deleted repository no longer has a name that somebody could use.
    let is_gone = kind_of(payload.action.as_deref()) == RepositoryEventKind::Deleted;
    payload
        .repository
        .id
        .filter(|_| !is_gone)
        .map(|id| ForgeRepo { id, repo, was })
}

fn kind_of(action: Option<&str>) -> RepositoryEventKind {
    match action {
        None => RepositoryEventKind::Push,
        Some("deleted") => RepositoryEventKind::Deleted,
        Some("renamed" | "transferred") => RepositoryEventKind::Renamed,
        Some(_) => RepositoryEventKind::Changed,
    }
}

/// Returns the previous name of a repository with a new name or owner.
fn old_name(payload: &RepositoryPayload, now: &RepoId) -> Option<String> {
    let changes = payload.changes.as_ref()?;
    let name = changes
        .repository
        .as_ref()
        .and_then(|renaming| renaming.name.as_ref());
    let from = changes
        .owner
        .as_ref()
        .and_then(|transfer| transfer.from.as_ref());
    let owner = from.and_then(|from| from.user.as_ref().or(from.organization.as_ref()));
    match (owner, name) {
        (None, None) => None,
        (None, Some(name)) => Some(format!("{}/{}", now.owner(), name.from)),
        (Some(owner), None) => Some(format!("{}/{}", owner.login, now.name())),
        (Some(owner), Some(name)) => Some(format!("{}/{}", owner.login, name.from)),
    }
}

/// Converts a change of the App's access: a repository that it may no longer see counts as deleted.
pub(super) fn granted(
    payload: &GrantPayload,
    host: &HostName,
) -> Result<ParsedDelivery, PayloadError> {
    let added = all(
        &payload.repositories_added,
        RepositoryEventKind::Changed,
        host,
    )?;
    let removed = all(
        &payload.repositories_removed,
        RepositoryEventKind::Deleted,
        host,
    )?;
    let news = [added, removed].concat();
    let event = if news.is_empty() {
        ignored("the app did not gain or lose access to a repository")
    } else {
        Event::Repositories { news }
    };
    Ok(ParsedDelivery {
        event,
        repositories: identified(&payload.repositories_added, host),
    })
}

impl InstallPayload {
    /// Returns the meaning of the action for the repositories that it names.
    fn kind(&self) -> Option<RepositoryEventKind> {
        match self.action.as_deref() {
            Some("created" | "unsuspend" | "new_permissions_accepted") => {
                Some(RepositoryEventKind::Changed)
            }
            Some("deleted" | "suspend") => Some(RepositoryEventKind::Deleted),
            Some(_) | None => None,
        }
    }

    /// Returns true if the App has access to the repositories that the payload names.
    pub(super) fn gives_access(&self) -> bool {
        self.kind() == Some(RepositoryEventKind::Changed)
    }
}

/// Converts an installation or removal of the App, with all repositories that it may see.
pub(super) fn installed(
    payload: &InstallPayload,
    host: &HostName,
) -> Result<ParsedDelivery, PayloadError> {
    let event = match payload.kind() {
        None => ignored("this change of the app's installation does not concern a repository"),
        Some(_) if payload.repositories.is_empty() => {
            ignored("the app's installation names no repository")
        }
        Some(kind) => Event::Repositories {
            news: all(&payload.repositories, kind, host)?,
        },
    };
    Ok(ParsedDelivery {
        event,
        repositories: identified(&payload.repositories, host),
    })
}

fn all(
    repos: &[Repository],
    kind: RepositoryEventKind,
    host: &HostName,
) -> Result<Vec<RepositoryChange>, PayloadError> {
    let one = |repo: &Repository| {
        Ok(RepositoryChange {
            repo: repo_id(host, &repo.full_name)?,
            kind,
        })
    };
    repos.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::{Value, json};

    use super::super::payload::parse;
    use super::*;

    fn told(parsed: Result<ParsedDelivery, PayloadError>) -> Vec<String> {
        let word = |news: RepositoryChange| format!("{} {}", news.kind, news.repo);
        parsed
            .unwrap()
            .event
            .repository_changes()
            .into_iter()
            .map(word)
            .collect()
    }

    fn named(parsed: &ParsedDelivery) -> Vec<String> {
        parsed
            .repositories
            .iter()
            .map(|named| format!("{} {}", named.id, named.repo))
            .collect()
    }

    fn changed_by(body: Value) -> Vec<String> {
        told(changed(
            &serde_json::from_value(body).unwrap(),
            &HostName::new("github.com").unwrap(),
        ))
    }

    #[test]
    fn pushes_and_changes_of_repositories_are_news() {
        let push = json!({"ref": "refs/heads/main", "repository": {"full_name": "Acme/Infra"}, "installation": {"id": 7}});
        assert_eq!(changed_by(push), ["push github.com/acme/infra"]);
        let named =
            |action: &str| json!({"action": action, "repository": {"full_name": "acme/infra"}});
        assert_eq!(
            changed_by(named("deleted")),
            ["deleted github.com/acme/infra"]
        );
        assert_eq!(
            changed_by(named("privatized")),
            ["changed github.com/acme/infra"]
        );
        assert_eq!(
            changed_by(named("renamed")),
            ["renamed github.com/acme/infra"]
        );
    }

    #[test]
    fn a_repository_that_has_another_name_or_owner_says_which_it_had() {
        let was = |action: &str, changes: Value| {
            let repository = json!({"id": 5, "full_name": "Acme/Infra"});
            let payload = json!({"action": action, "repository": repository, "changes": changes});
            let told = renamed(
                &serde_json::from_value(payload).unwrap(),
                &HostName::new("github.com").unwrap(),
            )
            .unwrap();
            assert_eq!((told.id, told.repo.full_name()), (5, "acme/infra"));
            told.was.map(|was| was.full_name().to_owned())
        };
        let owner = |from: Value| json!({"owner": {"from": from}});
        let name = json!({"repository": {"name": {"from": "Old"}}});
        assert_eq!(was("renamed", name.clone()).as_deref(), Some("acme/old"));
        assert_eq!(was("edited", name), None);
        assert_eq!(
            was("transferred", owner(json!({"user": {"login": "x"}}))).as_deref(),
            Some("x/infra")
        );
        let organization = json!({"organization": {"login": "Acme-Old"}});
        assert_eq!(
            was("transferred", owner(organization)).as_deref(),
            Some("acme-old/infra")
        );
        assert_eq!(was("transferred", owner(json!({}))), None);
    }

    #[test]
    fn every_payload_names_its_repositories_by_their_identifiers() {
        let host = HostName::new("github.com").unwrap();
        let parsed = |event: &str, body: Value| {
            let body = body.to_string();
            named(
                &parse(event, &HeaderMap::new(), body.as_bytes(), &host)
                    .unwrap()
                    .delivery,
            )
        };
        let repository = json!({"id": 5, "full_name": "Acme/Infra"});
        let infra = ["5 github.com/acme/infra"];
        assert_eq!(
            parsed("push", json!({"repository": repository.clone()})),
            infra
        );
        for action in ["opened", "labeled"] {
            let body = json!({
                "action": action, "repository": repository.clone(), "pull_request": {"number": 1},
            });
            assert_eq!(parsed("pull_request", body), infra, "{action}");
        }
        for action in ["created", "deleted"] {
            let body = json!({
                "action": action, "repository": repository.clone(),
                "issue": {"number": 1, "pull_request": {}}, "comment": {"id": 7},
            });
            assert_eq!(parsed("issue_comment", body), infra, "{action}");
        }
        let added = json!([{"id": 6, "full_name": "acme/new"}, {"full_name": "acme/without"}]);
        assert_eq!(
            parsed(
                "installation_repositories",
                json!({"repositories_added": added.clone()})
            ),
            ["6 github.com/acme/new"]
        );
        for action in ["created", "renamed"] {
            let body = json!({"action": action, "repositories": added.clone()});
            let named = parsed("installation", body);
            assert_eq!(named, ["6 github.com/acme/new"], "{action}");
        }
        for (action, named) in [("publicized", infra.as_slice()), ("deleted", &[])] {
            let body = json!({"action": action, "repository": repository.clone()});
            assert_eq!(parsed("repository", body), named, "{action}");
        }
    }

    #[test]
    fn what_the_app_may_see_is_news() {
        let body = json!({
            "action": "added", "repositories_added": [{"full_name": "acme/new"}],
            "repositories_removed": [{"full_name": "acme/old"}], "installation": {"id": 7},
        });
        let host = HostName::new("github.com").unwrap();
        let granted_by = |body: Value| granted(&serde_json::from_value(body).unwrap(), &host);
        assert_eq!(
            told(granted_by(body)),
            ["changed github.com/acme/new", "deleted github.com/acme/old"]
        );
        let installed_by = |action: &str| {
            let repositories =
                json!([{"id": 1, "full_name": "Acme/Infra"}, {"id": 2, "full_name": "acme/labs"}]);
            let body =
                json!({"action": action, "repositories": repositories, "installation": {"id": 7}});
            told(installed(&serde_json::from_value(body).unwrap(), &host))
        };
        assert_eq!(
            installed_by("created"),
            [
                "changed github.com/acme/infra",
                "changed github.com/acme/labs"
            ]
        );
        assert_eq!(installed_by("deleted")[1], "deleted github.com/acme/labs");
        assert_eq!(installed_by("renamed"), [""; 0]);
        assert!(matches!(
            granted_by(json!({})).unwrap().event,
            Event::Ignored { .. }
        ));
        assert!(granted_by(json!({"repositories_added": [{"full_name": "x"}]})).is_err());
    }
}
