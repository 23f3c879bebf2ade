//! The verdict for people: important things first, equal entries once, long lists shortened unless all entries were
//! requested.

use std::io;

use super::local::LocalChange;
use super::verdict::{CheckVerdict, FileProblem};
use crate::cli::Terminal;
use crate::cli::style::{TerminalStyle, TextRole};
use crate::cli::text::Text;
use crate::discovery::explain::{
    PlanExplanation, PlannedGroup, SkippedGroup, groups, hooks_not_run, skipped_groups,
};
use crate::model::ProjectKey;

/// Number of entries of a list that are shown by default.
const SHOWN: usize = 20;

/// Maximum width of the first column.
const LEFT: usize = 32;

/// Prints a verdict, its most important part first.
pub(super) fn print(
    verdict: &CheckVerdict,
    all: bool,
    look: &TerminalStyle,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let mut page = CheckText {
        look,
        terminal,
        shown: if all { usize::MAX } else { SHOWN },
    };
    if !verdict.problems.is_empty() {
        return page.problems(verdict);
    }
    match &verdict.explanation {
        Some(explanation) => page.explanation(verdict, explanation)?,
        None => page.unknown(verdict)?,
    }
    page.warnings(verdict)
}

struct CheckText<'a, 't> {
    look: &'a TerminalStyle,
    terminal: &'a mut Terminal<'t>,
    /// Number of entries of a list that are shown.
    shown: usize,
}

impl CheckText<'_, '_> {
    fn problems(&mut self, verdict: &CheckVerdict) -> io::Result<()> {
        for problem in &verdict.problems {
            let text = match problem {
                FileProblem::Errors(errors) => errors.to_string(),
                FileProblem::Whole(what) => format!("error: {what}"),
            };
            for line in text.lines() {
                let painted = match line.split_once(':') {
                    Some(("error", rest)) => {
                        format!("{}{rest}", self.look.paint(TextRole::Bad, "error:"))
                    }
                    _ => line.to_owned(),
                };
                self.terminal.line(painted)?;
            }
            self.terminal.line("")?;
        }
        let count: usize = verdict.problems.iter().map(number).sum();
        self.prose(&format!(
            "{}. Nothing is planned until the files are fixed.",
            plural(count, "problem")
        ))?;
        if let (Some(file), false) = (&verdict.config_file, verdict.knows_permissions) {
            self.prose(&format!(
                "`{file}` was not checked, because its permissions depend on the server's file."
            ))?;
        }
        self.about(verdict)
    }

    fn unknown(&mut self, verdict: &CheckVerdict) -> io::Result<()> {
        self.strong("No problems in the files.")?;
        let why = match verdict.local.change {
            LocalChange::Unknown { is_git: false } => "this directory is not a git repository",
            LocalChange::Unknown { is_git: true }
            | LocalChange::Since { .. }
            | LocalChange::Everything(_) => {
                "the repository has no `origin`, `main` or `master`, or it has no commit"
            }
        };
        self.prose(&format!(
            "There is no revision to compare with, so it is not known what would be planned: {why}. Name a revision with \
             `--base`, or treat all files as changed with `--all`."
        ))?;
        self.about(verdict)
    }

    fn explanation(
        &mut self,
        verdict: &CheckVerdict,
        explanation: &PlanExplanation,
    ) -> io::Result<()> {
        self.strong(&sentence(&explanation.summary()))?;
        self.prose(&compared(&verdict.local.change))?;
        self.about(verdict)?;
        if let Some(limit) = verdict.over_limit() {
            self.prose(&format!(
                "The server would refuse this plan: a command may have {limit} projects at most (`--max-projects`). Change \
                 fewer projects in one pull request, or plan some of them with `-d` or `-p`."
            ))?;
        }
        if verdict.local.left_out > 0 {
            let files = plural(verdict.local.left_out, "file");
            self.prose(&format!(
                "Skipped {files} with names that are not UTF-8 or too long."
            ))?;
        }
        let groups = groups(&explanation.planned);
        for group in groups.iter().take(self.shown) {
            self.planned(group)?;
        }
        let unseen: usize = groups
            .iter()
            .skip(self.shown)
            .map(|group| group.projects.len())
            .sum();
        if unseen > 0 {
            let more = plural(unseen, "more project");
            self.terminal.line("")?;
            self.prose(&format!(
                "{more} would be planned, with other settings: `--all` shows them."
            ))?;
        }
        self.skipped(&skipped_groups(&explanation.skipped))?;
        self.files(explanation)
    }

    /// Prints the repository, branch and files that the result is about.
    fn about(&mut self, verdict: &CheckVerdict) -> io::Result<()> {
        let guess = if verdict.knows_branch {
            ""
        } else {
            " (assumed; see `--base-branch`)"
        };
        let into = format!(" into `{}`{guess}", super::shown(verdict.branch.as_str()));
        let origin = if verdict.names_itself() {
            ""
        } else {
            " (assumed, because `origin` names no repository; see `--repo`)"
        };
        let own = match &verdict.config_file {
            Some(file) => format!("configured by `{file}`"),
            None => "without a configuration file".to_owned(),
        };
        let server = match &verdict.server_file {
            Some(file) => format!(
                "on a server with `{}`",
                file.rsplit('/').next().unwrap_or(file)
            ),
            None => "on a server without `--repo-config`".to_owned(),
        };
        self.prose(&format!(
            "Checked as `{}`{origin}{into}, {own}, {server}.",
            verdict.repo
        ))?;
        if let Some(elsewhere) = &verdict.elsewhere {
            self.prose(&format!(
                "The server reads the repository's file from {elsewhere}; this check reads it from the working tree."
            ))?;
        }
        hooks_not_run(verdict.hooks).map_or(Ok(()), |sentence| self.prose(&sentence))
    }

    fn planned(&mut self, group: &PlannedGroup<'_>) -> io::Result<()> {
        self.heading("Would be planned", group.projects.len())?;
        let width = column(group.projects.iter().map(|planned| label(&planned.key)));
        for planned in group.projects.iter().take(self.shown) {
            self.entry(
                2,
                width,
                TextRole::Good,
                &label(&planned.key),
                &planned.because(),
            )?;
        }
        self.rest(2, group.projects.len())?;
        self.terminal.line("")?;
        for row in &group.rows {
            self.entry(4, 14, TextRole::Faint, row.label, &row.to_string())?;
        }
        Ok(())
    }

    fn skipped(&mut self, groups: &[SkippedGroup<'_>]) -> io::Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        self.heading(
            "Would not be planned",
            groups.iter().map(|group| group.projects.len()).sum(),
        )?;
        for group in groups.iter().take(self.shown) {
            let count = group.projects.len().to_string();
            self.entry(
                2,
                4,
                TextRole::Changed,
                &format!("{count:>4}"),
                &group.reason,
            )?;
            let labels = group.projects.iter().map(|skipped| label(&skipped.key));
            if self.shown == usize::MAX {
                for label in labels {
                    self.entry(8, 0, TextRole::Plain, "", &label)?;
                }
            } else {
                self.entry(8, 0, TextRole::Plain, "", &few(labels))?;
            }
        }
        self.rest(2, groups.len())
    }

    fn files(&mut self, explanation: &PlanExplanation) -> io::Result<()> {
        let idle: Vec<_> = explanation.idle_files().collect();
        if idle.is_empty() {
            return Ok(());
        }
        self.heading("Changed files that belong to no project", idle.len())?;
        let width = column(idle.iter().map(|(file, _)| file.path.to_string()));
        for (file, reason) in idle.iter().take(self.shown) {
            self.entry(
                2,
                width,
                TextRole::Plain,
                file.path.as_str(),
                &reason.to_string(),
            )?;
        }
        self.rest(2, idle.len())
    }

    fn warnings(&mut self, verdict: &CheckVerdict) -> io::Result<()> {
        if verdict.warnings.is_empty() {
            return Ok(());
        }
        self.heading("Without effect, or unknown", verdict.warnings.len())?;
        for warning in verdict.warnings.iter().take(self.shown) {
            let line = warning
                .line
                .map(|line| format!(":{line}"))
                .unwrap_or_default();
            let text = format!("{}: {}", warning.what, warning.help);
            self.entry(
                2,
                20,
                TextRole::Changed,
                &format!("{}{line}", warning.file),
                &text,
            )?;
        }
        self.rest(2, verdict.warnings.len())
    }

    fn strong(&mut self, text: &str) -> io::Result<()> {
        self.terminal.line(self.look.paint(TextRole::Strong, text))
    }

    fn heading(&mut self, text: &str, count: usize) -> io::Result<()> {
        self.terminal.line("")?;
        self.strong(&format!("{text} ({count})"))
    }

    fn prose(&mut self, text: &str) -> io::Result<()> {
        self.entry(0, 0, TextRole::Plain, "", text)
    }

    /// Prints the number of entries that were left out of a list.
    fn rest(&mut self, indent: usize, count: usize) -> io::Result<()> {
        match count.saturating_sub(self.shown) {
            0 => Ok(()),
            rest => self.entry(
                indent,
                0,
                TextRole::Plain,
                "",
                &format!("… and {rest} more: `--all` shows them"),
            ),
        }
    }

    /// Prints two columns and breaks the second one into lines. Text that is too long for the first column stands above
    /// the second one.
    fn entry(
        &mut self,
        indent: usize,
        width: usize,
        role: TextRole,
        left: &str,
        right: &str,
    ) -> io::Result<()> {
        let gap = if width == 0 { 0 } else { width + 2 };
        let text = prose(self.look, right).lines(&self.look.narrower(indent + gap));
        let mut lines = text.into_iter();
        let length = left.chars().count();
        if width > 0 {
            let first = if length <= width {
                lines.next().unwrap_or_default()
            } else {
                String::new()
            };
            let padding = " ".repeat((width + 2).saturating_sub(length));
            let line = format!(
                "{}{}{padding}{first}",
                " ".repeat(indent),
                self.look.paint(role, left)
            );
            self.terminal.line(line.trim_end())?;
        }
        for line in lines {
            self.terminal
                .line(format_args!("{}{line}", " ".repeat(indent + gap)))?;
        }
        Ok(())
    }
}

/// Parses text with code between backticks; they are removed where colour marks the code.
fn prose(look: &TerminalStyle, text: &str) -> Text {
    let mut prose = Text::default();
    for (index, part) in text.split('`').enumerate() {
        match (index % 2 == 1, look.colours) {
            (false, _) => prose.push(TextRole::Plain, part),
            (true, true) => prose.push(TextRole::Code, part),
            (true, false) => prose.push(TextRole::Plain, &format!("`{part}`")),
        }
    }
    prose
}

fn column(texts: impl Iterator<Item = String>) -> usize {
    texts
        .map(|text| text.chars().count())
        .filter(|length| *length <= LEFT)
        .max()
        .unwrap_or(LEFT)
}

/// Returns the name or the directory, with directory and workspace where they add information.
fn label(key: &ProjectKey) -> String {
    let workspace = (!key.workspace.is_default()).then(|| format!("workspace {}", key.workspace));
    let is_told_apart = |name: &&crate::model::ProjectName| name.as_str() != key.dir.as_str();
    let place = key
        .name
        .as_ref()
        .filter(is_told_apart)
        .map(|_| key.dir.to_string());
    let more: Vec<String> = place.into_iter().chain(workspace).collect();
    let name = key
        .name
        .as_ref()
        .map_or_else(|| key.dir.to_string(), ToString::to_string);
    if more.is_empty() {
        name
    } else {
        format!("{name} ({})", more.join(", "))
    }
}

/// Joins the first few of many labels.
fn few(labels: impl ExactSizeIterator<Item = String>) -> String {
    const FEW: usize = 5;
    let count = labels.len();
    let mut shown: Vec<String> = labels.take(FEW).collect();
    if count > FEW {
        shown.push(format!("… and {} more", count - FEW));
    }
    shown.join(", ")
}

fn number(problem: &FileProblem) -> usize {
    match problem {
        FileProblem::Errors(errors) => errors.problems().count() + errors.left_out(),
        FileProblem::Whole(_) => 1,
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Turns a clause into a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!(
        "{}{}.",
        first.into_iter().collect::<String>(),
        letters.as_str()
    )
}

fn compared(change: &LocalChange) -> String {
    match change {
        LocalChange::Since {
            base,
            files,
            uncommitted,
        } => {
            let open = files
                .iter()
                .filter(|file| uncommitted.contains(&file.path))
                .count();
            let open = if open == 0 {
                String::new()
            } else {
                format!(", {open} of them not committed yet")
            };
            let rev = super::shown(&base.rev);
            format!(
                "Compared with `{rev}` (`{}`): {}{open}.",
                base.merge_base.short(),
                plural(files.len(), "changed file")
            )
        }
        LocalChange::Everything(files) => format!(
            "No revision to compare with: {} treated as changed.",
            plural(files.len(), "file")
        ),
        LocalChange::Unknown { .. } => String::new(),
    }
}
