//! Asks a forge for selected refs.
//!
//! The need: a forge keeps two refs for every pull that ever existed, hundreds of thousands in an old repository. A
//! mirror needs only the open ones. Version 2 of git's protocol lets a client list prefixes of ref names, but
//! `git ls-remote` uses that only for branches and tags. So git's own HTTP helper carries a request from here
//! (gitremote-helpers, `stateless-connect`; gitprotocol-v2, `ls-refs`). Git still handles connection, proxy,
//! certificates and credentials.

use std::collections::BTreeSet;

use super::remote::Checked;
use super::{GitError, Mirror, RefSelection, advertise};
use crate::process::{Captured, Dialogue};

/// Maximum number of pulls to request one by one. Above it, a full list costs no more.
const MAX_PULLS: usize = 1_000;
/// Maximum size of a packet in git's protocol.
const MAX_PACKET: usize = 65_520;
/// Maximum number of lines in the forge's list of capabilities.
const MAX_CAPABILITIES: usize = 100;
const BROKEN: &str = "the answer of the forge does not follow the git protocol";

/// Packet of git's protocol.
#[derive(Debug, PartialEq, Eq)]
enum Packet {
    Data(Vec<u8>),
    /// Packet `0000`, the end of a list.
    Flush,
    /// Packets `0001`, `0002` and additions of later versions.
    Other,
}

impl Mirror {
    /// Returns the wanted refs in the form of `git ls-remote`, together with the few others that share a prefix.
    /// Returns `None` if the forge does not support this or if it would not save anything.
    pub(super) async fn ls_refs(
        &self,
        remote: &Checked<'_>,
        wanted: &RefSelection,
    ) -> Result<Option<Captured>, GitError> {
        if !(1..=MAX_PULLS).contains(&wanted.pulls.len()) {
            return Ok(None);
        }
        self.ask_forge(remote, &|format| request(wanted, format), listed)
            .await
    }

    /// Returns all tags with the objects that they lead to, and `HEAD`, in the form of `git ls-remote`. Returns `None` if
    /// the forge does not support this.
    pub(super) async fn ls_tags(&self, remote: &Checked<'_>) -> Result<Option<Captured>, GitError> {
        self.ask_forge(remote, &tag_request, listed_with_object)
            .await
    }

    async fn ask_forge(
        &self,
        remote: &Checked<'_>,
        request: RequestBuilder<'_>,
        listed: LineReader,
    ) -> Result<Option<Captured>, GitError> {
        let Some(helper) = remote.helper() else {
            return Ok(None);
        };
        let doing = self.listing();
        self.check_integrity(&doing)?;
        let cmd = self
            .git_to(remote)
            .args([helper, remote.url(), remote.url()]);
        let mut talk = cmd
            .dialogue()
            .map_err(|error| GitError::from_process(&doing, error))?;
        match list_refs(&mut talk, request, listed)
            .await
            .map_err(|error| GitError::from_process(&doing, error))?
        {
            LsRefsResult::Refs(list) => Ok(Some(list)),
            LsRefsResult::CannotBeAsked => Ok(None),
            LsRefsResult::Refused(message) => Err(GitError::other(doing, message)),
            LsRefsResult::BrokeOff => {
                let output = talk
                    .end()
                    .await
                    .map_err(|error| GitError::from_process(&doing, error))?;
                if output.is_success() {
                    return Err(GitError::Unreachable {
                        doing,
                        message: BROKEN.to_owned(),
                    });
                }
                Err(remote.failure(&doing, &output))
            }
        }
    }
}

/// Result of the request.
enum LsRefsResult {
    Refs(Captured),
    /// The forge speaks an older version of the protocol.
    CannotBeAsked,
    /// The forge refused; the text is its message.
    Refused(String),
    /// The helper ended with an error, or the answer does not follow the protocol.
    BrokeOff,
}

type DialogueResult<T> = Result<T, crate::process::ProcessError>;

/// Builds a request, given the format of ids if the forge names one.
type RequestBuilder<'a> = &'a (dyn Fn(Option<&[u8]>) -> Vec<u8> + Sync);

/// Converts a line of the answer to lines of `git ls-remote`.
type LineReader = fn(&[u8]) -> Vec<u8>;

async fn list_refs(
    talk: &mut Dialogue,
    request: RequestBuilder<'_>,
    listed: LineReader,
) -> DialogueResult<LsRefsResult> {
    talk.send(b"stateless-connect git-upload-pack\n").await?;
    match talk.line(100).await?.as_deref() {
        Some(b"") => {}
        Some(b"fallback") => return Ok(LsRefsResult::CannotBeAsked),
        Some(_) | None => return Ok(LsRefsResult::BrokeOff),
    }
    let mut format = None;
    for _ in 0..MAX_CAPABILITIES {
        match packet(talk).await? {
            Some(Packet::Data(line)) => {
                format = format.or_else(|| line.starts_with(b"object-format=").then_some(line));
            }
            Some(Packet::Flush) => {
                talk.send(&request(format.as_deref())).await?;
                return refs(talk, listed).await;
            }
            Some(Packet::Other) | None => return Ok(LsRefsResult::BrokeOff),
        }
    }
    Ok(LsRefsResult::BrokeOff)
}

/// Builds the request: `command=ls-refs`, the format of ids if the forge names one, and the prefixes of the names.
fn request(wanted: &RefSelection, format: Option<&[u8]>) -> Vec<u8> {
    let mut request = written(b"command=ls-refs\n");
    request.extend(format.map(written).unwrap_or_default());
    request.extend(b"0001");
    let pulls: BTreeSet<&str> = wanted.pulls.iter().map(super::RefName::as_str).collect();
    for prefix in wanted
        .branches
        .then_some("refs/heads/")
        .into_iter()
        .chain(pulls)
    {
        request.extend(written(format!("ref-prefix {prefix}\n").as_bytes()));
    }
    request.extend(b"0000");
    request
}

/// Builds the request for all tags with the objects that they lead to, and for the commit of the default branch.
fn tag_request(format: Option<&[u8]>) -> Vec<u8> {
    let mut request = written(b"command=ls-refs\n");
    request.extend(format.map(written).unwrap_or_default());
    request.extend(b"0001");
    for line in ["peel\n", "ref-prefix HEAD\n", "ref-prefix refs/tags/\n"] {
        request.extend(written(line.as_bytes()));
    }
    request.extend(b"0000");
    request
}

fn written(data: &[u8]) -> Vec<u8> {
    [format!("{:04x}", data.len() + 4).as_bytes(), data].concat()
}

async fn refs(talk: &mut Dialogue, listed: LineReader) -> DialogueResult<LsRefsResult> {
    let mut list = Captured::default();
    loop {
        let line = match packet(talk).await? {
            Some(Packet::Data(line)) => line,
            Some(Packet::Flush) => return Ok(LsRefsResult::Refs(list)),
            Some(Packet::Other) | None => return Ok(LsRefsResult::BrokeOff),
        };
        if let Some(message) = line.strip_prefix(b"ERR ") {
            return Ok(LsRefsResult::Refused(forge_message(message)));
        }
        list.bytes.extend(listed(&line));
        if list.bytes.len() > advertise::MAX_BYTES {
            return Ok(LsRefsResult::Refs(Captured {
                truncated: true,
                ..list
            }));
        }
    }
}

/// Converts `1234… refs/heads/main symref-target:…` to `1234…<tab>refs/heads/main`; a name contains no spaces.
fn listed(line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    let (id, name) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    [id, b"\t", name, b"\n"].concat()
}

/// Converts a line as [`listed`] does. `1234… refs/tags/v1 peeled:5678…` becomes two lines, the second one with the object
/// that the tag leads to: `5678…<tab>refs/tags/v1^{}`.
fn listed_with_object(line: &[u8]) -> Vec<u8> {
    let words = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = words.split(|byte| *byte == b' ').skip(1);
    let name = words.next().unwrap_or_default();
    let object = words.find_map(|word| word.strip_prefix(b"peeled:"));
    let mut lines = listed(line);
    if let Some(object) = object {
        lines.extend([object, b"\t", name, b"^{}\n"].concat());
    }
    lines
}

/// Formats a message of the forge: short, on one line.
fn forge_message(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let shown: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect();
    format!("the forge says: {shown}")
}

async fn packet(talk: &mut Dialogue) -> DialogueResult<Option<Packet>> {
    let Some(length) = talk.bytes(4).await? else {
        return Ok(None);
    };
    let is_hex = length.iter().all(u8::is_ascii_hexdigit);
    let length = std::str::from_utf8(&length)
        .ok()
        .and_then(|text| usize::from_str_radix(text, 16).ok());
    Ok(match length.filter(|_| is_hex) {
        Some(0) => Some(Packet::Flush),
        Some(1..=3) => Some(Packet::Other),
        Some(length) if length <= MAX_PACKET => talk.bytes(length - 4).await?.map(Packet::Data),
        Some(_) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::RefName;

    #[test]
    fn a_request_names_what_is_wanted() {
        let pulls = ["refs/pull/12/head", "refs/pull/3/head"]
            .map(|name| RefName::new(name).unwrap())
            .into();
        let text = |branches, format| {
            let wanted = RefSelection {
                branches,
                pulls: BTreeSet::clone(&pulls),
            };
            String::from_utf8(request(&wanted, format)).unwrap()
        };
        insta::assert_snapshot!(text(true, Some(&b"object-format=sha1\n"[..])), @r"
        0014command=ls-refs
        0017object-format=sha1
        0001001bref-prefix refs/heads/
        0021ref-prefix refs/pull/12/head
        0020ref-prefix refs/pull/3/head
        0000
        ");
        assert!(!text(false, None).contains("heads/\n"));
    }

    #[test]
    fn lines_become_those_of_a_list() {
        for (line, expected) in [
            (&b"ab refs/heads/main\n"[..], &b"ab\trefs/heads/main\n"[..]),
            (b"ab refs/x symref-target:refs/y peeled:cd", b"ab\trefs/x\n"),
            (b"unborn HEAD", b"unborn\tHEAD\n"),
            (b"", b"\t\n"),
        ] {
            assert_eq!(listed(line), expected);
        }
        assert_eq!(
            forge_message(b" no\nway\x1b[0m\n"),
            "the forge says: no way [0m"
        );
    }

    #[test]
    fn a_tag_is_listed_with_the_object_that_it_leads_to() {
        for (line, expected) in [
            (
                &b"ab refs/tags/v1 peeled:cd\n"[..],
                &b"ab\trefs/tags/v1\ncd\trefs/tags/v1^{}\n"[..],
            ),
            (b"ab refs/tags/v1", b"ab\trefs/tags/v1\n"),
            (b"ab HEAD symref-target:refs/heads/main", b"ab\tHEAD\n"),
        ] {
            assert_eq!(listed_with_object(line), expected);
        }
        insta::assert_snapshot!(String::from_utf8(tag_request(None)).unwrap(), @r"
        0014command=ls-refs
        00010009peel
        0014ref-prefix HEAD
        001aref-prefix refs/tags/
        0000
        ");
    }

    #[tokio::test]
    async fn packets_that_are_none_end_the_talk() {
        let packets = async |text: &str| {
            let cmd = crate::process::Cmd::new("printf")
                .env("PATH", "/usr/bin:/bin")
                .arg(text);
            let mut talk = cmd.dialogue().unwrap();
            let mut heard = Vec::new();
            while let Some(packet) = packet(&mut talk).await.unwrap() {
                heard.push(packet);
            }
            heard
        };
        let data = |text: &str| Packet::Data(text.as_bytes().to_vec());
        assert_eq!(
            packets("0006hi0005x0001").await,
            [data("hi"), data("x"), Packet::Other]
        );
        assert_eq!(packets("0004000000").await, [data(""), Packet::Flush]);
        for broken in ["<html>", "ffff", "fffff", "0009half", "+004"] {
            assert_eq!(packets(broken).await, [], "{broken}");
        }
    }
}
