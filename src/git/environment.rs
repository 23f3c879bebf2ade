//! Builds the environment and configuration of every git process; a process gets nothing else.

use std::ffi::OsStr;
use std::path::Path;

use url::Url;

use super::{GitSettings, ssh};
use crate::config::MirrorFilter;
use crate::forges::GitCredentials;
use crate::process::Cmd;
use crate::secret::Secret;

/// Variables that exclude the configuration of the machine and the user and keep git quiet. They also set its
/// language to English, because its messages are classified. `HOME` is `/dev/null` because curl would read
/// `~/.netrc`.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("HOME", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // Objects that a partial mirror lacks are fetched on purpose, with credentials, or not at all.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("LC_ALL", "C"),
];

/// Configuration with the precedence of a command line: it overrides the file in the mirror.
const CONFIG: &[(&str, &str)] = &[
    // No program of a repository runs.
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("protocol.ext.allow", "never"),
    // The data directory may belong to another user (a volume in a container). Its content is still Lockkeeper's own.
    ("safe.directory", "*"),
    // Git checks objects on arrival. The three exceptions are harmless faults of old tools that occur in many
    // histories.
    ("fetch.fsckObjects", "true"),
    ("fetch.fsck.zeroPaddedFilemode", "ignore"),
    ("fetch.fsck.badTimezone", "ignore"),
    ("fetch.fsck.missingSpaceBeforeDate", "ignore"),
    // Upkeep is a separate job and never starts in the background.
    ("gc.auto", "0"),
    // The directory `info/` of a mirror is empty.
    ("repack.updateServerInfo", "false"),
    ("maintenance.auto", "false"),
    ("init.defaultBranch", "main"),
    ("advice.detachedHead", "false"),
    ("protocol.version", "2"),
    // Git aborts a stalled transfer: below 1000 bytes a second for ten minutes. A shorter limit is too strict. A
    // forge that assembles a large pack sends five bytes every five seconds until it is done.
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "600"),
    // A renamed repository redirects the first request; credentials are bound to the first host, see below.
    ("http.followRedirects", "initial"),
    // An empty value removes the helpers of an outer scope.
    ("credential.helper", ""),
];

/// Credential helper that git starts. The helper asks Lockkeeper in turn, so credentials are in no argument list, no
/// environment and no file (see `process/secret.rs`). A message must be read whole or not at all, and only `dd`
/// guarantees that.
const HELPER: &str =
    "!f() { test \"$1\" = get && printf get >&3 && dd bs=65536 count=1 <&3 2>/dev/null; }; f";
const _: () = assert!(Cmd::SECRET_FD == 3, "the helper names the descriptor");

/// Name of the forge in the configuration of a partial mirror.
pub(super) const FORGE: &str = "forge";

/// Creates a git command without a repository.
pub(super) fn git(settings: &GitSettings) -> Cmd {
    with_config(base(settings), &[])
}

/// Creates a git command on a mirror. The command names the directory: git never searches for a repository. A partial
/// mirror needs its filter in every call, so that git knows that objects may be missing. Without a URL, git has no
/// place to fetch them from.
pub(super) fn git_in(settings: &GitSettings, git_dir: &Path, filter: Option<&MirrorFilter>) -> Cmd {
    let partial = partial(filter, None);
    with_config(base(settings), &pairs(&partial)).env("GIT_DIR", git_dir)
}

/// Configuration for repositories of other people, which a client names. They may not lead to another address.
const FOREIGN_CONFIG: &[(&str, &str)] = &[
    ("http.followRedirects", "false"),
    ("transfer.bundleURI", "false"),
    // A small pack can hold large objects. One thread keeps two of them in memory, and huge ones none.
    ("pack.threads", "1"),
    ("core.bigFileThreshold", "16m"),
];

/// Variables by which git reaches other hosts as the server does. Further ones could have credentials, such as configuration of
/// git with headers, or certificates of the server.
pub const PROXY_VARIABLES: &[&str] = &[
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];
/// Variables of git with the paths of certificates of authorities, each with that of other programs which it stands for.
pub const AUTHORITY_VARIABLES: &[(&str, &str)] = &[
    ("GIT_SSL_CAINFO", "SSL_CERT_FILE"),
    ("GIT_SSL_CAPATH", "SSL_CERT_DIR"),
];

/// Creates a git command on a scratch repository for a repository of somebody else. Git has no credentials and speaks
/// HTTPS alone.
pub(super) fn git_to_foreign(settings: &GitSettings, git_dir: &Path, more: &[(&str, &str)]) -> Cmd {
    let config = [FOREIGN_CONFIG, more].concat();
    let authorities = AUTHORITY_VARIABLES.iter().map(|(name, _)| name);
    let all = PROXY_VARIABLES.iter().chain(authorities);
    let passed = |name: &OsStr| name == "PATH" || all.clone().any(|passed| name == *passed);
    let env = settings.env.iter().filter(|(name, _)| passed(name));
    let settings = GitSettings {
        env: env.cloned().collect(),
        ..settings.clone()
    };
    with_config(base(&settings), &config)
        .env("GIT_DIR", git_dir)
        .env("GIT_ALLOW_PROTOCOL", "https")
}

/// Creates a git command on a mirror that may present credentials to the host of `url`, and to no other host or port.
pub(super) fn git_to(
    settings: &GitSettings,
    git_dir: &Path,
    filter: Option<&MirrorFilter>,
    (url, credentials): (&Url, Option<&GitCredentials>),
) -> Cmd {
    let mut config = partial(filter, Some(url));
    let cmd = base(settings).env("GIT_DIR", git_dir);
    let Some(credentials) = credentials else {
        return with_config(cmd, &pairs(&config));
    };
    if let Some(login) = &credentials.ssh {
        config.extend(ssh::config(url, login));
        return ssh::with_key(with_config(cmd, &pairs(&config)), login);
    }
    config.push((
        format!("credential.{}.helper", url.origin().ascii_serialization()),
        HELPER.to_owned(),
    ));
    let (username, password) = (&credentials.username, credentials.password.expose());
    let answer = Secret::new(&format!("username={username}\npassword={password}\n"));
    with_config(cmd, &pairs(&config)).secret(answer)
}

/// Access to the private code of a forge for a git that another program starts, such as `terraform init`. It uses the
/// same helper, bound to the host of the forge, for the duration of one command.
#[derive(Clone, Debug)]
pub struct ModuleAccess {
    config: Vec<(String, String)>,
    answer: Secret,
}

impl ModuleAccess {
    /// Creates the access from the URL of any repository of the forge.
    pub fn new(url: &Url, credentials: &GitCredentials) -> Self {
        let origin = url.origin().ascii_serialization();
        let helper = format!("credential.{origin}.helper");
        let mut config = vec![(helper.clone(), String::new()), (helper, HELPER.to_owned())];
        // Sources are often written for people, who use SSH.
        if let Some(host) = url.host_str() {
            let instead = format!("url.{origin}/.insteadOf");
            config.extend(
                ["ssh://git@HOST/", "git@HOST:"]
                    .map(|form| (instead.clone(), form.replace("HOST", host))),
            );
        }
        let (username, password) = (&credentials.username, credentials.password.expose());
        Self {
            config,
            answer: Secret::new(&format!("username={username}\npassword={password}\n")),
        }
    }

    /// Adds the access to a command. `before` is the number of configuration pairs that its environment already has
    /// (`GIT_CONFIG_COUNT`).
    pub fn give(&self, cmd: Cmd, before: usize) -> Cmd {
        let cmd = cmd.env("GIT_CONFIG_COUNT", (before + self.config.len()).to_string());
        let pairs = (before..).zip(&self.config);
        let cmd = pairs.fold(cmd, |cmd, (n, (key, value))| {
            cmd.env(format!("GIT_CONFIG_KEY_{n}"), key)
                .env(format!("GIT_CONFIG_VALUE_{n}"), value)
        });
        cmd.secret(self.answer.clone())
    }
}

/// Returns the configuration of a partial mirror, with the URL only where git may fetch.
fn partial(filter: Option<&MirrorFilter>, url: Option<&Url>) -> Vec<(String, String)> {
    let Some(filter) = filter else {
        return Vec::new();
    };
    let key = |name: &str| format!("remote.{FORGE}.{name}");
    let mut config = vec![
        (key("promisor"), "true".to_owned()),
        (key("partialclonefilter"), filter.to_string()),
    ];
    config.extend(url.map(|url| (key("url"), url.to_string())));
    config
}

fn pairs(config: &[(String, String)]) -> Vec<(&str, &str)> {
    config
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

fn base(settings: &GitSettings) -> Cmd {
    let protocols = if settings.allow_file {
        "https:http:file"
    } else {
        "https:http"
    };
    let cmd = Cmd::new(&settings.program);
    let cmd = match &settings.hold {
        Some(file) => cmd.holds(file),
        None => cmd,
    };
    cmd.envs(settings.env.iter().map(|(name, value)| (name, value)))
        .envs(VARIABLES.iter().copied())
        .env("GIT_ALLOW_PROTOCOL", protocols)
        .sandbox(settings.sandbox.clone())
        .deadline(settings.deadline)
}

fn with_config(mut cmd: Cmd, more: &[(&str, &str)]) -> Cmd {
    let all = CONFIG.iter().chain(more);
    for (at, (key, value)) in all.clone().enumerate() {
        cmd = cmd
            .env(format!("GIT_CONFIG_KEY_{at}"), *key)
            .env(format!("GIT_CONFIG_VALUE_{at}"), *value);
    }
    cmd.env("GIT_CONFIG_COUNT", all.count().to_string())
}
