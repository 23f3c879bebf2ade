//! Checks the promises of the registries (R1 to R5) from outside, after a round is over and all faults have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::future::join_all;
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use serde_json::Value;

use super::super::database_view::DatabaseView;
use super::clients::{Fetched, ListedVersion, ServerAnswer};
use super::fills::FETCH_REQUESTS;
use super::world::RegistryWorld;
use crate::registry::outside::CODE;

/// Lets failed downloads be due at once, on SQLite and on PostgreSQL. Those from the hostile deployment may never end.
const HASTEN: [&str; 2] = [
    "UPDATE registry_downloads SET next_at = '2020-01-01T00:00:00+00:00' \
     WHERE peer <> 'mallory.example.com' RETURNING name",
    "UPDATE registry_downloads SET next_at = TIMESTAMPTZ '2020-01-01 00:00:00Z' \
     WHERE peer <> 'mallory.example.com' RETURNING name",
];
const WAITING: &str = "SELECT kind || ' ' || name || ' ' || version FROM registry_downloads \
     WHERE peer <> 'mallory.example.com' ORDER BY kind, name, version";
/// Versions of a name that only the hostile deployment has pushed, see `hostile::REFUSED`.
const REFUSED: &str = "SELECT kind || ' ' || name || ' ' || version FROM registry_versions \
     WHERE name LIKE '%/flood/%' ORDER BY name, version";
const CONFLICTS: &str = "SELECT kind || ' ' || name || ' ' || version FROM registry_conflicts";

/// Number of clients that want a missing version at the same moment.
const CLIENTS: usize = 12;

/// Versions of a deployment by its API.
type Versions = BTreeMap<VersionKey, ListedVersion>;

/// Waits until all logs and packages are everywhere, and checks every promise.
pub async fn all(world: &RegistryWorld, round: u64) {
    for at in 0..world.deployments.len() {
        mended(world, at).await;
    }
    quiet(world).await;
    let mut everywhere = Vec::new();
    for at in 0..world.deployments.len() {
        log(world, at).await;
        let versions = versions(world, at).await;
        records(world, at, &versions);
        packages(world, at, &versions).await;
        refused(world, at).await;
        verified(world, at).await;
        let conflicts = world.deployments[at].look.rows(CONFLICTS).await;
        let conflicts: BTreeSet<String> = conflicts.into_iter().flatten().collect();
        everywhere.push((versions, conflicts));
    }
    equal(world, &everywhere);
    world.check_fills().await;
    fills(world, round).await;
    panics(world).await;
}

/// Brings back the packages that the store of a deployment has confirmed and lost, in the two ways that an error names to
/// an administrator: the same files are published again, and what nobody here can publish is restored from a backup.
async fn mended(world: &RegistryWorld, at: usize) {
    let deployment = &world.deployments[at];
    let Some(live) = &deployment.store else {
        return;
    };
    let lost = live.store.lost();
    if lost.is_empty() {
        return;
    }
    let versions = versions(world, at).await;
    for (digest, package) in lost {
        world.count("packages that a store lost");
        let having_it = versions.iter().filter(|(key, listed)| {
            is_exchanged(key) && listed.package.as_deref() == Some(digest.as_str())
        });
        for (key, _) in having_it {
            if !published_again(world, at, key, &package).await {
                continue;
            }
            if live.store.has_lost(&digest) {
                world.broken(&format!("{key} was published again, and has no package"));
            }
            break;
        }
        live.store.restore(&digest);
    }
}

/// Publishes a version again. Returns false if it was taken down meanwhile.
async fn published_again(
    world: &RegistryWorld,
    at: usize,
    key: &VersionKey,
    package: &[u8],
) -> bool {
    let begun = Instant::now();
    loop {
        let why = match world.upload(at, key, package.to_vec()).await {
            Ok(answer) if matches!(answer.status, 200 | 201) => return true,
            Ok(answer) if answer.status == 410 => return false,
            Ok(answer) => format!("{} {}", answer.status, answer.text()),
            Err(why) => why,
        };
        world.deployments[at].end_claims().await;
        let what = format!("{key} is published again ({why})");
        if !world.may_wait(begun, &what).await {
            return false;
        }
    }
}

/// Waits until every deployment has read the logs of all others, and has all packages.
async fn quiet(world: &RegistryWorld) {
    let begun = Instant::now();
    loop {
        let missing = missing(world).await;
        if missing.is_empty() {
            return;
        }
        let what = format!("everything is everywhere ({})", missing.join("; "));
        if !world.may_wait(begun, &what).await {
            return;
        }
    }
}

/// Returns what has not come yet, in sentences.
async fn missing(world: &RegistryWorld) -> Vec<String> {
    let mut missing = Vec::new();
    let mut sizes = Vec::new();
    for deployment in &world.deployments {
        sizes.push(deployment.log_size().await);
    }
    for (at, deployment) in world.deployments.iter().enumerate() {
        let (name, peers) = (deployment.name, deployment.peers().await);
        let others = world.deployments.iter().zip(&sizes);
        for (other, size) in others.filter(|(other, _)| other.name != name) {
            match peers.iter().find(|peer| peer.name == other.name) {
                Some(peer) if peer.state != "joined" => world.broken(&format!(
                    "R5: {} is honest, and {} for {name}: {}",
                    other.name, peer.state, peer.error
                )),
                Some(peer) if peer.last_id == *size => {}
                Some(_) | None => {
                    missing.push(format!(
                        "{name} has not read {size} records of {}",
                        other.name
                    ));
                }
            }
        }
        let look = &deployment.look;
        let is_postgres = matches!(look, DatabaseView::Postgres(_));
        look.rows(HASTEN[usize::from(is_postgres)]).await;
        deployment.end_claims().await;
        for text in look.rows(WAITING).await.into_iter().flatten() {
            // A client that reads it has it downloaded at once.
            let key: VersionKey = text.parse().expect("a version is valid");
            world.read(at, &key).await;
            missing.push(format!("{name} does not have the package of {text}"));
        }
    }
    missing
}

/// R2, R5: checks that the log has all records without gaps, and that the newest head has all of them.
async fn log(world: &RegistryWorld, at: usize) {
    let deployment = &world.deployments[at];
    let (begun, size) = (Instant::now(), deployment.log_size().await);
    loop {
        let is_all = {
            let log = deployment.log();
            log.size() >= size && log.largest() >= size
        };
        if is_all {
            return;
        }
        world.read_log(at).await;
        let what = format!("all records of {} are read", deployment.name);
        if !world.may_wait(begun, &what).await {
            return;
        }
    }
}

/// Reads all versions of a deployment by its API, but those of the hostile one.
async fn versions(world: &RegistryWorld, at: usize) -> Versions {
    let mut versions = Versions::new();
    let mut after = Some(0);
    while let Some(from) = after {
        let Some(page) = read(world, at, &format!("/api/registry/names?after={from}")).await else {
            break;
        };
        after = page["next"].as_u64();
        for name in page["names"].as_array().into_iter().flatten() {
            let text = |field: &str| name[field].as_str().unwrap_or_default();
            let (kind, name) = (text("kind"), text("name"));
            let path = format!("/api/registry/{kind}/{name}");
            let of_name = match read(world, at, &path).await {
                Some(of_name) if !name.starts_with("mallory/") => of_name,
                Some(_) | None => continue,
            };
            for version in of_name["versions"].as_array().into_iter().flatten() {
                let number = version["version"].as_str().unwrap_or_default();
                let key = format!("{kind} {name} {number}").parse::<VersionKey>();
                if let (Ok(key), Some(listed)) = (key, ListedVersion::read(version)) {
                    versions.insert(key, listed);
                }
            }
        }
    }
    if versions.is_empty() {
        let name = world.deployments[at].name;
        world.broken(&format!("{name} has no versions, so nothing was checked"));
    }
    versions
}

/// Reads JSON. Nothing is wrong any more, so there is an answer.
async fn read(world: &RegistryWorld, at: usize, path: &str) -> Option<Value> {
    let begun = Instant::now();
    loop {
        let why = match world.get(at, path).await {
            Ok(answer) if answer.status == 200 => return Some(answer.json()),
            Ok(answer) => format!("{} {}", answer.status, answer.text()),
            Err(why) => why,
        };
        let name = world.deployments[at].name;
        let what = format!("{path} of {name} is answered ({why})");
        if !world.may_wait(begun, &what).await {
            return None;
        }
    }
}

/// R2: checks that every state follows from the records of the log, and every record is in a state.
fn records(world: &RegistryWorld, at: usize, versions: &Versions) {
    let name = world.deployments[at].name;
    let recorded = world.deployments[at].log().states();
    let recorded = recorded
        .into_iter()
        .filter(|(key, _)| !key.name().as_str().starts_with("mallory/"));
    let recorded: BTreeMap<VersionKey, VersionState> = recorded.collect();
    let listed = versions.iter();
    let listed: BTreeMap<VersionKey, VersionState> = listed
        .map(|(key, version)| (key.clone(), version.state))
        .collect();
    for key in recorded.keys().chain(listed.keys()) {
        let (by_log, by_api) = (recorded.get(key), listed.get(key));
        if by_log != by_api {
            world.broken(&format!(
                "R2: {key} of {name} is {by_log:?} by the log, and {by_api:?} by the API"
            ));
        }
    }
}

/// R1, R4: checks that every version is served with its recorded bytes, or not at all and with the reason.
async fn packages(world: &RegistryWorld, at: usize, versions: &Versions) {
    let name = world.deployments[at].name;
    for (key, listed) in versions {
        let (_, fetched) = world.read(at, key).await;
        world.look_up(at, key).await;
        let is_right = match (listed.state, &listed.package, &fetched) {
            (VersionState::Deleted, _, fetched) => *fetched == Fetched::TakenDown,
            (_, Some(recorded), Fetched::Package(digest)) => recorded == digest.as_str(),
            (_, Some(_), _) | (_, None, Fetched::Package(_)) => false,
            // A deprecation came without the version.
            (state, None, _) => state == VersionState::Deprecated,
        };
        if !is_right {
            let state = listed.state;
            world.broken(&format!(
                "R4: {key} of {name} is {state}, and its package: {fetched:?}"
            ));
        }
    }
}

/// R6: checks that nothing is here whose pushes were refused.
async fn refused(world: &RegistryWorld, at: usize) {
    let deployment = &world.deployments[at];
    for text in deployment.look.rows(REFUSED).await.into_iter().flatten() {
        let name = deployment.name;
        world.broken(&format!("R6: {name} has {text}, which nobody may add"));
    }
}

/// Checks that the deployment itself finds nothing wrong when it computes everything again.
async fn verified(world: &RegistryWorld, at: usize) {
    let deployment = &world.deployments[at];
    if let Some(fault) = deployment.verify().await {
        world.broken(&format!("{} is not intact: {fault}", deployment.name));
    }
}

/// Returns true for versions of names that all deployments publish. Others are only where somebody wanted them.
fn is_exchanged(key: &VersionKey) -> bool {
    let name = key.name();
    let mut prefixes = ["acme/", "example.com/acme/"].iter();
    prefixes.any(|prefix| name.as_str().starts_with(prefix))
}

/// R7: checks that many requests for a version that is missing start one fill, on all servers of a deployment. The other
/// deployments have the version from the first one.
async fn fills(world: &RegistryWorld, round: u64) {
    // A repository that nobody has seen yet: tags are kept for a minute.
    let place = format!("acme/calm{round}.git");
    let module = format!("{CODE}/{place}");
    let go_mod = format!("module {module}\n\ngo 1.24\n");
    let files = [("go.mod", go_mod.as_str()), ("calm.go", "package calm\n")];
    world.outside.repository(&place, &files).tag("v1.0.0");
    let path = format!("/registry/go/{module}/@v/v1.0.0.info");
    for (at, deployment) in world.deployments.iter().enumerate() {
        let (before, begun) = (world.outside.git_requests(), Instant::now());
        loop {
            let answers = join_all((0..CLIENTS).map(|_| world.get(at, &path))).await;
            let is_ok = |answer: &Result<ServerAnswer, String>| {
                answer.as_ref().is_ok_and(|answer| answer.status == 200)
            };
            if answers.iter().all(is_ok) {
                break;
            }
            let what = format!("{} fetches {module}", deployment.name);
            if !world.may_wait(begun, &what).await {
                return;
            }
        }
        let requests = world.outside.git_requests() - before;
        let expected = if at == 0 { FETCH_REQUESTS } else { 0 };
        if requests != expected {
            world.broken(&format!(
                "R7: {} sent {requests} requests for {module} instead of {expected}",
                deployment.name
            ));
        }
        world.count("versions fetched once");
    }
}

/// R3: checks that all deployments have the same states and contents, but for conflicts that both sides show.
fn equal(world: &RegistryWorld, everywhere: &[(Versions, BTreeSet<String>)]) {
    for (left, (ours, our_conflicts)) in everywhere.iter().enumerate() {
        for (right, (theirs, their_conflicts)) in everywhere.iter().enumerate().skip(left + 1) {
            let names = [left, right]
                .map(|at| world.deployments[at].name)
                .join(" and ");
            let keys = ours.keys().chain(theirs.keys());
            let keys: BTreeSet<&VersionKey> = keys.filter(|key| is_exchanged(key)).collect();
            for key in keys {
                let (one, other) = (ours.get(key), theirs.get(key));
                let state = |version: Option<&ListedVersion>| version.map(|version| version.state);
                let content = |version: Option<&ListedVersion>| {
                    version.map(|version| version.checksums.clone())
                };
                let text = key.to_string();
                let is_shown = our_conflicts.contains(&text) && their_conflicts.contains(&text);
                if state(one) != state(other) {
                    world.broken(&format!(
                        "R3: {key} differs between {names}: {:?}, {:?}",
                        state(one),
                        state(other)
                    ));
                } else if content(one) != content(other) {
                    if is_shown {
                        world.count("conflicts at the end");
                    } else {
                        world.broken(&format!(
                            "R3: {key} has two contents, and {names} do not both show it"
                        ));
                    }
                }
            }
        }
    }
}

/// Checks that no server panicked. A panic is caught, and the work goes on, but it is still a bug.
async fn panics(world: &RegistryWorld) {
    for deployment in &world.deployments {
        for server in &deployment.servers {
            let log = server.lock().await.log();
            if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
                let name = deployment.name;
                world.broken(&format!("something in {name} panicked: {line}"));
            }
        }
    }
}
