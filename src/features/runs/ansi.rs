//! Converts the terminal output of a tool to lines of HTML.
//!
//! Existing converters write colours into `style` attributes, which our policy forbids; this one writes classes. It knows
//! the styles of Terraform and similar tools: the sixteen colours of text, bold, faint, italic and underlined. Backgrounds
//! and exact colours are dropped, because the text might become unreadable. Control characters are shown as in comments
//! ([`parts`]), so no sequence hides text.

use std::fmt::Write as _;

use crate::render::escape::push_visible;
use crate::render::plan_output::{LinePart, parts};

/// Colour and style of text.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the terminal, and they are independent"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AnsiStyle {
    colour: Option<u8>,
    bold: bool,
    faint: bool,
    italic: bool,
    underline: bool,
}

impl AnsiStyle {
    /// Returns the names of the classes; empty for plain text.
    fn classes(self) -> String {
        let marks = [
            (self.bold, "b"),
            (self.faint, "f"),
            (self.italic, "i"),
            (self.underline, "u"),
        ];
        let mut classes: Vec<String> = marks
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| (*name).to_owned())
            .collect();
        classes.extend(self.colour.map(|colour| format!("c{colour}")));
        classes.join(" ")
    }

    /// Applies `ESC [ … m` (ECMA-48, "Select Graphic Rendition").
    fn select(&mut self, parameters: &str) {
        // A group with colons describes one exact colour or a fancy underline.
        let mut codes = parameters
            .split(';')
            .filter(|code| !code.contains(':'))
            .map(|code| match code {
                "" => 0,
                code => code.parse::<u16>().unwrap_or(u16::MAX),
            });
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.faint = true,
                3 => self.italic = true,
                4 => self.underline = true,
                22 => (self.bold, self.faint) = (false, false),
                23 => self.italic = false,
                24 => self.underline = false,
                30..=37 => self.colour = u8::try_from(code - 30).ok(),
                90..=97 => self.colour = u8::try_from(code - 90 + 8).ok(),
                39 => self.colour = None,
                38 => self.colour = extended_colour(&mut codes).or(self.colour),
                48 | 58 => drop(extended_colour(&mut codes)),
                _ => {}
            }
        }
    }
}

/// Reads the codes after 38 or 48: `5;n` or `2;r;g;b`. Only the first sixteen of the numbered colours are supported.
fn extended_colour(codes: &mut impl Iterator<Item = u16>) -> Option<u8> {
    match codes.next() {
        Some(5) => codes
            .next()
            .and_then(|n| u8::try_from(n).ok())
            .filter(|n| *n < 16),
        Some(2) => {
            let _rgb = [codes.next(), codes.next(), codes.next()];
            None
        }
        _ => None,
    }
}

/// Converts the lines of a run. Keeps the number of the next line and the style of its text.
#[derive(Clone, Debug, Default)]
pub(super) struct AnsiToHtml {
    lines: u64,
    style: AnsiStyle,
}

impl AnsiToHtml {
    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Converts whole lines to HTML, without a line break between them. The keyboard skips the links of the numbers, because
    /// there would be thousands.
    pub fn convert(&mut self, text: &str) -> String {
        let mut html = String::with_capacity(text.len() * 2);
        for line in text.split_terminator('\n') {
            self.lines += 1;
            let number = self.lines;
            write!(html, "<div class=\"l\" id=\"L{number}\"><a href=\"#L{number}\" tabindex=\"-1\">{number}</a><span>")
                .expect("a String takes any text");
            self.convert_line(line, &mut html);
            html.push_str("</span></div>");
        }
        html
    }

    fn convert_line(&mut self, line: &str, html: &mut String) {
        let mut text = String::new();
        for part in parts(line) {
            match part {
                LinePart::Shown(c) => text.push(c),
                LinePart::Colours(parameters) => {
                    let before = self.style;
                    self.style.select(parameters);
                    if self.style != before {
                        push_text(before, &std::mem::take(&mut text), html);
                    }
                }
            }
        }
        push_text(self.style, &text, html);
    }
}

fn push_text(style: AnsiStyle, text: &str, html: &mut String) {
    if text.is_empty() {
        return;
    }
    let classes = style.classes();
    if !classes.is_empty() {
        write!(html, "<span class=\"{classes}\">").expect("a String takes any text");
    }
    text.chars().for_each(|c| push_char(c, html));
    if !classes.is_empty() {
        html.push_str("</span>");
    }
}

fn push_char(c: char, html: &mut String) {
    match c {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        '\'' => html.push_str("&#39;"),
        '\t' => html.push('\t'),
        c => push_visible(html, c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> String {
        let html = AnsiToHtml::default().convert(text);
        let start = "<div class=\"l\" id=\"L1\"><a href=\"#L1\" tabindex=\"-1\">1</a><span>";
        html.strip_prefix(start)
            .and_then(|rest| rest.strip_suffix("</span></div>"))
            .unwrap()
            .to_owned()
    }

    #[test]
    fn colours_become_classes() {
        for (text, html) in [
            ("plain", "plain"),
            (
                "\u{1b}[31mred\u{1b}[0m plain",
                "<span class=\"c1\">red</span> plain",
            ),
            (
                "\u{1b}[1m\u{1b}[32m+\u{1b}[0m\u{1b}[0m x",
                "<span class=\"b c2\">+</span> x",
            ),
            (
                "\u{1b}[1;4;91ma\u{1b}[22;24;39mb",
                "<span class=\"b u c9\">a</span>b",
            ),
            ("\u{1b}[38;5;12mx", "<span class=\"c12\">x</span>"),
            ("\u{1b}[38;2;1;2;3;1mx", "<span class=\"b\">x</span>"),
            ("\u{1b}[48;5;1;3mx", "<span class=\"i\">x</span>"),
            ("\u{1b}[2mx\u{1b}[my", "<span class=\"f\">x</span>y"),
            ("\u{1b}[38:2::1:2:3mx\u{1b}[99999mx", "xx"),
        ] {
            assert_eq!(line(text), html, "{text:?}");
        }
    }

    #[test]
    fn what_moves_the_cursor_or_would_hide_text_is_shown() {
        for (text, html) in [
            ("a\u{1b}[2Kb\u{1b}[1Ac", "a\u{fffd}[2Kb\u{fffd}[1Ac"),
            ("a\u{1b}]0;title\u{7}b", "a\u{fffd}]0;title\u{fffd}b"),
            (
                "a\u{1b}]8;;https://x\u{1b}\\c",
                "a\u{fffd}]8;;https://x\u{fffd}\\c",
            ),
            (" 10%\r 50%\r100%\r", " 10%\u{fffd} 50%\u{fffd}100%"),
            ("a\u{8}\u{202e}b", "a\u{fffd}[U+202E]b"),
            ("\u{1b}[31", "\u{fffd}[31"),
        ] {
            assert_eq!(line(text), html, "{text:?}");
        }
    }

    #[test]
    fn a_style_lasts_until_it_is_taken_back_and_lines_are_counted_on() {
        let mut converter = AnsiToHtml::default();
        converter.convert("\u{1b}[33ma\nb\n");
        let html = converter.convert("c\u{1b}[0m\n\n");
        insta::assert_snapshot!(html, @r##"<div class="l" id="L3"><a href="#L3" tabindex="-1">3</a><span><span class="c3">c</span></span></div><div class="l" id="L4"><a href="#L4" tabindex="-1">4</a><span></span></div>"##);
        assert_eq!(converter.lines(), 4);
    }

    proptest! {
        #[test]
        fn only_our_own_tags_come_out(text in "[\\x1b\\[\\]0-9;:m<>&\"'a-c\\\\\r\n]{0,60}") {
            let html = AnsiToHtml::default().convert(&text);
            let tag = regex::Regex::new(
                r#"<div class="l" id="L\d+"><a href="\#L\d+" tabindex="-1">\d+</a><span>|</span></div>|<span class="[a-z0-9 ]+">|</span>"#,
            ).unwrap();
            let rest = tag.replace_all(&html, "");
            prop_assert!(!rest.contains(['<', '>', '"', '\'']), "{}", rest);
            prop_assert_eq!(html.matches("<span").count(), html.matches("</span>").count());
        }
    }
}
