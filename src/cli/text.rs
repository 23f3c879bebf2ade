//! Text in pieces of different roles, broken into lines.

use super::style::{TerminalStyle, TextRole};

/// Pieces of text that flow together.
#[derive(Clone, Debug, Default)]
pub(super) struct Text(Vec<(TextRole, String)>);

impl Text {
    pub fn push(&mut self, role: TextRole, text: &str) {
        self.0.push((role, text.to_owned()));
    }

    pub fn is_blank(&self) -> bool {
        self.0.iter().all(|(_, text)| text.trim().is_empty())
    }

    /// Breaks the text between words into lines of at most the look's width. A longer word, such as a URL, stays whole.
    pub fn lines(&self, look: &TerminalStyle) -> Vec<String> {
        let (mut lines, mut line, mut room) = (Vec::new(), String::new(), look.width);
        for word in self.words() {
            let width = word
                .iter()
                .map(|(_, text)| text.chars().count())
                .sum::<usize>();
            let gap = usize::from(!line.is_empty());
            if gap == 1 && width + gap > room {
                lines.push(std::mem::take(&mut line));
                room = look.width;
            } else if gap == 1 {
                line.push(' ');
                room -= gap;
            }
            line.extend(word.iter().map(|(role, text)| look.paint(*role, text)));
            room = room.saturating_sub(width);
        }
        lines.extend((!line.is_empty()).then_some(line));
        lines
    }

    /// Splits the text into words, each with its parts by role.
    fn words(&self) -> Vec<Vec<(TextRole, &str)>> {
        let mut words: Vec<Vec<(TextRole, &str)>> = vec![Vec::new()];
        for (role, text) in &self.0 {
            for (i, part) in text.split(char::is_whitespace).enumerate() {
                if i > 0 {
                    words.push(Vec::new());
                }
                if let Some(word) = words.last_mut().filter(|_| !part.is_empty()) {
                    word.push((*role, part));
                }
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }
}

/// Breaks a line of a program's output at the width, without dropping or moving characters.
pub(super) fn chop(line: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars
        .chunks(width.max(1))
        .map(|chunk| chunk.iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole_and_roles_apart() {
        let mut text = Text::default();
        text.push(TextRole::Plain, "one two");
        text.push(TextRole::Strong, "three four");
        text.push(TextRole::Plain, ", five https://example.com/very/long");
        let look = TerminalStyle {
            colours: false,
            width: 12,
        };
        assert_eq!(
            text.lines(&look),
            [
                "one twothree",
                "four, five",
                "https://example.com/very/long"
            ]
        );
        let look = TerminalStyle {
            colours: true,
            width: 80,
        };
        assert!(
            text.lines(&look)[0]
                .contains("two\u{1b}[1mthree\u{1b}[0m \u{1b}[1mfour\u{1b}[0m, five")
        );
    }

    #[test]
    fn output_is_broken_where_the_line_ends() {
        assert_eq!(chop("  abc def", 4), ["  ab", "c de", "f"]);
        assert_eq!(chop("", 4), [""]);
    }
}
