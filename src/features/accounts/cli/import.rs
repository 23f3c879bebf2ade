//! `lockkeeper accounts import (git | web-accounts)`.

use std::path::Path;

use lockkeeper_accounts::findings::Severity;
use serde::Serialize;

use super::super::all_users::AllUsers;
use super::super::check::{CheckedCopy, RefProblem};
use super::super::copy::AccountsCopy;
use super::super::import::ImportAccountsError;
use super::super::web_accounts::{WebAccountsImport, import_web_accounts};
use super::check::print_problems;
use super::{cli_actor, counted, print_json};
use crate::git::LocalCopy;
use crate::kit::term::{ExitResult, ExitStatus, OutputFormat, Terminal, safe};

/// Result of an import of a copy.
#[derive(Serialize)]
struct ImportJson<'a> {
    /// Number of accounts that were imported.
    imported: usize,
    /// Everything that was left out, and warnings. If nothing was imported: the errors.
    problems: &'a [RefProblem],
}

/// Imports a copy of `All-Users`.
pub(super) async fn git(
    users: &AllUsers,
    dir: &Path,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let repository = LocalCopy::open(dir)?;
    let copy = AccountsCopy::of(&repository);
    let checked = CheckedCopy::of_used(&copy);
    if checked.errors().next().is_some() {
        if format.is_json() {
            let json = ImportJson {
                imported: 0,
                problems: &checked.problems,
            };
            print_json(&json, terminal)?;
        } else {
            print_problems(&copy, &checked, terminal)?;
        }
        terminal.note("Nothing was imported. Correct the errors in the copy first.");
        return Ok(ExitStatus::Failure);
    }
    match users.import(&cli_actor(), &repository, &copy).await {
        Ok(imported) => {
            let parts = checked.of_severity(Severity::Unusable).cloned();
            let refs = imported.left_out.iter();
            let refs = refs.map(|(name, why)| RefProblem::left_out(safe(name), safe(why)));
            let warnings = checked.of_severity(Severity::Warning).cloned();
            let problems: Vec<RefProblem> = parts.chain(refs).chain(warnings).collect();
            if format.is_json() {
                let json = ImportJson {
                    imported: imported.accounts,
                    problems: &problems,
                };
                print_json(&json, terminal)?;
                return Ok(ExitStatus::Success);
            }
            for problem in &problems {
                terminal.line(problem)?;
            }
            terminal.note(format!(
                "Imported {}.",
                counted(imported.accounts, "account")
            ));
            Ok(ExitStatus::Success)
        }
        Err(error @ (ImportAccountsError::NotEmpty(_) | ImportAccountsError::NoAccounts)) => {
            terminal.note(format_args!("error: {error}"));
            Ok(ExitStatus::Failure)
        }
        Err(error) => Err(error.into()),
    }
}

/// Result of an import of the users of a file.
#[derive(Serialize)]
struct WebAccountsJson<'a> {
    /// Number of accounts that were created.
    created: usize,
    /// New text of the file. `None`: nothing was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// Reasons why nothing was imported.
    problems: &'a [String],
}

impl<'a> WebAccountsJson<'a> {
    fn of(outcome: &'a WebAccountsImport) -> Self {
        match outcome {
            WebAccountsImport::Done { text, created } => Self {
                created: *created,
                text: Some(text),
                problems: &[],
            },
            WebAccountsImport::Refused(problems) => Self {
                created: 0,
                text: None,
                problems,
            },
        }
    }
}

/// Makes accounts of the users of a file, and prints the new text of the file.
pub(super) async fn web_accounts(
    users: &AllUsers,
    file: &Path,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let outcome = import_web_accounts(users, &cli_actor(), file).await?;
    if format.is_json() {
        print_json(&WebAccountsJson::of(&outcome), terminal)?;
    }
    match outcome {
        WebAccountsImport::Done { .. } if format.is_json() => Ok(ExitStatus::Success),
        WebAccountsImport::Done { text, created } => {
            let status = terminal.shown(&text);
            terminal.note(format!(
                "Created {}. Write the text above to {}; running servers then read it.",
                counted(created, "account"),
                file.display()
            ));
            Ok(status)
        }
        WebAccountsImport::Refused(problems) => {
            // The output is the new file, so a refusal is none.
            for problem in problems.iter().filter(|_| !format.is_json()) {
                terminal.note(format!("{}: {}", file.display(), safe(problem)));
            }
            terminal.note("Nothing was imported. Correct these lines first.");
            Ok(ExitStatus::Failure)
        }
    }
}
