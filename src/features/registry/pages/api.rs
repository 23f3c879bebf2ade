//! `/api/registry/…` for people and scripts that sign in as to the pages: what a missing version leads to, who uses a
//! module, what became of tags, and the settings of clients. `lists.rs` beside the pages answers to tokens.
//!
//! A name that the account may not see is answered as one that nobody has, as on the page of the module.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::BranchUseLimits;
use super::super::explain::Explanation;
use super::super::input::{NameOrVersion, read_name_or_version};
use super::super::setup::ClientSettings;
use super::super::tags::{CountedRepo, ShownTag};
use super::super::used_by::{ModuleUses, UseView};
use super::super::view::key_json;
use super::module::unknown;
use super::{PageScope, RegistryPages};
use crate::authz::Resource;
use crate::kit::web::extract::Segment;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState, shown};
use crate::model::RepoId;

/// Uses of a name, or of one version of it.
#[derive(Serialize)]
pub(super) struct UsesAnswer {
    kind: NameKind,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    uses: Vec<UseView>,
    /// True if there may be others.
    more: bool,
}

/// Reads a name with or without a version, and checks that the account sees it.
fn seen(scope: &PageScope, asked: &str) -> Result<NameOrVersion, WebError> {
    let read = read_name_or_version(asked).ok();
    let read = read.filter(|read| scope.sees(&read.name()));
    read.ok_or_else(|| unknown(asked))
}

/// `GET /api/registry/explain/{name}`, `GET /api/registry/explain/{name}@{version}`
pub(super) async fn explain(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<Explanation>, WebError> {
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let asked = seen(&scope, &asked)?;
    let explanation = Explanation::of(&web.store, &asked, &pages.0.misses).await?;
    Ok(Json(if scope.sees_peers() {
        explanation
    } else {
        explanation.without_peers()
    }))
}

/// `GET /api/registry/uses/{name}`, `GET /api/registry/uses/{name}@{version}`: those in repositories that the account
/// sees.
pub(super) async fn uses(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<UsesAnswer>, WebError> {
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let asked = seen(&scope, &asked)?;
    let repos = visible.repos(None).await?;
    let limits = BranchUseLimits {
        repos: repos.as_deref(),
        of_repo: ModuleUses::MOST,
        total: ModuleUses::MOST,
    };
    let (name, version) = (asked.name(), asked.version());
    let uses = ModuleUses::within(&web.store, &name, version, limits).await?;
    Ok(Json(UsesAnswer {
        kind: name.kind(),
        name: name.as_str().to_owned(),
        version: version.map(VersionKey::version),
        uses: uses.views().collect(),
        more: uses.has_more_plans || uses.has_more_branches,
    }))
}

/// `GET /api/registry/setup`: settings of clients, with the namespaces that the account sees.
pub(super) async fn setup(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
) -> Result<Json<Value>, WebError> {
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let host = pages.0.host.clone();
    let base = format!("https://{host}{}", web.link(""));
    let log = pages.0.registry.verifier().clone();
    let settings = ClientSettings::new(host, &base, log, scope.seen_prefixes().iter());
    Ok(Json(settings.json()))
}

/// `GET /api/registry/key`. The key is no secret.
pub(super) async fn key(pages: RegistryPages) -> Json<Value> {
    Json(key_json(pages.0.registry.verifier()))
}

/// `GET /api/registry/tags`: repositories that the account sees, with the numbers of their tags.
pub(super) async fn tags(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
) -> Result<Json<Value>, WebError> {
    let _scope = PageScope::of(&web, &pages, &visible).await?;
    let seen = visible.repos(None).await?;
    let seen: Option<BTreeSet<RepoId>> = seen.map(|seen| seen.into_iter().collect());
    let mut repos = CountedRepo::all(&web.store).await?;
    repos.retain(|repo| {
        seen.as_ref()
            .is_none_or(|seen| seen.contains(&repo.known.repo))
    });
    let repos: Vec<Value> = repos.iter().map(CountedRepo::json).collect();
    Ok(Json(json!({ "repos": repos })))
}

/// `GET /api/registry/tags/{host}/{path}`: the tags of one repository, and what became of them.
pub(super) async fn tags_of(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Json<Value>, WebError> {
    let never_read = || {
        WebError::new(
            StatusCode::NOT_FOUND,
            "Tags not read",
            format!(
                "The tags of “{}” were never read. Its owner needs a namespace, and must have claimed it.",
                shown(&asked)
            ),
        )
    };
    let _scope = PageScope::of(&web, &pages, &visible).await?;
    let repo: RepoId = asked.parse().map_err(|_| never_read())?;
    visible.require_access(&Resource::Repository(&repo)).await?;
    let repos = web.store.registry_tag_repos().await?;
    if !repos.iter().any(|known| known.repo == repo) {
        return Err(never_read());
    }
    let tags = ShownTag::all_of(&web.store, &repo).await?;
    let tags: Vec<Value> = tags.iter().map(ShownTag::json).collect();
    Ok(Json(json!({ "repo": repo, "tags": tags })))
}
