//! Settings of the registry of modules.

use std::fmt::{self, Display};
use std::str::FromStr;

use lockkeeper_registry::records::DeploymentName;
use url::Url;

use super::choice::choice;
use super::problems::StartupProblems;
use super::raw::RawSettings;
use super::reader::{ReadResult, SettingReader};
use super::registry_misses::{MissLimits, MissRules, VcsHosts};
use super::section::section;
use super::web::read_public_url;
use crate::config::size::ByteSize;

const REGISTRY: &str = "registry";
const NAME: &str = "registry-name";
const ANONYMOUS_READ: &str = "registry-anonymous-read";
const HOST: &str = "registry-host";
const NOT_FOR_RUNS: &str = "no-registry-for-runs";
const TAGS_FROM: &str = "registry-tags-from";
const TAKEDOWN_BRAKE: &str = "registry-takedown-brake";
const PUSH_ATTEMPTS: &str = "registry-push-attempts";
const STORE: &str = "registry-store";
const VCS_HOSTS: &str = "registry-vcs-allowlist";
const ON_MISS: &str = "registry-on-miss";
const CACHE_QUOTA: &str = "registry-cache-quota";
const CACHE_VERSIONS: &str = "registry-cache-versions";
const ENCRYPTION_KEYS: &str = "encryption-key-file";

choice! {
    /// Commits whose tags publish versions.
    pub enum TaggedCommits {
        /// Commits in the history of the default branch, which also has those in the middle of merged pull requests.
        DefaultBranch = "default-branch",
        /// All commits, also of people who may only push tags.
        Any = "any",
        /// No commits: tags publish nothing.
        None = "none",
    }
}

/// Kind of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStoreKind {
    /// S3 of Amazon, and the stores that speak its protocol.
    S3,
    /// Cloud Storage of Google.
    Google,
    /// Blob Storage of Azure.
    Azure,
}

impl ObjectStoreKind {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    /// Returns the scheme of addresses.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// Returns the beginning of the names of variables that programs read for such a store.
    pub fn variables(self) -> &'static str {
        match self {
            Self::S3 => "AWS_",
            Self::Google => "GOOGLE_",
            Self::Azure => "AZURE_",
        }
    }
}

/// Address of a place in an object store, such as `s3://bucket/prefix`. It never has credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStoreUrl {
    /// Kind of the store.
    pub kind: ObjectStoreKind,
    /// Name of the bucket or container.
    pub bucket: String,
    /// Beginning of all keys, without slashes at its ends. Empty for the whole bucket.
    pub prefix: String,
}

impl ObjectStoreUrl {
    /// Reads this setting for commands that need the packages of a registry, but no other setting of the server.
    pub fn from_raw(raw: &RawSettings) -> Result<Option<Self>, StartupProblems> {
        let mut reader = SettingReader::new(raw, Vec::new());
        let url = read_store(&mut reader);
        match (url, StartupProblems::of(reader.finish().0)) {
            (Ok(url), None) => Ok(url),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }
}

impl FromStr for ObjectStoreUrl {
    type Err = &'static str;

    /// Parses an address. Errors do not repeat the text, because it may contain a password.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = ObjectStoreKind::ALL.into_iter().find_map(|kind| {
            let rest = text.strip_prefix(kind.scheme())?.strip_prefix("://")?;
            Some((kind, rest))
        });
        let (kind, rest) = found.ok_or("it does not begin with `s3://`, `gs://` or `az://`")?;
        if rest.contains(['@', '?', '#']) {
            return Err("it has credentials or parameters, which do not belong into a flag");
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_in_bucket = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        if !(3..=222).contains(&bucket.len()) || !bucket.bytes().all(is_in_bucket) {
            return Err("its bucket or container has no valid name");
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_part = |part: &str| {
            !matches!(part, "" | "." | "..") && part.bytes().all(|c| is_in_bucket(c) || c == b'=')
        };
        if !prefix.is_empty() && (prefix.len() > 256 || !prefix.split('/').all(is_part)) {
            return Err("its prefix has other characters than letters, digits and `-_.=/`");
        }
        Ok(Self {
            kind,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for ObjectStoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bucket) = (self.kind.scheme(), &self.bucket);
        if self.prefix.is_empty() {
            write!(f, "{scheme}://{bucket}")
        } else {
            write!(f, "{scheme}://{bucket}/{}", self.prefix)
        }
    }
}

/// A registry of Terraform and Go modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRegistry {
    /// Name of this deployment and of its log.
    pub name: DeploymentName,
    /// Host in the addresses of modules, in lower case, with a port if it is not that of HTTPS.
    pub host: String,
    /// Permits reading names of public namespaces without a token.
    pub is_open: bool,
    /// Lets runs read modules without a token of their own.
    pub is_for_runs: bool,
    /// Commits whose tags publish versions.
    pub tags_from: TaggedCommits,
    /// Maximum number of takedowns of another deployment in an hour that are merged.
    pub takedown_brake: u64,
    /// Number of attempts to tell another deployment about a record before it is given up.
    pub push_attempts: u64,
    /// Object store with the packages. `None`: they are in the data directory.
    pub packages: Option<ObjectStoreUrl>,
    /// Modules that are not in the registry.
    pub misses: RegistryMisses,
    /// Permits that the API names deployments on this machine, over HTTP. No flag sets it; tests do.
    pub local_peers_by_api: bool,
}

/// Settings for modules that are not in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryMisses {
    /// Hosts from which Go modules are fetched.
    pub hosts: VcsHosts,
    /// Behaviour when a version of a name is missing.
    pub rules: MissRules,
    /// Number of bytes of packages from elsewhere after which no more are fetched.
    pub quota: ByteSize,
    /// Number of versions from elsewhere that were ever recorded after which no more are fetched.
    pub versions: u64,
    /// Limits that no flag sets.
    pub limits: MissLimits,
}

impl RegistryMisses {
    /// Reads these settings alone, for commands that explain them.
    pub fn from_raw(raw: &RawSettings) -> Result<Self, StartupProblems> {
        let mut reader = SettingReader::new(raw, Vec::new());
        let misses = read_misses(&mut reader);
        match (misses, StartupProblems::of(reader.finish().0)) {
            (Ok(misses), None) => Ok(misses),
            (_, Some(errors)) => Err(errors),
            (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
        }
    }
}

section! {
    /// Settings of the registry of modules.
    pub struct RegistryConfig in Registry {
        /// Registry of this server. `None` without `--registry`.
        pub own: Option<OwnRegistry> = read_registry from {
            /// Publish Terraform and Go modules, and serve them to `terraform`, `tofu` and `go`. Needs
            /// --encryption-key-file for the key that signs the log.
            switch("registry"),

            /// Name of this registry and of its log, such as mods.example.com. It is part of each record, so it cannot
            /// change after the first start. Two registries never have the same name.
            text("registry-name", "NAME").or_derived("the host of --atlantis-url"),

            /// Host in the addresses of modules, such as mods.example.com in mods.example.com/acme/vpc/aws. Runs get the
            /// modules with this host from this server.
            text("registry-host", "HOST").or_derived("the host of --atlantis-url"),

            /// Serve names of public namespaces without a token.
            switch("registry-anonymous-read"),

            /// Do not let runs use the registry automatically. They then need a token, as everyone else does.
            switch("no-registry-for-runs"),

            /// Commits whose tags publish versions: those in the history of the default branch, any, or none. With any,
            /// everyone who may push tags can publish code that nobody has reviewed. With none, tags publish nothing.
            choice("registry-tags-from", "COMMITS", TaggedCommits::WORDS).or("default-branch"),
            /// Takedowns of another deployment in an hour that are merged without the consent of an administrator
            /// (docs/replication.md).
            number("registry-takedown-brake", "NUMBER", 0, 1_000_000).or("50"),

            /// Attempts to tell another deployment about a new version before the registry gives up. The other deployment
            /// then finds the version when it reads the log (docs/replication.md).
            number("registry-push-attempts", "NUMBER", 1, 1_000).or("10"),

            /// Object store for the packages: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Several
            /// servers with one database share it. Credentials are in variables (docs/registry.md).
            text("registry-store", "URL").or_derived("<data dir>/registry"),

            /// Hosts from which the registry fetches Go modules that it does not have, such as github.com or
            /// github.com/acme. Without hosts, it fetches nothing. Every reader of the registry can read what was fetched,
            /// so name only hosts whose public repositories all of them may read.
            list("registry-vcs-allowlist", "HOSTS"),

            /// Actions for missing versions, as PATTERN=ACTION, such as `go github.com/acme/...=wait`. The first
            /// rule that matches counts. The actions are background, wait, never and refuse.
            list("registry-on-miss", "RULES").or_derived("background for Go modules, wait for Terraform modules"),

            /// Size of all packages and go.mod files from elsewhere together after which the registry fetches no more. A
            /// few fetches that have begun can exceed it.
            size("registry-cache-quota").or("10GiB"),

            /// Number of versions that were ever fetched from elsewhere after which the registry fetches no more. Their
            /// records stay in the log, also after a takedown.
            number("registry-cache-versions", "NUMBER", 0, 1_000_000_000).or("500000"),
        },
    }
}

fn read_registry(reader: &mut SettingReader<'_>) -> ReadResult<Option<OwnRegistry>> {
    let is_open = reader.switch(ANONYMOUS_READ);
    let is_for_runs = reader.switch(NOT_FOR_RUNS).map(|is_off| !is_off);
    let tags_from = reader.choice(TAGS_FROM);
    let misses = read_misses(reader);
    if !reader.switch(REGISTRY)? {
        let without_effect = [
            (NAME, reader.given(NAME).is_some()),
            (HOST, reader.given(HOST).is_some()),
            (ANONYMOUS_READ, is_open?),
            (NOT_FOR_RUNS, !is_for_runs?),
            (TAGS_FROM, reader.given(TAGS_FROM).is_some()),
            (TAKEDOWN_BRAKE, reader.given(TAKEDOWN_BRAKE).is_some()),
            (PUSH_ATTEMPTS, reader.given(PUSH_ATTEMPTS).is_some()),
            (STORE, reader.given(STORE).is_some()),
            (VCS_HOSTS, reader.given(VCS_HOSTS).is_some()),
            (ON_MISS, reader.given(ON_MISS).is_some()),
            (CACHE_QUOTA, reader.given(CACHE_QUOTA).is_some()),
            (CACHE_VERSIONS, reader.given(CACHE_VERSIONS).is_some()),
        ];
        return match without_effect.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(None),
            Some((flag, _)) => reader.refuse(
                flag,
                "set, but --registry is not, so it would have no effect",
                "set --registry, or remove this setting",
            ),
        };
    }
    if reader.path(ENCRYPTION_KEYS).is_none() {
        return reader.refuse(
            ENCRYPTION_KEYS,
            "missing, but --registry is set: the key that signs the log is encrypted in the database",
            "write the output of `lockkeeper credentials keygen` into a file, and name the file",
        );
    }
    Ok(Some(OwnRegistry {
        name: read_name(reader)?,
        host: read_host(reader)?,
        is_open: is_open?,
        is_for_runs: is_for_runs?,
        tags_from: tags_from?.unwrap_or(TaggedCommits::DefaultBranch),
        takedown_brake: reader
            .number(TAKEDOWN_BRAKE)?
            .expect("the brake has a default"),
        push_attempts: reader
            .number(PUSH_ATTEMPTS)?
            .expect("the number of attempts has a default"),
        packages: read_store(reader)?,
        misses: misses?,
        local_peers_by_api: false,
    }))
}

fn read_store(reader: &mut SettingReader<'_>) -> ReadResult<Option<ObjectStoreUrl>> {
    let fix = "write an address such as `s3://bucket/prefix`, and the credentials into variables (docs/registry.md)";
    reader.parsed(STORE, str::parse, fix)
}

fn read_misses(reader: &mut SettingReader<'_>) -> ReadResult<RegistryMisses> {
    let hosts = read_each(
        reader,
        VCS_HOSTS,
        "write hosts or paths on them, such as `github.com` or `github.com/acme`",
    );
    let rules = read_each(
        reader,
        ON_MISS,
        "write a pattern of names, `=` and an action, such as `go github.com/acme/...=wait`",
    );
    let quota = reader.size(CACHE_QUOTA);
    let versions = reader.number(CACHE_VERSIONS);
    Ok(RegistryMisses {
        hosts: VcsHosts::new(hosts?),
        rules: MissRules::new(rules?),
        quota: quota?.expect("the setting has a default"),
        versions: versions?.expect("the setting has a default"),
        limits: MissLimits::DEFAULT,
    })
}

/// Parses each item of a list.
fn read_each<T: FromStr<Err: Display>>(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
    fix: &str,
) -> ReadResult<Vec<T>> {
    let mut items = Vec::new();
    for text in reader.list(flag) {
        match text.parse() {
            Ok(item) => items.push(item),
            Err(why) => return reader.refuse(flag, format!("{why}"), fix),
        }
    }
    Ok(items)
}

fn read_host(reader: &mut SettingReader<'_>) -> ReadResult<String> {
    let fix = "write a host such as `mods.example.com`, with a port if it is not 443";
    let parse = |text: &str| {
        let url = Url::parse(&format!("https://{text}/"));
        url.ok()
            .filter(|_| is_host(text))
            .map(|url| host_of(&url))
            .ok_or("it is not a host that Terraform takes in addresses of modules")
    };
    if let Some(host) = reader.parsed(HOST, parse, fix)? {
        return Ok(host);
    }
    let host = host_of(&read_public_url(reader)?);
    if is_host(&host) {
        return Ok(host);
    }
    let what =
        format!("not set, and Terraform refuses modules with `{host}`, the host of --atlantis-url");
    reader.refuse(HOST, what, fix)
}

/// Returns true for a host that Terraform and OpenTofu take in addresses of modules. They want international names in
/// another form than browsers, so those are left out.
fn is_host(text: &str) -> bool {
    let has_only = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | ':');
    let mut labels = text.split('.');
    text.chars().all(has_only)
        && labels.all(|label| !label.is_empty() && !label.to_ascii_lowercase().starts_with("xn--"))
}

/// Returns the host of an address, as modules name it.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

fn read_name(reader: &mut SettingReader<'_>) -> ReadResult<DeploymentName> {
    let fix = "write a name such as `mods.example.com`, in lower case";
    if let Some(name) = reader.parsed(NAME, str::parse, fix)? {
        return Ok(name);
    }
    let url = read_public_url(reader)?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    host.parse().or_else(|_| {
        let what = format!("not set, and `{host}`, the host of --atlantis-url, cannot be the name");
        reader.refuse(NAME, what, fix)
    })
}
