//! `/registry/modules/{name}` and `/registry/modules/{name}@{version}`: a version, what its package tells about itself, all
//! versions of the name, and the plans and default branches that use it.

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
use super::super::input::{read_name_or_version, shown_key};
use super::super::runs::ModuleUse;
use super::super::store::{RegistryVersion, VersionOrigin};
use super::super::used_by::{ModuleUses, UseView};
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
use crate::model::{ProjectKey, code_span};

/// Maximum number of versions and of uses on a page.
const MOST_VERSIONS: usize = 200;
const MOST_USES: usize = 100;

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
    /// Name or version whose uses are listed, as the command line takes it.
    uses_of: String,
    /// True if only the uses of the chosen version are listed.
    is_of_version: bool,
    plans: PagePart<PlanEntry>,
    branches: PagePart<BranchEntry>,
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

/// The first uses of one kind.
#[derive(Serialize)]
struct PagePart<T> {
    uses: Vec<T>,
    found: usize,
    /// True if there may be more uses than were read.
    has_more: bool,
}

/// A plan for the template of the page.
#[derive(Serialize)]
struct PlanEntry {
    #[serde(flatten)]
    used: UseView,
    /// Name of the pull request or application.
    of: PullName,
    /// Name, directory and workspace of the project.
    words: String,
}

/// A default branch for the template of the page.
#[derive(Serialize)]
struct BranchEntry {
    #[serde(flatten)]
    used: UseView,
    short: Option<String>,
}

/// `GET /registry/modules/{name}`, `GET /registry/modules/{name}@{version}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    let now = web.clock.now();
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let read = read_name_or_version(&asked).map_err(|_| unknown(&asked))?;
    let name = read.name();
    // The answer for a name that the person may not see is that for one that is not there.
    if !scope.sees(&name) {
        return Err(unknown(&asked));
    }
    let registry = &pages.0.registry;
    let versions = registry.versions(&name).await?;
    let version = match read.version() {
        Some(key) => versions.iter().find(|version| version.key == *key),
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
    let repos = visible.repos(None).await?;
    let limits = BranchUseLimits {
        repos: repos.as_deref(),
        of_repo: MOST_OF_BRANCH,
        total: ModuleUses::MOST,
    };
    let uses = ModuleUses::within(&web.store, &name, read.version(), limits).await?;
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
        uses_of: match read.version() {
            Some(key) => shown_key(key),
            None => name.as_str().to_owned(),
        },
        is_of_version: read.version().is_some(),
        plans: PagePart::of(&uses.plans, uses.has_more_plans, PlanEntry::new),
        branches: PagePart::of(&uses.branches, uses.has_more_branches, BranchEntry::new),
    };
    visitor.page("registry_module.html", &page)
}

/// Says that a name is not here, or that the person may not see it.
pub(super) fn unknown(asked: &str) -> WebError {
    WebError::new(
        StatusCode::NOT_FOUND,
        "Module not found",
        format!(
            "The registry has no {}, or you may not see it.",
            code_span(&shown(asked))
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
    version.publisher().filter(|_| is_known).map(shown)
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

impl<T> PagePart<T> {
    fn of<U>(uses: &[U], has_more: bool, entry: impl Fn(&U) -> T) -> Self {
        Self {
            uses: uses.iter().take(MOST_USES).map(entry).collect(),
            found: uses.len(),
            has_more,
        }
    }
}

impl PlanEntry {
    fn new(used: &ModuleUse) -> Self {
        Self {
            used: used.into(),
            of: PullName::without_link(&used.pull),
            words: shown(&project_words(&used.project)),
        }
    }
}

impl BranchEntry {
    fn new(listed: &ListedBranchUse) -> Self {
        Self {
            used: listed.into(),
            short: listed.head.as_ref().map(|head| head.short().to_owned()),
        }
    }
}
