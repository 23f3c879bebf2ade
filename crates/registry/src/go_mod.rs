//! The parts of a `go.mod` file that a registry needs: the path of the module, and the version of Go, which decides on the
//! files of a package.
//!
//! `golang.org/x/mod/modfile` is the reference, as it reads the file of a dependency: unknown lines are passed over.

/// Maximum number of bytes of a `go.mod` file that a registry takes.
///
/// `go` reads files of up to 16 MiB ([`MAX_GO_FILE`](crate::go_zip::MAX_GO_FILE)). But a registry keeps the file of each
/// version in full beside the package, and clients read it far more often. This is enough for 10,000 requirements of 100
/// bytes each, and twice as many as are kept of a file ([`MAX_REQUIRED`]).
pub const MAX_GO_MOD: u64 = 1 << 20;

/// Contents of a `go.mod` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoMod {
    /// Path of the `module` line.
    pub module: Option<String>,
    /// Language version of the `go` line, such as (1, 24). Some versions that Go reads have no meaning, and count as none.
    pub language: Option<(u64, u64)>,
}

/// A `go.mod` file that the `go` command cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the go.mod file has an error in line {line}")]
pub struct InvalidGoMod {
    /// Number of the first line with an error, counted from 1.
    pub line: usize,
}

/// Parses a `go.mod` file.
///
/// Versions of required modules have to look like versions. Whether they fit the paths is left to the `go` command.
pub fn parse_go_mod(content: &[u8]) -> Result<GoMod, InvalidGoMod> {
    let file = read(content)?;
    Ok(GoMod {
        module: file.module,
        language: file.language,
    })
}

/// Returns the modules that a `go.mod` file requires, directly or not, each with its version as it is written. Those
/// after the first [`MAX_REQUIRED`] are left out.
pub fn required_modules(content: &[u8]) -> Result<Vec<(String, String)>, InvalidGoMod> {
    read(content).map(|file| file.required)
}

/// Maximum number of required modules that are kept. The largest programs have some hundreds.
pub const MAX_REQUIRED: usize = 5_000;

fn read(content: &[u8]) -> Result<GoModReader, InvalidGoMod> {
    let text = String::from_utf8_lossy(content);
    let mut file = GoModReader::default();
    let mut last = 0;
    for (number, line) in text.split('\n').enumerate() {
        last = number + 1;
        file.add(line).ok_or(InvalidGoMod { line: last })?;
    }
    if file.block.is_some() {
        return Err(InvalidGoMod { line: last });
    }
    Ok(file)
}

/// Parts of the file that are read so far.
#[derive(Default)]
struct GoModReader {
    required: Vec<(String, String)>,
    module: Option<String>,
    has_go: bool,
    language: Option<(u64, u64)>,
    block: Option<OpenBlock>,
}

/// Block of lines in parentheses that has not ended.
enum OpenBlock {
    /// Lines with this word in front.
    Of(String),
    /// Lines that are passed over.
    Unknown,
}

impl GoModReader {
    /// Reads a line. `None` stands for an error of the file.
    fn add(&mut self, line: &str) -> Option<()> {
        let words = words_of(line)?;
        match (&self.block, words.as_slice()) {
            (Some(_), [")"]) => self.block = None,
            // Text after the end of a block is an error.
            (Some(_), [")", ..]) => return None,
            // An empty line, a line of an unknown block, or an empty block.
            (_, []) | (Some(OpenBlock::Unknown), _) | (None, [_, .., "(", ")"]) => {}
            (Some(OpenBlock::Of(verb)), arguments) => {
                let verb = verb.clone();
                self.directive(&verb, arguments)?;
            }
            (None, [verb, middle @ .., "("]) => {
                // A version of Go in a block is passed over, like all blocks that are not known.
                let is_read = middle.is_empty() && matches!(*verb, "module" | "require" | "ignore");
                self.block = Some(if is_read {
                    OpenBlock::Of((*verb).to_owned())
                } else {
                    OpenBlock::Unknown
                });
            }
            (None, [verb, arguments @ ..]) => self.directive(verb, arguments)?,
        }
        Some(())
    }

    fn directive(&mut self, verb: &str, arguments: &[&str]) -> Option<()> {
        match (verb, arguments) {
            ("go", [version]) if !self.has_go => {
                self.has_go = true;
                self.language = parse_version(version)?;
            }
            ("module", [path]) if self.module.is_none() => {
                self.module = Some(unquote(path)?.to_owned());
            }
            ("require", [path, version]) => {
                let (path, version) = (unquote(path)?, unquote(version)?);
                check_required(version)?;
                if self.required.len() < MAX_REQUIRED {
                    self.required.push((path.to_owned(), version.to_owned()));
                }
            }
            ("ignore", [path]) => {
                unquote(path)?;
            }
            ("go" | "module" | "require" | "ignore", _) => return None,
            _ => {}
        }
        Some(())
    }
}

/// Removes the quotation marks of a string. Escapes stay, as no path or version has them.
fn unquote(token: &str) -> Option<&str> {
    match token.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"'),
        None => (!token.contains(['"', '\'', '`'])).then_some(token),
    }
}

/// Checks that a version has the form `v1.2.3`. Its end can be missing, or be that of a prerelease or a build.
fn check_required(version: &str) -> Option<()> {
    let version = version.strip_prefix('v')?;
    let mut rest = version;
    for place in 0..3 {
        rest = number(rest)?.1;
        if place < 2 && rest.is_empty() {
            return Some(());
        }
        if place < 2 {
            rest = rest.strip_prefix('.')?;
        }
    }
    (rest.is_empty() || semver::Version::parse(version).is_ok()).then_some(())
}

/// Number of words of a line that are kept. No line with more of them has a meaning, except by its first and last words.
const MAX_WORDS: usize = 8;

/// Splits a line into words, strings and parentheses. `None` stands for a line that makes the file unreadable.
///
/// A line can have millions of words, so those in the middle are dropped.
fn words_of(line: &str) -> Option<Vec<&str>> {
    const PUNCTUATION: [char; 7] = ['(', ')', '[', ']', '{', '}', ','];
    let is_word = |c: char| {
        !c.is_whitespace() && !c.is_control() && c != '\u{feff}' && !PUNCTUATION.contains(&c)
    };
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches([' ', '\t', '\r']);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            break;
        }
        let end = if PUNCTUATION.contains(&first) {
            first.len_utf8()
        } else if matches!(first, '"' | '`') {
            string_end(rest, first)?
        } else {
            let is_end =
                |(place, c): &(usize, char)| !is_word(*c) || rest[*place..].starts_with("//");
            let end = rest.char_indices().find(is_end);
            end.map_or(rest.len(), |(place, _)| place)
        };
        let token = &rest[..end];
        // A comment of another kind begins at `/*`, but a string can have it.
        let is_string = matches!(first, '"' | '`');
        if token.is_empty() || (!is_string && token.contains("/*")) {
            return None;
        }
        if words.len() == MAX_WORDS {
            words.remove(MAX_WORDS / 2);
        }
        words.push(token);
        rest = rest[end..].trim_start_matches([' ', '\t', '\r']);
    }
    Some(words)
}

/// Returns the end of a string with its quotation marks.
fn string_end(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (place, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == quote {
            return Some(place + c.len_utf8());
        } else {
            escaped = c == '\\' && quote != '`';
        }
    }
    None
}

/// Parses the version of a `go` line. The outer `None` is an error of the file, the inner one a version without meaning.
#[expect(
    clippy::option_option,
    reason = "an error ends the reading, and a version without meaning does not"
)]
fn parse_version(text: &str) -> Option<Option<(u64, u64)>> {
    match number_and_dot(text).and_then(|(major, rest)| Some((major, number(rest)?))) {
        Some((major, (minor, rest))) if is_strict_end(rest) => {
            Some(is_meaningful_end(rest).then_some((major, minor)))
        }
        _ => {
            // Old files name versions such as `1.12.x`, which are read as dependencies only.
            let (major, rest) = number_and_dot(text.strip_prefix('v').unwrap_or(text))?;
            let (minor, rest) = number(rest)?;
            let is_lax_end = rest.starts_with(|c: char| !c.is_ascii_digit());
            is_lax_end.then_some(Some((major, minor)))
        }
    }
}

fn number_and_dot(text: &str) -> Option<(u64, &str)> {
    let (number, rest) = number(text)?;
    (number > 0).then_some((number, rest.strip_prefix('.')?))
}

/// Splits a number without leading zeros from the text after it. Numbers that nobody counts to are all the same.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let end = if text.starts_with('0') { 1 } else { digits };
    let (digits, rest) = text.split_at(end.min(digits));
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(u64::MAX), rest))
}

/// Returns true for the end of a version in a new file: a patch, a prerelease, or both.
fn is_strict_end(rest: &str) -> bool {
    let rest = match rest.strip_prefix('.').map(number) {
        Some(Some((_, rest))) => rest,
        Some(None) => return false,
        None => rest,
    };
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_empty() || (digits.len() < rest.len() && !digits.is_empty() && is_number)
}

/// Returns true unless a patch has a prerelease, or its number has leading zeros.
fn is_meaningful_end(rest: &str) -> bool {
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let is_patch = rest.starts_with('.');
    let number_end = number(digits.strip_prefix('.').unwrap_or(digits));
    let is_number = number_end.is_some_and(|(_, rest)| rest.is_empty());
    rest.is_empty() || is_number && (is_patch || digits.len() < rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn versions_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("1.24", Some((1, 24))),
            ("1.24.0", Some((1, 24))),
            ("1.24rc1", Some((1, 24))),
            ("1.24.1rc1", None),
            ("1.24rc01", None),
            ("1.24.x", Some((1, 24))),
            ("v1.24.0", Some((1, 24))),
            ("v1.24", None),
            ("1.024", None),
            ("1.24.01", Some((1, 24))),
            ("1", None),
            ("0.24", None),
            ("go1.24", None),
            ("1.24-custom", Some((1, 24))),
            ("99999999999999999999999.1", Some((u64::MAX, 1))),
            ("\"1.24\"", None),
        ] {
            let file = format!("module a\n\ngo {text} // new\n");
            let found = parse_go_mod(file.as_bytes()).ok();
            assert_eq!(found.and_then(|file| file.language), expected, "{text}");
        }
    }

    #[test]
    fn files_with_errors_have_no_version() {
        let go = |file: &str| parse_go_mod(file.as_bytes()).ok()?.language;
        for file in [
            "go 1.24",
            "// go 1.20\ngo 1.24//x\r\n",
            "require (\n\ta v1.0.0 // indirect\n\n\t// b\n)\ngo 1.24\n",
            "unknown ( x\nunknown (\n\tgo 1.1\n)\ngo 1.24\nretract [v1.0.0, v1.1.0]\n",
            "module ()\ngo 1.24\n",
            "go ( )\ngo 1.24\n",
            "module \"a/*b\"\ngo 1.24\n",
            "go 1.24\nrequire \"a\" v1\nrequire b v1.2.3-rc.1+incompatible\n",
            "replace a => ../b\ngo 1.24\nx \u{fffd}\n",
        ] {
            assert_eq!(go(file), Some((1, 24)), "{file}");
        }
        for file in [
            "",
            "go (\n\t1.24\n)\n",
            "go 1.24\ngo 1.24\n",
            "go 1.24 1.25\n",
            "go 1.24\nmodule a\nmodule b\n",
            "go 1.24\nrequire a\n",
            "go 1.24\nrequire a 1.0.0\n",
            "go 1.24\nrequire a v1.\n",
            "go 1.24\nrequire a v1.0.0.0\n",
            "go 1.24\nrequire a v1.0.0-\n",
            "go 1.24\nrequire a v1.0.0-a..b\n",
            "go 1.24\nrequire a v1.0.0-01\n",
            "go 1.24\nrequire a v1.0.0-é\n",
            "go 1.24\nrequire a v1.0.0+*\n",
            "go 1.24\nrequire `a` v1.0.0\n",
            "go 1.24\nrequire (\n\ta v1.0.0\n",
            "go 1.24\nrequire (\n\ta v1.0.0\n) x\n",
            "go 1.24 /* new */\n",
            "go 1.24\nmodule \"a\n",
            "go 1.24\nx \u{1}\n",
            "\u{feff}go 1.24\n",
        ] {
            assert_eq!(go(file), None, "{file}");
        }
    }

    #[test]
    fn the_path_of_the_module_is_read_and_lines_with_errors_are_named() {
        let module = |file: &str| parse_go_mod(file.as_bytes()).map(|file| file.module);
        let path = Some("example.com/m".to_owned());
        for file in [
            "module example.com/m\n",
            "// Deprecated: use n\nmodule \"example.com/m\" // m\r\n",
            "go 1.24\nmodule (\n\texample.com/m\n)\n",
        ] {
            assert_eq!(module(file), Ok(path.clone()), "{file}");
        }
        assert_eq!(module("go 1.24\n"), Ok(None));
        for (file, line) in [
            ("module a b\n", 1),
            ("module a\n\nmodule a\n", 3),
            ("module 'a'\n", 1),
            ("module `a`\n", 1),
            ("module a\nrequire (\n", 3),
            ("module a\nx \"\n", 2),
        ] {
            assert_eq!(module(file), Err(InvalidGoMod { line }), "{file}");
        }
    }

    #[test]
    fn a_line_of_many_words_takes_time_by_its_length() {
        // Comparing each word with the rest of its line would take minutes.
        let many = "a ".repeat(1 << 17);
        let file = format!("{many}\n{many} (\n{many}\n)\ngo 1.24\n");
        let found = parse_go_mod(file.as_bytes()).unwrap();
        assert_eq!(found.language, Some((1, 24)));
        assert!(parse_go_mod(format!("require {many}\n").as_bytes()).is_err());
        assert!(parse_go_mod(format!("{many} (\n) {many}\n").as_bytes()).is_err());
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn readers_take_any_bytes(
            lines in prop::collection::vec("(module|go|require|ignore|x|)[ \t]?(\\(|\\)|\"|`|a|1\\.2|v1\\.2|//|/\\*|\\PC|){0,4}", 0..6),
            bytes in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let text = lines.join("\n");
            if let Err(InvalidGoMod { line }) = parse_go_mod(text.as_bytes()) {
                prop_assert!((1..=lines.len()).contains(&line));
            }
            drop(parse_go_mod(&bytes));
        }
    }
    #[test]
    fn required_modules_are_those_of_lines_and_blocks() {
        let file = "module m.example\n\nrequire a.example/x v1.2.3 // indirect\nrequire (\n\t\"b.example\" v0.1.0\n\n\tc.example/v2 \
                    v2.0.0 // indirect\n)\nexclude d.example v1.0.0\nreplace a.example/x => ../x\n";
        let required = required_modules(file.as_bytes()).unwrap();
        let required: Vec<String> = required
            .iter()
            .map(|(path, version)| format!("{path} {version}"))
            .collect();
        assert_eq!(
            required,
            [
                "a.example/x v1.2.3",
                "b.example v0.1.0",
                "c.example/v2 v2.0.0"
            ]
        );
        assert!(required_modules(b"require a.example latest\n").is_err());
        let many = "require a.example v1.0.0\n".repeat(MAX_REQUIRED + 1);
        assert_eq!(
            required_modules(many.as_bytes()).unwrap().len(),
            MAX_REQUIRED
        );
    }
}
