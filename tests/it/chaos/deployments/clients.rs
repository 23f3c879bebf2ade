//! Sends requests of clients, and compares each answer with everything that they saw before.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::model::Sha256Digest;
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::tlog::parse_record;
use lockkeeper_registry::versions::VersionKey;
use reqwest::RequestBuilder;
use serde_json::Value;

use super::book::{SeenAnswer, SeenVersion};
use super::hostile;
use super::schedule::{VERSIONS, Wanted};
use super::world::{PeerLine, RegistryWorld};

/// Answer of a server.
pub struct ServerAnswer {
    pub status: u16,
    /// Place of a package (`X-Terraform-Get`).
    pub link: Option<String>,
    pub body: Vec<u8>,
}

impl ServerAnswer {
    /// Returns the body for people.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Outcome of a request for a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The bytes have this digest.
    Package(Sha256Digest),
    NotFound,
    TakenDown,
    /// No answer, or a failure that says nothing about the version.
    Failed(String),
}

/// A version in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub state: VersionState,
    /// Checksums of its files.
    pub checksums: Vec<String>,
    /// SHA-256 of its package, if its content is known.
    pub package: Option<String>,
}

impl ListedVersion {
    /// Reads a version of the API.
    pub fn read(json: &Value) -> Option<Self> {
        let checksums = ["files", "go_mod"]
            .iter()
            .filter_map(|name| json[*name].as_str());
        let package = json["packages"][0]["sha256"].as_str();
        Some(Self {
            state: json["state"].as_str()?.parse().ok()?,
            checksums: checksums.map(str::to_owned).collect(),
            package: package.map(str::to_owned),
        })
    }
}

/// Returns the path of a version in the API.
fn path_of(key: &VersionKey) -> String {
    let (name, version) = (key.name(), key.version());
    match key.as_go() {
        Some(_) => format!("/api/registry/go/{}/@v/{version}", name.as_str()),
        None => format!("/api/registry/module/{}/{version}", name.as_str()),
    }
}

impl RegistryWorld {
    /// Sends a request to a server of a deployment.
    async fn send(
        &self,
        at: usize,
        request: impl FnOnce(&reqwest::Client, &str) -> RequestBuilder,
    ) -> Result<ServerAnswer, String> {
        let deployment = &self.deployments[at];
        let url = deployment.url().ok_or("no server runs")?;
        let request = request(&self.client, &url).bearer_auth(&deployment.token);
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let link = answer.headers().get("x-terraform-get");
        let link = link.and_then(|link| link.to_str().ok()).map(str::to_owned);
        let body = answer.bytes().await.map_err(|error| error.to_string())?;
        Ok(ServerAnswer {
            status,
            link,
            body: body.to_vec(),
        })
    }

    /// Reads a path of a deployment.
    pub async fn get(&self, at: usize, path: &str) -> Result<ServerAnswer, String> {
        self.send(at, |client, url| client.get(format!("{url}{path}")))
            .await
    }

    /// Uploads a package as a version.
    pub async fn upload(
        &self,
        at: usize,
        key: &VersionKey,
        package: Vec<u8>,
    ) -> Result<ServerAnswer, String> {
        let digest = Sha256Digest::of(&package).to_string();
        let digest = hex::decode(digest).map_err(|error| error.to_string())?;
        let digest = format!("sha-256=:{}:", STANDARD.encode(digest));
        let path = path_of(key);
        self.send(at, |client, url| {
            let request = client.put(format!("{url}{path}"));
            request.header("content-digest", digest).body(package)
        })
        .await
    }

    /// Changes a version with a form.
    pub async fn post(
        &self,
        at: usize,
        key: &VersionKey,
        change: &str,
        body: &Value,
    ) -> Result<ServerAnswer, String> {
        let path = format!("{}/{change}", path_of(key));
        self.send(at, |client, url| {
            client.post(format!("{url}{path}")).json(body)
        })
        .await
    }

    /// Compares an answer with what was known before its request.
    pub fn saw(&self, at: usize, key: &VersionKey, before: &SeenVersion, answer: &SeenAnswer) {
        let added = self.book().add(at, key, before, answer);
        if let Err(why) = added {
            let name = self.deployments[at].name;
            self.broken(&format!("{name}: {why}"));
        }
    }

    /// Reads the state of a version and its package. Returns both.
    pub async fn read(&self, at: usize, key: &VersionKey) -> (Option<ListedVersion>, Fetched) {
        let before = self.book().known(at, key);
        let listed = match self.get(at, &path_of(key)).await {
            Ok(answer) if answer.status == 200 => ListedVersion::read(&answer.json()),
            Ok(answer) if answer.status == 404 => Some(ListedVersion {
                state: VersionState::Absent,
                checksums: Vec::new(),
                package: None,
            }),
            Ok(_) | Err(_) => None,
        };
        if let Some(listed) = &listed {
            self.saw(at, key, &before, &SeenAnswer::State(listed.state));
        }
        let before = self.book().known(at, key);
        let fetched = self.package(at, key).await;
        match &fetched {
            Fetched::Package(digest) => {
                self.count("packages read");
                self.saw(at, key, &before, &SeenAnswer::Package(digest.clone()));
                let recorded = listed.as_ref().and_then(|listed| listed.package.as_deref());
                if recorded.is_some_and(|recorded| recorded != digest.as_str()) {
                    let name = self.deployments[at].name;
                    self.broken(&format!("R4: {key} of {name} does not have its digest"));
                }
            }
            Fetched::NotFound => self.saw(at, key, &before, &SeenAnswer::NoPackage),
            Fetched::TakenDown => {
                self.count("takedowns read");
                self.saw(at, key, &before, &SeenAnswer::TakenDown);
            }
            Fetched::Failed(_) => self.count("packages not read"),
        }
        (listed, fetched)
    }

    /// Downloads the package of a version as `terraform` or `go` does.
    pub async fn package(&self, at: usize, key: &VersionKey) -> Fetched {
        let (name, version) = (key.name(), key.version());
        let name = name.as_str();
        let answer = if key.as_go().is_some() {
            self.get(at, &format!("/registry/go/{name}/@v/{version}.zip"))
                .await
        } else {
            let base = format!("/registry/v1/modules/{name}/{version}");
            match self.get(at, &format!("{base}/download")).await {
                Ok(ServerAnswer {
                    status: 204,
                    link: Some(link),
                    ..
                }) => {
                    let file = link.trim_start_matches("./");
                    self.get(at, &format!("{base}/{file}")).await
                }
                other => other,
            }
        };
        match answer {
            Err(why) => Fetched::Failed(why),
            Ok(answer) => match answer.status {
                200 => Fetched::Package(Sha256Digest::of(&answer.body)),
                404 => Fetched::NotFound,
                403 | 451 if answer.text().contains("was taken down") => Fetched::TakenDown,
                status => Fetched::Failed(format!("{status} {}", answer.text())),
            },
        }
    }

    /// Looks up the record of a Go module as `go` does, with the head that proves it.
    pub async fn look_up(&self, at: usize, key: &VersionKey) {
        let deployment = &self.deployments[at];
        if key.as_go().is_none() {
            return;
        }
        let before = deployment.log().largest();
        let (log, name) = (deployment.name, key.name());
        let (name, version) = (name.as_str(), key.version());
        let path = format!("/registry/go/sumdb/{log}/lookup/{name}@{version}");
        let Ok(answer) = self.get(at, &path).await else {
            return;
        };
        if answer.status != 200 {
            return;
        }
        self.count("records looked up");
        let checked = match parse_record(&answer.body) {
            Err(error) => Err(format!("R5: the record of {key} cannot be read: {error}")),
            Ok((number, text, head)) => {
                let mut log = deployment.log();
                let id = number + 1;
                // Later ones come with the next page of the log.
                let added = if id <= log.size() {
                    log.add(id, text)
                } else {
                    Ok(())
                };
                added.and_then(|()| log.add_head(head, before))
            }
        };
        self.check_log(at, checked);
    }

    /// Reads the versions of a name as `terraform` or `go` does.
    pub async fn list(&self, at: usize, wanted: Wanted) {
        let keys = (0..VERSIONS).map(|version| Wanted { version, ..wanted }.key());
        let keys: Vec<VersionKey> = keys.collect();
        let before: Vec<SeenVersion> = {
            let book = self.book();
            keys.iter().map(|key| book.known(at, key)).collect()
        };
        let name = wanted.key().name();
        let name = name.as_str();
        let (path, end) = if wanted.is_go {
            // `go` chooses no deprecated version.
            let path = format!("/registry/go/{name}/@v/list");
            (path, VersionState::Deprecated)
        } else {
            let path = format!("/registry/v1/modules/{name}/versions");
            (path, VersionState::Deleted)
        };
        let Ok(answer) = self.get(at, &path).await else {
            return;
        };
        if answer.status != 200 {
            return;
        }
        self.count("lists read");
        let text = answer.text();
        let json = answer.json();
        let listed: Vec<&str> = if wanted.is_go {
            text.lines().collect()
        } else {
            let versions = json["modules"][0]["versions"].as_array();
            let versions = versions.into_iter().flatten();
            versions
                .filter_map(|version| version["version"].as_str())
                .collect()
        };
        for (key, before) in keys.iter().zip(before) {
            let is_listed = listed.contains(&key.version().as_str());
            if is_listed && before.state >= end {
                let (name, state) = (self.deployments[at].name, before.state);
                self.broken(&format!("R3: {name} lists {key}, which was {state} before"));
            }
        }
    }

    /// Reads the head of a log and its next records. Returns true if there may be more.
    pub async fn read_log(&self, at: usize) -> bool {
        let deployment = &self.deployments[at];
        let before = deployment.log().largest();
        let path = format!("/registry/go/sumdb/{}/latest", deployment.name);
        if let Ok(answer) = self.get(at, &path).await
            && answer.status == 200
        {
            let checked = deployment.log().add_head(&answer.body, before);
            self.check_log(at, checked);
        }
        let after = deployment.log().size();
        let path = format!("/api/registry/log?after={after}");
        let Ok(answer) = self.get(at, &path).await else {
            return true;
        };
        if answer.status != 200 {
            return true;
        }
        let json = answer.json();
        let records = json["records"].as_array().cloned().unwrap_or_default();
        for record in &records {
            let id = record["id"].as_u64().unwrap_or_default();
            let text = record["record"].as_str().unwrap_or_default();
            let checked = deployment.log().add(id, text);
            if checked.is_err() {
                self.check_log(at, checked);
                return false;
            }
        }
        !records.is_empty()
    }

    fn check_log(&self, at: usize, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.broken(&format!("the log of {}: {why}", self.deployments[at].name));
        }
    }

    /// Returns the hostile deployment in the database of the first one.
    pub async fn mallory(&self) -> Option<PeerLine> {
        let peers = self.deployments[0].peers().await;
        peers.into_iter().find(|peer| peer.name == hostile::NAME)
    }
}
