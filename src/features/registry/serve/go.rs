//! The protocol of Go module proxies, and the index of versions.
//!
//! - A deprecated version stays available and leaves the list, so `go get` no longer chooses it.
//! - A version that was taken down is 403 or 451 with the reason. After 404 or 410, `go` would fetch the same code
//!   elsewhere. For the same reason a module whose versions were all taken down is 403 or 451 at `@latest`. Both are also
//!   true of a public module that has no readers, because nobody is accepted for it any more, but only for versions that
//!   were here.
//! - `@latest` falls back to a deprecated version. `go` asks for it also in projects that pin one, and they go on.
//! - A name that is not here is 404, so that `go` asks the next proxy, or the repository itself. What is missing may come
//!   from elsewhere, at once or in the background (`misses/`). Nothing does below `cached-only/`.
//! - A version that is not canonical, such as `v9` or the name of a branch, is 404 with the reason, or 403 if a rule of the
//!   operator refuses the module.
//! - The list of a module from elsewhere also has the versions that could be fetched. Otherwise `go` would not see new ones
//!   once an old one is here.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use lockkeeper_registry::names::{GoPath, RegistryName};
use lockkeeper_registry::records::Checksums;
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::{GoVersion, VersionKey};
use serde::Serialize;
use tokio::time::timeout;

use super::super::places::take_all;
use super::access::Reader;
use super::answer::{self, EntityTag, Freshness, TaggedContent};
use super::catalog::{CatalogState, KeptName, KeptVersion, ListedVersion};
use super::go_paths::{GoFile, GoRequest, InvalidGoRequest};
use super::refusal::ServeRefusal;
use super::{RegistryServer, packages, served, sumdb};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Path below which the protocol is served.
const BELOW: &str = "/registry/go/";

/// Maximum number of lines of the index, as in the public one.
const MOST_LINES: usize = 2000;

/// Maximum number of requests of clients that read the index at once. For a reader of few names, one of them reads all versions.
pub(super) const INDEX_AT_ONCE: usize = 2;

/// Longest wait for one of these places.
const INDEX_TIME: Duration = Duration::from_secs(10);

/// `GET /registry/go/{*path}`
pub(super) async fn answer(
    State(server): State<Arc<RegistryServer>>,
    request: Request,
) -> Result<Response, ServeRefusal> {
    let (parts, _) = request.into_parts();
    let snapshot = server.catalog.snapshot().await?;
    let reader = server.reader(snapshot, &parts.headers).await?;
    let path = parts.uri.path().strip_prefix(BELOW).unwrap_or_default();
    answer_path(&server, snapshot, &reader, &parts, path).await
}

/// Answers a request of a reader for a path of the protocol.
pub(super) async fn answer_path(
    server: &Arc<RegistryServer>,
    snapshot: CatalogState,
    reader: &Reader,
    parts: &Parts,
    path: &str,
) -> Result<Response, ServeRefusal> {
    let asked = match GoRequest::parse(path) {
        Ok(asked) => asked,
        Err(InvalidGoRequest::NotFound) => {
            return Err(ServeRefusal::not_found("no module has this path"));
        }
        Err(InvalidGoRequest::Escape(why)) => {
            return Err(ServeRefusal::BadRequest(format!("bad request: {why}")));
        }
        // The same for every module, so that it shows no private name.
        Err(InvalidGoRequest::Version(path, why)) => {
            let name = RegistryName::Go(path);
            let refusal = ServeRefusal::NotFound(why);
            return Err(server.missing(snapshot, reader, &name, refusal).await);
        }
    };
    let may_fill = !GoRequest::is_cached_only(path);
    match asked {
        GoRequest::Version(key, file) => {
            let kept = if may_fill {
                server.version_or_fill(snapshot, reader, &key).await?
            } else {
                server.version(snapshot, reader, &key).await?
            };
            version(server, snapshot, reader, parts, (key, &kept), file).await
        }
        GoRequest::List(path) => {
            let name = name(server, snapshot, reader, path, may_fill).await?;
            let list = if name.elsewhere.is_empty() {
                let known = &name.known;
                known
                    .list
                    .get_or_init(|| list(&known.versions, &[]).into())
                    .clone()
            } else {
                list(&name.known.versions, &name.elsewhere).into()
            };
            Ok(answer::content(
                &parts.headers,
                TEXT,
                Freshness::Revalidated,
                list,
            ))
        }
        GoRequest::Latest(path) => {
            let name = name(server, snapshot, reader, path, may_fill).await?;
            latest(server, snapshot, reader, &parts.headers, &name).await
        }
        GoRequest::Sumdb(name, request) => {
            sumdb::answer(server, snapshot, reader, &parts.headers, &name, request).await
        }
        GoRequest::Index => index(server, snapshot, reader, parts).await,
    }
}

/// A module with its versions.
struct FoundName {
    path: GoPath,
    known: Arc<KeptName>,
    /// Versions that are not here in any state, and can be fetched.
    elsewhere: Vec<GoVersion>,
}

/// Returns the versions of a module that is here or elsewhere.
async fn name(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    path: GoPath,
    may_fill: bool,
) -> Result<FoundName, ServeRefusal> {
    let name = RegistryName::Go(path.clone());
    server.check(snapshot, reader, &name, None).await?;
    let known = if may_fill {
        server.name_or_ask(snapshot, reader, &name).await?
    } else {
        server.catalog.name(snapshot, &name).await?
    };
    let is_here = !known.versions.is_empty();
    let there = if may_fill {
        server
            .versions_elsewhere(snapshot, reader, &path, is_here)
            .await?
    } else {
        Arc::default()
    };
    if !is_here && there.is_empty() {
        let unknown = ServeRefusal::unknown(&name);
        return Err(server.missing(snapshot, reader, &name, unknown).await);
    }
    if there.is_empty() {
        return Ok(FoundName {
            path,
            known,
            elsewhere: Vec::new(),
        });
    }
    // Also those that were never here: one that was taken down is not fetched.
    let stored = server.catalog.stored_name(snapshot, &name).await?;
    let stored = stored.versions.iter();
    let stored: HashSet<&GoVersion> = stored
        .filter_map(|version| Some(version.key.as_go()?.1))
        .collect();
    let elsewhere = there.iter().filter(|version| !stored.contains(*version));
    let mut elsewhere: Vec<GoVersion> = elsewhere.cloned().collect();
    elsewhere.sort_unstable();
    elsewhere.dedup();
    Ok(FoundName {
        path,
        known,
        elsewhere,
    })
}

/// Returns the served versions in a state.
fn in_state(
    versions: &[ListedVersion],
    state: VersionState,
) -> impl Iterator<Item = (&ListedVersion, &GoVersion)> {
    let served = versions
        .iter()
        .filter(move |version| version.is_served && version.state == state);
    served.filter_map(|version| Some((version, version.key.as_go()?.1)))
}

/// Lists the versions that `go` may choose, without those that it finds by a commit.
fn list(versions: &[ListedVersion], elsewhere: &[GoVersion]) -> Bytes {
    let listed = in_state(versions, VersionState::Added).map(|(_, version)| version);
    let listed = listed.chain(elsewhere);
    let mut listed: Vec<&GoVersion> = listed.filter(|version| !version.is_pseudo()).collect();
    listed.sort_unstable();
    let mut lines = String::new();
    for version in listed {
        writeln!(lines, "{version}").expect("writing to a text does not fail");
    }
    lines.into()
}

/// Answers with the version for those who name none.
async fn latest(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    headers: &HeaderMap,
    FoundName {
        path,
        known,
        elsewhere,
    }: &FoundName,
) -> Result<Response, ServeRefusal> {
    let here = in_state(&known.versions, VersionState::Added).map(|(_, version)| version);
    let newest = GoVersion::latest(here.chain(elsewhere));
    if let Some(newest) = newest.filter(|newest| elsewhere.contains(newest))
        && let Ok(key) = VersionKey::go(path.clone(), newest.clone())
    {
        match server.version_or_fill(snapshot, reader, &key).await {
            Ok(kept) => {
                let info = info(&key, kept.version.go_time());
                return Ok(answer::content(headers, JSON, Freshness::Revalidated, info));
            }
            // One that is here is better than none.
            Err(ServeRefusal::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let latest = latest_in(&known.versions, VersionState::Added)
        .or_else(|| latest_in(&known.versions, VersionState::Deprecated));
    let Some(version) = latest else {
        let name = RegistryName::Go(path.clone());
        return Err(ServeRefusal::none_left(&name, known.takedown.as_ref()));
    };
    let info = info(&version.key, version.go_time);
    Ok(answer::content(headers, JSON, Freshness::Revalidated, info))
}

/// Returns the highest release in a state, else the highest pre-release, else the highest commit.
fn latest_in(versions: &[ListedVersion], state: VersionState) -> Option<&ListedVersion> {
    let latest = GoVersion::latest(in_state(versions, state).map(|(_, version)| version));
    let latest = latest.or_else(|| in_state(versions, state).map(|(_, version)| version).max())?;
    let mut versions = in_state(versions, state);
    versions
        .find(|(_, version)| *version == latest)
        .map(|(version, _)| version)
}

async fn version(
    server: &Arc<RegistryServer>,
    snapshot: CatalogState,
    reader: &Reader,
    parts: &Parts,
    (key, kept): (VersionKey, &Arc<KeptVersion>),
    file: GoFile,
) -> Result<Response, ServeRefusal> {
    let headers = &parts.headers;
    match file {
        GoFile::Info => {
            let info = kept
                .info
                .get_or_init(|| info(&key, kept.version.go_time()).into());
            Ok(answer::content(
                headers,
                JSON,
                Freshness::Immutable,
                info.clone(),
            ))
        }
        GoFile::Mod => go_mod(server, reader, parts, (&key, kept)).await,
        GoFile::Zip => {
            let content = served(&key, Some(&kept.version))?;
            let package = content.packages.iter().next();
            let package = package.ok_or_else(|| ServeRefusal::unknown_version(&key))?;
            packages::send(
                server,
                snapshot,
                server.places(reader),
                (&parts.method, headers),
                kept,
                package,
                "application/zip",
            )
            .await
        }
    }
}

/// Answers with the `go.mod` file of a version. The entity tag is the checksum in the log, so the file is only read if it is
/// sent.
async fn go_mod(
    server: &Arc<RegistryServer>,
    reader: &Reader,
    parts: &Parts,
    (key, kept): (&VersionKey, &Arc<KeptVersion>),
) -> Result<Response, ServeRefusal> {
    let headers = &parts.headers;
    let small =
        |content: TaggedContent| answer::content(headers, TEXT, Freshness::Immutable, content);
    if let Some(content) = kept.go_mod.get() {
        return Ok(small(content.clone()));
    }
    let Checksums::Go { go_mod, .. } = served(key, Some(&kept.version))?.checksums else {
        return Err(ServeRefusal::unknown_version(key));
    };
    let tag = EntityTag::of_checksum(&go_mod);
    if tag.is_known(headers) {
        return Ok(answer::not_modified(&tag, Freshness::Immutable));
    }
    let mut size = server.registry.go_mod_size(key).await?;
    if size.is_none() {
        // It was taken down since the state was read, or is still at another deployment.
        packages::arrive(server, key).await?;
        size = server.registry.go_mod_size(key).await?;
    }
    let Some(size) = size else {
        return Err(packages::without_go_mod(server, key).await);
    };
    if parts.method == Method::HEAD {
        return Ok(answer::immutable(TEXT, &tag, size, Body::empty()));
    }
    if size > packages::SMALL {
        let places = server.places(reader);
        return packages::send_go_mod(server, places, (key, size), &tag, TEXT).await;
    }
    let Some(content) = server.registry.go_mod(key).await? else {
        return Err(packages::without_go_mod(server, key).await);
    };
    let content = TaggedContent::new(Bytes::from(content), tag);
    if content.len() <= KeptVersion::MAX_GO_MOD {
        return Ok(small(kept.go_mod.get_or_init(|| content).clone()));
    }
    Ok(small(content))
}

/// Version and time, as `go` writes them.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Info<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
}

fn info(key: &VersionKey, time: Option<DateTime<Utc>>) -> Bytes {
    let version = key.version();
    let info = Info {
        version: &version,
        time: time.map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true)),
    };
    serde_json::to_vec(&info).expect("texts are JSON").into()
}

/// Line of the index.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct IndexLine<'a> {
    path: &'a str,
    version: String,
    timestamp: String,
}

/// Query of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexQuery {
    since: Option<DateTime<Utc>>,
    limit: usize,
}

impl IndexQuery {
    fn parse(query: Option<&str>) -> Result<Self, ServeRefusal> {
        let mut parsed = Self {
            since: None,
            limit: MOST_LINES,
        };
        let bad = |what| ServeRefusal::BadRequest(format!("bad request: {what}"));
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match (&*name, &*value) {
                ("since" | "limit", "") => {}
                ("since", value) => {
                    let since = DateTime::parse_from_rfc3339(value);
                    let since =
                        since.map_err(|_| bad("`since` is a time such as 2026-11-03T10:00:00Z"))?;
                    parsed.since = Some(since.with_timezone(&Utc));
                }
                ("limit", value) => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize =
                        limit.ok_or_else(|| bad("`limit` is a number from 1 to 2000"))?;
                    parsed.limit = limit.min(MOST_LINES);
                }
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Answers with the versions that were added since a time and that the reader may read, oldest first.
async fn index(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    parts: &Parts,
) -> Result<Response, ServeRefusal> {
    reader.check_any()?;
    let query = IndexQuery::parse(parts.uri.query())?;
    let places = take_all(server.index_places(reader));
    let _places = timeout(INDEX_TIME, places)
        .await
        .map_err(|_| ServeRefusal::Busy)?;
    let namespaces = server.catalog.namespaces(snapshot).await?;
    let page_size = i64::try_from(MOST_LINES).unwrap_or(i64::MAX);
    let (mut since, mut lines, mut count) = (query.since, String::new(), 0);
    // No two versions have the same time, so the next page begins with the last version of this one.
    let mut last: Option<VersionKey> = None;
    'pages: loop {
        let page = server.registry.index(since, page_size).await?;
        let is_last = i64::try_from(page.len()).unwrap_or(i64::MAX) < page_size;
        for (key, state, time) in page {
            since = Some(time);
            if last.as_ref() == Some(&key) {
                continue;
            }
            if state == VersionState::Deleted {
                last = Some(key);
                continue;
            }
            let name = key.name();
            if reader.may_read(&name, namespaces.of(&name)) {
                let line = IndexLine {
                    path: name.as_str(),
                    version: key.version(),
                    timestamp: time.to_rfc3339_opts(SecondsFormat::AutoSi, true),
                };
                let line = serde_json::to_string(&line).expect("texts are JSON");
                writeln!(lines, "{line}").expect("writing to a text does not fail");
                count += 1;
            }
            last = Some(key);
            if count == query.limit {
                break 'pages;
            }
        }
        if is_last {
            break;
        }
    }
    Ok(answer::content(
        &parts.headers,
        JSON,
        Freshness::Revalidated,
        Bytes::from(lines),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_written_as_go_writes_it() {
        let key: VersionKey = "go example.com/m v1.0.0".parse().unwrap();
        let time = "2026-11-03T10:00:00Z".parse().ok();
        assert_eq!(
            info(&key, time),
            r#"{"Version":"v1.0.0","Time":"2026-11-03T10:00:00Z"}"#
        );
    }

    #[test]
    fn the_index_takes_a_time_and_a_limit() {
        let parse = |query: &str| IndexQuery::parse(Some(query));
        let all = IndexQuery {
            since: None,
            limit: 2000,
        };
        assert_eq!(IndexQuery::parse(None).unwrap(), all);
        assert_eq!(parse("since=&limit=&include=all").unwrap(), all);
        let query = parse("since=2026-11-03T10:00:00.5%2B01:00&limit=7").unwrap();
        let since = "2026-11-03T09:00:00.5Z".parse().ok();
        assert_eq!(query, IndexQuery { since, limit: 7 });
        assert_eq!(parse("limit=99999").unwrap(), all);
        for query in ["limit=0", "limit=-1", "limit=x", "since=yesterday"] {
            assert!(
                matches!(parse(query), Err(ServeRefusal::BadRequest(_))),
                "{query}"
            );
        }
    }
}
