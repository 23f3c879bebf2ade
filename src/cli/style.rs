//! Colours and width of a terminal.

use std::io::{IsTerminal, stdout};

/// Smallest width that lines are broken for; narrower terminals wrap lines themselves.
const NARROWEST: usize = 40;
/// Width where none is known, as for a file or a pipe.
const USUAL: usize = 80;

/// Role of a piece of text; terminals with colours show it by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRole {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Changed,
    Code,
}

impl TextRole {
    /// Returns the parameters of Select Graphic Rendition (ECMA-48).
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Changed => "33",
            Self::Code => "36",
        }
    }
}

/// Colours and width of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct TerminalStyle {
    pub colours: bool,
    pub width: usize,
}

impl TerminalStyle {
    /// Maximum width of readable text.
    pub const PROSE: usize = 100;

    /// Describes standard output, as wide as it is but not wider than `widest`. `NO_COLOR`, if set to any value,
    /// switches colours off (no-color.org).
    pub fn of_stdout(no_color: Option<&str>, widest: usize) -> Self {
        let width = terminal_size::terminal_size_of(stdout())
            .map_or(USUAL, |(width, _)| usize::from(width.0));
        Self {
            colours: stdout().is_terminal() && no_color.is_none_or(str::is_empty),
            width: width.clamp(NARROWEST, widest),
        }
    }

    /// Returns the text in its colour.
    pub fn paint(&self, role: TextRole, text: &str) -> String {
        if !self.colours || role == TextRole::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", role.code())
    }

    /// Returns the same terminal without a margin.
    pub fn narrower(&self, margin: usize) -> Self {
        Self {
            width: self.width.saturating_sub(margin),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_where_there_are_none() {
        let look = |colours| TerminalStyle { colours, width: 80 };
        assert_eq!(
            look(true).paint(TextRole::Good, "✓"),
            "\u{1b}[32m✓\u{1b}[0m"
        );
        assert_eq!(look(true).paint(TextRole::Plain, "x"), "x");
        assert_eq!(look(false).paint(TextRole::Good, "✓"), "✓");
    }
}
