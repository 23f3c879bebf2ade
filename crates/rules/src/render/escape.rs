//! Escapes text of other people for our Markdown.
//!
//! Names of directories, branches and workspaces, outputs and error messages come from pull requests and are hostile
//! (P8). None of them may close a fence, end a table row, open HTML, notify people, link to other pull requests, or
//! change the direction of reading. Every text that a template prints passes through one of the functions of this
//! module.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Maximum length of a name in characters; the middle of a longer one is left out.
const LONGEST_NAME: usize = 160;
/// Longest run of backticks that a fence outgrows; longer runs are written as a count.
const LONGEST_RUN: usize = 60;
/// Invisible character as an entity. It splits texts that the forge would otherwise turn into a link or a
/// notification.
const GAP: &str = "&#8203;";

/// Returns a name as inline code, fit for prose and table cells. No mention, reference or markup works inside.
pub fn code(text: &str) -> String {
    let text = shorten(&one_line(text), LONGEST_NAME);
    if text.is_empty() {
        return "(empty)".to_owned();
    }
    let simple = !text.contains(['`', '|', '\\']) && !text.starts_with(' ') && !text.ends_with(' ');
    if simple {
        format!("`{text}`")
    } else {
        format!("<code>{}</code>", entities(&text))
    }
}

/// Writes every punctuation character as an entity, so that only the text itself remains.
fn entities(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '-' | '/' | ',' => out.push(c),
            '@' => out.push_str("&#64;&#8203;"),
            c if c.is_ascii_punctuation() => {
                write!(out, "&#{};", u32::from(c)).expect("a string takes any text");
            }
            c => out.push(c),
        }
    }
    out
}

/// Escapes a sentence: readers see all characters as written, except that pairs of backticks still mark code.
pub fn prose(text: &str) -> String {
    let text = visible(text.trim());
    let pieces: Vec<&str> = text.split('`').collect();
    let last = pieces.len() - 1;
    let mut out = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        match (i % 2 == 1, i == last) {
            (true, false) if !piece.trim().is_empty() => out.push_str(&code(piece)),
            (true, _) => {
                out.push_str("&#96;");
                out.push_str(&plain(piece, false));
                out.push_str(if i == last { "" } else { "&#96;" });
            }
            (false, _) => out.push_str(&plain(piece, i == 0)),
        }
    }
    out
}

/// Escapes a sentence for a table cell or list item: [`prose`] on one line.
pub fn cell(text: &str) -> String {
    prose(&one_line(text))
}

/// Escapes the part of a sentence that is not code.
fn plain(text: &str, at_line_start: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        let fresh = i > 0 || at_line_start;
        escape_line(
            if fresh { line.trim_start() } else { line },
            fresh,
            &mut out,
        );
    }
    without_references(&out)
}

fn escape_line(line: &str, fresh: bool, out: &mut String) {
    let number = line.bytes().take_while(u8::is_ascii_digit).count();
    let list_mark = fresh
        .then_some(number)
        .filter(|n| *n == 0 || line[*n..].starts_with(['.', ')']));
    for (at, c) in line.char_indices() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '$' => out.push_str("&#36;"),
            '@' | '#' => write!(out, "{c}{GAP}").expect("a string takes any text"),
            ':' if line[at..].starts_with("://") => {
                write!(out, ":{GAP}").expect("a string takes any text");
            }
            '\\' | '*' | '_' | '[' | ']' | '~' | '|' => out.extend(['\\', c]),
            '-' | '+' | '=' | '.' | ')' if list_mark == Some(at) => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
}

/// Breaks texts that a forge links automatically: commit ids, `GH-12`, `www.`.
fn without_references(text: &str) -> String {
    static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:(gh-)(\d)|(www)(\.)|([0-9a-f])([0-9a-f]{6,63}\b))")
            .expect("a constant pattern")
    });
    let part = |c: &Captures<'_>| {
        let found: Vec<&str> = c.iter().skip(1).flatten().map(|m| m.as_str()).collect();
        found.join(GAP)
    };
    REFERENCE.replace_all(text, part).into_owned()
}

/// Returns a block of code whose fence is longer than any run of backticks inside; ends without a newline.
pub fn fence(text: &str, language: &str) -> String {
    let text = short_runs(&visible(text));
    let marks = "`".repeat(longest_run(&text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{marks}{language}\n{text}{end}{marks}")
}

/// Returns the address of a link, or `None` if people should not follow it.
pub fn link_target(url: &str) -> Option<String> {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return None;
    }
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        if c.is_ascii_alphanumeric() || "-._~:/?#@!$&'*+,;=%".contains(c) {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(out, "%{byte:02X}").expect("a string takes any text");
            }
        }
    }
    Some(out)
}

/// Makes invisible characters and those that change the direction of reading visible; newlines and tabs stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => {}
            c => push_visible(&mut out, c),
        }
    }
    out
}

/// Adds a character in the form that comments, pages and raw texts share. A character that has no width or changes
/// the direction of reading becomes its number, and a control character becomes `\u{fffd}`.
pub fn push_visible(out: &mut String, c: char) {
    match c {
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => {
            write!(out, "[U+{:04X}]", u32::from(c)).expect("a string takes any text");
        }
        c if c.is_control() => out.push('\u{fffd}'),
        c => out.push(c),
    }
}

/// Cuts the middle out of a text that is longer than `most` characters.
pub fn shorten(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let half = most.saturating_sub(1) / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head}…{tail}")
}

fn one_line(text: &str) -> String {
    visible(text)
        .split(['\n', '\t'])
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join(" ")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Replaces very long runs of backticks by their count. A fence must outgrow every run inside, and a run of thousands
/// would fill the whole comment.
fn short_runs(text: &str) -> String {
    static RUN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!("`{{{},}}", LONGEST_RUN + 1)).expect("a constant pattern")
    });
    RUN.replace_all(text, |c: &Captures<'_>| {
        format!("[{} backticks]", c[0].len())
    })
    .into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser, Tag};

    use super::*;

    #[test]
    fn names_are_inline_code_that_cannot_be_left() {
        for (text, expected) in [
            ("infra/net", "`infra/net`"),
            ("@all #12", "`@all #12`"),
            ("a|b", "<code>a&#124;b</code>"),
            ("`</code>", "<code>&#96;&#60;/code&#62;</code>"),
            ("a\nb", "`a b`"),
            ("x\u{202e}y", "`x[U+202E]y`"),
            ("", "(empty)"),
        ] {
            assert_eq!(code(text), expected, "{text:?}");
        }
    }

    #[test]
    fn prose_keeps_code_and_takes_the_sting_out_of_the_rest() {
        for (text, expected) in [
            ("locked by `main`", "locked by `main`"),
            ("@alice see #12", "@&#8203;alice see #&#8203;12"),
            ("GH-7 and 1a2b3c4d5e", "GH-&#8203;7 and 1&#8203;a2b3c4d5e"),
            ("<img src=x> & *b*", "&lt;img src=x&gt; &amp; \\*b\\*"),
            ("[x](https://e.com)", "\\[x\\](https:&#8203;//e.com)"),
            (
                "- item\n12. item\n# title",
                "\\- item\n12\\. item\n#&#8203; title",
            ),
            ("one ` alone", "one &#96; alone"),
            ("version 1.11.4 of a-b", "version 1.11.4 of a-b"),
        ] {
            assert_eq!(prose(text), expected, "{text:?}");
        }
        assert_eq!(cell("a\n|b"), "a \\|b");
    }

    #[test]
    fn a_fence_outgrows_what_it_holds() {
        assert_eq!(fence("a", "diff"), "```diff\na\n```");
        assert_eq!(fence("```\n", ""), "````\n```\n````");
        assert_eq!(fence(&"`".repeat(5000), ""), "```\n[5000 backticks]\n```");
    }

    #[test]
    fn links_lead_to_the_web_only_and_stay_inside_their_brackets() {
        assert_eq!(
            link_target("https://e.com/a b)").as_deref(),
            Some("https://e.com/a%20b%29")
        );
        assert_eq!(link_target("javascript:alert(1)"), None);
    }

    /// Returns true if Markdown sees nothing but text and inline code.
    fn only_text(markdown: &str) -> bool {
        Parser::new_ext(markdown, Options::all()).all(|event| match event {
            Event::Start(tag) => matches!(tag, Tag::Paragraph),
            Event::Html(html) | Event::InlineHtml(html) => matches!(&*html, "<code>" | "</code>"),
            Event::Text(_) | Event::Code(_) | Event::End(_) | Event::SoftBreak => true,
            Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => false,
        })
    }

    proptest! {
        #[test]
        fn hostile_names_and_sentences_stay_text(text in "([a-z@#:/._~*|<>&!`\\\\\\[\\]()$+=0-9\n -]|</details>){0,40}") {
            prop_assert!(only_text(&format!("x {}", code(&text))), "{}", code(&text));
            prop_assert!(only_text(&format!("x {}", cell(&text))), "{}", cell(&text));
        }

        #[test]
        fn a_fence_is_one_block_of_code(text in "(`{0,5}|~{0,4}|[a-z \n]|</details>|-->){0,60}") {
            let block = format!("{}\n\nafter", fence(&text, "diff"));
            let blocks = Parser::new(&block).filter(|e| matches!(e, Event::Start(Tag::CodeBlock(_)))).count();
            prop_assert_eq!(blocks, 1);
            let after = Parser::new(&block).filter(|e| matches!(e, Event::Text(t) if &**t == "after")).count();
            prop_assert_eq!(after, 1);
        }

        #[test]
        fn any_text_can_be_shown(text in any::<String>()) {
            for shown in [code(&text), prose(&text), cell(&text), fence(&text, ""), shorten(&text, 9)] {
                prop_assert!(!shown.contains('\0'));
            }
        }
    }
}
