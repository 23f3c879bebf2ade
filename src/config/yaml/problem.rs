//! Problems of a configuration file, told to the person who wrote it.

use std::fmt;

/// Where something stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters to underline.
    pub width: usize,
}

impl Place {
    /// The first character of the file.
    pub(in crate::config) const START: Self = Self {
        line: 1,
        column: 1,
        width: 1,
    };
}

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where; `None` when it is about the file as a whole.
    pub place: Option<Place>,
    /// What was found, and what is wrong with it.
    pub what: String,
    /// How to mend it.
    pub help: String,
}

/// Part of a file that is accepted and has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// Line, from 1.
    pub line: usize,
    /// The part.
    pub what: String,
    /// The reason, with a way out where there is one.
    pub help: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.help)
    }
}

/// Everything that is wrong with a file, at least one problem. `Display` is preformatted text with excerpts of the
/// file: put it in a fence, as any other text from a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    problems: Vec<(Problem, Option<Excerpt>)>,
    left_out: usize,
}

/// A line of the file, short enough to show, and where to underline it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    text: String,
    indent: usize,
    width: usize,
}

impl ConfigErrors {
    /// More problems than anybody reads in one go.
    const MAX_SHOWN: usize = 20;

    /// Sorts problems by place and drops those said twice (an alias repeats the mistakes of its anchor).
    pub(in crate::config) fn new(file: &str, source: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (a.place, &a.what).cmp(&(b.place, &b.what)));
        problems.dedup();
        let left_out = problems.len().saturating_sub(Self::MAX_SHOWN);
        problems.truncate(Self::MAX_SHOWN);
        let with_excerpt = |problem: Problem| {
            let excerpt = problem.place.and_then(|place| Excerpt::of(source, place));
            (problem, excerpt)
        };
        Self {
            file: file.to_owned(),
            problems: problems.into_iter().map(with_excerpt).collect(),
            left_out,
        }
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The problems, in the order of the file, each with the lines to show: the line it is in, and carets below.
    pub fn with_excerpts(&self) -> impl Iterator<Item = (&Problem, Vec<String>)> {
        self.problems
            .iter()
            .map(|(problem, excerpt)| (problem, excerpt.iter().flat_map(Excerpt::lines).collect()))
    }

    /// How many problems there are beside those.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The problems, in the order of the file.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().map(|(problem, _)| problem)
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (problem, excerpt)) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write_problem(f, &self.file, problem, excerpt.as_ref())?;
        }
        if self.left_out > 0 {
            write!(f, "\n\n… and {} more. Mend these first.", self.left_out)?;
        }
        Ok(())
    }
}

fn write_problem(
    f: &mut fmt::Formatter<'_>,
    file: &str,
    problem: &Problem,
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
    /// Characters of a line that fit in a comment.
    const MAX_CHARS: usize = 100;

    fn lines(&self) -> [String; 2] {
        [
            self.text.clone(),
            format!("{}{}", " ".repeat(self.indent), "^".repeat(self.width)),
        ]
    }

    fn of(source: &str, place: Place) -> Option<Self> {
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
        let indent = column - start;
        let width = place
            .width
            .min(text.chars().count().saturating_sub(indent))
            .max(1);
        Some(Self {
            text: text.trim_end().to_owned(),
            indent,
            width,
        })
    }
}

/// The line of a place and carets below what is meant, as two lines.
pub(in crate::config) fn excerpt(source: &str, place: Place) -> Vec<String> {
    Excerpt::of(source, place)
        .iter()
        .flat_map(Excerpt::lines)
        .collect()
}

/// A text of a pull request as it may stand between backticks in a message: short, without backticks, and without
/// anything that moves the cursor or turns the line.
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

    fn problem(line: usize, column: usize, what: &str) -> Problem {
        Problem {
            place: Some(Place {
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
        insta::assert_snapshot!(ConfigErrors::new("atlantis.yaml", source, problems), @"
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
        insta::assert_snapshot!(ConfigErrors::new("atlantis.yaml", &source, vec![problem(1, 501, "a")]), @"
        error: a
         --> atlantis.yaml:1:501
          |
        1 | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxHEREyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
          |                                                   ^^^^
          = help: mend it
        ");
    }

    #[test]
    fn places_outside_the_file_and_odd_characters_do_no_harm() {
        for (line, column) in [(99, 1), (1, 99), (1, 1)] {
            let errors =
                ConfigErrors::new("f", "a\u{202e}b\u{7}", vec![problem(line, column, "a")]);
            assert!(!errors.to_string().contains(['\u{202e}', '\u{7}']));
        }
    }

    #[test]
    fn what_nobody_would_read_is_counted_only() {
        let many = (1..=30).map(|line| problem(line, 1, "a")).collect();
        let text = ConfigErrors::new("f", "", many).to_string();
        assert!(text.ends_with("… and 10 more. Mend these first."), "{text}");
    }
}
