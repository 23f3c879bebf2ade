//! Formats the report: sections of notes and tables in Markdown, so that the printed output can be kept unchanged.

use std::fmt;

/// A subject of the report.
#[derive(Debug, Default)]
pub struct Section {
    heading: String,
    notes: Vec<String>,
    table: Option<Table>,
    /// Reasons why the figures do not count, if they do not.
    pub failures: Vec<String>,
    next: Option<Box<Self>>,
}

/// Rows below column headings.
#[derive(Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Section {
    /// Creates an empty section.
    pub fn new(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            ..Self::default()
        }
    }

    /// Adds a line about the method of the measurement.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets the table of figures.
    #[must_use]
    pub fn with_table(mut self, table: Table) -> Self {
        self.table = Some(table);
        self
    }

    /// Adds a section that is printed after this one: figures that were measured along the way.
    #[must_use]
    pub fn followed_by(mut self, next: Self) -> Self {
        self.next = Some(Box::new(next));
        self
    }

    /// Records that the figures do not count.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.failures.push(why.into());
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|&cell| cell.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, filled up to the width of the table.
    pub fn row(&mut self, first: impl Into<String>, rest: impl IntoIterator<Item = String>) {
        let mut row = vec![first.into()];
        row.extend(rest);
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    fn width(&self, column: usize) -> usize {
        let cells = std::iter::once(&self.head)
            .chain(&self.rows)
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.heading.is_empty() {
            writeln!(f, "## {}\n", self.heading)?;
        }
        if let Some(table) = &self.table {
            writeln!(f, "{table}")?;
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "- {note}"))?;
        self.next
            .as_ref()
            .map_or(Ok(()), |next| write!(f, "\n{next}"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| self.width(column))
            .collect();
        let rule = widths
            .iter()
            .enumerate()
            .map(|(column, &width)| match column {
                0 => "-".repeat(width),
                _ => "-".repeat(width.max(2) - 1) + ":",
            });
        let rule: Vec<String> = rule.collect();
        for row in [&self.head, &rule].into_iter().chain(&self.rows) {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
        }
        Ok(())
    }
}
