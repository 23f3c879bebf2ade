//! Keys that identify a host: lines of a `known_hosts` file (sshd(8), "`SSH_KNOWN_HOSTS` FILE FORMAT").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::model::HostName;

/// Maximum number of lines. A host has only a few keys.
const MOST_LINES: usize = 64;
const LONGEST: usize = 64 * 1024;

/// Reason to refuse the lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKnownHosts {
    /// One line has a fault.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// Description of the fault.
        fault: &'static str,
    },
    /// No line names the host.
    #[error(
        "no line has a key of `{0}`, so the identity of that host cannot be checked. `ssh-keyscan HOST` prints the \
         lines; compare them with the keys that the host publishes"
    )]
    OtherHost(String),
    /// The text has too many lines or bytes.
    #[error("there are more than {MOST_LINES} lines or {LONGEST} bytes")]
    Long,
}

/// Checks that a line names the host, and that every line has a form that can be checked.
pub(super) fn check(text: &str, host: &HostName, port: u16) -> Result<(), InvalidKnownHosts> {
    if text.len() > LONGEST || text.lines().count() > MOST_LINES {
        return Err(InvalidKnownHosts::Long);
    }
    let wanted = pattern(host, port);
    let mut is_known = false;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let names = check_line(text).map_err(|fault| InvalidKnownHosts::Line { line, fault })?;
        is_known |= names
            .split(',')
            .any(|name| name.eq_ignore_ascii_case(&wanted));
    }
    if is_known {
        Ok(())
    } else {
        Err(InvalidKnownHosts::OtherHost(wanted))
    }
}

/// Checks a line and returns its names.
fn check_line(line: &str) -> Result<&str, &'static str> {
    if line.starts_with('@') {
        return Err("lines that begin with a marker such as @cert-authority are not supported");
    }
    let mut words = line.split_ascii_whitespace();
    let (Some(names), Some(algorithm), Some(key)) = (words.next(), words.next(), words.next())
    else {
        return Err("expected the name of the host, the kind of its key and the key");
    };
    if names.starts_with('|') {
        return Err("the name of the host is hashed. Write it in plain text");
    }
    if names.contains(['*', '?', '!']) {
        return Err("patterns are not supported. Write the full name of the host");
    }
    if line.chars().any(char::is_control) {
        return Err("it contains a control character");
    }
    let algorithm_fits = algorithm.starts_with("ssh-") || algorithm.starts_with("ecdsa-");
    let says_so = STANDARD
        .decode(key)
        .ok()
        .and_then(|key| Some(key.get(4..)?.starts_with(algorithm.as_bytes())));
    if !algorithm_fits || says_so != Some(true) {
        return Err("the key of the host is damaged");
    }
    Ok(names)
}

/// Returns the name by which OpenSSH looks up a host.
fn pattern(host: &HostName, port: u16) -> String {
    // The port of the web server is not the port of SSH.
    let name = host.name();
    let name = name.trim_matches(['[', ']']);
    if port == super::SSH_PORT {
        name.to_owned()
    } else {
        format!("[{name}]:{port}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a line with a key of the right form.
    pub fn line(names: &str) -> String {
        let key = [
            &[0, 0, 0, 11],
            b"ssh-ed25519".as_slice(),
            &[0, 0, 0, 32],
            &[9; 32],
        ]
        .concat();
        format!("{names} ssh-ed25519 {} a comment\n", STANDARD.encode(key))
    }

    fn told(text: &str, host: &str, port: u16) -> Result<(), String> {
        check(text, &HostName::new(host).unwrap(), port).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_has_to_be_about_the_host_and_its_port() {
        let both = format!(
            "# keys of our host\n\n{}{}",
            line("git.example,10.0.0.1"),
            line("[git.example]:2222")
        );
        for (host, port, known) in [
            ("git.example", 22, true),
            ("Git.Example", 22, true),
            ("git.example:8443", 22, true),
            ("git.example", 2222, true),
            ("git.example", 2223, false),
            ("example", 22, false),
            ("git.example.evil", 22, false),
        ] {
            assert_eq!(told(&both, host, port).is_ok(), known, "{host} {port}");
        }
        insta::assert_snapshot!(told(&both, "git.example", 2223).unwrap_err(), @"no line has a key of `[git.example]:2223`, so the identity of that host cannot be checked. `ssh-keyscan HOST` prints the lines; compare them with the keys that the host publishes");
    }

    #[test]
    fn lines_that_cannot_be_checked_are_refused_with_their_number() {
        let good = line("github.com");
        for (bad, expected) in [
            (
                "@cert-authority * ssh-ed25519 AAAA",
                "line 2: lines that begin with a marker",
            ),
            (
                "github.com ssh-ed25519",
                "line 2: expected the name of the host",
            ),
            (
                "|1|abc|def ssh-ed25519 AAAA",
                "line 2: the name of the host is hashed",
            ),
            (
                "*.com ssh-ed25519 AAAA",
                "line 2: patterns are not supported",
            ),
            (
                "github.com ssh-ed25519 AAAA",
                "line 2: the key of the host is damaged",
            ),
            (
                &line("github.com").replace("ssh-ed25519", "ssh-rsa"),
                "line 2: the key of the host is damaged",
            ),
            (
                &line("github.com\u{7}"),
                "line 2: it contains a control character",
            ),
        ] {
            let error = told(&format!("{good}{bad}"), "github.com", 22).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(told(&good.repeat(65), "github.com", 22).is_err());
    }
}
