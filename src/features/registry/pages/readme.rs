//! Turns the README of a package into HTML.
//!
//! The author of a README is not one of us. So this is an allow-list: only the elements below are written, each without
//! attributes, and every text is escaped. HTML in the README is left out, links lead only to `http` and `https`, and images
//! become links, because a page loads nothing from elsewhere.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::kit::web::text::web_link;
use crate::render::escape::push_visible;

/// Headings of the page that the README is in: its own come below them.
const OUTER_HEADINGS: u8 = 2;

/// Maximum number of cells of all tables. A text with more is shown without tables.
const MAX_CELLS: usize = 50_000;

/// Maximum number of bytes of HTML, and of lines of a text that would have more.
const MAX_HTML: usize = 1 << 20;
const MAX_PLAIN_LINES: usize = 1_000;

/// Returns the HTML of a README.
pub fn html(markdown: &str) -> String {
    // A mark at the beginning would hide a heading.
    let markdown = markdown.strip_prefix('\u{feff}').unwrap_or(markdown);
    let mut options = Options::ENABLE_STRIKETHROUGH;
    options.set(Options::ENABLE_TABLES, table_cells(markdown) <= MAX_CELLS);
    let mut writer = ReadmeWriter::default();
    for event in Parser::new_ext(markdown, options) {
        writer.event(event);
        if writer.html.len() > MAX_HTML {
            return as_it_is(markdown);
        }
    }
    writer.html
}

/// Returns the largest number of cells that the tables of a text can have. The parser fills rows up to the width of their
/// head, so a short text can have millions.
fn table_cells(markdown: &str) -> usize {
    let (mut cells, mut columns) = (0_usize, 0);
    for line in markdown.lines() {
        let line = line.trim_matches([' ', '\t', '>']);
        let is_ruler = |char| matches!(char, '|' | '-' | ':' | ' ' | '\t');
        if line.is_empty() {
            columns = 0;
        } else if line.contains('-') && line.chars().all(is_ruler) {
            columns = columns.max(line.matches('|').count() + 1);
        }
        cells = cells.saturating_add(columns);
    }
    cells
}

/// Returns the beginning of a text without any form.
fn as_it_is(text: &str) -> String {
    let mut writer = ReadmeWriter::default();
    writer.html += "<pre class=\"excerpt\"><code>";
    for line in text.lines().take(MAX_PLAIN_LINES) {
        writer.text(line);
        writer.text("\n");
    }
    writer.html += "</code></pre>\n";
    writer.html
}

#[derive(Default)]
struct ReadmeWriter {
    html: String,
    /// For each open link or image: true if it has become a link.
    links: Vec<bool>,
    /// Place in the HTML behind the mark of each open link, and its target.
    opened: Vec<(usize, String)>,
    /// True in the first row of a table.
    is_head: bool,
    /// Number of open images, whose text may have no link of its own.
    images: usize,
}

impl ReadmeWriter {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text);
            }
            Event::Code(text) => {
                self.html += "<code>";
                self.text(&text);
                self.html += "</code>";
            }
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html += "<br>\n",
            Event::Rule => self.html += "<hr>\n",
            Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other elements are written as plain text"
    )]
    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph => self.html += "<p>",
            Tag::Heading { level, .. } => self.heading("<h", *level as u8),
            Tag::BlockQuote(_) => self.html += "<blockquote>\n",
            Tag::CodeBlock(_) => self.html += "<pre class=\"excerpt\"><code>",
            Tag::List(None) => self.html += "<ul>\n",
            Tag::List(Some(first)) => {
                self.html += "<ol start=\"";
                self.html += &first.to_string();
                self.html += "\">\n";
            }
            Tag::Item => self.html += "<li>",
            Tag::Emphasis => self.html += "<em>",
            Tag::Strong => self.html += "<strong>",
            Tag::Strikethrough => self.html += "<s>",
            Tag::Table(_) => self.html += "<table>\n",
            Tag::TableHead => {
                self.is_head = true;
                self.html += "<thead><tr>";
            }
            Tag::TableRow => self.html += "<tr>",
            Tag::TableCell => self.html += if self.is_head { "<th>" } else { "<td>" },
            Tag::Link { dest_url, .. } => self.start_link(dest_url),
            Tag::Image { dest_url, .. } => {
                self.start_link(dest_url);
                self.images += 1;
            }
            _ => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other elements are written as plain text"
    )]
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.html += "</p>\n",
            TagEnd::Heading(level) => {
                self.heading("</h", level as u8);
                self.html.push('\n');
            }
            TagEnd::BlockQuote(_) => self.html += "</blockquote>\n",
            TagEnd::CodeBlock => self.html += "</code></pre>\n",
            TagEnd::List(false) => self.html += "</ul>\n",
            TagEnd::List(true) => self.html += "</ol>\n",
            TagEnd::Item => self.html += "</li>\n",
            TagEnd::Emphasis => self.html += "</em>",
            TagEnd::Strong => self.html += "</strong>",
            TagEnd::Strikethrough => self.html += "</s>",
            TagEnd::Table => self.html += "</table>\n",
            TagEnd::TableHead => {
                self.is_head = false;
                self.html += "</tr></thead>\n";
            }
            TagEnd::TableRow => self.html += "</tr>\n",
            TagEnd::TableCell => self.html += if self.is_head { "</th>" } else { "</td>" },
            TagEnd::Link => self.end_link(),
            TagEnd::Image => {
                self.images -= 1;
                self.end_link();
            }
            _ => {}
        }
    }

    /// Writes the mark of a heading, below those of the page.
    fn heading(&mut self, mark: &str, level: u8) {
        self.html += mark;
        self.html += &level.saturating_add(OUTER_HEADINGS).min(6).to_string();
        self.html.push('>');
    }

    fn start_link(&mut self, target: &str) {
        let is_inside = self.images > 0 || self.links.contains(&true);
        let target = web_link(target).filter(|_| !is_inside);
        self.links.push(target.is_some());
        if let Some(target) = target {
            self.html += "<a rel=\"nofollow noreferrer\" href=\"";
            self.text(&target);
            self.html += "\">";
            self.opened.push((self.html.len(), target));
        }
    }

    fn end_link(&mut self) {
        if self.links.pop() == Some(true)
            && let Some((begin, target)) = self.opened.pop()
        {
            // Nobody could see or name a link without a text.
            if self.html.len() == begin {
                self.text(&target);
            }
            self.html += "</a>";
        }
    }

    /// Writes a text. Characters that hide or reorder others are made visible.
    fn text(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '&' => self.html += "&amp;",
                '<' => self.html += "&lt;",
                '>' => self.html += "&gt;",
                '"' => self.html += "&quot;",
                '\'' => self.html += "&#x27;",
                '\n' | '\t' => self.html.push(char),
                other => push_visible(&mut self.html, other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    /// Elements without attributes that a README can become.
    const ELEMENTS: &[&str] = &[
        "p",
        "h3",
        "h4",
        "h5",
        "h6",
        "blockquote",
        "code",
        "ul",
        "ol",
        "li",
        "em",
        "strong",
        "s",
        "table",
        "thead",
        "tr",
        "th",
        "td",
        "br",
    ];

    /// Pieces of Markdown and HTML.
    const PIECES: &[&str] = &[
        "\n",
        "\n\n",
        "    ",
        "\t",
        "# ",
        "###### ",
        "\n===\n",
        "> ",
        "- ",
        "* ",
        "7. ",
        "999999999. ",
        "*",
        "**",
        "_",
        "~~",
        "`",
        "```\n",
        "[",
        "]",
        "](",
        ")",
        "![",
        "[a]: https://example.com/a\n",
        "[a]",
        "[^1]",
        "https://example.com/a",
        "<https://example.com>",
        "javascript:alert(1)",
        "|",
        "|--|--|\n",
        "---\n",
        "\\",
        "&lt;",
        "&#60;",
        "&",
        "<",
        ">",
        "</code></pre>",
        "<script>",
        "<img src=x onerror=alert(1)>",
        "<!--",
        "-->",
        "\"",
    ];

    /// Checks that HTML has only elements of the allow-list, and that all of them are closed.
    fn assert_harmless(text: &str, html: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html;
        while let Some((_, tag)) = rest.split_once('<') {
            let (tag, after) = tag.split_once('>').unwrap();
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{text:?}: {html}");
                continue;
            }
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let is_expected = match (name, attributes) {
                ("a", link) => link
                    .strip_prefix("rel=\"nofollow noreferrer\" href=\"http")
                    .and_then(|link| link.strip_suffix('"'))
                    .is_some_and(|link| !link.contains('"')),
                ("pre", class) => class == "class=\"excerpt\"",
                ("ol", first) => first
                    .strip_prefix("start=\"")
                    .and_then(|first| first.strip_suffix('"'))
                    .is_some_and(|first| first.parse::<u64>().is_ok()),
                ("hr", "") => true,
                (name, "") => ELEMENTS.contains(&name),
                _ => false,
            };
            assert!(is_expected, "<{tag}> of {text:?}: {html}");
            if !matches!(name, "br" | "hr") {
                open.push(name);
            }
        }
        assert_eq!(open, [""; 0], "{text:?}: {html}");
    }

    #[test]
    fn usual_texts_keep_their_form() {
        let text = "# Network\n\nA *good* **one** with `code`, see [docs](https://example.com/a?b=1&c=2).\n\n\
            | Name | Text |\n|--|--|\n| a | <b>x</b> |\n\n- one\n- two\n\n3. three\n\n> quoted\n\n\
            ```hcl\nmodule \"x\" {}\n```\n\n![Badge](https://example.com/x.svg)\n";
        assert_snapshot!(html(text), @r#"
        <h3>Network</h3>
        <p>A <em>good</em> <strong>one</strong> with <code>code</code>, see <a rel="nofollow noreferrer" href="https://example.com/a?b=1&amp;c=2">docs</a>.</p>
        <table>
        <thead><tr><th>Name</th><th>Text</th></tr></thead>
        <tr><td>a</td><td>x</td></tr>
        </table>
        <ul>
        <li>one</li>
        <li>two</li>
        </ul>
        <ol start="3">
        <li>three</li>
        </ol>
        <blockquote>
        <p>quoted</p>
        </blockquote>
        <pre class="excerpt"><code>module &quot;x&quot; {}
        </code></pre>
        <p><a rel="nofollow noreferrer" href="https://example.com/x.svg">Badge</a></p>
        "#);
    }

    #[test]
    fn nothing_that_a_browser_runs_gets_through() {
        for text in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[x](javascript:alert(1))",
            "[x](data:text/html;base64,AAAA)",
            "[x](//elsewhere.example.com/a)",
            "![x](javascript:alert(1))",
            "[<img src=x onerror=alert(1)>](javascript:alert(1))",
            "[x](https://example.com/\"onmouseover=\"alert(1))",
            "<a href=\"javascript:alert(1)\">x</a>",
            "x <svg/onload=alert(1)> y",
            "```\n</code></pre><script>alert(1)</script>\n```",
            "`<script>`",
            "&lt;script&gt;",
            "<!-- x --><iframe src=\"https://example.com\"></iframe>",
            "# <script>x</script>",
            "| <script> |\n|--|\n| <style>x</style> |",
        ] {
            assert_harmless(text, &html(text));
        }
    }

    #[test]
    fn links_are_not_in_links_and_elements_are_closed() {
        let html = html(
            "[![a](https://example.com/a.svg)](https://example.com/b) [a [b](https://example.com/c)",
        );
        assert_snapshot!(html, @r#"<p><a rel="nofollow noreferrer" href="https://example.com/b">a</a> [a <a rel="nofollow noreferrer" href="https://example.com/c">b</a></p>"#);
    }

    #[test]
    fn texts_that_hide_something_are_visible() {
        assert!(!html("a\u{202e}b").contains('\u{202e}'));
    }

    #[test]
    fn a_short_text_does_not_become_a_huge_page() {
        let table = format!(
            "{}\n{}\n{}\n",
            "a|".repeat(361),
            "-|".repeat(361),
            "a\n".repeat(724)
        );
        let small = "| a | b |\n|--|--|\n| 1 | 2 |\n";
        assert!(html(small).contains("<table>"));
        for text in [table.repeat(90), "> ".repeat(50_000), "<".repeat(1 << 18)] {
            assert!(html(&text).len() <= 2 * MAX_HTML, "{}", &text[..20]);
        }
        assert!(!html(&table.repeat(90)).contains("<table>"));
    }

    #[test]
    fn links_without_a_text_show_their_target() {
        let html = html("\u{feff}# Title\n\n![](https://example.com/a.svg)");
        assert!(html.starts_with("<h3>Title</h3>"), "{html}");
        assert!(html.contains(">https://example.com/a.svg</a>"), "{html}");
    }

    #[test]
    fn a_text_that_repeats_itself_ends() {
        for piece in PIECES {
            let text = piece.repeat((16 << 10) / piece.len());
            let html = html(&text);
            assert!(html.len() <= 2 * MAX_HTML, "{piece:?}: {}", html.len());
            assert_harmless(piece, &html);
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_text_becomes_harmless_html(text in texts_of(PIECES)) {
            let html = html(&text);
            assert_harmless(&text, &html);
            prop_assert!(html.len() <= 2 * MAX_HTML);
        }
    }
}
