//! Settings for GitHub: its address, and the credentials of Lockkeeper there.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::github_hosts::{self, GithubHostsConfig};
use super::problems::{StartupProblem, StartupProblems, StartupWarning};
use super::raw::RawSettings;
use super::reader::{ProblemRecorded, ReadResult, SettingReader};
use super::section::{Section, section};
use super::setting::Setting;
use crate::model::{ForgeHosts, HostName};
use crate::secret::Secret;

/// A secret, or the file that contains it. The file is read each time the secret is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The text of the secret.
    Inline(Secret),
    /// A file that contains only the secret, and may change at any time.
    File(PathBuf),
}

/// Credentials of Lockkeeper at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitHubCredentials {
    /// An account with a personal access token.
    Token {
        /// Name of the account, without `@`.
        user: String,
        /// Token of the account.
        token: SecretSource,
    },
    /// A GitHub App with a private key.
    App {
        /// Number of the App.
        id: u64,
        /// Private key of the App, PEM.
        key: SecretSource,
        /// Installation for events that name none.
        installation: Option<u64>,
        /// Name of the App in URLs, if known.
        slug: Option<String>,
    },
}

impl GitHubCredentials {
    /// Returns the login of Lockkeeper's own comments, if it is known.
    pub fn login(&self) -> Option<String> {
        match self {
            Self::Token { user, .. } => Some(user.clone()),
            Self::App { slug, .. } => slug.as_ref().map(|slug| format!("{slug}[bot]")),
        }
    }
}

section! {
    /// Address of a GitHub, and the credentials for it.
    pub struct GithubConfig in Github {
        /// Credentials of Lockkeeper at GitHub.
        pub auth: GitHubCredentials = read_auth from {
            /// Account to act as, together with --gh-token or --gh-token-file.
            text("gh-user", "NAME"),

            /// Personal access token of that account.
            secret("gh-token", "TOKEN"),

            /// File with the token; read again for each use.
            path("gh-token-file", "FILE").must_exist().hidden_from_runs("the token"),

            /// GitHub App to act as, together with --gh-app-key or --gh-app-key-file.
            number("gh-app-id", "NUMBER", 0, u64::MAX),

            /// Private key of the App.
            secret("gh-app-key", "PEM"),

            /// File with the private key of the App.
            path("gh-app-key-file", "FILE").must_exist().hidden_from_runs("the key of the App"),

            /// Installation of the App for events that do not name one.
            number("gh-app-installation-id", "NUMBER", 0, u64::MAX).or_derived("the only installation"),

            /// Name of the App in URLs, to recognize its own comments.
            text("gh-app-slug", "NAME").or_derived("requested from GitHub"),
        },

        /// Host of GitHub or GitHub Enterprise.
        pub host: HostName = text("gh-hostname", "HOST").or("github.com") => read_host,

        /// URL of the REST API.
        pub api_url: Url = text("gh-api-url", "URL").or_derived("derived from --gh-hostname") => read_api_url,

        /// Secrets of the webhooks of this host.
        pub webhooks: WebhookConfig = section,

        /// Pause between two writes. `None` stands for the pause that the host requests. No flag sets it: only fakes of
        /// GitHub need it.
        pub write_pause: Option<Duration> = None,
    }
}

/// Returns the hosts that are forges with these settings, for commands that need no other setting of the server. They do
/// not need the credentials, so the host of the flags is always one.
pub fn forge_hosts(raw: &RawSettings) -> Result<ForgeHosts, StartupProblems> {
    let mut reader = SettingReader::new(raw, Vec::new());
    let host = read_host(&mut reader, "gh-hostname");
    let listed = github_hosts::read_names(&mut reader);
    let hosts = host.and_then(|host| Ok(listed?.into_iter().chain([host])));
    match (hosts, StartupProblems::of(reader.finish().0)) {
        (Ok(hosts), None) => Ok(ForgeHosts::with(hosts)),
        (_, Some(errors)) => Err(errors),
        (Err(_), None) => unreachable!("a reader that gives no value has recorded why"),
    }
}

fn read_host(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<HostName> {
    let fix = "write only the name, such as `github.example.com`";
    let host = reader.parsed(flag, parse_host, fix)?;
    Ok(host.expect("the host has a default"))
}

fn parse_host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|_| format!("`{text}` is not a valid host name"))
}

/// Reads the URL of the REST API; it ends with a slash.
fn read_api_url(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Url> {
    let fix = "write a URL such as `https://github.example.com/api/v3`";
    let Some(url) = reader.parsed(flag, web_url, fix)? else {
        let host = read_host(reader, "gh-hostname")?;
        return default_api_url(&host).map_or_else(
            || {
                let what = format!("`{host}` does not give a valid URL");
                reader.refuse("gh-hostname", what, "write a host name")
            },
            Ok,
        );
    };
    if let Some(warning) = without_encryption(&url) {
        reader.warn(StartupWarning::with(flag, warning));
    }
    Ok(url)
}

/// Returns a warning if requests to a URL pass a network without encryption.
pub(super) fn without_encryption(url: &Url) -> Option<String> {
    let host = url.host_str().unwrap_or_default();
    (url.scheme() == "http" && !is_loopback(url))
        .then(|| format!("credentials are sent to {host} without encryption"))
}

/// Parses an http(s) URL and makes it end with a slash, so that joining a path appends to it.
pub(super) fn web_url(text: &str) -> Result<Url, String> {
    let invalid = |why: &str| format!("`{text}` {why}");
    let mut url = Url::parse(text).map_err(|error| invalid(&format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("does not begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL contains a user name or a password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("has a query or a fragment"));
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns the API's URL for a host. GitHub documents `api.github.com`, `api.SUBDOMAIN.ghe.com`, and `HOST/api/v3`
/// for Enterprise Server.
pub(super) fn default_api_url(host: &HostName) -> Option<Url> {
    let text = match host.as_str() {
        name if name == "github.com" || name.ends_with(".ghe.com") => {
            format!("https://api.{name}/")
        }
        name => format!("https://{name}/api/v3/"),
    };
    Url::parse(&text).ok()
}

const ONE_WAY: &str = "keep either --gh-user with its token, or --gh-app-id with its key";

fn read_auth(reader: &mut SettingReader<'_>) -> ReadResult<GitHubCredentials> {
    let user = reader
        .text("gh-user")
        .map(|user| user.trim_start_matches('@').to_owned());
    let token = read_source(reader, "gh-token", "gh-token-file");
    let app = reader.number::<u64>("gh-app-id");
    let key = read_source(reader, "gh-app-key", "gh-app-key-file");
    // The id is read even if it has no effect, so that an invalid one is reported with the other problems.
    let installation = reader
        .number::<u64>("gh-app-installation-id")
        .map(|id| id.filter(|id| *id != 0));
    let (token, app, key, installation) = (token?, app?.filter(|id| *id != 0), key?, installation?);
    match (user, token, app, key) {
        (Some(user), Some(token), None, None) => read_token_auth(reader, user, token),
        (None, None, Some(id), Some(key)) => Ok(read_app_auth(reader, id, key, installation)),
        (None, None, None, None) => {
            let fix = if reader.given(github_hosts::FLAG).is_some() {
                "set --gh-user and --gh-token-file (an account), or --gh-app-id and --gh-app-key-file (a GitHub App); \
                 or remove the other --gh-* settings and --allow-unsigned-webhooks to serve only the hosts of \
                 --gh-hosts-file"
            } else {
                "set --gh-user and --gh-token-file (an account), or --gh-app-id and --gh-app-key-file (a GitHub App)"
            };
            reader.refuse("gh-user", "no account and no App for GitHub is set", fix)
        }
        (None, Some(_), None, None) => reader.refuse(
            "gh-user",
            "missing, but there is a token",
            "name the account of the token",
        ),
        (Some(_), None, None, None) => reader.refuse(
            "gh-user",
            "set, but there is no token",
            "set --gh-token-file (LOCKKEEPER_GH_TOKEN_FILE) or LOCKKEEPER_GH_TOKEN",
        ),
        (None, None, None, Some(_)) => reader.refuse(
            "gh-app-id",
            "missing, but there is a key",
            "write the App ID shown in the App's settings",
        ),
        (None, None, Some(_), None) => reader.refuse(
            "gh-app-id",
            "set, but there is no private key",
            "set --gh-app-key-file (LOCKKEEPER_GH_APP_KEY_FILE) or LOCKKEEPER_GH_APP_KEY",
        ),
        (_, _, Some(_), _) | (_, _, _, Some(_)) => {
            reader.refuse("gh-app-id", "both an account and an App are set", ONE_WAY)
        }
    }
}

/// Reads the secret or the name of its file, and refuses both together.
fn read_source(
    reader: &mut SettingReader<'_>,
    inline: &'static str,
    file: &'static str,
) -> ReadResult<Option<SecretSource>> {
    match (reader.secret(inline), reader.path(file)) {
        (None, None) => Ok(None),
        (Some(secret), None) => Ok(Some(SecretSource::Inline(secret))),
        (None, Some(path)) => Ok(Some(SecretSource::File(path))),
        (Some(_), Some(_)) => reader.refuse(
            inline,
            format!("set, although --{file} is set too"),
            "keep one of the two",
        ),
    }
}

fn read_token_auth(
    reader: &mut SettingReader<'_>,
    user: String,
    token: SecretSource,
) -> ReadResult<GitHubCredentials> {
    let mut unused = Ok(());
    for flag in ["gh-app-installation-id", "gh-app-slug"] {
        if reader
            .given(flag)
            .is_some_and(|given| given.text.trim() != "0")
        {
            unused = reader.refuse(
                flag,
                "set, but it has no effect without --gh-app-id",
                ONE_WAY,
            );
        }
    }
    unused.map(|()| GitHubCredentials::Token { user, token })
}

fn read_app_auth(
    reader: &mut SettingReader<'_>,
    id: u64,
    key: SecretSource,
    installation: Option<u64>,
) -> GitHubCredentials {
    GitHubCredentials::App {
        id,
        key,
        installation,
        slug: reader.text("gh-app-slug"),
    }
}

section! {
    /// Secrets that prove that a webhook comes from one host of GitHub.
    pub struct WebhookConfig in Webhooks {
        /// Secrets that may have signed a webhook. Empty only if the administrator allows unsigned webhooks.
        pub secrets: Vec<Secret> = read_webhook_secrets from {
            /// Secret that GitHub signs webhooks with, at least 16 characters. To change it, give the old and the
            /// new secret: repeat the flag, or write one per line in the variable.
            secrets("gh-webhook-secret", "SECRET"),

            /// Start without a webhook secret. Everyone who can reach the server can then send it commands.
            switch("allow-unsigned-webhooks"),
        },
    }
}

fn read_webhook_secrets(reader: &mut SettingReader<'_>) -> ReadResult<Vec<Secret>> {
    let secrets = reader.secrets("gh-webhook-secret");
    let lengths: Vec<ReadResult<()>> = secrets
        .iter()
        .map(|secret| reader.long_enough("gh-webhook-secret", secret))
        .collect();
    lengths.into_iter().collect::<ReadResult<()>>()?;
    let unsigned = reader.switch("allow-unsigned-webhooks")?;
    match (secrets.is_empty(), unsigned) {
        (false, false) => {}
        (true, true) => reader.warn(StartupWarning::with(
            "allow-unsigned-webhooks",
            "webhooks are not verified: everyone who can reach the server can send it commands",
        )),
        (true, false) => Err(no_secret(reader))?,
        (false, true) => reader.refuse(
            "allow-unsigned-webhooks",
            "set, although there is a webhook secret",
            "remove it; with a secret, every webhook must be signed",
        )?,
    }
    Ok(secrets)
}

fn no_secret(reader: &mut SettingReader<'_>) -> ProblemRecorded {
    reader.record(StartupProblem::with(
        "gh-webhook-secret",
        "missing, so anybody could send webhooks in GitHub's name",
        "set LOCKKEEPER_GH_WEBHOOK_SECRET to the secret of the webhook on GitHub; \
         for a trial without a secret, set --allow-unsigned-webhooks",
    ))
}

/// The flags configure one GitHub, and the file of `--gh-hosts-file` the others.
impl Section for Vec<GithubConfig> {
    fn settings() -> Vec<Setting> {
        [GithubConfig::settings(), GithubHostsConfig::settings()].concat()
    }

    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let of_flags = flags_name_a_host(reader).then(|| GithubConfig::read(reader));
        let listed = GithubHostsConfig::read(reader);
        let (of_flags, listed) = (of_flags.transpose()?, listed?.listed);
        let by_flags = of_flags.as_ref().map(|github| &github.host);
        if let Some(host) = by_flags.filter(|host| listed.iter().any(|one| one.host == **host)) {
            let what = format!("lists `{host}`, which is also the host of --gh-hostname");
            return reader.refuse(
                github_hosts::FLAG,
                what,
                "remove it from the file, or remove the other --gh-* settings to serve only the hosts of the file",
            );
        }
        Ok(of_flags.into_iter().chain(listed).collect())
    }
}

/// Returns true if the flags configure a host. Without a file, they have to. With a file, they do if any of them is
/// set; a zero and a `false` count as not set.
fn flags_name_a_host(reader: &mut SettingReader<'_>) -> bool {
    let has_file = reader.given(github_hosts::FLAG).is_some();
    let mut is_any_set = false;
    for setting in GithubConfig::settings() {
        let given = reader.given(setting.flag);
        is_any_set |= given.is_some_and(|given| !matches!(given.text.trim(), "0" | "false"));
    }
    is_any_set || !has_file
}
