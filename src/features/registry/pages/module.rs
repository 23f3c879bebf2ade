//! `/registry/modules/{name}` and `/registry/modules/{name}@{version}`: a version, what its package tells about itself, all
//! versions of the name, and the plans and default branches that use it.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::states::VersionState;
use serde::Serialize;
use tracing::warn;

use super::super::branches::{BranchUseLimits, ListedBranchUse};
use super::super::input::{read_key, read_name};
use super::super::runs::ModuleUse;
use super::super::store::{RegistryVersion, VersionOrigin};
use super::super::view::{checksums_of, move_sentence, notice_sentence};
use super::contents::{PackageContents, Unread};
use super::names::kind_words;
use super::{PageScope, PagesParts, RegistryPages, badge, name_path, rank};
use crate::discovery::{ModuleInput, ModuleOutput};
use crate::errors::describe_error;
use crate::kit::web::extract::Segment;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, PullName, shown, size};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{ProjectKey, RepoId};

/// Maximum number of versions and of uses on a page.
const MOST_VERSIONS: usize = 200;
const MOST_USES: usize = 100;

/// Maximum number of uses that are read. Those of plans are also in repositories that the person does not see.
const MOST_READ: i64 = 1_000;

/// Maximum number of directories of one default branch on a page, so that no repository hides the others.
const MOST_OF_BRANCH: i64 = 20;

/// Maximum number of bytes of a `go.mod` file on a page.
const MAX_GO_MOD: i32 = 64 << 10;

#[derive(Serialize)]
struct ModulePage {
    name: String,
    kind: &'static str,
    is_go: bool,
    owner: Option<String>,
    is_public: bool,
    /// Host in the addresses of modules.
    host: String,
    /// Last part of the name, for an example.
    label: String,
    /// The version that the page is about. `version` is that of the server on every page.
    chosen: ShownVersion,
    contents: Option<ContentsView>,
    /// Reason why the package tells nothing.
    unread: Option<&'static str>,
    go_mod: Option<String>,
    versions: Vec<PageVersion>,
    versions_found: usize,
    uses: Vec<UseView>,
    uses_found: usize,
    /// True if there may be more uses than were read.
    has_more_uses: bool,
    branches: BranchesView,
}

/// The version that the page is about.
#[derive(Serialize)]
struct ShownVersion {
    number: String,
    badge: Badge,
    is_served: bool,
    notice: Option<String>,
    added: Option<PastTime>,
    by: Option<String>,
    origin: Option<&'static str>,
    commit: Option<String>,
    /// Sentences about its tag, which does not lead to the commit any more.
    moves: Vec<String>,
    size: Option<String>,
    digest: Option<String>,
    checksums: Option<String>,
}

#[derive(Serialize)]
struct PageVersion {
    number: String,
    path: String,
    badge: Badge,
    notice: Option<String>,
    added: Option<PastTime>,
    by: Option<String>,
    is_shown: bool,
}

#[derive(Serialize)]
struct ContentsView {
    /// README as HTML that is safe to show.
    readme: Option<String>,
    inputs: Vec<InputView>,
    outputs: Vec<OutputView>,
    /// Files that cannot be read, each with the reason.
    unread: Vec<String>,
    parts: Vec<String>,
}

#[derive(Serialize)]
struct InputView {
    name: String,
    value_type: Option<String>,
    default: Option<String>,
    description: Option<String>,
    is_sensitive: bool,
}

#[derive(Serialize)]
struct OutputView {
    name: String,
    description: Option<String>,
    is_sensitive: bool,
}

/// A plan that uses a version.
#[derive(Serialize)]
struct UseView {
    pull: PullName,
    project: String,
    version: String,
    state: String,
    at: PastTime,
}

/// Default branches that use the name.
#[derive(Serialize)]
struct BranchesView {
    uses: Vec<BranchUseView>,
    found: usize,
    /// True if there may be more uses than were read.
    has_more: bool,
}

/// A default branch that uses the name.
#[derive(Serialize)]
struct BranchUseView {
    repo: String,
    dir: String,
    /// Versions that the code allows. Empty: all.
    wanted: String,
    commit: Option<String>,
}

/// `GET /registry/modules/{name}`, `GET /registry/modules/{name}@{version}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    sight: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    let now = web.clock.now();
    let scope = PageScope::of(&web, &pages, &sight).await?;
    let (name, number) = read(&asked)?;
    // The answer for a name that the person may not see is that for one that is not there.
    if !scope.sees(&name) {
        return Err(unknown(&asked));
    }
    let registry = &pages.0.registry;
    let versions = registry.versions(&name).await?;
    let version = match &number {
        Some(number) => versions
            .iter()
            .find(|version| version.key.version() == *number),
        None => versions
            .iter()
            .max_by_key(|version| rank(version.known.state(), &version.key)),
    };
    let version = version.ok_or_else(|| unknown(&asked))?;
    let (contents, unread) = contents(&pages, version).await;
    let is_served = version.known.content().is_some();
    let go_mod = match name.kind() {
        NameKind::Go if is_served => {
            let start = web
                .store
                .registry_go_mod_start(&version.key, MAX_GO_MOD + 1);
            start.await?
        }
        NameKind::Go | NameKind::Module => None,
    };
    let uses = web.store.registry_uses(&name, None, MOST_READ);
    let mut uses = uses.await?;
    let has_more_uses = uses.len() >= usize::try_from(MOST_READ).unwrap_or(usize::MAX);
    let repos = sight.repos(None).await?;
    if let Some(repos) = &repos {
        let repos: HashSet<&RepoId> = repos.iter().collect();
        uses.retain(|used| repos.contains(&used.pull.repo));
    }
    let namespace = scope.namespace_of(&name);
    let owner = namespace.filter(|namespace| scope.knows_owner(namespace));
    let is_known = owner.is_some() || namespace.is_none();
    let moves = if is_known {
        web.store.registry_tag_moves(&name).await?
    } else {
        Vec::new()
    };
    let page = ModulePage {
        name: name.as_str().to_owned(),
        kind: kind_words(name.kind()),
        is_go: name.kind() == NameKind::Go,
        owner: owner.map(|namespace| namespace.owner.to_string()),
        is_public: namespace.is_some_and(super::RegistryNamespace::is_public),
        host: pages.0.host.clone(),
        label: label(&name),
        chosen: ShownVersion {
            moves: moves
                .iter()
                .filter(|one| one.key == version.key)
                .map(|one| shown(&move_sentence(one)))
                .collect(),
            ..ShownVersion::new(version, is_known, now)
        },
        contents: contents.as_deref().map(ContentsView::new),
        unread,
        go_mod: go_mod.map(|text| go_mod_text(&text)),
        versions: versions
            .iter()
            .take(MOST_VERSIONS)
            .map(|line| PageVersion {
                is_shown: line.key == version.key,
                ..PageVersion::new(line, is_known, now)
            })
            .collect(),
        versions_found: versions.len(),
        uses: uses
            .iter()
            .take(MOST_USES)
            .map(|used| UseView::new(used, now))
            .collect(),
        uses_found: uses.len(),
        has_more_uses,
        branches: BranchesView::of(&web, &name, repos.as_deref()).await?,
    };
    visitor.page("registry_module.html", &page)
}

/// Reads a name, with or without a version.
fn read(asked: &str) -> Result<(RegistryName, Option<String>), WebError> {
    let read = if asked.contains('@') {
        read_key(asked).map(|key| (key.name(), Some(key.version())))
    } else {
        read_name(asked).map(|name| (name, None))
    };
    read.map_err(|_| unknown(asked))
}

fn unknown(asked: &str) -> WebError {
    WebError::new(
        StatusCode::NOT_FOUND,
        "Module not found",
        format!(
            "The registry has no `{}`, or you may not see it.",
            shown(asked).replace('`', "'")
        ),
    )
}

/// Returns the texts in the package of a version, or the reason why the page shows none.
async fn contents(
    pages: &RegistryPages,
    version: &RegistryVersion,
) -> (Option<Arc<PackageContents>>, Option<&'static str>) {
    let located = version.known.content();
    let package = located.and_then(|located| located.content.packages.iter().next());
    let Some(package) = package else {
        return (None, None);
    };
    let PagesParts {
        registry, contents, ..
    } = &*pages.0;
    let read = contents.read(registry.blobs(), &version.key, package);
    let why = match read.await {
        Ok(contents) => return (Some(contents), None),
        Err(Unread::Busy) => {
            "The server reads other packages. Load the page again in a few seconds."
        }
        Err(Unread::Missing) => "The package is not in the store of this server.",
        Err(Unread::Failed(error)) => {
            let error = describe_error(&error);
            warn!(key = %version.key, error, "Could not read a package for its page");
            "The package cannot be read. The log of the server says why."
        }
    };
    (None, Some(why))
}

/// Returns the name of a module block in an example: `vpc` for `acme/vpc/aws`.
fn label(name: &RegistryName) -> String {
    let mut parts = name.as_str().split('/');
    let label = match name {
        RegistryName::Module(_) => parts.nth(1),
        RegistryName::Go(_) => parts.next_back(),
    };
    label.unwrap_or_default().to_owned()
}

fn go_mod_text(start: &[u8]) -> String {
    let most = usize::try_from(MAX_GO_MOD).unwrap_or_default();
    let text = lines(&String::from_utf8_lossy(&start[..start.len().min(most)]));
    if start.len() > most {
        format!("{text}\n…")
    } else {
        text
    }
}

/// Makes a text of several lines harmless to read.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(shown).collect();
    lines.join("\n")
}

impl ShownVersion {
    /// `is_known`: the person may know who has published the version.
    fn new(version: &RegistryVersion, is_known: bool, now: DateTime<Utc>) -> Self {
        let content = version.known.content().map(|located| &located.content);
        let package = content.and_then(|content| content.packages.iter().next());
        let by = publisher(version, is_known);
        // A tag names itself as the publisher.
        let is_named = |origin: &VersionOrigin| *origin == VersionOrigin::Tag && by.is_some();
        let origin = version.origin.filter(|origin| !is_named(origin));
        Self {
            number: version.key.version(),
            badge: badge(version.known.state()),
            is_served: content.is_some(),
            notice: notice(version),
            added: version.added_at.map(|at| PastTime::new(at, now)),
            origin: origin.map(origin_words),
            by,
            commit: content
                .and_then(|content| content.commit.as_ref())
                .map(|commit| commit.as_str().to_owned()),
            moves: Vec::new(),
            size: package.map(|package| size(package.size)),
            digest: package.map(|package| package.digest.to_string()),
            checksums: content.map(checksums_of),
        }
    }
}

fn notice(version: &RegistryVersion) -> Option<String> {
    let is_noted = version.known.state() != VersionState::Added;
    let notice = version.notice.as_ref().filter(|_| is_noted)?;
    Some(shown(&notice_sentence(notice)))
}

fn publisher(version: &RegistryVersion, is_known: bool) -> Option<String> {
    let by = version.published_by.as_deref();
    by.filter(|_| is_known).map(shown)
}

const fn origin_words(origin: VersionOrigin) -> &'static str {
    match origin {
        VersionOrigin::Upload => "an upload",
        VersionOrigin::Command => "the command line",
        VersionOrigin::Tag => "a tag",
        VersionOrigin::Peer => "another deployment",
        VersionOrigin::VersionControl => "version control",
        VersionOrigin::PeerVersionControl => "version control, by another deployment",
    }
}

impl PageVersion {
    fn new(version: &RegistryVersion, is_known: bool, now: DateTime<Utc>) -> Self {
        let number = version.key.version();
        Self {
            path: name_path(&version.key.name(), Some(&number)),
            number,
            badge: badge(version.known.state()),
            notice: notice(version),
            added: version.added_at.map(|at| PastTime::new(at, now)),
            by: publisher(version, is_known),
            is_shown: false,
        }
    }
}

impl ContentsView {
    fn new(contents: &PackageContents) -> Self {
        let interface = &contents.interface;
        let unread = interface.unread.iter().map(|file| {
            let (path, what) = (file.file.as_str(), &file.what);
            shown(&format!("{path}, line {}: {what}", file.line))
        });
        Self {
            readme: contents.readme.clone(),
            inputs: interface.inputs.iter().map(InputView::new).collect(),
            outputs: interface.outputs.iter().map(OutputView::new).collect(),
            unread: unread.collect(),
            parts: contents.parts.iter().map(|part| shown(part)).collect(),
        }
    }
}

impl InputView {
    fn new(input: &ModuleInput) -> Self {
        Self {
            name: shown(&input.name),
            value_type: input.value_type.as_deref().map(lines),
            default: input.default.as_deref().map(lines),
            description: input.description.as_deref().map(lines),
            is_sensitive: input.is_sensitive,
        }
    }
}

impl OutputView {
    fn new(output: &ModuleOutput) -> Self {
        Self {
            name: shown(&output.name),
            description: output.description.as_deref().map(lines),
            is_sensitive: output.is_sensitive,
        }
    }
}

/// Returns name, directory and workspace of a project for people.
fn project_words(project: &ProjectKey) -> String {
    let name = project.name.as_ref().map(|name| format!("{name} in "));
    format!(
        "{}{}, workspace {}",
        name.unwrap_or_default(),
        project.dir,
        project.workspace
    )
}

impl BranchesView {
    /// Reads the uses on default branches, of these repositories or of all.
    async fn of(
        web: &WebState,
        name: &RegistryName,
        repos: Option<&[RepoId]>,
    ) -> Result<Self, WebError> {
        let limits = BranchUseLimits {
            repos,
            of_repo: MOST_OF_BRANCH,
            total: MOST_READ,
        };
        let uses = web.store.registry_branch_uses_of_each(name, limits);
        let uses = uses.await?;
        let is_full = |uses: &[ListedBranchUse], most: i64| {
            i64::try_from(uses.len()).is_ok_and(|many| many >= most)
        };
        let mut of_each = uses.chunk_by(|one, other| one.repo == other.repo);
        let has_more = is_full(&uses, MOST_READ) || of_each.any(|of| is_full(of, MOST_OF_BRANCH));
        Ok(Self {
            found: uses.len(),
            uses: uses
                .iter()
                .take(MOST_USES)
                .map(BranchUseView::new)
                .collect(),
            has_more,
        })
    }
}

impl BranchUseView {
    fn new(listed: &ListedBranchUse) -> Self {
        let used = &listed.used;
        Self {
            repo: shown(&listed.repo.to_string()),
            dir: shown(used.dir.as_str()),
            wanted: shown(&used.wanted),
            commit: listed.head.as_ref().map(|head| head.short().to_owned()),
        }
    }
}

impl UseView {
    fn new(used: &ModuleUse, now: DateTime<Utc>) -> Self {
        Self {
            pull: PullName::without_link(&used.pull),
            project: shown(&project_words(&used.project)),
            version: used.key.version(),
            state: used.state.to_string(),
            at: PastTime::new(used.planned_at, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_with_or_without_a_version() {
        let text = |asked: &str| {
            read(asked)
                .ok()
                .map(|(name, version)| (name.to_string(), version))
        };
        assert_eq!(
            text("acme/vpc/aws@1.2.3"),
            Some(("module acme/vpc/aws".to_owned(), Some("1.2.3".to_owned())))
        );
        assert_eq!(
            text("example.com/m/v2"),
            Some(("go example.com/m/v2".to_owned(), None))
        );
        for asked in ["", "acme", "acme/vpc/aws@x", "../etc", "acme/vpc/aws@"] {
            assert_eq!(text(asked), None, "{asked}");
        }
    }
}
