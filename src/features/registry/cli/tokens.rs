//! `lockkeeper registry tokens (create | list | revoke)`.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::tokens::{InvalidToken, NewToken, Token, TokenId, TokenScope};
use super::cause;
use crate::clock::{Clock as _, SystemClock};
use crate::config::parse_duration;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage, environment, safe, time,
};

#[derive(clap::Subcommand)]
pub(in crate::features::registry) enum TokensArgs {
    /// Create a token, and print it once
    ///
    /// Nobody can read the token again later. Without --expires it is valid until somebody revokes it.
    Create {
        /// Permission, as in 'read:*', 'publish:module acme/*' or 'read:go example.com/net/...'. May be given several
        /// times. Actions: read, publish, deprecate, takedown
        #[arg(long = "scope", value_name = "ACTION:NAMES", required = true)]
        scopes: Vec<TokenScope>,
        /// Time after which the token is no longer valid, as in 90d
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        /// Purpose of the token, for people [default: the name of the user]
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show all tokens, without their secret texts
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// End a token for good
    ///
    /// Exit code 1: there is no such token.
    Revoke {
        /// Identifier, as `list` shows it
        #[arg(value_name = "ID")]
        id: TokenId,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("{error}: write 12h or 90d"))
}

impl TokensArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Create {
                scopes,
                expires,
                label,
                format,
                database,
            } => {
                let label = label.unwrap_or_else(environment::user);
                let expires_at = expires.map(|time| SystemClock.now() + time);
                let new = NewToken::new(&label, &scopes, expires_at).map_err(Usage::new)?;
                let store = database.open().await?;
                let created = store.registry_token_create(&new, &cause("")).await;
                let created = created.context("the token was not created")?;
                let (token, secret) = match created {
                    Ok(created) => created,
                    Err(error @ InvalidToken::TooMany) => {
                        terminal.note(format_args!("error: {error}"));
                        return Ok(ExitStatus::Failure);
                    }
                    Err(error) => return Err(Usage::new(error).into()),
                };
                let with_secret = || {
                    let mut json = json(&token);
                    json["token"] = secret.expose().into();
                    json
                };
                format.print(terminal, with_secret, || secret.expose().to_owned())?;
                if !format.is_json() {
                    terminal.note(text(&token));
                    terminal.note("Store the token now. Nobody can read it again.");
                }
                Ok(ExitStatus::Success)
            }
            Self::List { format, database } => {
                let tokens = database.open().await?.registry_tokens().await;
                let tokens = tokens.context("the tokens cannot be read")?;
                if tokens.is_empty() && !format.is_json() {
                    terminal.line(
                        "There are no tokens yet. Create one with `lockkeeper registry tokens create`.",
                    )?;
                }
                for token in &tokens {
                    format.print(terminal, || json(token), || text(token))?;
                }
                Ok(ExitStatus::Success)
            }
            Self::Revoke {
                id,
                format,
                database,
            } => {
                let store = database.open().await?;
                let revoked = store.registry_token_revoke(id, &cause("")).await;
                let Some(token) = revoked.context("the token was not revoked")? else {
                    terminal.note(format_args!(
                        "error: there is no token {id}. `lockkeeper registry tokens list` lists all of them"
                    ));
                    return Ok(ExitStatus::Failure);
                };
                format.print(terminal, || json(&token), || text(&token))?;
                Ok(ExitStatus::Success)
            }
        }
    }
}

fn scopes_of(token: &Token) -> Vec<String> {
    token.scopes.iter().map(ToString::to_string).collect()
}

fn text(token: &Token) -> String {
    let end = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked on {}", at.date_naive()),
        (None, Some(at)) => format!("expires at {}", time(at)),
        (None, None) => "valid until it is revoked".to_owned(),
    };
    let used = match token.last_used_at {
        Some(at) => format!("last used {}", time(at)),
        None => "never used".to_owned(),
    };
    safe(&format!(
        "{} {}: {}; {end}, {used}, created by {} on {}",
        token.id,
        token.label,
        scopes_of(token).join(", "),
        token.created_by,
        token.created_at.date_naive()
    ))
}

fn json(token: &Token) -> Value {
    json!({
        "id": token.id.to_string(),
        "label": token.label,
        "scopes": scopes_of(token),
        "created_by": token.created_by,
        "created_at": time(token.created_at),
        "expires_at": token.expires_at.map(time),
        "last_used_at": token.last_used_at.map(time),
        "revoked_at": token.revoked_at.map(time),
    })
}
