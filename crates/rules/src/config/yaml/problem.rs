//! Problems of a configuration file, formatted for its author.

use std::fmt;

use unicode_width::UnicodeWidthStr;

/// A place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Line number, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Number of characters to underline.
    pub width: usize,
}

impl FilePosition {
    /// The first character of the file.
    pub(in crate::config) const START: Self = Self {
        line: 1,
        column: 1,
        width: 1,
    };
}

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlProblem {
    /// Place of the mistake. `None` if it concerns the file as a whole.
    pub place: Option<FilePosition>,
    /// The mistake, with the text that was found.
    pub what: String,
    /// The fix to suggest.
    pub help: String,
}

/// A part of a file that is accepted without effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct YamlNote {
    /// Line number, counted from 1.
    pub line: usize,
    /// Description of the part.
    pub what: String,
    /// The reason, with an alternative if there is one.
    pub help: String,
}

impl fmt::Display for YamlNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.help)
    }
}

/// All problems of a file, at least one. `Display` returns preformatted text with excerpts of the file. Put it in a
/// fence, like any other text from a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlErrors {
    file: String,
    problems: Vec<(YamlProblem, Option<Excerpt>)>,
    left_out: usize,
}

/// A line of the file, short enough to show, and the part to underline.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    text: String,
    indent: usize,
    width: usize,
}

impl YamlErrors {
    /// Maximum number of shown problems. Nobody reads more at once.
    const MAX_SHOWN: usize = 20;

    /// Sorts problems by place and drops duplicates (an alias repeats the mistakes of its anchor).
    pub(in crate::config) fn new(file: &str, source: &str, mut problems: Vec<YamlProblem>) -> Self {
        problems.sort_by(|a, b| (a.place, &a.what).cmp(&(b.place, &b.what)));
        problems.dedup();
        let left_out = problems.len().saturating_sub(Self::MAX_SHOWN);
        problems.truncate(Self::MAX_SHOWN);
        let with_excerpt = |problem: YamlProblem| {
            let excerpt = problem.place.and_then(|place| Excerpt::of(source, place));
            (problem, excerpt)
        };
        Self {
            file: file.to_owned(),
            problems: problems.into_iter().map(with_excerpt).collect(),
            left_out,
        }
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the problems in the order of the file, each with the lines to show: its line, and carets below.
    pub fn with_excerpts(&self) -> impl Iterator<Item = (&YamlProblem, Vec<String>)> {
        self.problems
            .iter()
            .map(|(problem, excerpt)| (problem, excerpt.iter().flat_map(Excerpt::lines).collect()))
    }

    /// Returns the number of problems that are not shown.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the problems in the order of the file.
    pub fn problems(&self) -> impl Iterator<Item = &YamlProblem> {
        self.problems.iter().map(|(problem, _)| problem)
    }
}

impl std::error::Error for YamlErrors {}

impl fmt::Display for YamlErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (problem, excerpt)) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write_problem(f, &self.file, problem, excerpt.as_ref())?;
        }
        if self.left_out > 0 {
            write!(f, "\n\n… and {} more. Fix these first.", self.left_out)?;
        }
        Ok(())
    }
}

fn write_problem(
    f: &mut fmt::Formatter<'_>,
    file: &str,
    problem: &YamlProblem,
    excerpt: Option<&Excerpt>,
) -> fmt::Result {
    writeln!(f, "error: {}", problem.what)?;
    let Some(place) = problem.place else {
        writeln!(f, " --> {file}")?;
        return write!(f, "  = help: {}", problem.help);
    };
    let number = place.line.to_string();
    let gutter = " ".repeat(number.len());
    writeln!(f, "{gutter}--> {file}:{}:{}", place.line, place.column)?;
    if let Some([text, carets]) = excerpt.map(Excerpt::lines) {
        writeln!(f, "{gutter} |\n{number} | {text}\n{gutter} | {carets}")?;
    }
    write!(f, "{gutter} = help: {}", problem.help)
}

impl Excerpt {
    /// Maximum number of characters of a line that fit in a comment.
    const MAX_CHARS: usize = 100;

    fn lines(&self) -> [String; 2] {
        [
            self.text.clone(),
            format!("{}{}", " ".repeat(self.indent), "^".repeat(self.width)),
        ]
    }

    fn of(source: &str, place: FilePosition) -> Option<Self> {
        let line = source.lines().nth(place.line - 1)?;
        let length = line.chars().count();
        let column = (place.column - 1).min(length);
        let start = if length <= Self::MAX_CHARS {
            0
        } else {
            column.saturating_sub(Self::MAX_CHARS / 2)
        };
        let text: String = line
            .chars()
            .skip(start)
            .take(Self::MAX_CHARS)
            .map(harmless)
            .collect();
        // A caret is one column wide, and a character may be none or two.
        let before: String = text.chars().take(column - start).collect();
        let marked: String = text
            .chars()
            .skip(column - start)
            .take(place.width)
            .collect();
        let (indent, width) = (before.width(), marked.width().max(1));
        Some(Self {
            text: text.trim_end().to_owned(),
            indent,
            width,
        })
    }
}

/// Returns two lines: the line of a place, and carets below the underlined part.
pub(in crate::config) fn excerpt(source: &str, place: FilePosition) -> Vec<String> {
    Excerpt::of(source, place)
        .iter()
        .flat_map(Excerpt::lines)
        .collect()
}

/// Shortens a text of a pull request for use between backticks in a message. Replaces backticks, and characters that
/// move the cursor or change the direction of the line.
pub fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let without_backticks = text
        .chars()
        .map(|c| if c == '`' { '\'' } else { harmless(c) });
    let mut shown: String = without_backticks.take(MAX_CHARS).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

fn harmless(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: usize, column: usize, what: &str) -> YamlProblem {
        YamlProblem {
            place: Some(FilePosition {
                line,
                column,
                width: 4,
            }),
            what: what.to_owned(),
            help: "mend it".to_owned(),
        }
    }

    #[test]
    fn problems_come_in_the_order_of_the_file_and_once() {
        let source = "one\ntwo three\n";
        let problems = vec![problem(2, 5, "b"), problem(1, 1, "a"), problem(2, 5, "b")];
        insta::assert_snapshot!(YamlErrors::new("atlantis.yaml", source, problems), @"
        error: a
         --> atlantis.yaml:1:1
          |
        1 | one
          | ^^^
          = help: mend it

        error: b
         --> atlantis.yaml:2:5
          |
        2 | two three
          |     ^^^^
          = help: mend it
        ");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let source = format!("{}HERE{}", "x".repeat(500), "y".repeat(500));
        insta::assert_snapshot!(YamlErrors::new("atlantis.yaml", &source, vec![problem(1, 501, "a")]), @"
        error: a
         --> atlantis.yaml:1:501
          |
        1 | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxHEREyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
          |                                                   ^^^^
          = help: mend it
        ");
    }

    #[test]
    fn carets_are_below_the_place_after_characters_of_another_width() {
        // Two columns each, then an accent without a column of its own.
        let source = "日本 e\u{301} HERE\n";
        let text = YamlErrors::new("atlantis.yaml", source, vec![problem(1, 7, "a")]).to_string();
        let carets = text.lines().find(|line| line.contains('^')).unwrap();
        assert_eq!(carets, "  |        ^^^^", "{text}");
    }

    #[test]
    fn places_outside_the_file_and_odd_characters_do_no_harm() {
        for (line, column) in [(99, 1), (1, 99), (1, 1)] {
            let errors = YamlErrors::new("f", "a\u{202e}b\u{7}", vec![problem(line, column, "a")]);
            assert!(!errors.to_string().contains(['\u{202e}', '\u{7}']));
        }
    }

    #[test]
    fn what_nobody_would_read_is_counted_only() {
        let many = (1..=30).map(|line| problem(line, 1, "a")).collect();
        let text = YamlErrors::new("f", "", many).to_string();
        assert!(text.ends_with("… and 10 more. Fix these first."), "{text}");
    }
}
