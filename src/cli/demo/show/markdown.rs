//! Formats a comment of the bot for a terminal.

use pulldown_cmark::{BlockQuoteKind, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::cli::style::{TerminalStyle, TextRole};
use crate::cli::text::{Text, chop};

/// Returns the lines of a comment, no wider than the look. The hidden line for programs is left out; folded sections
/// are shown.
pub(super) fn lines(markdown: &str, look: &TerminalStyle) -> Vec<String> {
    let mut writer = MarkdownWriter::new(*look);
    for event in Parser::new_ext(markdown, Options::ENABLE_GFM) {
        writer.event(event);
    }
    writer.finish()
}

/// Indentation of a list item or a quotation, in columns.
const INDENT: usize = 2;

struct MarkdownWriter {
    look: TerminalStyle,
    done: Vec<String>,
    text: Text,
    /// Roles of the open elements, the innermost last.
    roles: Vec<TextRole>,
    /// Columns to the left of the text.
    indent: usize,
    /// Text in front of the next line only.
    bullet: Option<String>,
    /// Language of the open code block.
    code: Option<String>,
    /// Target of the open link.
    link: Option<String>,
}

impl MarkdownWriter {
    fn new(look: TerminalStyle) -> Self {
        Self {
            look,
            done: Vec::new(),
            text: Text::default(),
            roles: Vec::new(),
            indent: 0,
            bullet: None,
            code: None,
            link: None,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code.is_some() => self.output(&text),
            Event::Text(text) => self.text.push(self.role(), &text),
            Event::Code(code) | Event::InlineMath(code) | Event::DisplayMath(code) => {
                self.code_in_text(&code);
            }
            Event::Html(html) | Event::InlineHtml(html) => self.html(&html),
            Event::SoftBreak | Event::HardBreak => self.text.push(TextRole::Plain, " "),
            Event::Rule => self.rule(),
            Event::FootnoteReference(_) | Event::TaskListMarker(_) => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other elements are shown as plain text"
    )]
    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { .. } => {
                self.gap();
                self.roles.push(TextRole::Strong);
            }
            Tag::Strong => self.roles.push(TextRole::Strong),
            Tag::Emphasis => self.roles.push(self.role()),
            Tag::Link { dest_url, .. } => self.link = Some(dest_url.into_string()),
            Tag::BlockQuote(kind) => self.start_quote(kind),
            Tag::Item => {
                self.flush();
                self.bullet = Some("•".to_owned());
                self.indent += INDENT;
            }
            Tag::List(_) if self.indent == 0 => self.gap(),
            Tag::CodeBlock(kind) => self.start_code(kind),
            _ => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other elements are shown as plain text"
    )]
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.roles.pop();
            }
            TagEnd::Strong | TagEnd::Emphasis => drop(self.roles.pop()),
            TagEnd::Link => self.end_link(),
            TagEnd::BlockQuote(_) | TagEnd::Item => {
                self.flush();
                self.indent -= INDENT;
            }
            TagEnd::CodeBlock => self.code = None,
            _ => {}
        }
    }

    fn role(&self) -> TextRole {
        self.roles.last().copied().unwrap_or(TextRole::Plain)
    }

    /// Writes code in a line, with backticks if there is no colour.
    fn code_in_text(&mut self, code: &str) {
        let quote = if self.look.colours { "" } else { "`" };
        self.text
            .push(TextRole::Code, &format!("{quote}{code}{quote}"));
    }

    /// Writes an empty line between blocks, but not inside a list.
    fn gap(&mut self) {
        self.flush();
        if self.indent == 0 && self.done.last().is_some_and(|line| !line.is_empty()) {
            self.done.push(String::new());
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.is_blank() {
            return;
        }
        for line in text.lines(&self.look.narrower(self.indent)) {
            let margin = match self.bullet.take() {
                Some(bullet) => format!(
                    "{}{bullet} ",
                    " ".repeat(self.indent.saturating_sub(INDENT))
                ),
                None => " ".repeat(self.indent),
            };
            self.done.push(margin + &line);
        }
    }

    fn start_quote(&mut self, kind: Option<BlockQuoteKind>) {
        self.gap();
        self.indent += INDENT;
        if let Some(kind) = kind {
            self.text.push(TextRole::Strong, &format!("{kind:?}:"));
            self.flush();
        }
    }

    fn start_code(&mut self, kind: CodeBlockKind<'_>) {
        self.gap();
        self.code = Some(match kind {
            CodeBlockKind::Fenced(language) => language.into_string(),
            CodeBlockKind::Indented => String::new(),
        });
    }

    /// Writes a code block: output of a program, or a command to copy.
    fn output(&mut self, text: &str) {
        let language = self.code.clone().unwrap_or_default();
        let margin = " ".repeat(self.indent + INDENT);
        for line in text.lines() {
            let role = role_of_output(&language, line);
            for part in chop(line, self.look.width.saturating_sub(margin.len())) {
                self.done.push(
                    format!("{margin}{}", self.look.paint(role, &part))
                        .trim_end()
                        .to_owned(),
                );
            }
        }
    }

    /// Handles the HTML elements that the bot's templates use.
    fn html(&mut self, html: &str) {
        let html = html.trim();
        if let Some((_, rest)) = html.split_once("<summary>") {
            self.gap();
            let summary = rest.split("</summary>").next().unwrap_or_default();
            self.text.push(TextRole::Strong, &format!("▾ {summary}"));
            self.flush();
        } else if html == "<sub>" {
            self.roles.push(TextRole::Faint);
        } else if html == "</sub>" {
            self.roles.pop();
        }
    }

    /// Writes the target after the link, because a terminal cannot hide it.
    fn end_link(&mut self) {
        if let Some(url) = self.link.take() {
            self.text.push(TextRole::Faint, &format!(" ({url})"));
        }
    }

    fn rule(&mut self) {
        self.gap();
        self.done.push(
            self.look
                .paint(TextRole::Faint, &"─".repeat(self.look.width)),
        );
    }

    fn finish(mut self) -> Vec<String> {
        self.flush();
        while self.done.last().is_some_and(String::is_empty) {
            self.done.pop();
        }
        self.done
    }
}

fn role_of_output(language: &str, line: &str) -> TextRole {
    match (language, line.trim_start().chars().next()) {
        ("shell", _) => TextRole::Code,
        ("diff", Some('+')) => TextRole::Good,
        ("diff", Some('-')) => TextRole::Bad,
        ("diff", Some('!' | '~')) => TextRole::Changed,
        _ => TextRole::Plain,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const COMMENT: &str = "Ran Plan for dir: `network`\n\n**Plan: 1 to add.**\n\n<details><summary>Show Output (2 lines)</summary>\n\n\
        ```diff\n+ a very long line of output\n\n- b\n```\n\n</details>\n\n* To **apply** this plan, comment:\n  ```shell\n  lockkeeper apply\n  ```\n\
        * To **discard** it, [open the lock](http://x/locks/1)\n\n---\n\n> [!NOTE]\n> Mind this.\n\n<sub>Commit `1f3c` · 2 s</sub>\n\n\
        <!-- lockkeeper {\"v\":1} -->\n";

    #[test]
    fn a_comment_is_readable_without_a_browser() {
        let shown = lines(
            COMMENT,
            &TerminalStyle {
                colours: false,
                width: 30,
            },
        )
        .join("\n");
        assert_snapshot!(shown, @r"
        Ran Plan for dir: `network`

        Plan: 1 to add.

        ▾ Show Output (2 lines)

          + a very long line of output

          - b

        • To apply this plan, comment:
            lockkeeper apply
        • To discard it, open the lock
          (http://x/locks/1)

        ──────────────────────────────

          Note:
          Mind this.

        Commit `1f3c` · 2 s
        ");
    }

    #[test]
    fn additions_and_removals_have_colours() {
        let shown = lines(
            COMMENT,
            &TerminalStyle {
                colours: true,
                width: 80,
            },
        )
        .join("\n");
        assert!(
            shown.contains("\u{1b}[32m+ a very long line of output\u{1b}[0m"),
            "{shown}"
        );
        assert!(shown.contains("\u{1b}[31m- b\u{1b}[0m"), "{shown}");
    }
}
