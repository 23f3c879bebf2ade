//! Output of the programs of the stage: their captured standard output, and the lines on the page of the run.

use std::fs;
use std::io;
use std::path::Path;

use crate::workflow::policies::conftest::{MAX_REPORT, REDACTED};
use crate::workflow::scratch;
use crate::workflow::steps::Steps;

/// Maximum number of lines of a report on the page of the run.
const MAX_LINES: usize = 2_000;

impl Steps<'_> {
    /// Reads and removes the standard output of a program; empty if there is none.
    pub(super) async fn captured(&self) -> io::Result<String> {
        let file = &self.files.captured;
        let read = scratch::read(file.clone(), MAX_REPORT).await;
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let bytes = read?.unwrap_or_default();
        let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{FFFD}");
        if let Some(access) = self.exec.registry {
            access.hide(&mut text);
        }
        Ok(text)
    }

    /// Removes the paths of the plan, which are internal.
    pub(super) fn redacted(&self, plan: &Path, text: &str) -> String {
        text.replace(&*plan.to_string_lossy(), REDACTED)
            .replace(&*self.files.show.to_string_lossy(), REDACTED)
    }

    /// Shows the lines of a text on the page of the run.
    pub(super) async fn push_lines(&self, text: &str) {
        let mut lines = text.lines();
        for line in lines.by_ref().take(MAX_LINES) {
            self.exec.output.push_line(line).await;
        }
        let more = lines.count();
        if more > 0 {
            self.exec
                .output
                .push_line(&format!("… {more} more lines"))
                .await;
        }
    }
}
