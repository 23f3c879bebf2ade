//! Quotes words of commands so that people can copy them, and text of other people so that it stays text.

/// Returns true if a character is invisible. A comment that is read as a command may not have one, because nobody
/// would see the meaning.
pub fn is_hidden(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    invisible || (c.is_control() && c != '\t')
}

/// Quotes a word so that a shell, or a reader of comments, returns the same word.
pub fn quote(word: &str) -> String {
    // The only error is NUL, which is allowed here.
    shlex::Quoter::new()
        .allow_nul(true)
        .quote(word)
        .map_or_else(|_| word.to_owned(), Into::into)
}

/// Formats text of other people as code in a sentence. No backtick of the text ends the code.
///
/// A blank line or a lone carriage return ends it as well. So the text can neither end the code nor mention anybody only
/// if the sentence is then escaped, with `render::escape::prose` or `cell`. Templates do that with every sentence.
pub fn code_span(text: &str) -> String {
    format!("`{}`", without_backticks(text))
}

/// Replaces the backticks in text of other people with apostrophes, because pairs of them mark code.
pub fn without_backticks(text: &str) -> String {
    text.replace('`', "'")
}

/// Characters that make a directory a pattern.
pub const PATTERN: [char; 3] = ['*', '?', '['];

/// Returns a directory as a comment names it, with a backslash before each character that would make it a pattern.
pub fn literal_dir(dir: &str) -> String {
    if !dir.contains(PATTERN) {
        return dir.to_owned();
    }
    let mut text = String::new();
    for c in dir.chars() {
        if c == '\\' || PATTERN.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Reads a directory that [`literal_dir`] wrote. Returns `None` for a pattern.
pub fn read_literal_dir(text: &str) -> Option<String> {
    if !text.contains(PATTERN) {
        return Some(text.to_owned());
    }
    let (mut dir, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => dir.push(chars.next()?),
            c if PATTERN.contains(&c) => return None,
            c => dir.push(c),
        }
    }
    Some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_backtick_of_other_people_ends_the_code() {
        assert_eq!(code_span("net"), "`net`");
        assert_eq!(code_span("a` @ops `b"), "`a' @ops 'b`");
        assert_eq!(code_span(""), "``");
    }
}
