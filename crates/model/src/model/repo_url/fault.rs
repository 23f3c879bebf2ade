//! Reasons why a text is not the address of a repository. Messages never repeat secrets.

use percent_encoding::percent_decode_str;

use super::RepoUrl;
use super::kinds;

/// Error for a text that is not the address of a repository. Safe to show: secrets in the text are left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown} is not the address of a repository: {fault}")]
pub struct InvalidRepoUrl {
    pub(super) shown: String,
    /// Fault of the address.
    pub fault: RepoUrlFault,
}

/// Fault of an address, and its fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepoUrlFault {
    /// The text is empty, or has only blanks.
    #[error("it is empty; write for example `https://github.com/acme/infra`")]
    Empty,
    /// The text is longer than [`RepoUrl::MAX_BYTES`].
    #[error("it is longer than {} bytes", RepoUrl::MAX_BYTES)]
    TooLong,
    /// The text has a control character, plain or encoded.
    #[error("it has a control character; remove it")]
    Control,
    /// The text is a path on a machine, or has no host.
    #[error(
        "it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`"
    )]
    LocalPath,
    /// The text has no scheme, like [`Self::LocalPath`], but its first part looks like a host.
    #[error("it does not say how to reach the host; write `https://` before it")]
    NoScheme,
    /// The scheme is `file://`.
    #[error(
        "`file` addresses mean something else on every machine; write the address under which the forge serves it"
    )]
    File,
    /// Git does not fetch by this scheme.
    #[error("its scheme is none of https, http, ssh and git; write `https://host/owner/name`")]
    Scheme,
    /// The text has a password, or a user name that looks like a token.
    #[error(
        "it contains a password or a token, which would be stored and shown; remove it from the address, store it \
         with `lockkeeper credentials add`, and replace it if others could read it"
    )]
    Credentials,
    /// The text has no host, or one that no name server could know.
    #[error("its host is not a host name; write `https://host/owner/name`")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535; leave it out if it is the default port")]
    Port,
    /// The port does not identify the forge.
    #[error(
        "port {0} of ssh or git does not tell which forge it belongs to; write the https address of the repository"
    )]
    SshPort(u16),
    /// The text has a `?` or `#`.
    #[error(
        "it has a `?` or `#`, which is not part of the address of a repository; remove it and the text after it"
    )]
    Query,
    /// A `%` is not followed by two hexadecimal digits, or the decoded bytes are no text.
    #[error("its percent-encoding cannot be read; write `%25` for a plain percent sign")]
    Escape,
    /// The path has `.` or `..` as a part.
    #[error("its path has `.` or `..` as a part; write the path without them")]
    Dots,
    /// The path has two slashes in a row, or is missing.
    #[error("its path is empty or has an empty part; write `https://host/owner/name`")]
    EmptyPart,
    /// The path has a backslash, or an encoded slash.
    #[error(
        "its path has a backslash or an encoded slash, which forges read in different ways; write a plain slash"
    )]
    Slash,
    /// A part of the path begins with a hyphen.
    #[error(
        "a part of its path begins with `-`, which no repository has; write the address without the text after the \
         name"
    )]
    Hyphen,
    /// The path ends in `.git.git`.
    #[error("its name ends in `.git` twice; write it once or not at all")]
    TwiceGit,
    /// The path does not have the shape of addresses of this forge.
    #[error("on this forge the address is `{0}`; write it without the text before or after that")]
    Shape(&'static str),
    /// The text is an address in another form than the normal one.
    #[error("it is not in normal form; write `{0}`")]
    NotNormal(String),
}

/// Maximum number of characters that an error repeats.
const SHOWN_CHARS: usize = 120;

/// Returns true if a user name is more likely a token. An address needs no user name, so an error does little harm.
pub(super) fn is_token(user: &str) -> bool {
    has_token(user)
        || (user.len() >= 20 && user.bytes().any(|byte| byte.is_ascii_digit()))
        || user.len() >= 40
}

/// Returns true if a word in the text begins like a token.
pub(super) fn has_token(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    words.any(|word| word.len() >= 12 && kinds::tokens().any(|token| word.starts_with(token)))
}

/// Returns true if a text may reveal a secret: a user other than `git`, a query, or a word that looks like a token.
pub(super) fn may_hold_secret(text: &str) -> bool {
    let plain = percent_decode_str(text.trim()).decode_utf8_lossy();
    let user = plain
        .rsplit_once('@')
        .map(|(user, _)| user.split_once("://").map_or(user, |(_, user)| user));
    has_token(&plain) || plain.contains(['?', '#']) || user.is_some_and(|user| user != "git")
}

/// Returns the part of the text that an error may show, without user, query and token.
pub(super) fn shown(text: &str) -> String {
    let text = text.trim();
    let plain = percent_decode_str(text).decode_utf8_lossy();
    if text.is_empty() || has_token(&plain) {
        return "the text".to_owned();
    }
    let text = if plain.contains('@') { &plain } else { text };
    let (scheme, rest) = text
        .split_once("://")
        .map_or(("", text), |(scheme, rest)| (scheme, rest));
    let (user, rest) = match rest.rsplit_once('@') {
        Some(("git", rest)) => ("git@", rest),
        Some((_, rest)) => ("…@", rest),
        None => ("", rest),
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("`{}{user}{}`", shown_scheme(scheme), cut(rest))
}

fn shown_scheme(scheme: &str) -> String {
    let is_plain = scheme
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    match scheme {
        "" => String::new(),
        _ if is_plain && scheme.len() <= 20 => format!("{scheme}://"),
        _ => "…://".to_owned(),
    }
}

fn cut(text: &str) -> String {
    let short = text.chars().take(SHOWN_CHARS).map(|c| {
        if c.is_control() || c == '`' {
            '\u{fffd}'
        } else {
            c
        }
    });
    let rest = if text.chars().count() > SHOWN_CHARS {
        "…"
    } else {
        ""
    };
    short.chain(rest.chars()).collect()
}
