//! Links to packages of modules. `terraform` and `tofu` send no credentials there, so the link itself permits the
//! download: of one file, to one reader, for ten minutes.
//!
//! - *Nothing else*: the code of the link covers all its parts, with the length of each before it.
//! - *Not longer than the right*: the reader and the state of the version are looked up again when the link is used. A
//!   revoked token or a takedown ends it at once.
//! - *In no log*: the code is in the query, which is never logged.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper_registry::records::PackageFileName;
use lockkeeper_registry::versions::VersionKey;
use serde::Deserialize;
use sha2::Sha256;

use super::super::TokenId;

/// Time for which a link is valid. `terraform` uses it at once.
const VALID: TimeDelta = TimeDelta::minutes(10);

/// Purpose of the code, so that the key signs nothing else by chance.
const PURPOSE: &str = "lockkeeper registry link 1";

/// Query of a link.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LinkQuery {
    expires: i64,
    #[serde(default)]
    reader: String,
    code: String,
}

/// A link is not, or no longer, valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidLink;

/// Key of the codes of links.
pub(super) struct LinkKey([u8; 32]);

impl LinkKey {
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Returns the link to a package, relative to the address that a version is requested at. `reader`: the token that
    /// the link is made out for, or `None` where everyone may read.
    pub fn link(
        &self,
        key: &VersionKey,
        file: &PackageFileName,
        reader: Option<TokenId>,
        now: DateTime<Utc>,
    ) -> String {
        let expires = (now + VALID).timestamp();
        let reader = reader.map(|id| id.to_string()).unwrap_or_default();
        let code = self.mac(key, file, expires, &reader).finalize();
        let code = URL_SAFE_NO_PAD.encode(code.into_bytes());
        let place = place_of(file);
        format!("{place}?expires={expires}&reader={reader}&code={code}")
    }

    /// Checks a link. Returns the token that it is made out for.
    pub fn reader(
        &self,
        key: &VersionKey,
        file: &PackageFileName,
        query: &LinkQuery,
        now: DateTime<Utc>,
    ) -> Result<Option<TokenId>, InvalidLink> {
        let code = URL_SAFE_NO_PAD.decode(&query.code);
        let code = code.map_err(|_| InvalidLink)?;
        let mac = self.mac(key, file, query.expires, &query.reader);
        mac.verify_slice(&code).map_err(|_| InvalidLink)?;
        if now.timestamp() >= query.expires {
            return Err(InvalidLink);
        }
        match query.reader.as_str() {
            "" => Ok(None),
            id => id.parse().map(Some).map_err(|_| InvalidLink),
        }
    }

    fn mac(
        &self,
        key: &VersionKey,
        file: &PackageFileName,
        expires: i64,
        reader: &str,
    ) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [
            PURPOSE,
            &key.to_string(),
            file.as_str(),
            &expires.to_string(),
            reader,
        ] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac
    }
}

/// Returns the place of a package, relative to the address that a version is requested at. `//modules/vpc` behind the package
/// is the directory of the module in it, which clients do not send.
pub(super) fn place_of(file: &PackageFileName) -> String {
    match file.module_dir() {
        Some(dir) if !dir.is_root() => format!("./{file}//{dir}"),
        Some(_) | None => format!("./{file}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::features::registry::testing::fixed_seed;

    fn query(link: &str) -> LinkQuery {
        let (_, query) = link.split_once('?').unwrap();
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let mut found = LinkQuery {
            expires: 0,
            reader: String::new(),
            code: String::new(),
        };
        for (name, value) in pairs {
            match &*name {
                "expires" => found.expires = value.parse().unwrap(),
                "reader" => found.reader = value.into_owned(),
                "code" => found.code = value.into_owned(),
                other => panic!("{other}"),
            }
        }
        found
    }

    #[test]
    fn a_link_is_for_one_file_one_reader_and_ten_minutes() {
        let links = LinkKey::new([7; 32]);
        let key: VersionKey = "module acme/vpc/aws 1.2.3".parse().unwrap();
        let file: PackageFileName = "vpc.tar.gz".parse().unwrap();
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let token: TokenId = Uuid::from_u128(5).to_string().parse().unwrap();
        for reader in [None, Some(token)] {
            let link = links.link(&key, &file, reader, now);
            assert!(link.starts_with("./vpc.tar.gz?"), "{link}");
            let query = query(&link);
            let used = |key: &str, file: &str, query: &LinkQuery, after: i64| {
                let (key, file) = (key.parse().unwrap(), file.parse().unwrap());
                links.reader(&key, &file, query, now + TimeDelta::seconds(after))
            };
            let (name, end) = ("module acme/vpc/aws 1.2.3", 600);
            assert_eq!(used(name, "vpc.tar.gz", &query, 0), Ok(reader));
            assert_eq!(used(name, "vpc.tar.gz", &query, end - 1), Ok(reader));
            for (name, file, after) in [
                (name, "vpc.tar.gz", end),
                (name, "vpc.tar", 0),
                ("module acme/vpc/aws 1.2.4", "vpc.tar.gz", 0),
                ("module acme/vpc/gcp 1.2.3", "vpc.tar.gz", 0),
            ] {
                assert_eq!(used(name, file, &query, after), Err(InvalidLink));
            }
            let other = token.to_string();
            for changed in [
                LinkQuery {
                    expires: query.expires + 1,
                    ..query.clone()
                },
                LinkQuery {
                    reader: format!("{}0", query.reader),
                    ..query.clone()
                },
                LinkQuery {
                    reader: if reader.is_some() {
                        String::new()
                    } else {
                        other
                    },
                    ..query.clone()
                },
                LinkQuery {
                    code: String::new(),
                    ..query.clone()
                },
                LinkQuery {
                    code: "not base64!".to_owned(),
                    ..query.clone()
                },
            ] {
                assert_eq!(used(name, "vpc.tar.gz", &changed, 0), Err(InvalidLink));
            }
            let other_key = LinkKey::new([8; 32]);
            assert_eq!(other_key.reader(&key, &file, &query, now), Err(InvalidLink));
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_made_up_link_is_valid(
            expires in any::<i64>(),
            reader in "|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|.{0,20}",
            code in "[A-Za-z0-9_-]{43}|.{0,60}",
        ) {
            let links = LinkKey::new([7; 32]);
            let key: VersionKey = "module acme/vpc/aws 1.2.3".parse().unwrap();
            let file: PackageFileName = "vpc.tar.gz".parse().unwrap();
            let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
            let query = LinkQuery { expires, reader, code };
            prop_assert_eq!(links.reader(&key, &file, &query, now), Err(InvalidLink));
        }
    }

    #[test]
    fn a_link_leads_to_the_directory_of_the_module() {
        let place = |file: &str| place_of(&file.parse().unwrap());
        assert_eq!(place("module.tar.gz"), "./module.tar.gz");
        assert_eq!(
            place("module~modules~vpc.tar.gz"),
            "./module~modules~vpc.tar.gz//modules/vpc"
        );
        assert_eq!(place("module.zip"), "./module.zip");
    }
}
