//! `/registry`: a search among all names.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use lockkeeper_registry::names::{NameKind, RegistryName};
use serde::{Deserialize, Serialize};

use super::store::{ListedState, NameSearch};
use super::{PageReaders, PageScope, RegistryPages, badge, name_path, rank};
use crate::kit::web::extract::{LenientQuery, search_text};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, query, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};

/// Maximum number of names on one page; a search finds the others.
const SHOWN: i64 = 50;

/// `?q=…&page=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamesQuery {
    q: String,
    /// Number of the page, from 1.
    page: Option<u32>,
}

#[derive(Serialize)]
struct NamesPage {
    q: String,
    /// True if the person sees nothing at all.
    is_closed: bool,
    found: i64,
    names: Vec<NameLine>,
    /// Number of names before the first one on the page.
    skipped: i64,
    /// Query of the previous page, if there is one.
    before: Option<String>,
    next: Option<String>,
}

/// A name in the list.
#[derive(Serialize)]
struct NameLine {
    name: String,
    path: String,
    kind: &'static str,
    owner: Option<String>,
    is_public: bool,
    version: String,
    badge: Badge,
    versions: usize,
    added: Option<PastTime>,
}

/// `GET /registry`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    pages: RegistryPages,
    LenientQuery(params): LenientQuery<NamesQuery>,
) -> Result<Response, WebError> {
    let (now, q) = (web.clock.now(), search_text(&params.q)?);
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let page = i64::from(params.page.unwrap_or(1).max(1));
    let skip = (page - 1) * SHOWN;
    let prefixes = scope.prefixes();
    let search = NameSearch {
        text: q,
        prefixes: prefixes.as_deref(),
        skip,
        limit: SHOWN,
    };
    let found = web.store.registry_name_search(search).await?;
    let mut versions: HashMap<RegistryName, Vec<ListedState>> = HashMap::new();
    for version in web.store.registry_states_of(&found.names).await? {
        let of_name = versions.entry(version.key.name()).or_default();
        of_name.push(version);
    }
    let line = |name: &RegistryName| {
        let of_name = versions.get(name)?;
        let shown = of_name
            .iter()
            .max_by_key(|version| rank(version.state, &version.key))?;
        let namespace = scope.namespace_of(name);
        Some(NameLine {
            name: name.as_str().to_owned(),
            path: name_path(name, None),
            kind: kind_words(name.kind()),
            owner: namespace
                .filter(|namespace| scope.knows_owner(namespace))
                .map(|namespace| namespace.owner.to_string()),
            is_public: namespace.is_some_and(super::RegistryNamespace::is_public),
            version: shown.key.version(),
            badge: badge(shown.state),
            versions: of_name.len(),
            added: shown.added_at.map(|at| PastTime::new(at, now)),
        })
    };
    let at = |page: i64| query(&[("q", q), ("page", &page.to_string())]);
    let view = NamesPage {
        q: shown(q),
        is_closed: matches!(scope.readers, PageReaders::Nothing),
        found: found.count,
        names: found.names.iter().filter_map(line).collect(),
        skipped: skip,
        before: (page > 1).then(|| at(page - 1)),
        next: (found.count > skip + SHOWN).then(|| at(page + 1)),
    };
    visitor.page("registry.html", &view)
}

pub(super) const fn kind_words(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Module => "Terraform",
        NameKind::Go => "Go",
    }
}
