//! Configures git for SSH with one key and no other settings of this machine.

use std::path::Path;

use url::Url;

use crate::forges::SshLogin;
use crate::process::Cmd;

/// Command with which git starts `ssh`. Git hands it to a shell, so it is a constant, and variable values come from
/// quoted variables. It uses nothing of the user or the machine: no configuration, no agent, no other key and no
/// unknown host.
const COMMAND: &str = "ssh -F /dev/null -i \"$LOCKKEEPER_SSH_KEY\" -o IdentitiesOnly=yes -o IdentityAgent=none \
     -o UserKnownHostsFile=\"$LOCKKEEPER_SSH_HOSTS\" -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes \
     -o UpdateHostKeys=no -o BatchMode=yes -o PreferredAuthentications=publickey -o ClearAllForwardings=yes \
     -o ForwardAgent=no -o PermitLocalCommand=no -o ProxyCommand=none -o ControlPath=none -o ConnectTimeout=20 \
     -o ServerAliveInterval=20";

/// Returns the configuration that makes git use SSH for the host of `url`.
pub(super) fn config(url: &Url, login: &SshLogin) -> [(String, String); 2] {
    let origin = format!("{}/", url.origin().ascii_serialization());
    [
        (format!("url.{}.insteadOf", login.base_url()), origin),
        ("ssh.variant".to_owned(), "ssh".to_owned()),
    ]
}

/// Adds the key to a command; no other protocol is allowed.
pub(super) fn with_key(cmd: Cmd, login: &SshLogin) -> Cmd {
    cmd.env("GIT_ALLOW_PROTOCOL", "ssh")
        .env("GIT_SSH_COMMAND", COMMAND)
        .env("LOCKKEEPER_SSH_KEY", percent_doubled(&login.key()))
        // The option accepts several files, separated by white space.
        .env(
            "LOCKKEEPER_SSH_HOSTS",
            format!("\"{}\"", percent_doubled(&login.known_hosts())),
        )
}

/// Escapes a path for an OpenSSH option, where a percent sign begins a token.
fn percent_doubled(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}
