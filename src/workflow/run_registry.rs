//! Lets runs read the registry of modules (`--registry`) without a token of their own.
//!
//! A listener on the loopback interface serves the registry to the runs of this server. Each run has a token in the path
//! of its addresses:
//!
//! - *Ends with the run*: [`RegistryAccess`] is the token. Dropping it removes the token from the table in memory.
//! - *Reads little*: a token stands for a [`RunReader`], so for public modules and those of the owner of the repository.
//! - *Nowhere else*: programs get the addresses in a file and in their environment, and as arguments only if a workflow
//!   writes `$GOPROXY` into them. Their output is cleared of the token before anybody sees it, because they print addresses that they cannot read.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lockkeeper_registry::records::DeploymentName;
use tokio::sync::Semaphore;

use crate::model::OwnerName;

/// Text in place of the token of a run in its output.
const HIDDEN: &str = "(hidden)";

/// The registry of modules, as runs of this server reach it.
#[derive(Clone, Default)]
pub struct RunRegistry {
    /// Names of the registry; `None` without one.
    names: Option<Arc<RegistryNames>>,
    /// Address of the listener. Runs do not use the registry before it is set.
    listener: Arc<OnceLock<SocketAddr>>,
    readers: Arc<Mutex<HashMap<String, (RunReader, RunPlaces)>>>,
}

/// Names by which programs know the registry.
#[derive(Debug)]
struct RegistryNames {
    /// Host in the addresses of modules.
    host: String,
    /// Name of the log, with which values of `GOSUMDB` begin.
    log: DeploymentName,
}

/// Rights of a run in the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReader {
    /// Owner whose modules the run may read, in addition to public ones.
    pub owner: Option<OwnerName>,
}

/// Limits of a run, so that its code cannot keep the modules from others.
#[derive(Clone, Debug)]
pub struct RunPlaces {
    /// Requests that are answered at a time. `go` sends one for each processor.
    pub requests: Arc<Semaphore>,
    /// Packages that are sent at a time.
    pub downloads: Arc<Semaphore>,
}

impl RunPlaces {
    const REQUESTS: usize = 64;
    const DOWNLOADS: usize = 16;

    /// Creates the places of a run.
    fn new() -> Self {
        Self {
            requests: Arc::new(Semaphore::new(Self::REQUESTS)),
            downloads: Arc::new(Semaphore::new(Self::DOWNLOADS)),
        }
    }
}

/// Access of one run to the registry, until this value is dropped.
pub struct RegistryAccess {
    names: Arc<RegistryNames>,
    listener: SocketAddr,
    token: String,
    go_names: Vec<String>,
    readers: Arc<Mutex<HashMap<String, (RunReader, RunPlaces)>>>,
}

impl RunRegistry {
    /// Creates the value for a registry whose modules have this host in their addresses.
    pub fn new(host: &str, log: &DeploymentName) -> Self {
        let names = RegistryNames {
            host: host.to_owned(),
            log: log.clone(),
        };
        Self {
            names: Some(Arc::new(names)),
            ..Self::default()
        }
    }

    /// Returns the host in the addresses of modules; `None` without a registry.
    pub fn host(&self) -> Option<&str> {
        Some(&self.names.as_ref()?.host)
    }

    /// Sets the address of the listener, from which runs get modules from now on.
    pub fn open(&self, listener: SocketAddr) {
        self.listener.get_or_init(|| listener);
    }

    /// Returns true if runs get modules from the registry.
    pub fn is_open(&self) -> bool {
        self.names.is_some() && self.listener.get().is_some()
    }

    /// Gives a run access. `go_names` are the beginnings of the paths of Go modules that it may read. Returns `None`
    /// if runs do not use the registry.
    pub fn enter(&self, reader: RunReader, go_names: Vec<String>) -> Option<RegistryAccess> {
        let (names, listener) = (self.names.as_ref()?, self.listener.get()?);
        let random: [u8; 32] = rand::random();
        let token = URL_SAFE_NO_PAD.encode(random);
        self.readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token.clone(), (reader, RunPlaces::new()));
        Some(RegistryAccess {
            names: Arc::clone(names),
            listener: *listener,
            token,
            go_names,
            readers: Arc::clone(&self.readers),
        })
    }

    /// Returns the rights of the run with this token, and its places; `None` if no such run is in progress.
    pub fn reader(&self, token: &str) -> Option<(RunReader, RunPlaces)> {
        let readers = self.readers.lock();
        readers
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }
}

impl RegistryAccess {
    /// Returns the host in the addresses of modules.
    pub fn host(&self) -> &str {
        &self.names.host
    }

    /// Returns the address of the protocol of module registries.
    pub(super) fn modules_url(&self) -> String {
        format!("{}/v1/modules/", self.base())
    }

    /// Returns the value of `GOPROXY`. Modules that are not in the registry come from their repositories.
    pub(super) fn go_proxy(&self) -> String {
        format!("{}/go,direct", self.base())
    }

    /// Returns the value of `GONOSUMDB`: names that the public checksum database must not see. `None` if there are none.
    pub(super) fn go_names(&self) -> Option<String> {
        (!self.go_names.is_empty()).then(|| self.go_names.join(","))
    }

    /// Returns true if a value of `GOSUMDB` names the log of the registry.
    pub(super) fn is_own_log(&self, database: &OsStr) -> bool {
        let key = database.to_str().unwrap_or_default().trim_start();
        let name = key.split([' ', '+']).next();
        name == Some(self.names.log.as_str())
    }

    /// Removes the names of the registry, which stand at the end, from a value of `GONOSUMDB`. `None`: nothing is left.
    pub(super) fn without_go_names(&self, value: &OsStr) -> Option<OsString> {
        let own = self.go_names().unwrap_or_default();
        let Some(text) = value.to_str() else {
            return Some(value.to_owned());
        };
        if text == own {
            return None;
        }
        let rest = text
            .strip_suffix(&own)
            .and_then(|rest| rest.strip_suffix(','));
        Some(rest.unwrap_or(text).into())
    }

    fn base(&self) -> String {
        format!("http://{}/run/{}", self.listener, self.token)
    }

    /// Removes the token from a text.
    pub(super) fn hide(&self, text: &mut String) {
        if text.contains(&self.token) {
            *text = text.replace(&self.token, HIDDEN);
        }
    }
}

impl fmt::Debug for RegistryAccess {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAccess")
            .field("host", &self.names.host)
            .finish_non_exhaustive()
    }
}

impl Drop for RegistryAccess {
    fn drop(&mut self) {
        self.readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.token);
    }
}

#[cfg(test)]
fn registry_of_tests() -> RunRegistry {
    RunRegistry::new("mods.example.com", &"log.example.com".parse().unwrap())
}

#[cfg(test)]
pub(super) fn access_of_tests() -> RegistryAccess {
    let registry = registry_of_tests();
    registry.open("127.0.0.1:4000".parse().unwrap());
    registry
        .enter(RunReader::default(), vec!["example.com/net".to_owned()])
        .unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_with_its_run_and_is_hidden_in_texts() {
        let registry = registry_of_tests();
        let reader = RunReader {
            owner: "net".parse().ok(),
        };
        assert!(registry.enter(reader.clone(), Vec::new()).is_none());
        registry.open("127.0.0.1:4000".parse().unwrap());
        let (one, other) = (
            registry.enter(reader.clone(), Vec::new()).unwrap(),
            registry.enter(RunReader::default(), Vec::new()).unwrap(),
        );
        assert_ne!(one.token, other.token);
        let token = one.token.clone();
        assert_eq!(
            one.modules_url(),
            format!("http://127.0.0.1:4000/run/{token}/v1/modules/")
        );
        assert_eq!(registry.reader(&token).unwrap().0, reader);
        let mut text = format!("cannot read {}", one.modules_url());
        one.hide(&mut text);
        assert_eq!(
            text,
            "cannot read http://127.0.0.1:4000/run/(hidden)/v1/modules/"
        );
        assert!(!format!("{one:?}").contains(&token));
        drop(one);
        assert!(registry.reader(&token).is_none());
        assert!(registry.reader(&other.token).is_some());
        assert!(registry.reader("").is_none());
    }

    #[test]
    fn the_log_is_known_by_its_name_and_names_are_removed_from_a_list() {
        let access = access_of_tests();
        for (database, expected) in [
            ("log.example.com+0a1b2c3d+AAAA", true),
            (
                " log.example.com+0a1b2c3d+AAAA https://log.example.com",
                true,
            ),
            ("log.example.com", true),
            ("log.example.com.evil+0a1b2c3d+AAAA", false),
            ("sum.example.org", false),
            ("off", false),
            ("", false),
        ] {
            assert_eq!(
                access.is_own_log(OsStr::new(database)),
                expected,
                "{database}"
            );
        }
        for (value, expected) in [
            ("example.com/net", None),
            ("corp.example.com,example.com/net", Some("corp.example.com")),
            ("other.example.com/net", Some("other.example.com/net")),
            ("corp.example.com", Some("corp.example.com")),
        ] {
            let found = access.without_go_names(OsStr::new(value));
            assert_eq!(found.as_deref(), expected.map(OsStr::new), "{value}");
        }
    }

    #[test]
    fn without_a_registry_no_run_has_access() {
        let registry = RunRegistry::default();
        registry.open("127.0.0.1:4000".parse().unwrap());
        assert!(!registry.is_open());
        assert!(registry.enter(RunReader::default(), Vec::new()).is_none());
    }
}
