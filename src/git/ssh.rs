//! git by SSH, with one key and nothing else of this machine.

use std::path::Path;

use url::Url;

use crate::process::Cmd;
use crate::vcs::SshLogin;

/// How git starts `ssh`. Git hands this to a shell: it is a constant, and what differs comes in variables between quotes.
/// Nothing of the user or the machine counts: no configuration, no agent, no other key, no host that is not known.
const COMMAND: &str = "ssh -F /dev/null -i \"$LOCKKEEPER_SSH_KEY\" -o IdentitiesOnly=yes -o IdentityAgent=none \
     -o UserKnownHostsFile=\"$LOCKKEEPER_SSH_HOSTS\" -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes \
     -o UpdateHostKeys=no -o BatchMode=yes -o PreferredAuthentications=publickey -o ClearAllForwardings=yes \
     -o ForwardAgent=no -o PermitLocalCommand=no -o ProxyCommand=none -o ControlPath=none -o ConnectTimeout=20 \
     -o ServerAliveInterval=20";

/// Configuration by which git goes to the host of `url` by SSH.
pub(super) fn config(url: &Url, login: &SshLogin) -> [(String, String); 2] {
    let origin = format!("{}/", url.origin().ascii_serialization());
    [
        (format!("url.{}.insteadOf", login.base_url()), origin),
        ("ssh.variant".to_owned(), "ssh".to_owned()),
    ]
}

/// With the key; no other protocol is allowed.
pub(super) fn with_key(cmd: Cmd, login: &SshLogin) -> Cmd {
    cmd.env("GIT_ALLOW_PROTOCOL", "ssh")
        .env("GIT_SSH_COMMAND", COMMAND)
        .env("LOCKKEEPER_SSH_KEY", percent_doubled(&login.key()))
        // Where several files may be named, white space parts them.
        .env(
            "LOCKKEEPER_SSH_HOSTS",
            format!("\"{}\"", percent_doubled(&login.known_hosts())),
        )
}

/// A path as OpenSSH reads it in options: a percent sign begins a token there.
fn percent_doubled(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}
