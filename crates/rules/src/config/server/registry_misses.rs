//! Settings of the registry for modules that are not in it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_registry::names::{GoPath, InvalidNamePattern, NameKind, NamePattern, RegistryName};
use url::Url;

use crate::model::text_enum;

text_enum! {
    /// Behaviour for a version that is not in the registry.
    pub enum OnMiss {
        /// Answer 404 at once, and fetch the version in the background.
        Background = "background",
        /// Fetch the version while the client waits for a few seconds.
        Wait = "wait",
        /// Answer 404, and fetch nothing.
        Never = "never",
        /// Answer 403 with the rule, so that `go` does not ask anybody else.
        Refuse = "refuse",
    }
}

/// Behaviour for the names of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissRule {
    /// Names that the rule is for.
    pub pattern: NamePattern,
    /// Behaviour when a version of these names is missing.
    pub action: OnMiss,
}

/// A text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMissRule {
    /// The rule has no `=`.
    #[error("`{0}` has no `=` between a pattern of names and what to do")]
    Form(String),
    /// The left side is not a pattern of names.
    #[error("`{0}`: {1}")]
    Pattern(String, InvalidNamePattern),
    /// The right side is not a known word.
    #[error("`{0}` is not `background`, `wait`, `never` or `refuse`")]
    Action(String),
}

impl FromStr for MissRule {
    type Err = InvalidMissRule;

    fn from_str(text: &str) -> Result<Self, InvalidMissRule> {
        let parts = text.rsplit_once('=');
        let (pattern, action) = parts.ok_or_else(|| InvalidMissRule::Form(text.to_owned()))?;
        let (pattern, action) = (pattern.trim(), action.trim());
        let parsed = pattern.parse();
        Ok(Self {
            pattern: parsed.map_err(|why| InvalidMissRule::Pattern(pattern.to_owned(), why))?,
            action: action
                .parse()
                .map_err(|_| InvalidMissRule::Action(action.to_owned()))?,
        })
    }
}

impl fmt::Display for MissRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.action)
    }
}

/// Rules for versions that are not in the registry. The first one that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissRules(Vec<MissRule>);

impl MissRules {
    /// Creates the rules, in their order.
    pub fn new(rules: Vec<MissRule>) -> Self {
        Self(rules)
    }

    /// Returns the rule for a name. `None`: the default for its kind counts.
    pub fn rule_for(&self, name: &RegistryName) -> Option<&MissRule> {
        self.0.iter().find(|rule| rule.pattern.matches(name))
    }

    /// Returns the behaviour for a name.
    ///
    /// The default for Go modules is `background`, because `go` asks the repository itself after a 404. Terraform has
    /// nowhere else to go, so its default is `wait`.
    pub fn action_for(&self, name: &RegistryName) -> OnMiss {
        match self.rule_for(name) {
            Some(rule) => rule.action,
            None => match name.kind() {
                NameKind::Go => OnMiss::Background,
                NameKind::Module => OnMiss::Wait,
            },
        }
    }
}

/// Limits of fetches of missing versions. No flag sets them; tests make them small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissLimits {
    /// Longest wait of a client for a missing version. Terraform gives up after ten seconds.
    pub wait: Duration,
    /// Longest wait of a client for the versions at a host, where it gets those that are here in any case.
    pub list_wait: Duration,
    /// Longest time for a fetch, without its time in the queue.
    pub fill_time: Duration,
    /// Interval at which a fetch in the queue looks for its version in the database.
    pub look: Duration,
    /// Maximum number of fetches at once.
    pub at_once: usize,
    /// Maximum number of fetches of one token at once.
    pub at_once_of_token: usize,
    /// Maximum number of fetches in progress or in the queue, and of lists.
    pub begun: usize,
    /// Maximum number of fetches of one token in progress or in the queue.
    pub begun_of_token: usize,
    /// Maximum number of clients that wait.
    pub waiting: usize,
    /// Maximum number of requests of one token that wait.
    pub waiting_of_token: usize,
    /// Maximum number of fetches that one token begins in an hour.
    pub of_token: u32,
    /// Maximum number of lists of versions at hosts that one token begins in an hour.
    pub lists_of_token: u32,
    /// Maximum number of bytes of a repository on the disk while it is read.
    pub repository_bytes: u64,
}

impl MissLimits {
    /// Limits of every server.
    pub const DEFAULT: Self = Self {
        wait: Duration::from_secs(8),
        list_wait: Duration::from_secs(1),
        fill_time: Duration::from_mins(15),
        look: Duration::from_secs(5),
        at_once: 4,
        at_once_of_token: 2,
        begun: 1_000,
        begun_of_token: 50,
        waiting: 4_000,
        waiting_of_token: 2_000,
        of_token: 2_000,
        lists_of_token: 20_000,
        repository_bytes: 1 << 30,
    };
}

/// A host from which modules may be fetched, or a path on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcsHost {
    /// Host in lower case, with a port if it is not 443.
    host: String,
    /// Path without a slash at its ends. Empty: all paths.
    path: String,
}

/// A text is not a host or a path on one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVcsHost {
    /// The entry has a wildcard.
    #[error("`{0}` has a `*`, and each host has an entry of its own")]
    Wildcard(String),
    /// The entry is not a host with or without a path.
    #[error("`{0}` is not a host such as `github.com`, or a path on one such as `github.com/acme`")]
    Form(String),
}

impl FromStr for VcsHost {
    type Err = InvalidVcsHost;

    fn from_str(text: &str) -> Result<Self, InvalidVcsHost> {
        if text.contains('*') {
            return Err(InvalidVcsHost::Wildcard(text.to_owned()));
        }
        let invalid = || InvalidVcsHost::Form(text.to_owned());
        let url = Url::parse(&format!("https://{text}")).map_err(|_| invalid())?;
        let host = authority(&url).ok_or_else(invalid)?;
        let path = plain_path(&url).ok_or_else(invalid)?;
        let written = match path {
            "" => host.clone(),
            path => format!("{host}/{path}"),
        };
        // The parser would take many other spellings, such as numbers for addresses.
        if written.eq_ignore_ascii_case(text.trim_end_matches('/')) {
            let path = path.to_owned();
            return Ok(Self { host, path });
        }
        Err(invalid())
    }
}

impl fmt::Display for VcsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        match self.path.as_str() {
            "" => Ok(()),
            path => write!(f, "/{path}"),
        }
    }
}

impl VcsHost {
    fn allows(&self, host: &str, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.as_str());
        let is_below = rest
            .is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'));
        self.host == host && is_below
    }
}

/// Hosts from which modules may be fetched.
///
/// Every host is named by the operator, so no request goes to an address that somebody else chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcsHosts(Vec<VcsHost>);

impl VcsHosts {
    /// Creates the list of allowed hosts and paths.
    pub fn new(hosts: Vec<VcsHost>) -> Self {
        Self(hosts)
    }

    /// Returns true if no host is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the address is one of HTTPS on an allowed host, below an allowed path, and has no credentials and
    /// no unusual characters.
    pub fn allows(&self, url: &Url) -> bool {
        let is_plain = url.scheme() == "https"
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let (Some(host), Some(path), true) = (authority(url), plain_path(url), is_plain) else {
            return false;
        };
        self.0.iter().any(|allowed| allowed.allows(&host, path))
    }

    /// Returns true if the host of a Go module may be asked where its repository is.
    pub fn allows_module(&self, path: &GoPath) -> bool {
        let (host, rest) = path.as_str().split_once('/').unwrap_or((path.as_str(), ""));
        self.0.iter().any(|allowed| allowed.allows(host, rest))
    }
}

impl fmt::Display for VcsHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, host) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{host}")?;
        }
        Ok(())
    }
}

/// Returns the host of an address, with a port if it is not that of HTTPS.
fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?.to_ascii_lowercase();
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

/// Returns the path of an address without slashes at its ends. `None`: it has characters that no repository needs.
fn plain_path(url: &Url) -> Option<&str> {
    let path = url.path().trim_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '/');
    (path.chars().all(is_plain) && !path.contains("//")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> VcsHosts {
        VcsHosts::new(list.iter().map(|host| host.parse().unwrap()).collect())
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = [
            "go github.com/acme/...=never",
            "go *=wait",
            "module acme/*=refuse",
        ];
        let rules = MissRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        for (name, expected) in [
            ("go github.com/acme/net", OnMiss::Never),
            ("go github.com/other/net", OnMiss::Wait),
            ("module acme/vpc/aws", OnMiss::Refuse),
            ("module other/vpc/aws", OnMiss::Wait),
        ] {
            assert_eq!(rules.action_for(&name.parse().unwrap()), expected, "{name}");
        }
        let go = "go github.com/other/net".parse().unwrap();
        assert_eq!(rules.rule_for(&go).unwrap().to_string(), "go *=wait");
        assert_eq!(MissRules::default().action_for(&go), OnMiss::Background);
        for (rule, expected) in [
            ("go *", "has no `=`"),
            ("go *=later", "is not `background`"),
            ("golang *=wait", "pattern of names"),
        ] {
            let error = rule.parse::<MissRule>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn only_addresses_of_named_hosts_are_allowed() {
        let hosts = hosts(&[
            "github.com/acme",
            "code.example.org",
            "git.example.com:8443",
        ]);
        for (url, expected) in [
            ("https://github.com/acme/net", true),
            ("https://github.com/acme", true),
            ("https://GitHub.com/acme/net", true),
            ("https://github.com/acme-evil/net", false),
            ("https://github.com/other/net", false),
            ("https://github.com/acme/../other/net", false),
            ("https://github.com/acme/%2e%2e/other/net", false),
            ("https://github.com/acme/a%20b", false),
            ("https://github.com:444/acme/net", false),
            ("https://user@github.com/acme/net", false),
            ("https://github.com@evil.example/acme/net", false),
            ("http://github.com/acme/net", false),
            ("ssh://github.com/acme/net", false),
            ("https://code.example.org/any/path", true),
            ("https://sub.code.example.org/any/path", false),
            ("https://git.example.com:8443/net", true),
            ("https://git.example.com/net", false),
            ("https://127.0.0.1/net", false),
            ("https://[::1]/net", false),
        ] {
            assert_eq!(hosts.allows(&url.parse().unwrap()), expected, "{url}");
        }
        for (path, expected) in [
            ("github.com/acme/net", true),
            ("github.com/other/net", false),
            ("code.example.org", true),
            ("git.example.com/net", false),
        ] {
            assert_eq!(
                hosts.allows_module(&path.parse().unwrap()),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn an_entry_is_a_host_or_a_path_on_one() {
        for entry in [
            "*.example.com",
            "https://github.com",
            "user@github.com",
            "",
            "/acme",
            "a b",
            "github.com/a?b",
            "2130706433",
        ] {
            assert!(entry.parse::<VcsHost>().is_err(), "{entry}");
        }
        for entry in [
            "github.com",
            "github.com/acme",
            "git.example.com:8443/x",
            "10.0.0.7",
            "[::1]:8443",
        ] {
            let host: VcsHost = entry.parse().unwrap();
            assert_eq!(host.to_string(), entry);
        }
    }
}
