//! Tracks the open Markdown elements after some lines, with just enough rules for the texts of our templates.

/// Maximum length of a line that is repeated as glue; a plain one replaces a longer one.
const MAX_REPEATED: usize = 100;
/// Maximum depth of `<details>` that is tracked; deeper ones are text.
const MAX_DEPTH: usize = 2;
/// Maximum length of a fence that is recognised.
const MAX_FENCE: usize = 80;
/// Maximum glue that one more line can require in its own part (a fence of its length, or a `</details>`).
pub(super) const MAX_GLUE_OF_LINE: usize = MAX_FENCE + 24;

/// Elements that are open after some lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MarkdownState {
    /// Summary lines of open `<details>`, outermost first.
    details: Vec<String>,
    fence: Option<CodeFence>,
    table: Option<TableHead>,
    /// Previous line if it starts with a pipe, because it may be the head of a table.
    row: Option<String>,
    /// True if the previous line was cut, so that the next text is its rest and no markup.
    mid_line: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CodeFence {
    indent: usize,
    mark: char,
    length: usize,
    language: String,
}

/// Head and rule of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableHead {
    head: String,
}

impl MarkdownState {
    /// Returns the open elements after one more line.
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
        self.fence = CodeFence::opened_by(line);
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
                self.table = Some(TableHead {
                    head: format!("{head}\n{line}\n"),
                });
            }
            _ => {}
        }
    }

    /// Returns true if the line should not be the last of a part.
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

    /// Returns the text that closes all open elements; starts on a new line.
    pub(super) fn closing(&self) -> String {
        let fence = self
            .fence
            .as_ref()
            .map(|fence| format!("{}\n", fence.marks()))
            .unwrap_or_default();
        fence + &"\n</details>\n".repeat(self.details.len())
    }

    /// Returns the text that opens the same elements again.
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

    /// Begins a new part.
    pub(super) fn begin_part(&mut self, inside_line: bool) {
        self.mid_line = inside_line;
        self.row = None;
    }
}

impl CodeFence {
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
