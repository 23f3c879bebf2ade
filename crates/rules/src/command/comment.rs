//! Finds the command line of a comment.
//!
//! A comment is Markdown. In a command comment the whole visible text is one line: a paragraph, a code block (fenced
//! or indented), or inline code. Text in a quotation, a link, a list, a table, a heading or HTML only talks about
//! commands. The line comes from the source, not from the rendered text, because `*` and `_` in arguments are meant
//! as typed.

use std::fmt;

use pulldown_cmark::{Event, OffsetIter, Options, Parser, Tag, TagEnd};

/// Reason why a comment is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredComment {
    /// The comment has no text.
    Empty,
    /// The first word does not address the bot.
    NotForUs,
    /// The comment has more than one line of text.
    SeveralLines,
    /// The comment starts with a quotation.
    Quote,
    /// The comment starts with a list.
    List,
    /// The comment starts with a heading.
    Heading,
    /// The comment starts with a table.
    Table,
    /// The comment starts with HTML.
    Html,
    /// The comment starts with a link or an image.
    Link,
    /// The comment starts with inline code, and other text follows.
    CodeAmongText,
    /// The comment starts with other Markdown, such as a rule or a link definition.
    OtherMarkup,
    /// The comment is longer than any command.
    TooLong,
}

impl fmt::Display for IgnoredComment {
    /// Writes one clause for the page of deliveries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the comment is empty",
            Self::NotForUs => "the comment does not start with a word for the bot",
            Self::SeveralLines => "the comment has more than one line of text",
            Self::Quote => "the comment starts with a quotation",
            Self::List => "the comment starts with a list",
            Self::Heading => "the comment is a heading",
            Self::Table => "the comment starts with a table",
            Self::Html => "the comment starts with HTML",
            Self::Link => "the comment starts with a link or an image",
            Self::CodeAmongText => "the comment starts with code and has other text as well",
            Self::OtherMarkup => "the comment does not start with text",
            Self::TooLong => "the comment is longer than any command",
        })
    }
}

/// Formatting inside a command line that makes readers see another text than the one typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formatting {
    /// Part of the line is in backticks.
    Code,
    /// The line has a link or an image.
    Link,
    /// The line has a tag or an HTML comment.
    Html,
}

/// The only line of a command comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OnlyLine {
    /// Text of the line as typed, trimmed.
    pub text: String,
    /// First formatting that hides part of the text.
    pub formatting: Option<Formatting>,
}

impl OnlyLine {
    fn verbatim(text: &str) -> Result<Self, IgnoredComment> {
        let text = text.trim();
        if text.is_empty() {
            return Err(IgnoredComment::Empty);
        }
        if text.contains(['\n', '\r']) {
            return Err(IgnoredComment::SeveralLines);
        }
        Ok(Self {
            text: text.to_owned(),
            formatting: None,
        })
    }
}

/// Reads a comment as Markdown and returns its only line.
pub(super) fn line(comment: &str) -> Result<OnlyLine, IgnoredComment> {
    if comment.trim().is_empty() {
        return Err(IgnoredComment::Empty);
    }
    let mut events = Parser::new_ext(comment, Options::ENABLE_TABLES).into_offset_iter();
    let Some((Event::Start(block), range)) = events.next() else {
        return Err(IgnoredComment::OtherMarkup);
    };
    if let Some(reason) = talk(&block) {
        return Err(reason);
    }
    if !comment[..range.start].trim().is_empty() || !comment[range.end..].trim().is_empty() {
        return Err(IgnoredComment::SeveralLines);
    }
    if matches!(block, Tag::CodeBlock(_)) {
        code_block(events)
    } else {
        paragraph(&comment[range], events)
    }
}

/// Returns the reason to ignore a comment that starts with this block.
fn talk(block: &Tag<'_>) -> Option<IgnoredComment> {
    Some(match block {
        Tag::Paragraph | Tag::CodeBlock(_) => return None,
        Tag::BlockQuote(_) => IgnoredComment::Quote,
        Tag::List(_) => IgnoredComment::List,
        Tag::Heading { .. } => IgnoredComment::Heading,
        Tag::Table(_) => IgnoredComment::Table,
        Tag::HtmlBlock => IgnoredComment::Html,
        Tag::Item
        | Tag::FootnoteDefinition(_)
        | Tag::DefinitionList
        | Tag::DefinitionListTitle
        | Tag::DefinitionListDefinition
        | Tag::TableHead
        | Tag::TableRow
        | Tag::TableCell
        | Tag::Emphasis
        | Tag::Strong
        | Tag::Strikethrough
        | Tag::Superscript
        | Tag::Subscript
        | Tag::Link { .. }
        | Tag::Image { .. }
        | Tag::MetadataBlock(_) => IgnoredComment::OtherMarkup,
    })
}

fn code_block(events: OffsetIter<'_>) -> Result<OnlyLine, IgnoredComment> {
    let inside = events.take_while(|(event, _)| !matches!(event, Event::End(TagEnd::CodeBlock)));
    let mut text = String::new();
    for (event, _) in inside {
        if let Event::Text(part) = event {
            text.push_str(&part);
        }
    }
    OnlyLine::verbatim(&text)
}

fn paragraph(source: &str, events: OffsetIter<'_>) -> Result<OnlyLine, IgnoredComment> {
    let line = OnlyLine::verbatim(source)?;
    let mut inline = events
        .map(|(event, _)| event)
        .take_while(|event| *event != Event::End(TagEnd::Paragraph));
    let first = inline.next().ok_or(IgnoredComment::Empty)?;
    match formatting(&first) {
        Some(Formatting::Code) => return only_code(&first, inline.next().is_none()),
        Some(Formatting::Link) => return Err(IgnoredComment::Link),
        Some(Formatting::Html) => return Err(IgnoredComment::Html),
        None => {}
    }
    if let Some(kind) = inline.find_map(|event| formatting(&event)) {
        return Ok(OnlyLine {
            formatting: Some(kind),
            ..line
        });
    }
    // A backtick without a partner is not code. Atlantis drops such backticks at both ends, because people mistype
    // them.
    OnlyLine::verbatim(line.text.trim_matches('`'))
}

fn only_code(event: &Event<'_>, alone: bool) -> Result<OnlyLine, IgnoredComment> {
    if let (Event::Code(text), true) = (event, alone) {
        OnlyLine::verbatim(text)
    } else {
        Err(IgnoredComment::CodeAmongText)
    }
}

fn formatting(event: &Event<'_>) -> Option<Formatting> {
    if matches!(event, Event::Code(_)) {
        Some(Formatting::Code)
    } else if matches!(event, Event::Start(Tag::Link { .. } | Tag::Image { .. })) {
        Some(Formatting::Link)
    } else if matches!(event, Event::InlineHtml(_) | Event::Html(_)) {
        Some(Formatting::Html)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(comment: &str) {
        let expected = OnlyLine {
            text: "lockkeeper plan".to_owned(),
            formatting: None,
        };
        assert_eq!(line(comment), Ok(expected), "{comment:?}");
    }

    fn ignored(comment: &str, reason: IgnoredComment) {
        assert_eq!(line(comment), Err(reason), "{comment:?}");
    }

    #[test]
    fn command_alone_runs() {
        for comment in [
            "lockkeeper plan",
            " lockkeeper plan ",
            "\r\n\r\nlockkeeper plan\r\n\r\n",
            "lockkeeper plan\n\n\n",
        ] {
            runs(comment);
        }
    }

    #[test]
    fn command_alone_in_inline_code_runs() {
        for comment in [
            "`lockkeeper plan`",
            "`  lockkeeper plan  `",
            "```lockkeeper plan```",
            "``lockkeeper plan``\n",
        ] {
            runs(comment);
        }
    }

    #[test]
    fn backtick_without_a_partner_is_dropped() {
        runs("`lockkeeper plan");
        runs("lockkeeper plan`");
    }

    #[test]
    fn command_alone_in_a_fenced_block_runs() {
        for comment in [
            "```\nlockkeeper plan\n```",
            "```bash\nlockkeeper plan\n```\n",
            "~~~\r\nlockkeeper plan\r\n~~~",
            "````\n\nlockkeeper plan\n\n````",
            "```\nlockkeeper plan\n",
        ] {
            runs(comment);
        }
    }

    #[test]
    fn command_alone_in_an_indented_block_runs() {
        runs("    lockkeeper plan");
        runs("\n\tlockkeeper plan\n");
    }

    #[test]
    fn command_in_code_together_with_other_text_is_ignored() {
        ignored("`lockkeeper plan` please", IgnoredComment::CodeAmongText);
        ignored(
            "`lockkeeper plan` `lockkeeper apply`",
            IgnoredComment::CodeAmongText,
        );
        ignored(
            "```\nlockkeeper plan\n```\nplease",
            IgnoredComment::SeveralLines,
        );
        ignored(
            "please\n```\nlockkeeper plan\n```",
            IgnoredComment::SeveralLines,
        );
        ignored("text\n\n    lockkeeper plan", IgnoredComment::SeveralLines);
    }

    #[test]
    fn second_line_in_a_code_block_is_ignored() {
        ignored(
            "```\nlockkeeper plan\nlockkeeper apply\n```",
            IgnoredComment::SeveralLines,
        );
        ignored(
            "    lockkeeper plan\n    lockkeeper apply",
            IgnoredComment::SeveralLines,
        );
        ignored("```\n```", IgnoredComment::Empty);
    }

    #[test]
    fn command_in_a_quote_is_ignored() {
        ignored("> lockkeeper plan", IgnoredComment::Quote);
        ignored(
            "> lockkeeper plan\n\nlockkeeper apply",
            IgnoredComment::Quote,
        );
        ignored("> ```\n> lockkeeper plan\n> ```", IgnoredComment::Quote);
    }

    #[test]
    fn command_in_a_link_is_ignored() {
        ignored(
            "[lockkeeper plan](https://example.org)",
            IgnoredComment::Link,
        );
        ignored(
            "![lockkeeper plan](https://example.org/x.png)",
            IgnoredComment::Link,
        );
        ignored(
            "[lockkeeper plan]: https://example.org",
            IgnoredComment::OtherMarkup,
        );
    }

    #[test]
    fn command_in_html_is_ignored() {
        ignored("<!-- lockkeeper plan -->", IgnoredComment::Html);
        ignored("<div>\nlockkeeper plan\n</div>", IgnoredComment::Html);
        ignored("<b>lockkeeper plan</b>", IgnoredComment::Html);
        ignored(
            "<details><summary>x</summary>\n\nlockkeeper plan\n\n</details>",
            IgnoredComment::Html,
        );
    }

    #[test]
    fn command_in_a_table_is_ignored() {
        ignored("| lockkeeper plan |\n|---|\n| x |", IgnoredComment::Table);
    }

    #[test]
    fn command_in_a_list_or_heading_is_ignored() {
        ignored("- lockkeeper plan", IgnoredComment::List);
        ignored("1. lockkeeper plan", IgnoredComment::List);
        ignored("# lockkeeper plan", IgnoredComment::Heading);
        ignored("lockkeeper plan\n===", IgnoredComment::Heading);
        ignored("---", IgnoredComment::OtherMarkup);
    }

    #[test]
    fn second_line_is_ignored() {
        for comment in [
            "lockkeeper plan\nsecond line",
            "lockkeeper plan\n\nsecond line",
            "lockkeeper plan\r\nlockkeeper apply",
            "lockkeeper plan\\\n-d x",
            "lockkeeper plan\n\n[hidden]: https://example.org",
            "lockkeeper plan\n\n<!-- hidden -->",
            "[hidden]: https://example.org\n\nlockkeeper plan",
        ] {
            assert!(
                matches!(
                    line(comment),
                    Err(IgnoredComment::SeveralLines | IgnoredComment::OtherMarkup)
                ),
                "{comment:?}"
            );
        }
    }

    #[test]
    fn stars_and_underscores_are_kept_as_typed() {
        let text =
            "lockkeeper plan -d mod*/a*/my_dir_x -- -target='a[\"b\"]' -var x=<1 https://x.org";
        assert_eq!(
            line(text),
            Ok(OnlyLine {
                text: text.to_owned(),
                formatting: None
            })
        );
    }

    #[test]
    fn formatting_inside_a_command_is_noticed() {
        for (comment, kind) in [
            ("lockkeeper apply <!-- -w prod -->", Formatting::Html),
            (
                "lockkeeper apply [-d x](https://example.org)",
                Formatting::Link,
            ),
            (
                "lockkeeper import a <https://example.org>",
                Formatting::Link,
            ),
            ("lockkeeper apply `-d x`", Formatting::Code),
        ] {
            assert_eq!(line(comment).unwrap().formatting, Some(kind), "{comment}");
        }
        let fenced = "```\nlockkeeper apply -- -var x=`<b>`\n```";
        assert_eq!(line(fenced).unwrap().formatting, None);
    }
}
