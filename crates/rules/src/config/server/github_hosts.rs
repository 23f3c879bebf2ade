//! Further hosts of GitHub: the file of `--gh-hosts-file`.
//!
//! ```yaml
//! hosts:
//!   - host: github.example.com
//!     user: lockkeeper
//!     token_file: /run/secrets/ghe-token
//!     webhook_secret_file: /run/secrets/ghe-webhook
//! ```
//!
//! The file has no secrets, only the names of files with secrets. [`secret_files_of_hosts`] lists them: the server reads
//! them at its start, and no run may read them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use url::Url;

use super::github::{
    GitHubCredentials, GithubConfig, SecretSource, WebhookConfig, default_api_url, web_url,
    without_encryption,
};
use super::problems::StartupWarning;
use super::raw::RawSettings;
use super::reader::{ReadResult, STRONGER, SettingReader, weakness};
use super::repo_rules::{record, unreadable};
use super::sandbox::OwnPath;
use super::section::section;
use crate::config::yaml::{
    self, Field, FilePosition, FileReader, KeyDoc, Located, Mapping, YamlErrors, as_written,
    mapping, shown,
};
use crate::model::HostName;
use crate::secret::Secret;

/// Flag of the file.
pub(super) const FLAG: &str = "gh-hosts-file";

section! {
    /// Hosts of GitHub that a file lists.
    pub struct GithubHostsConfig in Github {
        /// Hosts of the file, in its order.
        pub listed: Vec<GithubConfig> = read_hosts from {
            /// YAML file with further hosts of GitHub, each with its own credentials and webhook secret
            /// (docs/install.md#several-github-hosts). With it, the other --gh-* settings may be left out; then only
            /// the hosts of the file are served.
            path("gh-hosts-file", "FILE").fixed_in_runs("the hosts of GitHub"),
        },
    }
}

mapping! {
    /// Keys at the top level of the file.
    pub(in crate::config) struct HostsFileMapping("the file") {
        hosts: Vec<HostMapping> = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Hosts of GitHub, at least one.",
            example: "[{host: github.example.com, user: lockkeeper, token_file: /run/secrets/token, \
                      webhook_secret_file: /run/secrets/webhook}]",
        },
    }
}

mapping! {
    /// Keys of an entry of `hosts`.
    pub(in crate::config) struct HostMapping("an entry of `hosts`") {
        host: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Name of the host.",
            example: "github.example.com",
        },
        api_url: Located = KeyDoc {
            default: "derived from `host`",
            meaning: "URL of the REST API.",
            example: "https://github.example.com/api/v3",
        },
        user: Located = KeyDoc {
            default: "none",
            meaning: "Account to act as, together with `token_file`.",
            example: "lockkeeper",
        },
        token_file: Located = KeyDoc {
            default: "none",
            meaning: "File with the personal access token of `user`; read again for each use.",
            example: "/run/secrets/token",
        },
        app: HostAppMapping = KeyDoc {
            default: "none",
            meaning: "GitHub App to act as, instead of `user` and `token_file`.",
            example: "{id: 12, key_file: /run/secrets/key.pem}",
        },
        webhook_secret_file: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "File with the secret that this host signs webhooks with, at least 16 characters; read at startup. To \
                      change the secret, write the old and the new one, one per line.",
            example: "/run/secrets/webhook",
        },
    }
}

mapping! {
    /// Keys of `app` of an entry of `hosts`.
    pub(in crate::config) struct HostAppMapping("`app`") {
        id: u64 = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Number of the App.",
            example: "12",
        },
        key_file: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "File with the private key of the App (PEM).",
            example: "/run/secrets/key.pem",
        },
        installation: u64 = KeyDoc {
            default: "the only installation",
            meaning: "Installation of the App for events that do not name one.",
            example: "34",
        },
        slug: Located = KeyDoc {
            default: "requested from GitHub",
            meaning: "Name of the App in URLs, to recognize its own comments.",
            example: "lockkeeper",
        },
    }
}

/// The file of `--gh-hosts-file`, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsFile {
    /// Path of the file.
    name: String,
    text: String,
}

/// A host of the file. Its secret files are named, but not read yet.
struct ListedHost {
    host: HostName,
    api_url: Url,
    auth: GitHubCredentials,
    webhook_secret: SecretFile,
}

/// A file with a secret, which a host names.
struct SecretFile {
    path: PathBuf,
    key: &'static str,
    place: FilePosition,
}

impl HostsFile {
    /// Maximum size of the file, in bytes.
    pub const MAX_BYTES: usize = 64 << 10;
    /// Maximum size of a file with a secret, in bytes.
    pub const MAX_SECRET_BYTES: usize = 64 << 10;

    /// Takes a text as the content of a file.
    pub fn named(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Takes the file, if one is named. Reports a file that cannot be read.
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Option<Self>> {
        let Some(path) = reader.path(FLAG) else {
            return Ok(None);
        };
        let name = path.display().to_string();
        match reader.raw().files.get(FLAG) {
            Some(Ok(text)) => Ok(Some(Self::named(&name, text))),
            Some(Err(reason)) => unreadable(reader, FLAG, &name, reason),
            None => unreadable(reader, FLAG, &name, "the file was not read"),
        }
    }

    /// Checks the file alone. The files that it names may be on another machine.
    pub fn check(&self) -> Result<(), YamlErrors> {
        self.hosts().map(drop)
    }

    /// Returns the names of the hosts.
    pub(super) fn hosts(&self) -> Result<Vec<HostName>, YamlErrors> {
        let mut yaml = FileReader::default();
        let listed = read_file(&mut yaml, &RawSettings::default(), &self.text);
        self.finish(yaml)?;
        Ok(listed.into_iter().map(|one| one.host).collect())
    }

    fn finish(&self, yaml: FileReader) -> Result<(), YamlErrors> {
        if yaml.problems.is_empty() {
            Ok(())
        } else {
            // Errors show no lines of the file, because a mistaken one may contain a secret.
            Err(YamlErrors::new(&self.name, "", yaml.problems))
        }
    }
}

/// Returns the paths of the files with secrets that the file of `--gh-hosts-file` names, also in entries with mistakes.
pub fn secret_files_of_hosts(raw: &RawSettings) -> Vec<PathBuf> {
    let files = secret_files(raw).into_iter();
    files.map(|file| file.path).collect()
}

/// Returns the files with secrets of all hosts. No run may read them.
pub(super) fn own_secret_files(raw: &RawSettings) -> Vec<OwnPath> {
    let own = |file: SecretFile| OwnPath {
        what: format!("a secret (`{}` in the file of --{FLAG})", file.key),
        path: file.path,
    };
    secret_files(raw).into_iter().map(own).collect()
}

fn secret_files(raw: &RawSettings) -> Vec<SecretFile> {
    let Some(Ok(text)) = raw.files.get(FLAG) else {
        return Vec::new();
    };
    let Ok(Some(node)) = yaml::read(text) else {
        return Vec::new();
    };
    let file = as_written::<HostsFileMapping>(&node);
    let mut yaml = FileReader::default();
    let entries = file
        .as_ref()
        .and_then(|file| file.hosts.items(&mut yaml))
        .unwrap_or_default();
    let mut files = Vec::new();
    for entry in entries.iter().filter_map(as_written::<HostMapping>) {
        let app = entry.app.node().and_then(as_written::<HostAppMapping>);
        let named = [&entry.token_file, &entry.webhook_secret_file]
            .into_iter()
            .chain(app.as_ref().map(|app| &app.key_file));
        files.extend(named.filter_map(|field| secret_file(raw, field, &field.node()?.as_text()?)));
    }
    files
}

/// Returns the file that a key names. The path follows the rules for those of settings.
fn secret_file(raw: &RawSettings, field: &Field<Located>, text: &Located) -> Option<SecretFile> {
    let path = Some(text.text.trim()).filter(|path| !path.is_empty())?;
    Some(SecretFile {
        path: raw.absolute(path),
        key: field.name(),
        place: text.place,
    })
}

/// Returns the names of the hosts of the file. The files with their secrets are not needed.
pub(super) fn read_names(reader: &mut SettingReader<'_>) -> ReadResult<Vec<HostName>> {
    let Some(file) = HostsFile::read(reader)? else {
        return Ok(Vec::new());
    };
    file.hosts().map_err(|errors| record(reader, &errors))
}

fn read_hosts(reader: &mut SettingReader<'_>) -> ReadResult<Vec<GithubConfig>> {
    let Some(file) = HostsFile::read(reader)? else {
        return Ok(Vec::new());
    };
    let raw = reader.raw();
    let mut yaml = FileReader::default();
    let listed = read_file(&mut yaml, raw, &file.text);
    for named in secret_files(raw) {
        check_secret_file(&mut yaml, raw, &named);
    }
    let hosts = listed.into_iter().map(|one| GithubConfig {
        auth: one.auth,
        host: one.host,
        api_url: one.api_url,
        webhooks: WebhookConfig {
            secrets: webhook_secrets(&mut yaml, reader, &one.webhook_secret),
        },
        write_pause: None,
    });
    let hosts: Vec<GithubConfig> = hosts.collect();
    for (line, sentence) in &yaml.warnings {
        let place = format!("{}:{line}", file.name);
        reader.warn(StartupWarning::about(format!("{place}: {sentence}")));
    }
    match file.finish(yaml) {
        Ok(()) => Ok(hosts),
        Err(errors) => Err(record(reader, &errors)),
    }
}

fn check_secret_file(yaml: &mut FileReader, raw: &RawSettings, file: &SecretFile) {
    let path = file.path.display();
    match raw.secret_files.get(&file.path) {
        Some(Ok(secret)) if !secret.is_empty() => {}
        Some(Ok(_)) => yaml.problem(
            file.place,
            format!("`{path}` is empty, but `{}` needs a secret", file.key),
            "write the secret into the file",
        ),
        Some(Err(reason)) => yaml.problem(
            file.place,
            format!("`{path}` cannot be read: {reason}"),
            "check the path, and check that the user account of the server can read the file",
        ),
        None => yaml.problem(
            file.place,
            format!("`{path}` was not read"),
            "check that the file exists",
        ),
    }
}

/// Returns the secrets of a file, one per line. Reports short ones as the flag does.
fn webhook_secrets(
    yaml: &mut FileReader,
    reader: &SettingReader<'_>,
    file: &SecretFile,
) -> Vec<Secret> {
    let Some(Ok(text)) = reader.raw().secret_files.get(&file.path) else {
        return Vec::new();
    };
    let lines = text.expose().lines().map(Secret::new);
    let secrets: Vec<Secret> = lines.filter(|secret| !secret.is_empty()).collect();
    for what in secrets.iter().filter_map(weakness) {
        let what = format!("a secret in `{}` is {what}", file.path.display());
        if reader.accepts_weak_secrets() {
            let sentence = format!("{what}; {STRONGER}");
            yaml.warnings.push((file.place.line, sentence));
        } else {
            yaml.problem(file.place, what, STRONGER);
        }
    }
    secrets
}

fn read_file(yaml: &mut FileReader, raw: &RawSettings, text: &str) -> Vec<ListedHost> {
    const NONE: &str = "list at least one host, or start the server without this file";
    if text.len() > HostsFile::MAX_BYTES {
        let what = format!("the file is larger than {} bytes", HostsFile::MAX_BYTES);
        yaml.problem_of_file(what, "remove hosts that are not served");
        return Vec::new();
    }
    let node = match yaml::read(text) {
        Ok(Some(node)) => node,
        Ok(None) => {
            yaml.problem_of_file("the file is empty".to_owned(), NONE);
            return Vec::new();
        }
        Err(problem) => {
            yaml.problems.push(problem);
            return Vec::new();
        }
    };
    let Some(file) = yaml.mapping::<HostsFileMapping>(&node) else {
        return Vec::new();
    };
    if !file.hosts.is_set() {
        yaml.problem(file.place(), "the file has no `hosts`".to_owned(), NONE);
        return Vec::new();
    }
    let nodes = file.hosts.items(yaml).unwrap_or_default();
    if nodes.is_empty() && yaml.problems.is_empty() {
        yaml.problem(file.place(), "`hosts` is empty".to_owned(), NONE);
    }
    let mut seen = BTreeSet::new();
    let mut listed = Vec::new();
    for node in nodes {
        let Some(entry) = yaml.mapping::<HostMapping>(node) else {
            continue;
        };
        let host = read_host(yaml, &entry);
        if let (Some(host), Some(place)) = (&host, entry.host.place())
            && !seen.insert(host.clone())
        {
            let what = format!("`{host}` is listed twice");
            yaml.problem(place, what, "keep one entry for each host");
        }
        listed.extend(read_entry(yaml, raw, &entry, host));
    }
    listed
}

fn read_host(yaml: &mut FileReader, entry: &HostMapping) -> Option<HostName> {
    const HELP: &str = "write only the name, such as `github.example.com`";
    let text = yaml.required(entry, &entry.host, HELP)?;
    let host = HostName::new(text.text.trim());
    if host.is_err() {
        let what = format!("`{}` is not a valid host name", shown(&text.text));
        yaml.problem(text.place, what, HELP);
    }
    host.ok()
}

/// Reads an entry completely, so that all its mistakes are reported.
fn read_entry(
    yaml: &mut FileReader,
    raw: &RawSettings,
    entry: &HostMapping,
    host: Option<HostName>,
) -> Option<ListedHost> {
    let api_url = read_api_url(yaml, entry, host.as_ref());
    let auth = read_auth(yaml, raw, entry);
    let webhook_secret = required_file(
        yaml,
        raw,
        entry,
        &entry.webhook_secret_file,
        "name the file with the secret of the webhooks on this host",
    );
    Some(ListedHost {
        host: host?,
        api_url: api_url?,
        auth: auth?,
        webhook_secret: webhook_secret?,
    })
}

fn read_api_url(
    yaml: &mut FileReader,
    entry: &HostMapping,
    host: Option<&HostName>,
) -> Option<Url> {
    const HELP: &str = "write a URL such as `https://github.example.com/api/v3`";
    let Some(text) = entry.api_url.read(yaml) else {
        let url = default_api_url(host?);
        if url.is_none() {
            let what = format!("`{}` does not give a valid URL", host?);
            yaml.problem(entry.host.place()?, what, HELP);
        }
        return url.filter(|_| !entry.api_url.is_set());
    };
    match web_url(text.text.trim()) {
        Ok(url) => {
            if let Some(warning) = without_encryption(&url) {
                yaml.warnings.push((text.place.line, warning));
            }
            Some(url)
        }
        Err(what) => {
            yaml.problem(text.place, what, HELP);
            None
        }
    }
}

fn read_auth(
    yaml: &mut FileReader,
    raw: &RawSettings,
    entry: &HostMapping,
) -> Option<GitHubCredentials> {
    const ONE_WAY: &str = "keep either `user` with `token_file`, or `app`";
    let of_account = [&entry.user, &entry.token_file];
    let account = of_account.iter().any(|field| field.is_set());
    match (account, entry.app.place()) {
        (true, Some(place)) => {
            yaml.problem(
                place,
                "both an account and an App are set".to_owned(),
                ONE_WAY,
            );
            None
        }
        (false, Some(_)) => read_app(yaml, raw, entry),
        (true, None) => {
            let user = required_text(yaml, entry, &entry.user, "name the account of the token");
            let help = "name the file with the personal access token of the account";
            let token = required_file(yaml, raw, entry, &entry.token_file, help);
            Some(GitHubCredentials::Token {
                user: user?.trim_start_matches('@').to_owned(),
                token: SecretSource::File(token?.path),
            })
        }
        (false, None) => {
            yaml.problem(
                entry.place(),
                "an entry of `hosts` has no credentials".to_owned(),
                "write `user` and `token_file` (an account), or `app` (a GitHub App)",
            );
            None
        }
    }
}

fn read_app(
    yaml: &mut FileReader,
    raw: &RawSettings,
    entry: &HostMapping,
) -> Option<GitHubCredentials> {
    let app = entry.app.read(yaml)?;
    let id = yaml.required(
        &app,
        &app.id,
        "write the App ID shown in the App's settings",
    );
    let help = "name the file with the private key of the App";
    let key = required_file(yaml, raw, &app, &app.key_file, help);
    let installation = app.installation.read(yaml);
    let slug = app.slug.read(yaml).map(|text| text.text.trim().to_owned());
    for (number, place) in [
        (id, app.id.place()),
        (installation, app.installation.place()),
    ] {
        if let (Some(0), Some(place)) = (number, place) {
            let what = "0 is not a number that GitHub gives".to_owned();
            yaml.problem(place, what, "write the number that GitHub shows");
        }
    }
    Some(GitHubCredentials::App {
        id: id?,
        key: SecretSource::File(key?.path),
        installation,
        slug: slug.filter(|slug| !slug.is_empty()),
    })
}

fn required_text<M: Mapping>(
    yaml: &mut FileReader,
    mapping: &M,
    field: &Field<Located>,
    help: &str,
) -> Option<String> {
    let text = yaml.required(mapping, field, help)?;
    let word = text.text.trim();
    if word.is_empty() {
        yaml.problem(text.place, format!("`{}` is empty", field.name()), help);
    }
    Some(word.to_owned()).filter(|word| !word.is_empty())
}

fn required_file<M: Mapping>(
    yaml: &mut FileReader,
    raw: &RawSettings,
    mapping: &M,
    field: &Field<Located>,
    help: &str,
) -> Option<SecretFile> {
    let text = yaml.required(mapping, field, help)?;
    let file = secret_file(raw, field, &text);
    if file.is_none() {
        yaml.problem(text.place, format!("`{}` is empty", field.name()), help);
    }
    file
}
