//! Keys of external IDs, `<scheme>:<id>`, and the names of their notes.

use std::fmt;
use std::str::FromStr;

use sha1::{Digest as _, Sha1};

use crate::email::AccountEmail;
use crate::findings::Problem;
use crate::text::shown;

/// Key of an external ID. Keys of known schemes follow the rules of the scheme, all others are kept as they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalIdKey {
    text: String,
    scheme_end: usize,
}

/// Name of a note: the SHA-1 of the key of its external ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteName([u8; 20]);

/// Forge whose accounts can be external IDs. They are known by number, because a login can be given to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForgeScheme {
    /// Accounts of `github.com` or of a GitHub Enterprise server.
    GitHub,
    /// Accounts of `gitlab.com` or of another GitLab server.
    GitLab,
}

/// Scheme of user names, which sign in with a password.
const USERNAME: &str = "username";
const MAILTO: &str = "mailto";
const OIDC: &str = "oidc";

impl ForgeScheme {
    const ALL: [Self; 2] = [Self::GitHub, Self::GitLab];

    fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
        }
    }

    /// Host that keys leave out.
    fn default_host(self) -> &'static str {
        match self {
            Self::GitHub => "github.com",
            Self::GitLab => "gitlab.com",
        }
    }
}

impl ExternalIdKey {
    /// Maximum length of a key in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Creates the key of a user name, in lower case, so that `JDoe` and `jdoe` are one.
    pub fn username(name: &str) -> Result<Self, Problem> {
        format!("{USERNAME}:{}", name.to_lowercase()).parse()
    }

    /// Creates the key of an e-mail address.
    pub fn mailto(email: &AccountEmail) -> Result<Self, Problem> {
        format!("{MAILTO}:{email}").parse()
    }

    /// Creates the key of an account of a forge. Leaves out the default host.
    pub fn forge(forge: ForgeScheme, host: &str, number: u64) -> Result<Self, Problem> {
        let host = host.to_ascii_lowercase();
        let key = if host == forge.default_host() {
            format!("{}:{number}", forge.as_str())
        } else {
            format!("{}:{host}/{number}", forge.as_str())
        };
        key.parse()
    }

    /// Creates the key of an account of an identity provider.
    pub fn oidc(issuer: &str, subject: &str) -> Result<Self, Problem> {
        format!("{OIDC}:{issuer}#{subject}").parse()
    }

    /// Returns the whole key.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part before the colon.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme_end]
    }

    /// Returns the part after the colon.
    pub fn id(&self) -> &str {
        &self.text[self.scheme_end + 1..]
    }

    /// Returns the user name, if this is the key of one.
    pub fn as_username(&self) -> Option<&str> {
        (self.scheme() == USERNAME).then(|| self.id())
    }

    /// Returns the known scheme that the scheme of this key is in another case, such as `github` for `GitHub`. Schemes are
    /// compared with case, so it is one that nobody knows.
    pub fn misspelled_scheme(&self) -> Option<&'static str> {
        let forges = ForgeScheme::ALL.into_iter().map(ForgeScheme::as_str);
        let mut known = [USERNAME, MAILTO, OIDC].into_iter().chain(forges);
        known.find(|known| self.scheme() != *known && self.scheme().eq_ignore_ascii_case(known))
    }

    /// Returns the name of the note.
    pub fn note_name(&self) -> NoteName {
        NoteName(Sha1::digest(&self.text).into())
    }
}

impl FromStr for ExternalIdKey {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let error = |fix: &str| {
            let what = format!("`{}` is not an external ID", shown(text));
            Problem::error(None, what, fix)
        };
        if text.len() > Self::MAX_BYTES {
            return Err(error(&format!("use at most {} bytes", Self::MAX_BYTES)));
        }
        if text.contains(char::is_control) {
            return Err(error("remove the control characters"));
        }
        let parts = text.split_once(':');
        let parts = parts.filter(|(scheme, id)| !scheme.is_empty() && !id.is_empty());
        let (scheme, id) = parts.ok_or_else(|| error("write `<scheme>:<id>`"))?;
        let forge = ForgeScheme::ALL
            .into_iter()
            .find(|forge| forge.as_str() == scheme);
        match scheme {
            USERNAME if !is_username(id) => {
                return Err(error(
                    "use lower-case letters, digits, `.`, `_`, `@`, `+` and `-`, with a letter or digit first and last",
                ));
            }
            MAILTO if id.parse::<AccountEmail>().is_err() => {
                return Err(error(
                    "write an e-mail address such as `mailto:john@example.com`",
                ));
            }
            OIDC if !is_issuer_and_subject(id) => {
                return Err(error("write `oidc:https://issuer#subject`"));
            }
            _ => {}
        }
        if let Some(forge) = forge
            && !is_forge_account(forge, id)
        {
            let scheme = forge.as_str();
            let host = forge.default_host();
            return Err(error(&format!(
                "write the number of the account: `{scheme}:42` on {host}, `{scheme}:host/42` elsewhere"
            )));
        }
        Ok(Self {
            text: text.to_owned(),
            scheme_end: scheme.len(),
        })
    }
}

impl fmt::Display for ExternalIdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_username(name: &str) -> bool {
    const MAX_CHARS: usize = 64;
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_inner = |c: char| is_outer(c) || "._@+-".contains(c);
    name.len() <= MAX_CHARS
        && name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(is_inner)
}

fn is_forge_account(forge: ForgeScheme, id: &str) -> bool {
    let (host, number) = match id.split_once('/') {
        Some((host, number)) => (Some(host), number),
        None => (None, id),
    };
    let is_host = |host: &str| {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:".contains(c);
        host.starts_with(|c: char| c.is_ascii_alphanumeric())
            && host.chars().all(is_part)
            && host != forge.default_host()
    };
    // A number has one spelling, so that it is one key.
    let is_number = number
        .parse::<u64>()
        .is_ok_and(|value| value.to_string() == number);
    is_number && number != "0" && host.is_none_or(is_host)
}

fn is_issuer_and_subject(id: &str) -> bool {
    let Some((issuer, subject)) = id.split_once('#') else {
        return false;
    };
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| issuer.strip_prefix(scheme));
    let is_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?']));
    is_host && !issuer.contains(char::is_whitespace) && !subject.is_empty()
}

impl NoteName {
    /// Creates a name from the bytes of the hash.
    pub fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

impl fmt::Display for NoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for NoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn the_note_has_the_hash_of_the_key() {
        for (key, name) in [
            ("gerrit:jdoe", "7c2a55657d911109dbc930836e7a770fb946e8ef"),
            ("username:jdoe", "e0b751ae90ef039f320e097d7d212f490e933706"),
        ] {
            let key: ExternalIdKey = key.parse().unwrap();
            assert_eq!(key.note_name().to_string(), name);
        }
    }

    #[test]
    fn keys_are_made_in_one_spelling() {
        let email: AccountEmail = "j@example.com".parse().unwrap();
        for (key, text) in [
            (ExternalIdKey::username("JDoe"), "username:jdoe"),
            (ExternalIdKey::mailto(&email), "mailto:j@example.com"),
            (
                ExternalIdKey::forge(ForgeScheme::GitHub, "GitHub.com", 583_231),
                "github:583231",
            ),
            (
                ExternalIdKey::forge(ForgeScheme::GitHub, "ghe.acme.com:8443", 7),
                "github:ghe.acme.com:8443/7",
            ),
            (
                ExternalIdKey::forge(ForgeScheme::GitLab, "gitlab.com", 42),
                "gitlab:42",
            ),
            (
                ExternalIdKey::oidc("https://id.acme.com/realm", "a#b c"),
                "oidc:https://id.acme.com/realm#a#b c",
            ),
        ] {
            assert_eq!(key.unwrap().as_str(), text);
        }
        let key: ExternalIdKey = "ldap:uid=a:b".parse().unwrap();
        assert_eq!(
            (key.scheme(), key.id(), key.as_username()),
            ("ldap", "uid=a:b", None)
        );
        let key = ExternalIdKey::username("a.b").unwrap();
        assert_eq!(key.as_username(), Some("a.b"));
    }

    #[test]
    fn a_known_scheme_in_another_case_is_another_scheme() {
        let misspelled = |text: &str| text.parse::<ExternalIdKey>().unwrap().misspelled_scheme();
        assert_eq!(misspelled("GitHub:583231"), Some("github"));
        assert_eq!(misspelled("OIDC:x"), Some("oidc"));
        assert_eq!(misspelled("github:583231"), None);
        assert_eq!(misspelled("ldap:kim"), None);
    }

    #[test]
    fn each_scheme_has_its_rules() {
        let long = format!("x:{}", "y".repeat(1023));
        for text in [
            "",
            ":",
            "jdoe",
            ":jdoe",
            "x:",
            "x:a\nb",
            &long,
            "username:JDoe",
            "username:-a",
            "username:a b",
            "mailto:j",
            "github:octocat",
            "github:0",
            "github:01",
            "github:github.com/1",
            "github:GHE.acme.com/1",
            "github:/1",
            "github:a/b/1",
            "gitlab:+1",
            "oidc:https://id.acme.com",
            "oidc:id.acme.com#1",
            "oidc:https://#1",
            "oidc:https://id.acme.com#",
        ] {
            assert!(text.parse::<ExternalIdKey>().is_err(), "{text}");
        }
        assert!(ExternalIdKey::username(&"x".repeat(65)).is_err());
        let error = "username:JDoe".parse::<ExternalIdKey>().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`username:JDoe` is not an external ID; use lower-case"),
            "{error}"
        );
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_makes_it_panic(text in "(username|mailto|github|oidc|x)?:[a-cA0-2@./#:é]{0,12}|.{0,20}") {
            if let Ok(key) = text.parse::<ExternalIdKey>() {
                prop_assert_eq!(format!("{}:{}", key.scheme(), key.id()), text);
            }
        }
    }
}
