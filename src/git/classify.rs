//! Classifies the error messages of git. Git has no exit codes for these failures, so its English sentences are
//! matched; the environment selects English.

/// Kind of a git failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    AuthFailed,
    NotFound,
    Unreachable,
    Corrupt,
    Fsck,
    Other,
}

/// Maximum length of a message line, in characters.
const MAX_LINE: usize = 300;

pub(super) fn classify(stderr: &str) -> Class {
    match stderr {
        text if is_fsck(text) => Class::Fsck,
        text if is_auth_failure(text) => Class::AuthFailed,
        text if is_not_found(text) => Class::NotFound,
        text if is_corrupt(text) => Class::Corrupt,
        text if is_unreachable(text) => Class::Unreachable,
        _ => Class::Other,
    }
}

fn has_any(stderr: &str, phrases: &[&str]) -> bool {
    stderr
        .lines()
        .any(|line| phrases.iter().any(|phrase| line.contains(phrase)))
}

/// Matches `fatal: Authentication failed for 'https://…'`,
/// `fatal: could not read Username for 'https://…': terminal prompts disabled`,
/// `fatal: unable to access 'https://…': The requested URL returned error: 403` and, by SSH,
/// `git@github.com: Permission denied (publickey).`
fn is_auth_failure(stderr: &str) -> bool {
    has_any(
        stderr,
        &[
            "fatal: Authentication failed for",
            "fatal: could not read Username for",
            "fatal: could not read Password for",
            "The requested URL returned error: 401",
            "The requested URL returned error: 403",
            ": Permission denied (publickey",
        ],
    )
}

/// Matches `fatal: repository 'https://…/' not found`, `fatal: couldn't find remote ref refs/heads/x`,
/// `fatal: remote error: upload-pack: not our ref 1234…`, `fatal: Not a valid object name 1234…`,
/// `fatal: '/srv/x.git' does not appear to be a git repository` (with `file:`) and, by SSH,
/// `ERROR: Repository not found.` or `remote: ERROR: The project you were looking for could not be found …`.
fn is_not_found(stderr: &str) -> bool {
    let repository =
        |line: &str| line.starts_with("fatal: repository '") && line.ends_with("' not found");
    stderr.lines().any(repository)
        || missing_ref(stderr).is_some()
        || is_refused_commit(stderr)
        || has_any(
            stderr,
            &[
                "fatal: Not a valid object name",
                "fatal: not a tree object",
                "does not appear to be a git",
                "ERROR: Repository not found",
                "ERROR: The project you were looking for could not be found",
            ],
        )
}

/// Extracts the ref of `fatal: couldn't find remote ref refs/heads/x`.
pub(super) fn missing_ref(stderr: &str) -> Option<&str> {
    stderr
        .lines()
        .find_map(|line| line.strip_prefix("fatal: couldn't find remote ref "))
}

/// Matches `fatal: remote error: upload-pack: not our ref 1234…` and, from servers that offer only tips,
/// `error: Server does not allow request for unadvertised object 1234…`.
pub(super) fn is_refused_commit(stderr: &str) -> bool {
    has_any(
        stderr,
        &[
            "not our ref",
            "does not allow request for unadvertised object",
        ],
    )
}

/// Matches `error: object 1234…: hasDotgit: contains '.git'`, then `fatal: fsck error in packed object` (of
/// `index-pack` and of `unpack-objects`).
pub(super) fn is_fsck(stderr: &str) -> bool {
    has_any(stderr, &["fatal: fsck error in "])
}

/// Matches `fatal: unable to access 'https://…': The requested URL returned error: 301`, which git writes where it
/// does not follow redirects.
pub(super) fn is_redirect(stderr: &str) -> bool {
    has_any(stderr, &["The requested URL returned error: 30"])
}

/// Matches `error: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create
/// 'refs/heads/a/b'`: a new branch replaced one whose name lies below or above its own. Git also reports ` ! [new
/// branch] … (unable to update local ref)`.
pub(super) fn is_name_in_the_way(stderr: &str) -> bool {
    has_any(
        stderr,
        &[
            "exists; cannot create 'refs/",
            "there are still refs under 'refs/",
            "directory/file conflict",
        ],
    ) || has_any(stderr, &["(unable to update local ref)"])
}

/// Extracts the path of a lock file that a killed git left behind. Reads
/// `fatal: Unable to create '/…/shallow.lock': File exists.` and
/// `error: cannot lock ref '…': Unable to create '…/x.lock': File exists.`
pub(super) fn stale_lock(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.split_once("Unable to create '")?;
    rest.split_once(".lock': File exists")
        .map(|(path, _)| &rest[..path.len() + ".lock".len()])
}

/// Matches `error: object file objects/12/34… is empty`, `fatal: loose object 1234… (stored in …) is corrupt`,
/// `fatal: bad object 1234…`, `error: packfile … does not match index`, `fatal: not a git repository: '/…'`,
/// `fatal: unable to read tree 1234…`, `error: inflate: data stream error`, `fatal: bad config line 1 in file …`,
/// `fatal: unexpected line in …/packed-refs: …`,
/// `fatal: cannot lock ref '…': unable to resolve reference '…': reference broken`,
/// `fatal: missing object 1234… for refs/heads/…`, `missing blob 1234…`, `broken link from    tree 1234…`,
/// `error: refs/heads/x: invalid sha1 pointer …`.
fn is_corrupt(stderr: &str) -> bool {
    has_any(
        stderr,
        &[
            "error: object file ",
            "fatal: loose object ",
            "is corrupt",
            "fatal: bad object ",
            "error: packfile ",
            "error: refs/heads/ does not point to a valid object",
            "fatal: not a git repository",
            "unable to read tree",
            "unable to read sha1 file",
            "error: inflate: ",
            "fatal: bad config line ",
            "did not send all necessary objects",
            "fatal: unexpected line in ",
            ": reference broken",
            "warning: ignoring broken ref ",
            "fatal: missing object ",
            "fatal: missing blob object ",
            ": invalid sha1 pointer ",
        ],
    )
}

/// Matches `fatal: unable to access 'https://…': Could not resolve host: …`, `…: Failed to connect to … port 443: …`,
/// `error: RPC failed; curl 18 …`, `fatal: early EOF`, `The requested URL returned error: 502` and, by SSH,
/// `ssh: connect to host … port 22: Connection refused`, `ssh: Could not resolve hostname …`,
/// `Connection closed by 10.0.0.1 port 22`, `kex_exchange_identification: …`.
fn is_unreachable(stderr: &str) -> bool {
    stderr.lines().any(is_broken_line_of_ssh)
        || has_any(
            stderr,
            &[
                "fatal: unable to access '",
                "error: RPC failed",
                "fatal: early EOF",
                "the remote end hung up unexpectedly",
                "fatal: expected flush after ref listing",
                "fatal: fetch-pack: invalid index-pack output",
            ],
        )
}

fn is_broken_line_of_ssh(line: &str) -> bool {
    const BEGINNINGS: [&str; 8] = [
        "ssh: connect to host ",
        "ssh: Could not resolve hostname ",
        "Connection closed by ",
        "Connection reset by ",
        "Connection timed out during banner exchange",
        "Connection to ",
        "Timeout, server ",
        "kex_exchange_identification: ",
    ];
    BEGINNINGS
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

/// Matches the SSH failure for a host whose key differs from its known key, or that has no known key.
fn is_unknown_host(stderr: &str) -> bool {
    has_any(stderr, &["Host key verification failed."])
}

/// Matches lines of ssh that contain the reason behind [`NO_REASON`].
fn is_reason_of_ssh(line: &str) -> bool {
    is_broken_line_of_ssh(line)
        || ["Host key verification failed", "ERROR: "]
            .iter()
            .any(|beginning| line.starts_with(beginning))
        || line.contains(": Permission denied (")
        || line.ends_with("and you have requested strict checking.")
}

/// Message of git when ssh ended, for any reason.
const NO_REASON: &str = "fatal: Could not read from remote repository.";
const UNKNOWN_HOST: &str = "The key of the host does not match the SSH credential. If the host has a new key, compare \
    the output of `ssh-keyscan` with the keys that the host publishes, and replace the known hosts by these lines: add \
    the credential again, or write them into the file of the setting.";

/// Returns the important lines for display: at most three, and a hint that helps to fix the problem.
pub(super) fn message(stderr: &str, code: Option<i32>, secret: Option<&str>) -> String {
    let of_git = |line: &str| {
        ["fatal: ", "error: ", "remote: "]
            .iter()
            .any(|prefix| line.starts_with(prefix))
    };
    let has_reason = stderr.lines().any(is_reason_of_ssh);
    let shown =
        |line: &&str| is_reason_of_ssh(line) || of_git(line) && !(has_reason && *line == NO_REASON);
    let important: Vec<&str> = stderr.lines().filter(shown).take(3).collect();
    let mut lines = if important.is_empty() {
        stderr.lines().take(3).collect()
    } else {
        important
    };
    lines.extend(is_unknown_host(stderr).then_some(UNKNOWN_HOST));
    let lines: Vec<String> = lines
        .into_iter()
        .map(|line| clean(line, secret))
        .filter(|l| !l.is_empty())
        .collect();
    if lines.is_empty() {
        let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        return format!("git ended with {code} and without a message");
    }
    lines.join("\n")
}

fn clean(line: &str, secret: Option<&str>) -> String {
    let line = match secret.filter(|secret| !secret.is_empty()) {
        Some(secret) => line.replace(secret, "…"),
        None => line.to_owned(),
    };
    without_userinfo(&line)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_LINE)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Replaces credentials in URLs: `https://user:password@host/` becomes `https://…@host/`.
fn without_userinfo(line: &str) -> String {
    let mut parts = line.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str("://");
        let end = part.find(['/', '\'', '"', ' ']).unwrap_or(part.len());
        match part[..end].rfind('@') {
            Some(at) => clean.extend(["…", &part[at..]]),
            None => clean.push_str(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let cases = [
            (
                "fatal: Authentication failed for 'https://h/a/b.git/'",
                Class::AuthFailed,
            ),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Class::AuthFailed,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 403",
                Class::AuthFailed,
            ),
            (
                "remote: Repository not found.\nfatal: repository 'https://h/a/b.git/' not found",
                Class::NotFound,
            ),
            (
                "fatal: couldn't find remote ref refs/heads/x",
                Class::NotFound,
            ),
            (
                "fatal: remote error: upload-pack: not our ref 0123",
                Class::NotFound,
            ),
            (
                "fatal: unable to access 'https://h/': Could not resolve host: h",
                Class::Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 502",
                Class::Unreachable,
            ),
            (
                "error: RPC failed; curl 18 transfer closed\nfatal: early EOF",
                Class::Unreachable,
            ),
            (
                "error: object file objects/12/34 is empty\nfatal: loose object 12 is corrupt",
                Class::Corrupt,
            ),
            ("fatal: not a git repository: '/data/x.git'", Class::Corrupt),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                Class::AuthFailed,
            ),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                Class::NotFound,
            ),
            (
                "ssh: connect to host h port 22: Connection refused\nfatal: Could not read from …",
                Class::Unreachable,
            ),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                Class::Other,
            ),
            (
                "error: object 12: hasDotgit: contains '.git'\nfatal: fsck error in packed object\n\
                 fatal: fetch-pack: invalid index-pack output",
                Class::Fsck,
            ),
            ("fatal: something new", Class::Other),
        ];
        for (stderr, class) in cases {
            assert_eq!(classify(stderr), class, "{stderr}");
        }
    }

    #[test]
    fn a_stale_lock_is_named() {
        let stderr = "fatal: Unable to create '/d/x.git/packed-refs.lock': File exists.\n\nAnother git process …";
        assert_eq!(stale_lock(stderr), Some("/d/x.git/packed-refs.lock"));
        assert_eq!(
            stale_lock("fatal: Unable to create '/d/x.git/index': Permission denied"),
            None
        );
    }

    #[test]
    fn messages_are_short_and_carry_no_credentials() {
        let stderr = "Cloning…\nremote: hello \u{1b}[31mhunter2\nfatal: no 'https://me:hunter3@h/x@y'\nerror: 3\nerror: 4";
        insta::assert_snapshot!(message(stderr, Some(128), Some("hunter2")), @"
        remote: hello [31m…
        fatal: no 'https://…@h/x@y'
        error: 3
        ");
        let stderr = "@@@\nHost key for h has changed and you have requested strict checking.\nHost key verification failed.\n\
                      fatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights";
        insta::assert_snapshot!(message(stderr, Some(128), None), @"
        Host key for h has changed and you have requested strict checking.
        Host key verification failed.
        The key of the host does not match the SSH credential. If the host has a new key, compare the output of `ssh-keyscan` with the keys that the host publishes, and replace the known hosts by these lines: add the credential again, or write them into the file of the setting.
        ");
        insta::assert_snapshot!(message("", Some(1), None), @"git ended with exit code 1 and without a message");
    }
}
