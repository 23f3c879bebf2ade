//! Reads the Redis of an Atlantis (reference 15.3) with `SCAN` and `GETRANGE` alone. Every wait has a time limit,
//! every answer has a size limit, and no error repeats the address with its password.
//!
//! A node of a cluster knows only its own keys. So the first node is asked if it belongs to a cluster, and then every
//! master of the cluster is read. A part of the locks would be worse than none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    cmd,
};

use super::bolt::BucketEntries;
use super::{APPLY_LOCK, Contents};
use crate::secret::Secret;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
/// Time limit for the whole read.
const DEADLINE: Duration = Duration::from_mins(2);
/// Number of keys per answer of `SCAN`, and of values per round trip.
const BATCH: usize = 200;
/// Maximum size of a value. Atlantis' own values have some KB.
const MAX_VALUE: usize = 1 << 20;
const MAX_CONTENT: usize = 256 << 20;
const MAX_KEYS: usize = 1_000_000;
const LOCK_PREFIX: &str = "pr/";
const SLOTS: u32 = 16384;

/// Address and credentials of a Redis.
#[derive(Clone)]
pub struct RedisUrl(ConnectionInfo);

/// Error for a text that is not the address of a Redis. It never repeats the text, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text is not the URL of a Redis; expected `redis://user:password@host:6379/0`, `rediss://` for TLS, or \
     `unix:///path/to/socket?db=0&user=…&pass=…`; \
     write special characters of a password as %XX"
)]
pub struct InvalidRedisUrl;

impl FromStr for RedisUrl {
    type Err = InvalidRedisUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let info = text
            .trim()
            .into_connection_info()
            .map_err(|_| InvalidRedisUrl)?;
        let is_usable = match info.addr() {
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) => true,
            ConnectionAddr::TcpTls { insecure, .. } => !insecure,
            // The library may add other kinds of addresses in a later version.
            _ => false,
        };
        if is_usable {
            Ok(Self(info))
        } else {
            Err(InvalidRedisUrl)
        }
    }
}

impl fmt::Display for RedisUrl {
    /// Prints the address without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, db) = (self.0.addr(), self.0.redis_settings().db());
        match addr {
            ConnectionAddr::Unix(path) => write!(f, "unix://{}?db={db}", path.display()),
            ConnectionAddr::TcpTls { .. } => write!(f, "rediss://{addr}/{db}"),
            ConnectionAddr::Tcp(..) | _ => write!(f, "redis://{addr}/{db}"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RedisUrl {
    /// Parses the text of a file or a variable.
    pub fn from_secret(secret: &Secret) -> Result<Self, InvalidRedisUrl> {
        secret.expose().parse()
    }

    /// Returns true if the address itself contains a password.
    pub fn has_password(&self) -> bool {
        self.0.redis_settings().password().is_some()
    }

    /// Adds credentials if the address does not contain any.
    #[must_use]
    pub fn or_credentials(self, username: Option<Secret>, password: Option<Secret>) -> Self {
        let mut settings = self.0.redis_settings().clone();
        if settings.password().is_none()
            && let Some(password) = password
        {
            settings = settings.set_password(password.expose());
            if let (None, Some(username)) = (settings.username(), username) {
                settings = settings.set_username(username.expose());
            }
        }
        Self(self.0.set_redis_settings(settings))
    }

    /// Returns the address of another node of the same cluster, with the same credentials.
    fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        let addr = if let ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } = self.0.addr()
        {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        Self(self.0.clone().set_addr(addr))
    }

    fn host(&self) -> &str {
        if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = self.0.addr() {
            host
        } else {
            ""
        }
    }
}

/// Reason that a Redis cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The connection or the login failed.
    #[error("{node} cannot be reached: {reason}")]
    Connect {
        /// Address of the node, without credentials.
        node: String,
        /// Error of the system or the server.
        reason: redis::RedisError,
    },
    /// A command failed, or its answer did not arrive in time.
    #[error("{node} did not answer: {reason}")]
    Answer {
        /// Address of the node, without credentials.
        node: String,
        /// Error of the system or the server.
        reason: redis::RedisError,
    },
    /// The whole read exceeded its time limit.
    #[error("reading took longer than {} s in total", DEADLINE.as_secs())]
    TooSlow,
    /// A value is larger than any value of Atlantis.
    #[error("the value of `{key}` is larger than {} MiB", MAX_VALUE >> 20)]
    LargeValue {
        /// Key of the large value.
        key: String,
    },
    /// The contents exceed the limit of keys or bytes.
    #[error("there are more than {MAX_KEYS} keys, or more than {} MiB of values", MAX_CONTENT >> 20)]
    TooLarge,
    /// A part of the slots is not served, so locks could be missing.
    #[error(
        "the Redis cluster serves only {0} of its {SLOTS} slots; try again when the cluster is complete"
    )]
    HalfACluster(u32),
    /// The answer to `CLUSTER NODES` cannot be parsed.
    #[error("the answer of the cluster to CLUSTER NODES cannot be parsed: {0:?}")]
    Unclear(String),
}

/// Reads all keys and values that belong to Atlantis.
pub async fn read(url: &RedisUrl) -> Result<Contents, RedisError> {
    tokio::time::timeout(DEADLINE, read_all(url))
        .await
        .map_err(|_| RedisError::TooSlow)?
}

async fn read_all(url: &RedisUrl) -> Result<Contents, RedisError> {
    let mut first = RedisNode::connect(url.clone()).await?;
    let mut found = BTreeMap::new();
    if !first.is_of_a_cluster().await? {
        first.take_all(&mut found).await?;
        return Ok(contents(found));
    }
    for (host, port) in first.masters().await? {
        RedisNode::connect(url.at(&host, port))
            .await?
            .take_all(&mut found)
            .await?;
    }
    Ok(contents(found))
}

/// Returns the locks and pulls among the keys, without keys of other programs on the same Redis.
fn contents(found: BTreeMap<Vec<u8>, Vec<u8>>) -> Contents {
    let mut contents = Contents::default();
    let (mut locks, mut pulls) = (BucketEntries::new(), BucketEntries::new());
    for (key, value) in found {
        if key == global_key() {
            contents.apply_lock = Some(value);
        } else if let Some(lock) = key.strip_prefix(LOCK_PREFIX.as_bytes()) {
            locks.push((lock.to_vec(), value));
        } else if is_pull(&key) {
            pulls.push((key, value));
        }
    }
    Contents {
        locks,
        pulls,
        ..contents
    }
}

fn global_key() -> Vec<u8> {
    format!("global/{APPLY_LOCK}").into_bytes()
}

/// Returns true for keys of the form `host::owner/repo::12`.
fn is_pull(key: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(key) else {
        return false;
    };
    let parts: Vec<&str> = key.split("::").collect();
    matches!(parts[..], [_, repo, number] if repo.contains('/') && number.parse::<i64>().is_ok())
}

/// Connection to one node.
struct RedisNode {
    url: RedisUrl,
    connection: MultiplexedConnection,
}

impl RedisNode {
    async fn connect(url: RedisUrl) -> Result<Self, RedisError> {
        let refused = |reason| RedisError::Connect {
            node: url.to_string(),
            reason,
        };
        let client = Client::open(url.0.clone()).map_err(refused)?;
        let config = AsyncConnectionConfig::new();
        let config = config
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(refused)?;
        Ok(Self { url, connection })
    }

    fn silent(&self, reason: redis::RedisError) -> RedisError {
        RedisError::Answer {
            node: self.url.to_string(),
            reason,
        }
    }

    async fn is_of_a_cluster(&mut self) -> Result<bool, RedisError> {
        let said: Result<String, _> = cmd("INFO")
            .arg("cluster")
            .query_async(&mut self.connection)
            .await;
        Ok(said
            .map_err(|reason| self.silent(reason))?
            .contains("cluster_enabled:1"))
    }

    /// Returns the addresses of the masters that serve slots.
    async fn masters(&mut self) -> Result<Vec<(String, u16)>, RedisError> {
        let said: Result<String, _> = cmd("CLUSTER")
            .arg("NODES")
            .query_async(&mut self.connection)
            .await;
        masters(
            &said.map_err(|reason| self.silent(reason))?,
            self.url.host(),
        )
    }

    async fn take_all(&mut self, found: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), RedisError> {
        let mut keys = BTreeSet::new();
        // The single key is scanned too: in a cluster only one node answers for it, and a scan returns only
        // existing keys.
        for pattern in ["pr/*", "*::*::*", "global/apply/lock"] {
            self.scan(pattern, &mut keys).await?;
        }
        keys.retain(|key| {
            *key == global_key() || key.starts_with(LOCK_PREFIX.as_bytes()) || is_pull(key)
        });
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let mut content: usize = found.values().map(Vec::len).sum();
        for some in keys.chunks(BATCH) {
            let values = self.values(some).await?;
            for (key, value) in some
                .iter()
                .zip(values)
                .filter(|(_, value)| !value.is_empty())
            {
                if value.len() > MAX_VALUE {
                    return Err(RedisError::LargeValue {
                        key: String::from_utf8_lossy(key).into_owned(),
                    });
                }
                content += value.len();
                found.insert(key.clone(), value);
            }
            if content > MAX_CONTENT {
                return Err(RedisError::TooLarge);
            }
        }
        Ok(())
    }

    async fn scan(
        &mut self,
        pattern: &str,
        keys: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), RedisError> {
        let mut cursor: u64 = 0;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(pattern)
                .arg("COUNT")
                .arg(BATCH)
                .arg("TYPE")
                .arg("string");
            let said: Result<(u64, Vec<Vec<u8>>), _> = scan.query_async(&mut self.connection).await;
            let (next, some) = said.map_err(|reason| self.silent(reason))?;
            keys.extend(some);
            if keys.len() > MAX_KEYS {
                return Err(RedisError::TooLarge);
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Reads the values of keys. A key that no longer exists has the empty value.
    async fn values(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, RedisError> {
        let mut pipe = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipe.cmd("GETRANGE").arg(key).arg(0).arg(MAX_VALUE);
        }
        let values: Result<Vec<Vec<u8>>, _> = pipe.query_async(&mut self.connection).await;
        values.map_err(|reason| self.silent(reason))
    }
}

/// Parses an answer to `CLUSTER NODES`: `id ip:port@bus[,hostname] flags master ping pong epoch link slot slot…`. A
/// node that does not know its own address has the address of the current connection, `here`.
fn masters(text: &str, here: &str) -> Result<Vec<(String, u16)>, RedisError> {
    let mut found = Vec::new();
    let mut served = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unclear = || RedisError::Unclear(line.chars().take(200).collect());
        let [_, address, flags, _, _, _, _, _, slots @ ..] = &words[..] else {
            return Err(unclear());
        };
        let flags: Vec<&str> = flags.split(',').collect();
        let is_down = flags
            .iter()
            .any(|flag| matches!(*flag, "fail" | "fail?" | "handshake" | "noaddr"));
        if !flags.contains(&"master") || is_down || slots.is_empty() {
            continue;
        }
        served += slots.iter().filter_map(|slots| count(slots)).sum::<u32>();
        found.push(place(address, here).ok_or_else(unclear)?);
    }
    if served == SLOTS {
        Ok(found)
    } else {
        Err(RedisError::HalfACluster(served))
    }
}

/// Counts the slots in a range such as `0-5460` or `7`. Slots that are migrating (`[93-<-…]`) count where they are.
fn count(slots: &str) -> Option<u32> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    last.parse::<u32>()
        .ok()?
        .checked_sub(first.parse().ok()?)?
        .checked_add(1)
}

fn place(address: &str, here: &str) -> Option<(String, u16)> {
    let (address, name) = address.split_once(',').unwrap_or((address, ""));
    let (ip, port) = address.split('@').next()?.rsplit_once(':')?;
    let host = [name.split(',').next().unwrap_or_default(), ip, here]
        .into_iter()
        .find(|host| !host.is_empty())?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_the_password() {
        let url: RedisUrl = "rediss://ann:hunter2@redis.example:6380/3".parse().unwrap();
        assert_eq!(url.to_string(), "rediss://redis.example:6380/3");
        assert_eq!(format!("{url:?}"), "rediss://redis.example:6380/3");
        let url: RedisUrl = "unix:///run/redis.sock?db=2&pass=hunter2".parse().unwrap();
        assert_eq!(
            (url.to_string().as_str(), url.has_password()),
            ("unix:///run/redis.sock?db=2", true)
        );
        for text in [
            "",
            "http://x:hunter2@y",
            "redis://:hunter2@h:port/",
            "rediss://h:1/#insecure",
        ] {
            let error = text.parse::<RedisUrl>().expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn every_serving_master_of_a_cluster_is_read() {
        let text = "a 10.0.0.1:6379@16379,red-1 myself,master - 0 0 1 connected 0-5460 5462\n\
                    b 10.0.0.2:6379@16379 master - 0 0 2 connected 5461 5463-16383 [93-<-a]\n\
                    c 10.0.0.3:6379@16379 slave a 0 0 1 connected\n\
                    d 10.0.0.4:6379@16379 master - 0 0 1 connected\n\
                    e :0@0 master,noaddr - 0 0 1 disconnected 7\n";
        let expected = vec![("red-1".to_owned(), 6379), ("10.0.0.2".to_owned(), 6379)];
        assert_eq!(masters(text, "here").unwrap(), expected);
        let alone = "a :6379@16379 myself,master - 0 0 1 connected 0-16383\n";
        assert_eq!(masters(alone, "here").unwrap(), [("here".to_owned(), 6379)]);
        let down = text.replace(" master - 0 0 2", " master,fail - 0 0 2");
        assert!(matches!(
            masters(&down, "here"),
            Err(RedisError::HalfACluster(5462))
        ));
        assert!(matches!(
            masters("what", "here"),
            Err(RedisError::Unclear(_))
        ));
    }

    #[test]
    fn keys_of_other_programs_are_left_out() {
        for (key, expected) in [
            ("github.com::acme/infra::12", true),
            ("git.test:8443::a/b/c::1", true),
            ("cache::user::12", false),
            ("a::b/c::x", false),
            ("pr/a::b/c::1::2", false),
        ] {
            assert_eq!(is_pull(key.as_bytes()), expected, "{key}");
        }
    }
}
