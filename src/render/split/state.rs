//! What is open in Markdown after some lines: just enough of its rules for the texts that templates here make.

/// Longest line that is repeated as glue; a longer one is replaced by a plain one.
const MAX_REPEATED: usize = 100;
/// Most `<details>` that are followed; deeper ones are text.
const MAX_DEPTH: usize = 2;
/// Longest fence that is understood.
const MAX_FENCE: usize = 80;
/// Most glue that one more line can make necessary in its own part (a fence of its length, or a `</details>`).
pub(super) const MAX_GLUE_OF_LINE: usize = MAX_FENCE + 24;

/// What is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The summary lines of open `<details>`, outermost first.
    details: Vec<String>,
    fence: Option<Fence>,
    table: Option<Table>,
    /// The line before starts with a pipe: perhaps the head of a table.
    row: Option<String>,
    /// The line before was cut, what comes now is its rest and no markup.
    mid_line: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fence {
    indent: usize,
    mark: char,
    length: usize,
    language: String,
}

/// Head and rule of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    head: String,
}

impl State {
    /// What is open after one more line.
    #[must_use]
    pub(super) fn after(&self, line: &str) -> Self {
        let mut next = self.clone();
        if std::mem::take(&mut next.mid_line) {
            return next;
        }
        let text = line.trim_end_matches('\n');
        match &self.fence {
            Some(fence) if fence.is_closed_by(text) => next.fence = None,
            Some(_) => {}
            None => next.outside_code(text),
        }
        next
    }

    fn outside_code(&mut self, line: &str) {
        self.follow_table(line);
        self.fence = Fence::opened_by(line);
        let tag = line.trim_start();
        if tag.starts_with("<details") && self.details.len() < MAX_DEPTH {
            self.details.push(line.to_owned());
        } else if tag.starts_with("</details>") {
            self.details.pop();
        }
    }

    fn follow_table(&mut self, line: &str) {
        if !line.starts_with('|') {
            (self.table, self.row) = (None, None);
            return;
        }
        let rule = line.contains("--") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
        match self.row.replace(line.to_owned()) {
            Some(head)
                if rule && self.table.is_none() && head.len() + line.len() <= 2 * MAX_REPEATED =>
            {
                self.table = Some(Table {
                    head: format!("{head}\n{line}\n"),
                });
            }
            _ => {}
        }
    }

    /// Whether the line should not be the last of a part.
    pub(super) fn opens(&self, line: &str) -> bool {
        if self.mid_line || self.fence.is_some() {
            return false;
        }
        let next = self.after(line);
        let more = next.fence.is_some() || next.details.len() > self.details.len();
        let table_head = next.table.is_none() && next.row.is_some()
            || self.table.is_none() && next.table.is_some();
        more || table_head || line.starts_with('#')
    }

    /// Closes all that is open; starts on a new line.
    pub(super) fn closing(&self) -> String {
        let fence = self
            .fence
            .as_ref()
            .map(|fence| format!("{}\n", fence.marks()))
            .unwrap_or_default();
        fence + &"\n</details>\n".repeat(self.details.len())
    }

    /// Opens it again.
    pub(super) fn opening(&self) -> String {
        let mut out = String::new();
        for line in &self.details {
            let known = line.len() <= MAX_REPEATED && line.contains("</summary>");
            out.push_str(if known {
                line
            } else {
                "<details><summary>Continued</summary>"
            });
            out.push_str("\n\n");
        }
        if let Some(fence) = &self.fence {
            out.extend([&fence.marks(), fence.language.as_str(), "\n"]);
        }
        out + self.table.as_ref().map_or("", |table| &table.head)
    }

    /// A new part begins.
    pub(super) fn begin_part(&mut self, inside_line: bool) {
        self.mid_line = inside_line;
        self.row = None;
    }
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let language = text.trim_start_matches(mark);
        let length = text.len() - language.len();
        let fine = indent <= 3
            && (3..=MAX_FENCE).contains(&length)
            && !(mark == '`' && language.contains('`'));
        let language = Some(language)
            .filter(|l| l.len() <= MAX_REPEATED)
            .unwrap_or_default()
            .to_owned();
        fine.then_some(Self {
            indent,
            mark,
            length,
            language,
        })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let rest = text.trim_start_matches(self.mark);
        line.len() - text.len() <= 3
            && text.len() - rest.len() >= self.length
            && rest.trim().is_empty()
    }

    fn marks(&self) -> String {
        " ".repeat(self.indent) + &self.mark.to_string().repeat(self.length)
    }
}
