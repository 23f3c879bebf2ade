//! Splits an address into its parts as git does, without knowledge of any forge.

use percent_encoding::percent_decode_str;

use super::RepoUrl;
use super::fault::{RepoUrlFault, has_token, is_token};
use crate::model::repo::HostName;

/// Protocol family of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressProtocol {
    /// `https` or `http`. The port is that of the forge.
    Web,
    /// `ssh`, `git@host:path` or `git`. The port differs from that of the forge.
    Shell,
}

/// An address in its parts.
#[derive(Debug)]
pub(super) struct AddressParts {
    pub way: AddressProtocol,
    /// Host in lower-case ASCII, without a port.
    pub host: String,
    /// Port, or `None` for the default one.
    pub port: Option<u16>,
    /// Segments of the path, decoded and checked.
    pub segments: Vec<String>,
}

impl AddressParts {
    pub fn read(text: &str) -> Result<Self, RepoUrlFault> {
        let text = text.trim_matches(' ');
        if text.is_empty() {
            return Err(RepoUrlFault::Empty);
        }
        if text.len() > RepoUrl::MAX_BYTES * 2 {
            return Err(RepoUrlFault::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(RepoUrlFault::Control);
        }
        match text.split_once("://") {
            Some((scheme, rest)) => Self::of_url(&scheme.to_ascii_lowercase(), rest),
            None => Self::of_shell(text),
        }
    }

    /// Reads an address with a scheme: `scheme://[user[:password]@]host[:port]/path`.
    fn of_url(scheme: &str, rest: &str) -> Result<Self, RepoUrlFault> {
        // An address with one of the two web schemes is a name for both.
        let (way, defaults): (AddressProtocol, &[u16]) = match scheme {
            "https" | "http" => (AddressProtocol::Web, &[443, 80]),
            "ssh" | "git+ssh" | "ssh+git" => (AddressProtocol::Shell, &[22]),
            "git" => (AddressProtocol::Shell, &[9418]),
            "file" => return Err(RepoUrlFault::File),
            _ => return Err(RepoUrlFault::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, address) = authority
            .rsplit_once('@')
            .map_or(("", authority), |(user, address)| (user, address));
        check_user(user, way)?;
        if address.contains(['?', '#']) {
            return Err(RepoUrlFault::Query);
        }
        let (host, port) = split_port(address)?;
        let port = port.filter(|port| !defaults.contains(port));
        Ok(Self {
            way,
            host: host_name(host)?,
            port,
            segments: segments(path)?,
        })
    }

    /// Reads `[user@]host:path`. A slash before the first colon makes the text a path, as in git.
    fn of_shell(text: &str) -> Result<Self, RepoUrlFault> {
        let (address, path) = split_shell(text).ok_or_else(|| no_address(text))?;
        let (user, host) = address
            .rsplit_once('@')
            .map_or(("", address), |(user, host)| (user, host));
        check_user(user, AddressProtocol::Shell)?;
        let is_drive = host.len() == 1;
        if is_drive || path.starts_with([':', '\\']) {
            return Err(RepoUrlFault::LocalPath);
        }
        match host.to_ascii_lowercase().as_str() {
            "file" => return Err(RepoUrlFault::File),
            "https" | "http" | "ssh" | "git" => return Err(RepoUrlFault::Host),
            _ => {}
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        Ok(Self {
            way: AddressProtocol::Shell,
            host: host_name(host)?,
            port: None,
            segments: segments(path)?,
        })
    }
}

/// Splits at the first colon outside brackets, if no slash is before it.
fn split_shell(text: &str) -> Option<(&str, &str)> {
    let bracket = text
        .find('[')
        .and_then(|open| text[open..].find(']').map(|close| open + close))
        .unwrap_or(0);
    let colon = bracket + text[bracket..].find(':')?;
    let (address, path) = (&text[..colon], &text[colon + 1..]);
    (!address.contains(['/', '\\'])).then_some((address, path))
}

fn no_address(text: &str) -> RepoUrlFault {
    let first = text.split('/').next().unwrap_or_default();
    let is_path =
        first.is_empty() || first.starts_with('.') || text.contains('\\') || !text.contains('/');
    if is_path || !first.contains('.') {
        RepoUrlFault::LocalPath
    } else {
        RepoUrlFault::NoScheme
    }
}

fn check_user(user: &str, way: AddressProtocol) -> Result<(), RepoUrlFault> {
    let secret = match way {
        AddressProtocol::Web => is_token(user),
        AddressProtocol::Shell => has_token(user),
    };
    if secret || user.contains([':', '@', '%', '/']) {
        Err(RepoUrlFault::Credentials)
    } else {
        Ok(())
    }
}

fn split_port(address: &str) -> Result<(&str, Option<u16>), RepoUrlFault> {
    let after_bracket = address.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = address[after_bracket..].find(':') else {
        return Ok((address, None));
    };
    let (host, port) = (
        &address[..after_bracket + colon],
        &address[after_bracket + colon + 1..],
    );
    if port.is_empty() {
        return Ok((host, None));
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port: &u16| digits && *port > 0);
    port.map(|port| (host, Some(port)))
        .ok_or(RepoUrlFault::Port)
}

/// Returns the host as browsers write it: in lower case, in the ASCII form of international names.
fn host_name(text: &str) -> Result<String, RepoUrlFault> {
    let host = url::Host::parse(text)
        .map_err(|_| RepoUrlFault::Host)?
        .to_string();
    let host = host.strip_suffix('.').unwrap_or(&host);
    if host.ends_with('.') || HostName::new(host).is_err() {
        return Err(RepoUrlFault::Host);
    }
    Ok(host.to_ascii_lowercase())
}

/// Returns the parts of a path, decoded. A slash at the end is ignored.
fn segments(path: &str) -> Result<Vec<String>, RepoUrlFault> {
    if path.contains(['?', '#']) {
        return Err(RepoUrlFault::Query);
    }
    path.strip_suffix('/')
        .unwrap_or(path)
        .split('/')
        .map(segment)
        .collect()
}

fn segment(text: &str) -> Result<String, RepoUrlFault> {
    if !escapes_are_whole(text) {
        return Err(RepoUrlFault::Escape);
    }
    let text = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| RepoUrlFault::Escape)?;
    check_segment(&text)?;
    Ok(text.into_owned())
}

/// Checks a part of a path. Callers check again after they remove `.git` or lower-case the part.
pub(super) fn check_segment(text: &str) -> Result<(), RepoUrlFault> {
    match text {
        "" => Err(RepoUrlFault::EmptyPart),
        "." | ".." => Err(RepoUrlFault::Dots),
        _ if text.chars().any(char::is_control) => Err(RepoUrlFault::Control),
        _ if text.contains(['/', '\\']) => Err(RepoUrlFault::Slash),
        _ if text.starts_with('-') => Err(RepoUrlFault::Hyphen),
        _ if text.contains('@') || has_token(text) => Err(RepoUrlFault::Credentials),
        _ => Ok(()),
    }
}

fn escapes_are_whole(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    percents
        .into_iter()
        .all(|(at, _)| is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2)))
}
