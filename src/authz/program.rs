//! Decides about people of the forge with a program of the administrator: `team_authz` (reference 1.8, 5.7).
//!
//! The program is started without a shell as `COMMAND ARGS… COMMAND_NAME OWNER/REPO OWNER/TEAM…`. It gets the part of
//! the server's environment that Terraform may see (so no secrets of the server) and the facts of the command. It
//! grants by ending with exit code 0 and `pass` as the last line of its standard output. Everything else denies,
//! including a program that cannot be started (P6).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tracing::{info, warn};

use super::{AuthzError, Decision, Denial, Resource, not_from_the_forge};
use crate::config::access::{Action, Identity, TeamAuthz};
use crate::context::Ctx;
use crate::errors::describe_error;
use crate::forges::ForgeError;
use crate::model::{ProjectName, RepoId, code_span};
use crate::process::{CallOutput, Cmd, ProcessError};

/// Time limit of the program, because somebody waits for the answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum size of the output in bytes; the answer is one word.
const MOST_OUTPUT: usize = 256 * 1024;
/// Maximum number of teams of an organisation that are checked one by one.
const MOST_TEAMS: usize = 200;
/// Maximum number of concurrent requests about teams.
const ABREAST: usize = 8;
/// Maximum number of characters of an output line that are shown to people.
const SHOWN: usize = 120;

/// Decides by the answer of the program.
pub(super) async fn by_program(
    ctx: &Ctx,
    program: &TeamAuthz,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    let Some(repo) = on.repo() else {
        return Ok(not_from_the_forge(who, action));
    };
    let teams = teams_of(ctx, repo, who.name()).await?;
    let teams = teams.iter().map(|team| format!("{}/{team}", repo.owner()));
    let cmd = Cmd::new(&program.command)
        .args(&program.args)
        .args([action.command_name(), repo.full_name()])
        .args(teams)
        .envs(ctx.authz_environment.iter())
        .envs(facts(who, action, repo, on))
        .deadline(DEADLINE)
        .cap(MOST_OUTPUT);
    let answer = cmd.output().await;
    log(program, &answer);
    Ok(match verdict(&answer) {
        Ok(()) => Decision::Granted,
        Err(actual) => Decision::Denied(Box::new(denial(program, who, action, actual))),
    })
}

/// Returns the teams to pass to the program: those teams of the allowlist that this person is in. Without a list, all
/// teams of the person.
async fn teams_of(ctx: &Ctx, at: &RepoId, login: &str) -> Result<Vec<String>, ForgeError> {
    let (forge, now) = (ctx.forges.of(at)?, ctx.clock.now());
    let candidates = match ctx.settings.permissions.teams.teams() {
        teams if teams.is_empty() => ctx.memberships.list(forge, now, at, MOST_TEAMS).await?,
        teams => teams.into_iter().map(str::to_owned).collect(),
    };
    let asked = candidates.into_iter().map(|team| async move {
        let is_member = ctx.memberships.has(forge, now, at, &team, login).await?;
        Ok(is_member.then_some(team))
    });
    stream::iter(asked)
        .buffered(ABREAST)
        .try_filter_map(async |team| Ok(team))
        .try_collect()
        .await
}

/// Lists the facts of the command as variables for the program. `REPO_ROOT` is not among them: no code of the pull
/// request is checked out before the command is permitted.
fn facts(
    who: &Identity,
    action: Action,
    repo: &RepoId,
    on: &Resource<'_>,
) -> Vec<(&'static str, OsString)> {
    let mut facts: Vec<(&str, OsString)> = vec![
        ("BASE_REPO_NAME", repo.name().into()),
        ("BASE_REPO_OWNER", repo.owner().into()),
        ("COMMAND_NAME", action.command_name().into()),
        ("USER_NAME", who.name().into()),
    ];
    if let Some(project) = on.project() {
        facts.push((
            "PROJECT_NAME",
            project.name.as_ref().map_or("", ProjectName::as_str).into(),
        ));
        facts.push(("REPO_REL_PATH", project.dir.as_str().into()));
        facts.push(("WORKSPACE", project.workspace.as_str().into()));
    }
    if let (Some(args), Some(pull)) = (on.args(), on.pull()) {
        facts.push(("COMMENT_ARGS", comment_args(args)));
        facts.push(("PULL_NUM", pull.subject.to_string().into()));
    }
    if let Some(pull) = on.seen() {
        let head = pull.head_repo.as_ref();
        facts.extend([
            ("BASE_BRANCH_NAME", pull.base_branch.as_str().into()),
            ("HEAD_BRANCH_NAME", pull.head_branch.as_str().into()),
            ("HEAD_COMMIT", pull.head.as_str().into()),
            ("HEAD_REPO_NAME", head.map_or("", RepoId::name).into()),
            ("HEAD_REPO_OWNER", head.map_or("", RepoId::owner).into()),
            ("PULL_AUTHOR", pull.author.as_str().into()),
            ("PULL_URL", pull.url.as_str().into()),
        ]);
    }
    facts
}

/// Encodes arguments with a backslash before every byte and commas between them (reference 6.5).
fn comment_args(args: &[String]) -> OsString {
    let escaped = args.iter().map(|arg| {
        arg.bytes()
            .flat_map(|byte| [b'\\', byte])
            .collect::<Vec<u8>>()
    });
    OsString::from_vec(escaped.collect::<Vec<_>>().join(&b','))
}

/// Checks whether the program grants the command. The error is a clause that says what happened.
fn verdict(answer: &Result<CallOutput, ProcessError>) -> Result<(), String> {
    let output = answer
        .as_ref()
        .map_err(|error| format!("it could not be run: {}", describe_error(error)))?;
    if output.stdout.truncated {
        return Err(format!("it printed more than {MOST_OUTPUT} bytes"));
    }
    let text = output.stdout.text();
    let last = text.trim().lines().next_back().unwrap_or_default().trim();
    match output.code {
        Some(0) if last.eq_ignore_ascii_case("pass") => Ok(()),
        Some(0) if last.is_empty() => Err("it printed nothing".to_owned()),
        Some(0) => Err(format!("its last line was {}", shown(last))),
        Some(code) if last.is_empty() => Err(format!("it ended with exit code {code}")),
        Some(code) => Err(format!(
            "it ended with exit code {code} and the last line {}",
            shown(last)
        )),
        None => Err("a signal ended it".to_owned()),
    }
}

fn shown(line: &str) -> String {
    let cut: String = line.chars().take(SHOWN).collect();
    let more = if line.chars().count() > SHOWN {
        "…"
    } else {
        ""
    };
    code_span(&format!("{cut}{more}"))
}

fn denial(program: &TeamAuthz, who: &Identity, action: Action, actual: String) -> Denial {
    let path = Path::new(&program.command);
    let name = path.file_name().map_or(program.command.clone(), |name| {
        name.to_string_lossy().into_owned()
    });
    Denial {
        who: who.clone(),
        action,
        rule: format!(
            "the program {} (`team_authz.command`) has to answer `pass`",
            code_span(&name)
        ),
        actual,
        who_can: vec![
            "An administrator knows the rules of the program, and finds its output in the log."
                .to_owned(),
        ],
    }
}

/// Logs the answer, so that the administrator can find out why the program denied the command or failed.
fn log(program: &TeamAuthz, answer: &Result<CallOutput, ProcessError>) {
    match answer {
        Ok(output) => {
            let (stdout, stderr) = (
                shown(output.stdout.text().trim()),
                shown(output.stderr.text().trim()),
            );
            info!(
                command = program.command,
                code = output.code,
                stdout,
                stderr,
                "Ran the program that decides about permissions"
            );
        }
        Err(error) => {
            let error = describe_error(error);
            warn!(
                command = program.command,
                error, "The program that decides about permissions could not be run"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Captured;

    fn ended(code: Option<i32>, stdout: &str) -> CallOutput {
        let captured = |text: &str| Captured {
            bytes: text.as_bytes().to_vec(),
            truncated: false,
        };
        CallOutput {
            code,
            stdout: captured(stdout),
            stderr: captured("noise"),
        }
    }

    #[test]
    fn only_success_with_pass_at_the_end_lets_through() {
        for text in ["pass", "checking\nPASS\n\n", " Pass \r\n"] {
            assert_eq!(verdict(&Ok(ended(Some(0), text))), Ok(()), "{text:?}");
        }
        for (code, text, why) in [
            (Some(0), "", "it printed nothing"),
            (Some(0), "pass\nfail", "its last line was `fail`"),
            (Some(0), "passed", "its last line was `passed`"),
            (
                Some(1),
                "pass",
                "it ended with exit code 1 and the last line `pass`",
            ),
            (Some(2), "", "it ended with exit code 2"),
            (None, "pass", "a signal ended it"),
        ] {
            assert_eq!(
                verdict(&Ok(ended(code, text))),
                Err(why.to_owned()),
                "{code:?} {text:?}"
            );
        }
        let after = DEADLINE;
        let late = verdict(&Err(ProcessError::TimedOut {
            program: "authz".into(),
            after,
        }));
        assert_eq!(
            late,
            Err(
                r#"it could not be run: "authz" did not end within 30 seconds and was stopped"#
                    .to_owned()
            )
        );
    }

    #[test]
    fn output_that_was_cut_is_no_answer() {
        let mut answer = ended(Some(0), "pass");
        answer.stdout.truncated = true;
        assert_eq!(
            verdict(&Ok(answer)),
            Err("it printed more than 262144 bytes".to_owned())
        );
    }

    #[test]
    fn arguments_of_the_comment_cannot_be_read_as_anything_else() {
        assert_eq!(
            comment_args(&["-a".to_owned(), "x,y".to_owned()]),
            r"\-\a,\x\,\y"
        );
        assert_eq!(comment_args(&[]), "");
    }
}
