//! The environment and configuration every git process gets, and nothing besides.

use std::path::Path;

use url::Url;

use super::{GitSettings, ssh};
use crate::config::MirrorFilter;
use crate::process::Cmd;
use crate::secret::Secret;
use crate::vcs::GitCredentials;

/// Variables that keep the machine's and the user's configuration out and git quiet and English (its messages are
/// classified). `HOME` leads nowhere because curl would read `~/.netrc`.
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
    // What a partial mirror lacks is fetched on purpose, with credentials, or not at all.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("LC_ALL", "C"),
];

/// Configuration with the weight of a command line: it overrides the file in the mirror.
const CONFIG: &[(&str, &str)] = &[
    // Nothing of a repository runs.
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("protocol.ext.allow", "never"),
    // The data directory may belong to another user (a volume in a container); what is in it is ours all the same.
    ("safe.directory", "*"),
    // Objects are checked on arrival. The three exceptions are harmless faults of old tools that many histories have.
    ("fetch.fsckObjects", "true"),
    ("fetch.fsck.zeroPaddedFilemode", "ignore"),
    ("fetch.fsck.badTimezone", "ignore"),
    ("fetch.fsck.missingSpaceBeforeDate", "ignore"),
    // Cleaning up is a job of its own, never a surprise in the background.
    ("gc.auto", "0"),
    // `info/` of a mirror is empty.
    ("repack.updateServerInfo", "false"),
    ("maintenance.auto", "false"),
    ("init.defaultBranch", "main"),
    ("advice.detachedHead", "false"),
    ("protocol.version", "2"),
    // A stalled transfer is given up: below 1000 bytes a second for ten minutes. Not sooner: a forge that puts a large pack
    // together sends five bytes every five seconds until it is done.
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "600"),
    // A renamed repository redirects the first request; credentials are bound to the first host, see below.
    ("http.followRedirects", "initial"),
    // Helpers of an outer scope are forgotten.
    ("credential.helper", ""),
];

/// The helper git asks for credentials, and that asks us in turn: they are in no argument list, no environment and no file
/// (see `process/secret.rs`). A message is read whole or not at all, which only `dd` promises.
const HELPER: &str =
    "!f() { test \"$1\" = get && printf get >&3 && dd bs=65536 count=1 <&3 2>/dev/null; }; f";
const _: () = assert!(Cmd::SECRET_FD == 3, "the helper names the descriptor");

/// Name under which a partial mirror knows its forge.
pub(super) const FORGE: &str = "forge";

/// A git command without a repository.
pub(super) fn git(settings: &GitSettings) -> Cmd {
    with_config(base(settings), &[])
}

/// A git command on a mirror. The directory is named outright: git never searches for a repository. A partial mirror has
/// to be called with its filter: then git knows that objects may be missing, and where it looks for them there is nothing.
pub(super) fn git_in(settings: &GitSettings, git_dir: &Path, filter: Option<&MirrorFilter>) -> Cmd {
    let partial = partial(filter, None);
    with_config(base(settings), &pairs(&partial)).env("GIT_DIR", git_dir)
}

/// A git command on a mirror that may present credentials to the host of `url`, and to no other host or port.
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

/// What lets the git of somebody else, such as the one that `terraform init` starts, read private code of a forge: the same
/// helper, bound to the host of the forge, for as long as one command runs.
#[derive(Clone, Debug)]
pub struct ModuleAccess {
    config: Vec<(String, String)>,
    answer: Secret,
}

impl ModuleAccess {
    /// `url` is that of any repository of the forge.
    pub fn new(url: &Url, credentials: &GitCredentials) -> Self {
        let origin = url.origin().ascii_serialization();
        let helper = format!("credential.{origin}.helper");
        let mut config = vec![(helper.clone(), String::new()), (helper, HELPER.to_owned())];
        // Sources are often written for people, who go by SSH.
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

    /// The command with it. `before`: how many pairs of configuration its environment has already (`GIT_CONFIG_COUNT`).
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

/// The configuration of a partial mirror; the URL only where git may fetch.
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
