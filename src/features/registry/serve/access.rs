//! Readers of the registry and the names that each may read.
//!
//! | Reader | Name in a public namespace | Name in another namespace | Name in no namespace |
//! |--|--|--|--|
//! | without a token | served with `--registry-anonymous-read`, else 401 | 401 | as in a public namespace |
//! | token with a scope for the name | served | served if the scope names it, so not by `read:*` | as in a public namespace |
//! | another token | served with `--registry-anonymous-read`, else 404 | 404 | as in a public namespace |
//! | unknown, expired or revoked token | 401 | 401 | 401 |
//! | run of this server | served | served if the owner of its repository owns it, else 404 | served |
//! | run that has ended | 401 | 401 | 401 |
//!
//! A scope names a namespace if it has only names of it, and is not for all names of a kind.
//!
//! A name of another deployment that belongs to nobody here has the readers that an administrator chose when the
//! deployments joined, as if it were in a namespace without an owner.
//!
//! Other names in no namespace are served if all of their versions were fetched, from repositories on hosts that the operator
//! has named. Lists of names and the index leave them out.
//!
//! A name that was public while another deployment was accepted for it has no readers afterwards. But those who read public
//! names still learn of the takedowns of versions that were here.
//!
//! A token has 256 random bits and is found by its SHA-256. Nobody can guess one, so wrong ones are not counted.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use lockkeeper_registry::names::{NamePattern, RegistryName};
use tokio::sync::Semaphore;

use super::super::readers::NamespaceAccess;
use super::super::{Token, TokenAction, TokenId, Visibility};
use super::refusal::ServeRefusal;
use crate::kit::web::auth;
use crate::workflow::RunReader;

/// Longest text that can be a token.
const MAX_TOKEN: usize = 128;

/// Sender of a request.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    /// Everyone, where the registry is open (`--registry-anonymous-read`).
    Anonymous,
    /// The holder of a token that is valid now.
    Token {
        token: Arc<Token>,
        /// True if others may read public names without a token.
        is_open: bool,
    },
    /// A run of this server, which sends only so many packages at a time.
    Run {
        run: RunReader,
        downloads: Arc<Semaphore>,
    },
}

impl Reader {
    /// Returns the token of the reader.
    pub fn token_id(&self) -> Option<TokenId> {
        match self {
            Self::Anonymous | Self::Run { .. } => None,
            Self::Token { token, .. } => Some(token.id),
        }
    }

    /// Returns true if the reader may read a name in this namespace.
    pub fn may_read(&self, name: &RegistryName, namespace: Option<&NamespaceAccess>) -> bool {
        let Some(namespace) = namespace else {
            return false;
        };
        match (self, namespace.visibility) {
            (Self::Run { run, .. }, _) => namespace.is_read_by_run(run.owner.as_ref()),
            (Self::Anonymous, Visibility::Public) => true,
            (Self::Anonymous, Visibility::Owner) => false,
            (Self::Token { token, is_open }, Visibility::Public) => {
                *is_open || token.allows(TokenAction::Read, name)
            }
            (Self::Token { token, .. }, Visibility::Owner) => reads_by_name(token, name, namespace),
        }
    }

    /// Refuses a name that the reader may not read, as if it were not here.
    pub fn check(
        &self,
        name: &RegistryName,
        namespace: Option<&NamespaceAccess>,
    ) -> Result<(), ServeRefusal> {
        if self.may_read(name, namespace) {
            return Ok(());
        }
        match (self, namespace.map(|namespace| namespace.visibility)) {
            (Self::Anonymous, Some(Visibility::Owner)) => Err(ServeRefusal::SignIn),
            (Self::Anonymous, Some(Visibility::Public) | None)
            | (Self::Token { .. } | Self::Run { .. }, _) => Err(ServeRefusal::unknown(name)),
        }
    }

    /// Refuses readers that may read nothing at all.
    pub fn check_any(&self) -> Result<(), ServeRefusal> {
        match self {
            Self::Anonymous | Self::Run { .. } | Self::Token { is_open: true, .. } => Ok(()),
            Self::Token { token, .. } if token.allows_any(TokenAction::Read) => Ok(()),
            Self::Token { .. } => Err(ServeRefusal::not_found("nothing is here for this token")),
        }
    }
}

/// Returns true if a scope permits reading a name, and has only names of its private namespace, as for peers. A person who
/// makes a token for other names, such as all names of a host, need not know that some of them are not for everyone.
fn reads_by_name(token: &Token, name: &RegistryName, namespace: &NamespaceAccess) -> bool {
    let names_it = |set: &NamePattern| {
        let mut scopes = token.scopes.iter();
        scopes
            .any(|scope| scope.action == TokenAction::Read && scope.pattern.names_within(name, set))
    };
    let mut sets = namespace.sets_of(name).peekable();
    sets.peek().is_some() && sets.all(names_it)
}

/// Returns the text of the token in a request: a bearer token, or the password of a user with any name. `None`: the request
/// has no credentials.
pub(super) fn token_text(headers: &HeaderMap) -> Result<Option<String>, ServeRefusal> {
    if !headers.contains_key(header::AUTHORIZATION) {
        return Ok(None);
    }
    let text = bearer_token(headers).or_else(|| {
        let (_, password) = auth::credentials(headers)?;
        (password.len() <= MAX_TOKEN).then_some(password)
    });
    text.map(Some).ok_or(ServeRefusal::WrongToken)
}

/// Returns the text of the bearer token in a request.
pub(in crate::features::registry) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_TOKEN;
    is_token.then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    fn reader(scopes: &[&str], is_open: bool) -> Reader {
        let token = Token {
            id: uuid::Uuid::from_u128(1).to_string().parse().unwrap(),
            label: "ci".to_owned(),
            scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
            created_by: "kim".to_owned(),
            created_at: DateTime::UNIX_EPOCH,
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
        };
        let token = Arc::new(token);
        Reader::Token { token, is_open }
    }

    /// Returns the answer to a request for a name below `module acme`.
    fn answer(reader: &Reader, name: &str, visibility: Option<Visibility>) -> &'static str {
        let (owner, prefix) = ("net".parse().unwrap(), "module acme".parse().unwrap());
        let namespace =
            visibility.map(|visibility| NamespaceAccess::of_owner(owner, prefix, visibility));
        match reader.check(&name.parse().unwrap(), namespace.as_ref()) {
            Ok(()) => "served",
            Err(ServeRefusal::SignIn) => "401",
            Err(ServeRefusal::NotFound(_)) => "404",
            Err(other) => panic!("{other:?}"),
        }
    }

    fn run(owner: Option<&str>) -> Reader {
        let owner = owner.map(|owner| owner.parse().unwrap());
        Reader::Run {
            run: RunReader { owner },
            downloads: Arc::new(Semaphore::new(1)),
        }
    }

    #[test]
    fn every_reader_gets_the_answer_of_the_table() {
        let (public, owner) = (Some(Visibility::Public), Some(Visibility::Owner));
        let name = "module acme/vpc/aws";
        for (reader, on_public, on_owner, on_none) in [
            (Reader::Anonymous, "served", "401", "404"),
            (reader(&["read:*"], false), "served", "404", "404"),
            (reader(&["read:module *"], false), "served", "404", "404"),
            (
                reader(&["read:module acme/*"], false),
                "served",
                "served",
                "404",
            ),
            (
                reader(&["read:module acme/vpc/aws"], false),
                "served",
                "served",
                "404",
            ),
            (reader(&["read:module other/*"], false), "404", "404", "404"),
            (
                reader(&["read:module other/*"], true),
                "served",
                "404",
                "404",
            ),
            (reader(&["read:go *"], false), "404", "404", "404"),
            (
                reader(&["publish:module acme/*"], false),
                "404",
                "404",
                "404",
            ),
            (run(Some("net")), "served", "served", "404"),
            (run(Some("other")), "served", "404", "404"),
            (run(None), "served", "404", "404"),
        ] {
            assert_eq!(answer(&reader, name, public), on_public, "{reader:?}");
            assert_eq!(answer(&reader, name, owner), on_owner, "{reader:?}");
            assert_eq!(answer(&reader, name, None), on_none, "{reader:?}");
        }
    }

    #[test]
    fn a_scope_that_is_wider_than_a_private_namespace_does_not_name_it() {
        let name = "go github.com/acme/net".parse().unwrap();
        let private = |sets: &[&str]| NamespaceAccess {
            owner: None,
            visibility: Visibility::Owner,
            sets: sets.iter().map(|set| set.parse().unwrap()).collect(),
        };
        let acme = private(&["go github.com/acme/..."]);
        // Two other deployments have it, and a set of the third one has other names.
        let peers = private(&[
            "go github.com/...",
            "module acme/*",
            "go github.com/acme/...",
        ]);
        let all = private(&["*"]);
        for (scope, of_acme, of_peers, of_all) in [
            ("read:go github.com/...", false, false, true),
            ("read:go github.com/acme/...", true, true, true),
            ("read:go github.com/acme/net", true, true, true),
            ("read:go github.com/acme/other", false, false, false),
            ("publish:go github.com/acme/...", false, false, false),
            ("read:go *", false, false, false),
        ] {
            let reader = reader(&[scope], true);
            for (namespace, expected) in [(&acme, of_acme), (&peers, of_peers), (&all, of_all)] {
                let found = reader.may_read(&name, Some(namespace));
                assert_eq!(found, expected, "{scope} in {namespace:?}");
            }
        }
    }

    #[test]
    fn only_a_token_that_reads_something_sees_the_log() {
        assert!(Reader::Anonymous.check_any().is_ok());
        assert!(
            reader(&["read:go example.com/..."], false)
                .check_any()
                .is_ok()
        );
        assert!(reader(&["publish:*"], true).check_any().is_ok());
        assert!(reader(&["publish:*"], false).check_any().is_err());
    }

    #[test]
    fn a_token_is_a_bearer_token_or_a_password() {
        let text = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            token_text(&headers).ok().flatten()
        };
        assert_eq!(text("Bearer lkr_x").as_deref(), Some("lkr_x"));
        assert_eq!(text("bearer  lkr_x ").as_deref(), Some("lkr_x"));
        // `kim:lkr_x` and `:lkr_x`.
        assert_eq!(text("Basic a2ltOmxrcl94").as_deref(), Some("lkr_x"));
        assert_eq!(text("Basic Omxrcl94").as_deref(), Some("lkr_x"));
        assert_eq!(text("Basic a2lt"), None);
        assert_eq!(text("Digest x"), None);
        assert_eq!(text("lkr_x"), None);
        assert_eq!(text(&format!("Bearer {}", "x".repeat(129))), None);
        assert!(matches!(token_text(&HeaderMap::new()), Ok(None)));
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_credentials_are_short_or_none(value in "((Bearer|Basic|basic) )?([A-Za-z0-9+/=:]{0,180}|[ -~]{0,20})") {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            match token_text(&headers) {
                Ok(text) => prop_assert!(text.is_some_and(|text| text.len() <= MAX_TOKEN)),
                Err(refusal) => prop_assert!(matches!(refusal, ServeRefusal::WrongToken)),
            }
        }
    }
}
