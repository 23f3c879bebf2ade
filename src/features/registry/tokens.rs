//! Tokens of clients and of scripts. A token is `lkr_` and 32 random bytes, and only its SHA-256 is stored. Nobody can
//! guess 256 bits, so failed attempts are not counted.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::names::{InvalidNamePattern, NamePattern, RegistryName};
use tracing::warn;
use uuid::Uuid;

use super::state::registry_access_changed_in_tx;
use super::store::{broken, registry_event};
use crate::model::{Cause, LockEventKind, Reason, Sha256Digest, text_enum, text_type};
use crate::secret::Secret;
use crate::store::{Result, Store, execute, execute_alone, free_text, kept_time, on_pool, on_tx};

text_enum! {
    /// Permission of a token.
    pub enum TokenAction {
        /// Reading versions and packages.
        Read = "read",
        /// Publishing new versions, also by upload.
        Publish = "publish",
        /// Deprecating versions for good.
        Deprecate = "deprecate",
        /// Deleting versions and their packages for good.
        Takedown = "takedown",
    }
}

/// A permission for some names, such as `read:module acme/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenScope {
    /// Permission that the scope gives.
    pub action: TokenAction,
    /// Names that it is for.
    pub pattern: NamePattern,
}

/// A text is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    /// The scope does not begin with an action.
    #[error(
        "a scope is an action and a pattern of names, such as `read:*`, `publish:module acme/*` or \
         `read:go example.com/net/...`. Actions are read, publish, deprecate and takedown"
    )]
    Action,
    /// The rest is not a pattern of names.
    #[error(transparent)]
    Pattern(#[from] InvalidNamePattern),
}

/// Identifier of a token, by which people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(Uuid);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for TokenId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self)
    }
}

text_type!(TokenId);

/// A token, without its secret text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Identifier, by which people name the token.
    pub id: TokenId,
    /// Purpose of the token, for people.
    pub label: String,
    /// Permissions. There is at least one.
    pub scopes: Vec<TokenScope>,
    /// Login of the person who created the token.
    pub created_by: String,
    /// Time of the creation.
    pub created_at: DateTime<Utc>,
    /// End of the token, if it has one.
    pub expires_at: Option<DateTime<Utc>>,
    /// Time of the last use, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
    /// Time at which somebody revoked the token.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A token to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    label: String,
    scopes: Vec<TokenScope>,
    expires_at: Option<DateTime<Utc>>,
}

/// A token cannot be created like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The label is empty or too long.
    #[error(
        "the label of a token is one line of 1 to {} characters",
        Token::MAX_LABEL
    )]
    Label,
    /// The token has no scope, or too many.
    #[error("a token has 1 to {} scopes", Token::MAX_SCOPES)]
    Scopes,
    /// The end is not in the future.
    #[error("a token cannot expire in the past")]
    Expired,
    /// The server has the maximum number of valid tokens.
    #[error(
        "there are {} tokens, which is the maximum: revoke some of them first",
        Token::MAX_TOKENS
    )]
    TooMany,
}

/// Beginning of the text of every token, by which scanners of secrets know it.
pub(super) const TOKEN_BEGINNING: &str = "lkr_";

/// Length of the text of a token: the beginning, and 32 bytes in base64.
pub(super) const TOKEN_LENGTH: usize = TOKEN_BEGINNING.len() + 43;

/// Minimum time between two records of the use of a token.
const USE_EVERY: TimeDelta = TimeDelta::minutes(1);

/// Separator of the scopes in a row. No scope has it.
const SCOPE_SEPARATOR: char = '\n';

impl FromStr for TokenScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let (action, pattern) = text.split_once(':').ok_or(InvalidScope::Action)?;
        Ok(Self {
            action: action.parse().map_err(|_| InvalidScope::Action)?,
            pattern: pattern.parse()?,
        })
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.action, self.pattern)
    }
}

text_type!(TokenScope);

impl NewToken {
    /// Checks the parts of a token. Scopes that are there twice count once.
    pub fn new(
        label: &str,
        scopes: &[TokenScope],
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<Self, InvalidToken> {
        let line = Reason::read(label).ok().flatten();
        let label = line.ok_or(InvalidToken::Label)?.as_str().to_owned();
        if label.chars().count() > Token::MAX_LABEL {
            return Err(InvalidToken::Label);
        }
        let mut different: Vec<TokenScope> = Vec::new();
        for scope in scopes {
            if !different.contains(scope) {
                different.push(scope.clone());
            }
        }
        if !(1..=Token::MAX_SCOPES).contains(&different.len()) {
            return Err(InvalidToken::Scopes);
        }
        Ok(Self {
            label,
            scopes: different,
            expires_at,
        })
    }
}

impl Token {
    /// Maximum length of a label in characters.
    pub const MAX_LABEL: usize = 100;

    /// Maximum number of scopes.
    pub const MAX_SCOPES: usize = 32;

    /// Maximum number of tokens that are neither revoked nor expired (P12).
    pub const MAX_TOKENS: i64 = 10_000;

    /// Returns true if a scope permits the action for this name.
    pub fn allows(&self, action: TokenAction, name: &RegistryName) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.any(|scope| scope.action == action && scope.pattern.matches(name))
    }

    /// Returns true if a scope permits the action for any name at all.
    pub fn allows_any(&self, action: TokenAction) -> bool {
        self.scopes.iter().any(|scope| scope.action == action)
    }

    /// Returns true if the token is neither revoked nor expired.
    pub fn is_valid(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

macro_rules! token_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, label, scopes, created_by, created_at, expires_at, last_used_at, revoked_at FROM registry_tokens ",
            $rest
        )
    };
}

#[derive(sqlx::FromRow)]
struct TokenRow {
    id: TokenId,
    label: String,
    scopes: String,
    created_by: String,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
}

impl TokenRow {
    fn token(self) -> Result<Token> {
        let scopes = self.scopes.split(SCOPE_SEPARATOR).map(str::parse);
        Ok(Token {
            id: self.id,
            label: self.label,
            scopes: scopes.collect::<Result<_, _>>().map_err(broken)?,
            created_by: self.created_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
            last_used_at: self.last_used_at,
            revoked_at: self.revoked_at,
        })
    }
}

impl Store {
    /// Creates a token. The text is returned here and never again.
    pub async fn registry_token_create(
        &self,
        new: &NewToken,
        cause: &Cause,
    ) -> Result<Result<(Token, Secret), InvalidToken>> {
        let now = kept_time(self.now());
        let expires_at = new.expires_at.map(kept_time);
        if expires_at.is_some_and(|end| end <= now) {
            return Ok(Err(InvalidToken::Expired));
        }
        let random: [u8; 32] = rand::random();
        let text = Secret::new(&format!(
            "{TOKEN_BEGINNING}{}",
            URL_SAFE_NO_PAD.encode(random)
        ));
        let token = Token {
            id: TokenId(self.ids.next()),
            label: new.label.clone(),
            scopes: new.scopes.clone(),
            created_by: free_text(&cause.actor.login).into_owned(),
            created_at: now,
            expires_at,
            last_used_at: None,
            revoked_at: None,
        };
        let scopes: Vec<String> = token.scopes.iter().map(ToString::to_string).collect();
        let mut tx = self.begin().await?;
        let valid = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM registry_tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)")
            .bind(now).fetch_one(db))?;
        if valid >= Token::MAX_TOKENS {
            return Ok(Err(InvalidToken::TooMany));
        }
        execute!(
            &mut tx,
            "INSERT INTO registry_tokens (id, label, hash, scopes, created_by, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            token.id,
            &token.label,
            hash(text.expose()),
            scopes.join(&SCOPE_SEPARATOR.to_string()),
            &token.created_by,
            token.created_at,
            token.expires_at,
        )?;
        let what = format!("{} ({}): {}", token.label, token.id, scopes.join(", "));
        let event = registry_event(LockEventKind::RegistryTokenCreated, None, &what, cause);
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await.map(|()| Ok((token, text)))
    }

    /// Returns the token with this text, if it is valid now, and records the use.
    pub async fn registry_token_by_text(&self, text: &str) -> Result<Option<Token>> {
        if text.len() != TOKEN_LENGTH || !text.starts_with(TOKEN_BEGINNING) {
            return Ok(None);
        }
        let row = on_pool!(self, db => sqlx::query_as::<_, TokenRow>(token_sql!("WHERE hash = $1"))
            .bind(hash(text)).fetch_optional(db))?;
        let now = kept_time(self.now());
        let token = row.map(TokenRow::token).transpose()?;
        let Some(token) = token.filter(|token| token.is_valid(now)) else {
            return Ok(None);
        };
        let due = now - USE_EVERY;
        if token.last_used_at.is_none_or(|last| last <= due) {
            // Readers go on if nothing can be written.
            if let Err(error) = self.registry_token_used(token.id, now, due).await {
                warn!(%error, token = %token.id, "Cannot record the use of a token");
            }
        }
        Ok(Some(token))
    }

    async fn registry_token_used(
        &self,
        id: TokenId,
        now: DateTime<Utc>,
        due: DateTime<Utc>,
    ) -> Result<()> {
        execute_alone!(
            self,
            "UPDATE registry_tokens SET last_used_at = $1 \
             WHERE id = $2 AND (last_used_at IS NULL OR last_used_at <= $3)",
            now,
            id,
            due,
        )
        .map(drop)
    }

    /// Returns the token with this identifier, valid or not.
    pub async fn registry_token(&self, id: TokenId) -> Result<Option<Token>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, TokenRow>(token_sql!("WHERE id = $1"))
            .bind(id).fetch_optional(db))?;
        row.map(TokenRow::token).transpose()
    }

    /// Lists all tokens, the newest first.
    pub async fn registry_tokens(&self) -> Result<Vec<Token>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, TokenRow>(
            token_sql!("ORDER BY created_at DESC, id DESC")).fetch_all(db))?;
        rows.into_iter().map(TokenRow::token).collect()
    }

    /// Revokes a token for good. `None`: there is no such token. A revoked one stays as it is.
    pub async fn registry_token_revoke(&self, id: TokenId, cause: &Cause) -> Result<Option<Token>> {
        let mut tx = self.begin().await?;
        let now = kept_time(self.now());
        let revoked = execute!(
            &mut tx,
            "UPDATE registry_tokens SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL",
            now,
            id,
        )?;
        let row = on_tx!(&mut tx, db => sqlx::query_as::<_, TokenRow>(token_sql!("WHERE id = $1"))
            .bind(id).fetch_optional(db))?;
        let Some(token) = row.map(TokenRow::token).transpose()? else {
            return Ok(None);
        };
        if revoked > 0 {
            registry_access_changed_in_tx(&mut tx).await?;
            let what = format!("{} ({id})", token.label);
            let event = registry_event(LockEventKind::RegistryTokenRevoked, None, &what, cause);
            self.lock_events_in_tx(&mut tx, vec![event]).await?;
        }
        tx.commit().await.map(|()| Some(token))
    }
}

/// Returns true if bytes have the form of a token, of this registry or another one.
pub(super) fn is_token(text: &[u8]) -> bool {
    let Some(random) = text.strip_prefix(TOKEN_BEGINNING.as_bytes()) else {
        return false;
    };
    // Some names in code are as long as a token, and they hardly ever have letters of both cases.
    text.len() == TOKEN_LENGTH
        && random.iter().any(u8::is_ascii_uppercase)
        && random.iter().any(u8::is_ascii_lowercase)
        && URL_SAFE_NO_PAD.decode(random).is_ok()
}

/// Returns the hash by which a token is found. The text has 256 random bits, so the hash needs no salt, and the time of
/// the search tells nothing about other tokens.
fn hash(text: &str) -> Sha256Digest {
    Sha256Digest::of(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> TokenScope {
        text.parse().unwrap()
    }

    #[test]
    fn a_scope_has_one_spelling() {
        for text in [
            "read:*",
            "publish:module acme/*",
            "read:module acme/vpc/*",
            "deprecate:module acme/vpc/aws",
            "takedown:go *",
            "takedown:go example.com/net/...",
            "read:go example.com/Net",
        ] {
            assert_eq!(scope(text).to_string(), text);
        }
        for bad in [
            "",
            "read",
            "read:",
            "write:*",
            "read:acme/*",
            " read:*",
            "read: *",
        ] {
            bad.parse::<TokenScope>().unwrap_err();
        }
    }

    #[test]
    fn a_token_has_a_label_and_a_few_scopes() {
        let read = [scope("read:*")];
        let token =
            NewToken::new(" for\tCI ", &[read.clone(), read.clone()].concat(), None).unwrap();
        assert_eq!((token.label.as_str(), token.scopes.len()), ("for CI", 1));
        for label in ["", " ", &"x".repeat(101)] {
            assert_eq!(NewToken::new(label, &read, None), Err(InvalidToken::Label));
        }
        let many: Vec<TokenScope> = (0..33)
            .map(|n| scope(&format!("read:module a{n}/*")))
            .collect();
        for scopes in [&[], many.as_slice()] {
            assert_eq!(NewToken::new("x", scopes, None), Err(InvalidToken::Scopes));
        }
    }
}
