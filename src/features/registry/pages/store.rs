//! Queries of the pages.

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, NamePrefix, RegistryName};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;

use super::super::store::{broken, key_of};
use crate::store::{Result, Store, like_pattern, on_pool};

/// Search among the names of the registry.
#[derive(Clone, Copy, Debug)]
pub struct NameSearch<'a> {
    /// Text that the names contain, in any case.
    pub text: &'a str,
    /// Prefixes whose names are listed. `None`: all names.
    pub prefixes: Option<&'a [NamePrefix]>,
    /// Number of names to skip.
    pub skip: i64,
    /// Maximum number of names to return.
    pub limit: i64,
}

/// Names that a search has found.
#[derive(Debug)]
pub struct FoundNames {
    /// Number of names, also of those that are not in this part.
    pub count: i64,
    /// Names of this part, by kind and name.
    pub names: Vec<RegistryName>,
}

/// A version in a list of names.
#[derive(Debug)]
pub struct ListedState {
    /// Name and number of the version.
    pub key: VersionKey,
    /// State of the version.
    pub state: VersionState,
    /// Time of the record that added the version.
    pub added_at: Option<DateTime<Utc>>,
}

/// Selects from the names with a pattern ($1).
macro_rules! all_sql {
    ($what:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $what,
            " FROM registry_names n WHERE $2 = '' AND ($1 = '' OR n.folded_name LIKE $1 ESCAPE '!')",
            $rest
        )
    };
}

/// Selects from the names with a pattern ($1) below the prefixes in a JSON list of kinds and prefixes ($2). Prefixes never
/// overlap, so no name is found twice. In the order of names, `0` comes after `/`.
macro_rules! below_sql {
    ($what:literal, $prefixes:literal, $kind:literal, $prefix:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $what,
            " FROM ",
            $prefixes,
            " CROSS JOIN registry_names n WHERE n.kind = ",
            $kind,
            " AND n.name >= ",
            $prefix,
            " AND n.name < ",
            $prefix,
            " || '0' AND (n.name = ",
            $prefix,
            " OR substr(n.name, length(",
            $prefix,
            ") + 1, 1) = '/') AND ($1 = '' OR n.folded_name LIKE $1 ESCAPE '!')",
            $rest
        )
    };
}

macro_rules! in_three_ways {
    ($what:literal, $rest:literal) => {
        [
            all_sql!($what, $rest),
            below_sql!(
                $what,
                "json_each($2) AS p",
                "json_extract(p.value, '$[0]')",
                "json_extract(p.value, '$[1]')",
                $rest
            ),
            below_sql!(
                $what,
                "jsonb_array_elements($2::jsonb) AS p (value)",
                "(p.value->>0)",
                "(p.value->>1) COLLATE \"C\"",
                $rest
            ),
        ]
    };
}

const SEARCH: [&str; 3] = in_three_ways!(
    "n.kind, n.name",
    " ORDER BY n.kind, n.name LIMIT $3 OFFSET $4"
);
const COUNT: [&str; 3] = in_three_ways!("COUNT(*)", "");

const VERSIONS_SQLITE: &str = "SELECT kind, name, version, state, added_at FROM registry_versions \
    WHERE kind = $1 AND name IN (SELECT value FROM json_each($2) AS each)";
const VERSIONS_POSTGRES: &str = "SELECT kind, name, version, state, added_at FROM registry_versions \
    WHERE kind = $1 AND name = ANY(ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))";

impl Store {
    /// Searches for names with at least one version in any state.
    ///
    /// # Panics
    ///
    /// Never, because texts are JSON.
    pub async fn registry_name_search(&self, search: NameSearch<'_>) -> Result<FoundNames> {
        let pattern = like_pattern(search.text);
        let (prefixes, way) = match search.prefixes {
            None => (String::new(), 0),
            Some(prefixes) => {
                let pairs: Vec<_> = prefixes
                    .iter()
                    .map(|prefix| (prefix.kind(), prefix.as_str()))
                    .collect();
                let way = if self.is_shared() { 2 } else { 1 };
                (serde_json::to_string(&pairs).expect("texts are JSON"), way)
            }
        };
        let (find, count) = (SEARCH[way], COUNT[way]);
        let rows = on_pool!(self, db => sqlx::query_as::<_, (NameKind, String)>(find)
            .bind(&pattern).bind(&prefixes).bind(search.limit).bind(search.skip).fetch_all(db))?;
        let count = on_pool!(self, db => sqlx::query_scalar::<_, i64>(count)
            .bind(&pattern).bind(&prefixes).fetch_one(db))?;
        let names = rows.into_iter();
        let names = names.map(|(kind, name)| RegistryName::new(kind, &name).map_err(broken));
        Ok(FoundNames {
            count,
            names: names.collect::<Result<_>>()?,
        })
    }

    /// Returns the beginning of the `go.mod` file of a version, at most this many bytes.
    pub(super) async fn registry_go_mod_start(
        &self,
        key: &VersionKey,
        most: i32,
    ) -> Result<Option<Vec<u8>>> {
        let (name, version) = (key.name(), key.version());
        on_pool!(self, db => sqlx::query_scalar::<_, Vec<u8>>(
            "SELECT substr(content, 1, $3) FROM registry_go_mods WHERE name = $1 AND version = $2")
            .bind(name.as_str()).bind(&version).bind(most).fetch_optional(db))
    }

    /// Lists all versions of names, in no order.
    ///
    /// # Panics
    ///
    /// Never, because texts are JSON.
    pub async fn registry_states_of(&self, names: &[RegistryName]) -> Result<Vec<ListedState>> {
        let sql = self.either(VERSIONS_SQLITE, VERSIONS_POSTGRES);
        let mut listed = Vec::new();
        for kind in [NameKind::Go, NameKind::Module] {
            let of_kind = names.iter().filter(|name| name.kind() == kind);
            let of_kind: Vec<&str> = of_kind.map(RegistryName::as_str).collect();
            if of_kind.is_empty() {
                continue;
            }
            let of_kind = serde_json::to_string(&of_kind).expect("texts are JSON");
            let rows = on_pool!(self, db => sqlx::query_as::<_, (NameKind, String, String, VersionState, Option<DateTime<Utc>>)>(sql)
                .bind(kind).bind(&of_kind).fetch_all(db))?;
            for (kind, name, version, state, added_at) in rows {
                listed.push(ListedState {
                    key: key_of(kind, &name, &version)?,
                    state,
                    added_at,
                });
            }
        }
        Ok(listed)
    }
}
