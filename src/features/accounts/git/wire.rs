//! The part of git's protocol that a push needs: commands come in, the outcome of each goes out. Everything is in lines
//! with their length in front (`man gitprotocol-common`, `man gitprotocol-pack`).

use gix_hash::ObjectId;

/// Longest content of a line in bytes.
const MAX_LINE: usize = 65_516;
/// Maximum number of commands in a push.
const MAX_COMMANDS: usize = 1_000;
/// Capabilities of a push. Accepted refs always move together. With `atomic`, a refused one refuses all.
const CAPABILITIES: &str = "report-status delete-refs side-band-64k quiet atomic ofs-delta object-format=sha1 agent=lockkeeper";

/// Request to move a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCommand {
    pub name: String,
    /// Object that the client saw. `None`: the ref did not exist.
    pub old: Option<ObjectId>,
    /// Object that the ref shall point to. `None`: the ref shall go.
    pub new: Option<ObjectId>,
}

/// Commands of a push, and the pack behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest<'a> {
    pub commands: Vec<PushCommand>,
    /// True if the client wants either all refs moved or none.
    pub is_atomic: bool,
    /// True if the client shows lines for people.
    pub has_side_band: bool,
    /// True if the client wants to know the outcome of each command.
    pub wants_report: bool,
    pub pack: &'a [u8],
}

/// A push that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the push cannot be read: {0}")]
pub struct InvalidPush(&'static str);

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefOutcome {
    pub name: String,
    /// Short reason, printed after `[remote rejected]`.
    pub refused: Option<String>,
}

impl<'a> PushRequest<'a> {
    /// Reads the body of a push. A client may send an empty one first, to see if it may push at all.
    pub fn read(body: &'a [u8]) -> Result<Self, InvalidPush> {
        let mut rest = body;
        let mut request = Self {
            commands: Vec::new(),
            is_atomic: false,
            has_side_band: false,
            wants_report: false,
            pack: &[],
        };
        while let Some(line) = next_line(&mut rest)? {
            // A client whose history is cut off says where. The server has all of it.
            if line.starts_with(b"shallow ") {
                continue;
            }
            let (line, capabilities) = match line.iter().position(|byte| *byte == 0) {
                Some(end) => (&line[..end], &line[end + 1..]),
                None => (line, &[][..]),
            };
            for capability in capabilities.split(u8::is_ascii_whitespace) {
                match capability {
                    b"atomic" => request.is_atomic = true,
                    b"side-band-64k" => request.has_side_band = true,
                    b"report-status" => request.wants_report = true,
                    _ => {}
                }
            }
            request.commands.push(PushCommand::read(line)?);
            if request.commands.len() > MAX_COMMANDS {
                return Err(InvalidPush("it has too many refs"));
            }
        }
        request.pack = rest;
        Ok(request)
    }
}

impl PushCommand {
    /// Reads `<old> SP <new> SP <name>`.
    fn read(line: &[u8]) -> Result<Self, InvalidPush> {
        let line = std::str::from_utf8(line).map_err(|_| InvalidPush("a name is not UTF-8"))?;
        let mut parts = line.trim_end_matches('\n').splitn(3, ' ');
        let mut id = || {
            let id = parts
                .next()
                .and_then(|id| ObjectId::from_hex(id.as_bytes()).ok());
            let id = id.ok_or(InvalidPush("a line has no ids"))?;
            Ok(Some(id).filter(|id| !id.is_null()))
        };
        let (old, new) = (id()?, id()?);
        let name = parts.next().filter(|name| !name.is_empty());
        let name = name.ok_or(InvalidPush("a line has no ref"))?.to_owned();
        Ok(Self { name, old, new })
    }
}

/// Takes the next line. `None`: the end of a series of lines.
fn next_line<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, InvalidPush> {
    const HEADER: usize = 4;
    let cut_off = InvalidPush("it ends within a line");
    let header = rest.get(..HEADER).ok_or(cut_off)?;
    let header = std::str::from_utf8(header)
        .ok()
        .filter(|text| text.is_ascii());
    let length = header.and_then(|text| usize::from_str_radix(text, 16).ok());
    match length.ok_or(InvalidPush("a line has no length"))? {
        0 => {
            *rest = &rest[HEADER..];
            Ok(None)
        }
        length @ 4.. => {
            let line = rest.get(HEADER..length).ok_or(cut_off)?;
            *rest = &rest[length..];
            Ok(Some(line))
        }
        _ => Err(InvalidPush("a line has an impossible length")),
    }
}

/// Lists the refs for a client that pushes.
pub(super) fn push_advertisement(refs: &[(String, ObjectId)]) -> Vec<u8> {
    let mut out = Vec::new();
    line(&mut out, b"# service=git-receive-pack\n");
    flush(&mut out);
    let null = ObjectId::null(gix_hash::Kind::Sha1);
    let none = [("capabilities^{}".to_owned(), null)];
    let refs = if refs.is_empty() { &none[..] } else { refs };
    for (index, (name, id)) in refs.iter().enumerate() {
        let capabilities = match index {
            0 => format!("\0{CAPABILITIES}"),
            _ => String::new(),
        };
        line(&mut out, format!("{id} {name}{capabilities}\n").as_bytes());
    }
    flush(&mut out);
    out
}

/// Puts the header of a service in front of what git has listed.
pub(super) fn fetch_advertisement(listed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    line(&mut out, b"# service=git-upload-pack\n");
    flush(&mut out);
    out.extend_from_slice(listed);
    out
}

/// Writes the answer to a push: lines that git prints after `remote: `, then the outcome of the pack (`ok`, or what failed),
/// then that of each command.
pub(super) fn push_report(
    request: &PushRequest<'_>,
    unpack: &str,
    lines: &[String],
    outcomes: &[RefOutcome],
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut report = Vec::new();
    if request.wants_report {
        line(&mut report, format!("unpack {unpack}\n").as_bytes());
        for RefOutcome { name, refused } in outcomes {
            let text = match refused {
                None => format!("ok {name}\n"),
                Some(reason) => format!("ng {name} {}\n", reason.replace('\n', " ")),
            };
            line(&mut report, text.as_bytes());
        }
        flush(&mut report);
    }
    if !request.has_side_band {
        return report;
    }
    for text in lines {
        band(&mut out, 2, format!("{text}\n").as_bytes());
    }
    band(&mut out, 1, &report);
    flush(&mut out);
    out
}

fn band(out: &mut Vec<u8>, band: u8, bytes: &[u8]) {
    for part in bytes.chunks(MAX_LINE - 1) {
        line(out, &[&[band], part].concat());
    }
}

fn line(out: &mut Vec<u8>, content: &[u8]) {
    let content = &content[..content.len().min(MAX_LINE)];
    out.extend_from_slice(format!("{:04x}", content.len() + 4).as_bytes());
    out.extend_from_slice(content);
}

fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const NULL: &str = "0000000000000000000000000000000000000000";

    fn body(lines: &[&str], pack: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for text in lines {
            line(&mut out, text.as_bytes());
        }
        flush(&mut out);
        out.extend_from_slice(pack);
        out
    }

    #[test]
    fn a_push_is_read_with_its_capabilities_and_its_pack() {
        let first = format!("{A} {NULL} refs/users/self\0 report-status side-band-64k atomic");
        let second = format!("{NULL} {A} refs/x y\n");
        let body = body(&[&first, &second], b"PACK");
        let request = PushRequest::read(&body).unwrap();
        let id = ObjectId::from_hex(A.as_bytes()).unwrap();
        assert_eq!(
            request.commands,
            [
                PushCommand {
                    name: "refs/users/self".to_owned(),
                    old: Some(id),
                    new: None
                },
                PushCommand {
                    name: "refs/x y".to_owned(),
                    old: None,
                    new: Some(id)
                },
            ]
        );
        assert!(request.is_atomic && request.has_side_band && request.wants_report);
        assert_eq!(request.pack, b"PACK");
        assert_eq!(PushRequest::read(b"0000").unwrap().commands, []);
    }

    #[test]
    fn what_is_no_push_is_refused() {
        for body in [
            &b""[..],
            b"00",
            b"0001",
            b"0003",
            b"xxxx",
            b"+004",
            b"0010",
            b"0009hello0000",
            &body(&[&format!("{A} {A} ")], b""),
            &body(&[&format!("{A}  refs/x")], b""),
        ] {
            assert!(PushRequest::read(body).is_err(), "{body:?}");
        }
        let many = vec![format!("{A} {A} refs/x"); MAX_COMMANDS + 1];
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = PushRequest::read(&body(&many, b"")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the push cannot be read: it has too many refs"
        );
    }

    #[test]
    fn a_report_has_lines_for_people_and_one_outcome_for_each_ref() {
        let body = body(
            &[&format!("{A} {A} refs/x\0report-status side-band-64k")],
            b"",
        );
        let request = PushRequest::read(&body).unwrap();
        let outcomes = [RefOutcome {
            name: "refs/x".to_owned(),
            refused: Some("prohibited\nng refs/y".to_owned()),
        }];
        let lines = ["error: wrong".to_owned()];
        let report = push_report(&request, "ok", &lines, &outcomes);
        assert_eq!(
            String::from_utf8(report).unwrap(),
            "0012\u{2}error: wrong\n003a\u{1}000eunpack ok\n0023ng refs/x prohibited ng refs/y\n00000000"
        );
        let report = push_report(&request, "index-pack failed", &[], &outcomes);
        assert!(
            String::from_utf8(report)
                .unwrap()
                .contains("unpack index-pack failed\n")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop(PushRequest::read(&bytes));
        }
    }
}
