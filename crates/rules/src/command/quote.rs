//! Shows typed text inside Markdown without letting it act: it mentions nobody, does not end the code block that
//! contains it, and hides nothing.

use std::ops::Range;

use crate::model::is_hidden;

/// Maximum length of a quotation within a sentence, in characters.
const MAX_CODE: usize = 80;
/// Maximum length of a line that is shown for copying, in characters.
const MAX_COPY: usize = 1000;
/// Maximum length of a line that is shown with a caret, in characters.
const MAX_LINE: usize = 100;
/// Maximum number of places that get carets; one is enough to find the rest.
const MAX_PLACES: usize = 20;
/// Number of characters of a long line to show before the first marked place.
const LEAD: usize = 30;

/// Returns the visible form of a character: hidden ones by number, and `@` followed by a zero-width space so that no
/// forge sees a mention. The reader of comments removes that space again, so that people can copy a shown line.
fn visible(c: char) -> String {
    match c {
        '@' => MUTED_AT.to_owned(),
        '\t' => " ".to_owned(),
        c if is_hidden(c) => format!("\\u{{{:x}}}", u32::from(c)),
        c => c.to_string(),
    }
}

/// An `@` that mentions nobody.
pub(super) const MUTED_AT: &str = "@\u{200b}";

/// Returns the number of columns that the shown form of a character takes.
fn columns(shown: &str) -> usize {
    if shown == MUTED_AT {
        1
    } else {
        shown.chars().count()
    }
}

/// Returns the text as inline code, cut to a length that keeps a sentence readable.
pub(super) fn code(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_CODE).map(visible).collect();
    if text.chars().nth(MAX_CODE).is_some() {
        shown.push('…');
    }
    if shown.trim().is_empty() {
        return format!("an empty text (`'{shown}'`)");
    }
    let ticks = "`".repeat(longest_run(&shown) + 1);
    let pad = if shown.starts_with(['`', ' ']) || shown.ends_with(['`', ' ']) {
        " "
    } else {
        ""
    };
    format!("{ticks}{pad}{shown}{pad}{ticks}")
}

/// Returns a code block around text that is already safe to show.
pub(super) fn fence(text: &str) -> String {
    let ticks = "`".repeat((longest_run(text) + 1).max(3));
    format!("{ticks}text\n{}\n{ticks}", text.trim_end())
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Returns the whole line in a code block for copying; `None` if the line is too long for that.
pub(super) fn copyable(line: &str) -> Option<String> {
    let short = line.chars().nth(MAX_COPY).is_none();
    short.then(|| fence(&line.chars().map(visible).collect::<String>()))
}

/// Returns the line in a code block with carets under the places. A long line is cut around the first place.
pub(super) fn pointed(line: &str, places: &[Range<usize>]) -> String {
    let places = &places[..places.len().min(MAX_PLACES)];
    let cells: Vec<(String, bool)> = line
        .char_indices()
        .map(|(at, c)| (visible(c), places.iter().any(|place| place.contains(&at))))
        .collect();
    let total: usize = cells.iter().map(|(shown, _)| columns(shown)).sum();
    let first = cells.iter().position(|(_, marked)| *marked).unwrap_or(0);
    let skip = if total > MAX_LINE {
        first.saturating_sub(LEAD)
    } else {
        0
    };
    let (mut text, mut marks) = (String::new(), String::new());
    if skip > 0 {
        text.push('…');
        marks.push(' ');
    }
    let mut width = 0;
    for (shown, marked) in &cells[skip..] {
        width += columns(shown);
        if width > MAX_LINE {
            text.push('…');
            break;
        }
        text.push_str(shown);
        marks.push_str(&(if *marked { "^" } else { " " }).repeat(columns(shown)));
    }
    fence(&format!("{}\n{}", text.trim_end(), marks.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use insta::assert_snapshot;
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Parser, Tag};

    use super::*;

    #[test]
    fn code_cannot_be_left_and_mentions_nobody() {
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code("@team"), "`@\u{200b}team`");
        assert_eq!(code("a\nb\u{202e}"), "`a\\u{a}b\\u{202e}`");
        assert_eq!(code(""), "an empty text (`''`)");
        assert_eq!(code(&"x".repeat(100)), format!("`{}…`", "x".repeat(80)));
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        assert_snapshot!(pointed("lockkeeper plan @x foo", from_ref(&(19..22))).replace('\u{200b}', ""), @r"
        ```text
        lockkeeper plan @x foo
                           ^^^
        ```
        ");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("plan {} foo {}", "a ".repeat(60), "b ".repeat(60));
        let at = line.find("foo").unwrap();
        assert_snapshot!(pointed(&line, from_ref(&(at..at + 3))), @r"
        ```text
        … a a a a a a a a a a a a a a  foo b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b …
                                       ^^^
        ```
        ");
    }

    #[test]
    fn a_line_to_copy_is_whole_or_not_shown() {
        assert!(copyable(&"x".repeat(1000)).is_some_and(|block| block.contains(&"x".repeat(1000))));
        assert_eq!(copyable(&"x".repeat(1001)), None);
    }

    fn is_one_code_block(markdown: &str) -> bool {
        let mut events = Parser::new(markdown);
        matches!(events.next(), Some(Event::Start(Tag::CodeBlock(_))))
            && events
                .next()
                .is_some_and(|event| matches!(event, Event::Text(_)))
            && events
                .next()
                .is_some_and(|event| matches!(event, Event::End(_)))
            && events.next().is_none()
    }

    proptest! {
        #[test]
        fn whatever_was_typed_stays_inside_its_code(text in "[a `~@<>\n\u{202e}\\[\\]()*-]{0,40}") {
            let block = pointed(&format!("x{text}"), &[]);
            prop_assert!(is_one_code_block(&block), "{}", block);
            let inline = format!("so {} it", code(&text));
            let outside: String = Parser::new(&inline)
                .filter_map(|event| if let Event::Text(text) = event { Some(text.into_string()) } else { None })
                .collect();
            prop_assert!(["so  it", "so an empty text () it"].contains(&outside.as_str()), "{}", inline);
            prop_assert!(!inline.replace(MUTED_AT, "").contains('@'));
        }
    }
}
