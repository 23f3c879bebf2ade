//! `lockkeeper accounts import (git | web-accounts)`.

use std::path::Path;

use lockkeeper_accounts::findings::Severity;

use super::super::all_users::AllUsers;
use super::super::check::{CheckedCopy, RefProblem};
use super::super::copy::AccountsCopy;
use super::super::import::ImportAccountsError;
use super::super::web_accounts::{WebAccountsImport, import_web_accounts};
use super::check::report;
use super::{cli_actor, counted};
use crate::git::LocalCopy;
use crate::kit::term::{ExitResult, ExitStatus, Terminal, safe};

/// Imports a copy of `All-Users`.
pub(super) async fn git(users: &AllUsers, dir: &Path, terminal: &mut Terminal<'_>) -> ExitResult {
    let repository = LocalCopy::open(dir)?;
    let copy = AccountsCopy::of(&repository);
    let checked = CheckedCopy::of_used(&copy);
    if checked.errors().next().is_some() {
        report(&copy, &checked, terminal)?;
        terminal.note("Nothing was imported. Correct the errors in the copy first.");
        return Ok(ExitStatus::Failure);
    }
    match users.import(&cli_actor(), &repository, &copy).await {
        Ok(imported) => {
            let parts = checked.of_severity(Severity::Unusable).cloned();
            let refs = imported.left_out.iter();
            let refs = refs.map(|(name, why)| RefProblem::left_out(safe(name), safe(why)));
            let warnings = checked.of_severity(Severity::Warning).cloned();
            for problem in parts.chain(refs).chain(warnings) {
                terminal.line(problem)?;
            }
            terminal.note(format!(
                "Imported {}.",
                counted(imported.accounts, "account")
            ));
            Ok(ExitStatus::Success)
        }
        Err(error @ (ImportAccountsError::NotEmpty(_) | ImportAccountsError::NoAccounts)) => {
            terminal.note(error.to_string());
            Ok(ExitStatus::Failure)
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes accounts of the users of a file, and prints the new text of the file.
pub(super) async fn web_accounts(
    users: &AllUsers,
    file: &Path,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match import_web_accounts(users, &cli_actor(), file).await? {
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
            for problem in problems {
                terminal.note(format!("{}: {}", file.display(), safe(&problem)));
            }
            terminal.note("Nothing was imported. Correct these lines first.");
            Ok(ExitStatus::Failure)
        }
    }
}
