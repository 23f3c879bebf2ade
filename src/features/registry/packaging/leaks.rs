//! Finds tokens of registries in the files of a package.
//!
//! A file such as `token`, which a pipeline keeps beside its module, would be readable for good by everyone who may read the
//! version.

use std::io::{self, Read};
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::features::registry::tokens::{TOKEN_BEGINNING, TOKEN_LENGTH, is_token};

/// Places at which a token can begin.
static BEGINNING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(TOKEN_BEGINNING).expect("the pattern is valid"));

/// Reader of a file that looks for a token in everything that it reads.
pub(super) struct LeakReader<'a> {
    content: &'a mut dyn Read,
    /// Last bytes that were read. A token may begin among them.
    kept: Vec<u8>,
    found: bool,
}

impl<'a> LeakReader<'a> {
    pub fn new(content: &'a mut dyn Read) -> Self {
        Self {
            content,
            kept: Vec::new(),
            found: false,
        }
    }

    /// Reads the rest of the file. Returns true if the file has a token.
    pub fn finish(mut self) -> io::Result<bool> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.found || has_token(&self.kept, self.kept.len()))
    }
}

impl Read for LeakReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        if !self.found {
            self.kept.extend_from_slice(&buffer[..count]);
            // The byte behind a token decides as well, so the last places wait for more bytes.
            let decided = self.kept.len().saturating_sub(TOKEN_LENGTH);
            self.found = has_token(&self.kept, decided);
            self.kept.drain(..decided);
        }
        Ok(count)
    }
}

/// Returns true if a token begins at one of the first places.
fn has_token(bytes: &[u8], places: usize) -> bool {
    let starts = BEGINNING.find_iter(bytes).map(|found| found.start());
    let mut starts = starts.take_while(|start| *start < places);
    starts.any(|start| {
        let Some((text, rest)) = bytes[start..].split_at_checked(TOKEN_LENGTH) else {
            return false;
        };
        let is_longer = rest
            .first()
            .is_some_and(|next| next.is_ascii_alphanumeric() || matches!(next, b'-' | b'_'));
        !is_longer && is_token(text)
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn token() -> String {
        let random: [u8; 32] = std::array::from_fn(|at| u8::try_from(37 * at % 251).unwrap());
        format!("{TOKEN_BEGINNING}{}", URL_SAFE_NO_PAD.encode(random))
    }

    fn is_found(text: &str) -> bool {
        let mut content = text.as_bytes();
        LeakReader::new(&mut content).finish().unwrap()
    }

    #[test]
    fn a_token_is_found_anywhere_in_a_file() {
        let token = token();
        for text in [
            token.clone(),
            format!("{token}\n"),
            format!("{{\"token\": \"{token}\"}}"),
            format!("{}TOKEN={token} {}", "x".repeat(20_000), "y".repeat(20_000)),
            format!("lkr_lkr_ {token}"),
        ] {
            assert!(is_found(&text), "{text}");
        }
    }

    #[test]
    fn a_token_is_found_across_all_pieces() {
        let text = format!("first line\n{}\nlast line\n", token());
        let text = text.as_bytes();
        for split in 0..=text.len() {
            let (start, end) = text.split_at(split);
            let mut content = start.chain(end);
            let mut reader = LeakReader::new(&mut content);
            // A part of the file is read for another purpose.
            let mut head = Vec::new();
            reader.by_ref().take(20).read_to_end(&mut head).unwrap();
            assert_eq!(head, text[..20]);
            assert!(reader.finish().unwrap(), "{split}");
        }
    }

    #[test]
    fn other_words_with_the_same_beginning_are_no_tokens() {
        let token = token();
        for text in [
            String::new(),
            "lkr_…".to_owned(),
            "lkr_wrong".to_owned(),
            token[..token.len() - 1].to_owned(),
            format!("{token}x"),
            format!("{token}-"),
            token.to_ascii_lowercase(),
            format!("lkr_{}", "x".repeat(43)),
            format!("lkr_{}", "A".repeat(43)),
            // As long as a token.
            "lkr_a_function_with_long_names_in_two_libraries".to_owned(),
        ] {
            assert!(!is_found(&text), "{text}");
        }
    }
}
