//! Paths of the protocol of Go module proxies, below `/registry/go/`.
//!
//! `go` probes for modules by all beginnings of an import path, so a path that no module can have is answered like a
//! module that is not here. So is a version that is not canonical, with the reason. A wrong escape is an error, because no
//! `go` sends one.

use lockkeeper_registry::names::{
    GoPath, InvalidEscape, RegistryName, unescape_path, unescape_version,
};
use lockkeeper_registry::tlog::{TILE_HEIGHT, Tile, TileLevel};
use lockkeeper_registry::versions::VersionKey;
use percent_encoding::percent_decode_str;

/// Beginning of paths for which nothing is fetched from elsewhere.
const CACHED_ONLY: &str = "cached-only/";

/// Maximum length of a path. The longest that names a version is shorter.
const MAX_PATH: usize = 4096;

/// Request of the `go` command, or of a program that follows the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GoRequest {
    /// `index`: versions in the order in which they were added.
    Index,
    /// `…/@v/list`: versions of a module.
    List(GoPath),
    /// `…/@latest`: the version for those who name none.
    Latest(GoPath),
    /// `…/@v/VERSION.info`, `.mod` or `.zip`.
    Version(VersionKey, GoFile),
    /// `sumdb/NAME/…`: a checksum database.
    Sumdb(String, SumdbRequest),
}

/// File of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoFile {
    /// Version and time, as JSON.
    Info,
    /// The `go.mod` file of the module.
    Mod,
    /// The package, a zip.
    Zip,
}

/// Request to a checksum database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SumdbRequest {
    /// `supported`: whether this proxy has the database.
    Supported,
    /// `latest`: the signed head.
    Latest,
    /// `lookup/MODULE@VERSION`: the record of a version.
    Lookup(VersionKey),
    /// `tile/…`: hashes of the tree.
    Tile(Tile),
}

/// Reason why a path is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvalidGoRequest {
    /// No module has this path, and no file of the protocol has this name.
    NotFound,
    /// The version of a module is not canonical, with a clause about it.
    Version(GoPath, String),
    /// The path is not escaped as the protocol demands.
    Escape(String),
}

impl From<InvalidEscape> for InvalidGoRequest {
    fn from(error: InvalidEscape) -> Self {
        match error {
            InvalidEscape::UpperCase | InvalidEscape::Bang | InvalidEscape::NotAscii(_) => {
                Self::Escape(error.to_string())
            }
            // A wrong version comes with the path of its module.
            InvalidEscape::Path(_) | InvalidEscape::Version => Self::NotFound,
        }
    }
}

impl GoRequest {
    /// Returns true if nothing is to be fetched from elsewhere for a path.
    pub fn is_cached_only(path: &str) -> bool {
        let path = percent_decode_str(path).decode_utf8();
        path.is_ok_and(|path| path.starts_with(CACHED_ONLY))
    }

    /// Reads a path below `/registry/go/`, as the client has sent it.
    pub fn parse(path: &str) -> Result<Self, InvalidGoRequest> {
        if path.len() > MAX_PATH {
            return Err(InvalidGoRequest::NotFound);
        }
        let path = percent_decode_str(path).decode_utf8();
        let path =
            path.map_err(|_| InvalidGoRequest::Escape("the path is not UTF-8".to_owned()))?;
        let path = path.strip_prefix(CACHED_ONLY).unwrap_or(&path);
        if path == "index" {
            return Ok(Self::Index);
        }
        if let Some(rest) = path.strip_prefix("sumdb/") {
            let (name, rest) = rest.split_once('/').ok_or(InvalidGoRequest::NotFound)?;
            return Ok(Self::Sumdb(name.to_owned(), SumdbRequest::parse(rest)?));
        }
        let (module, file) = path.split_once("/@").ok_or(InvalidGoRequest::NotFound)?;
        let module = unescape_path(module)?;
        match file {
            "latest" => Ok(Self::Latest(module)),
            "v/list" => Ok(Self::List(module)),
            _ => {
                let file = file.strip_prefix("v/").ok_or(InvalidGoRequest::NotFound)?;
                let (version, extension) =
                    file.rsplit_once('.').ok_or(InvalidGoRequest::NotFound)?;
                let file = match extension {
                    "info" => GoFile::Info,
                    "mod" => GoFile::Mod,
                    "zip" => GoFile::Zip,
                    _ => return Err(InvalidGoRequest::NotFound),
                };
                Ok(Self::Version(key(module, version)?, file))
            }
        }
    }
}

impl SumdbRequest {
    fn parse(path: &str) -> Result<Self, InvalidGoRequest> {
        if path == "supported" {
            return Ok(Self::Supported);
        }
        if path == "latest" {
            return Ok(Self::Latest);
        }
        if let Some(record) = path.strip_prefix("lookup/") {
            let (module, version) = record.rsplit_once('@').ok_or(InvalidGoRequest::NotFound)?;
            return Ok(Self::Lookup(key(unescape_path(module)?, version)?));
        }
        // Tiles with texts of records would show names to everyone.
        let is_served = |tile: &Tile| {
            tile.height() == TILE_HEIGHT && matches!(tile.level(), TileLevel::Hashes(_))
        };
        let tile: Option<Tile> = path.parse().ok().filter(is_served);
        tile.map(Self::Tile).ok_or(InvalidGoRequest::NotFound)
    }
}

/// Reads a version. The name of a branch or commit is none: `go` finds out elsewhere which version it is.
fn key(module: GoPath, escaped: &str) -> Result<VersionKey, InvalidGoRequest> {
    let version = match unescape_version(escaped) {
        Ok(version) => version,
        Err(error @ InvalidEscape::Version) => {
            return Err(InvalidGoRequest::Version(module, error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let key = VersionKey::new(RegistryName::Go(module.clone()), &version);
    key.map_err(|error| {
        let why = format!("`{version}` cannot be a version of {module}: {error}");
        InvalidGoRequest::Version(module, why)
    })
}

#[cfg(test)]
mod tests {
    use lockkeeper_registry::names::{escape_path, escape_version};
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    fn parsed(path: &str) -> GoRequest {
        GoRequest::parse(path).unwrap_or_else(|error| panic!("{path}: {error:?}"))
    }

    fn version(text: &str, file: GoFile) -> GoRequest {
        GoRequest::Version(text.parse().unwrap(), file)
    }

    #[test]
    fn paths_are_those_of_the_protocol() {
        let module: GoPath = "github.com/Azure/m/v2".parse().unwrap();
        assert_eq!(
            parsed("github.com/!azure/m/v2/@v/list"),
            GoRequest::List(module.clone())
        );
        assert_eq!(
            parsed("github.com/%21azure/m/v2/@latest"),
            GoRequest::Latest(module)
        );
        for (extension, file) in [
            ("info", GoFile::Info),
            ("mod", GoFile::Mod),
            ("zip", GoFile::Zip),
        ] {
            for (path, key) in [
                (
                    "github.com/!azure/m/v2/@v/v2.0.0",
                    "go github.com/Azure/m/v2 v2.0.0",
                ),
                (
                    "cached-only/example.com/m/@v/v1.0.0-!r!c.1",
                    "go example.com/m v1.0.0-RC.1",
                ),
                (
                    "example.com/m/@v/v2.0.0+incompatible",
                    "go example.com/m v2.0.0+incompatible",
                ),
            ] {
                assert_eq!(parsed(&format!("{path}.{extension}")), version(key, file));
            }
        }
        assert_eq!(parsed("index"), GoRequest::Index);
        for (path, expected) in [
            ("cached-only/example.com/m/@v/list", true),
            ("cached%2Donly/example.com/m/@v/list", true),
            ("example.com/m/@v/list", false),
        ] {
            assert_eq!(GoRequest::is_cached_only(path), expected, "{path}");
        }
        let sumdb = |request| GoRequest::Sumdb("mods.example.com".to_owned(), request);
        for (path, request) in [
            ("supported", SumdbRequest::Supported),
            ("latest", SumdbRequest::Latest),
            (
                "lookup/github.com/!azure/m@v1.0.0",
                SumdbRequest::Lookup("go github.com/Azure/m v1.0.0".parse().unwrap()),
            ),
            (
                "tile/8/0/x001/234.p/5",
                SumdbRequest::Tile("tile/8/0/x001/234.p/5".parse().unwrap()),
            ),
        ] {
            for before in ["", "cached-only/"] {
                let path = format!("{before}sumdb/mods.example.com/{path}");
                assert_eq!(parsed(&path), sumdb(request.clone()), "{path}");
            }
        }
    }

    #[test]
    fn a_path_that_no_module_can_have_is_not_there() {
        let long = format!("example.com/{}/@v/list", "a".repeat(4096));
        for path in [
            "",
            "@v/list",
            "/@v/list",
            "example/@v/list",
            "example.com/m",
            "example.com/m/@v/",
            "example.com/m/@v/list/more",
            "example.com/m/@v/v1.0.0",
            "example.com/m/@v/v1.0.0.tar",
            "example.com/../m/@v/list",
            "example.com//m/@v/list",
            "example.com/m/@vlist",
            "example.com/m/@latest/x",
            "sumdb/mods.example.com",
            "sumdb/mods.example.com/",
            "sumdb/mods.example.com/tile/8/data/000",
            "sumdb/mods.example.com/tile/4/0/000",
            "sumdb/mods.example.com/tile/8/0/1",
            "sumdb/mods.example.com/lookup/example.com/m",
            "index/x",
            &long,
        ] {
            assert_eq!(
                GoRequest::parse(path),
                Err(InvalidGoRequest::NotFound),
                "{path}"
            );
        }
    }

    #[test]
    fn a_version_that_is_not_canonical_is_told() {
        for (file, expected) in [
            (
                "v9.info",
                "`v9` cannot be a version of example.com/m: a version of a Go module is written as `v1.2.3`",
            ),
            ("v1.2.mod", "written as `v1.2.3`"),
            ("main.info", "`main` cannot be a version"),
            ("latest.zip", "written as `v1.2.3`"),
            ("v2.0.0.info", "`v2.0.0` is none of them"),
            ("v1.0.0+meta.info", "write `v1.0.0`"),
            ("feature%2Fx.info", "the name of a file"),
            ("..%2F..%2Fx.zip", "the name of a file"),
        ] {
            match GoRequest::parse(&format!("example.com/m/@v/{file}")) {
                Err(InvalidGoRequest::Version(path, why)) => {
                    assert_eq!(path.as_str(), "example.com/m");
                    assert!(why.contains(expected), "{file}: {why}");
                }
                other => panic!("{file}: {other:?}"),
            }
        }
        let lookup = GoRequest::parse("sumdb/mods.example.com/lookup/example.com/m@main");
        assert!(matches!(lookup, Err(InvalidGoRequest::Version(..))));
    }

    #[test]
    fn a_wrong_escape_is_told() {
        for (path, expected) in [
            ("github.com/Azure/m/@v/list", "upper-case"),
            ("github.com/!!azure/m/@v/list", "follows each"),
            ("github.com/!/m/@v/list", "follows each"),
            ("example.com/m/@v/v1.0.0-RC.1.info", "upper-case"),
            ("example.com/%C3%BC/@v/list", "ASCII"),
            ("example.com/%FF/@v/list", "UTF-8"),
            ("sumdb/x/lookup/github.com/Azure/m@v1.0.0", "upper-case"),
        ] {
            match GoRequest::parse(path) {
                Err(InvalidGoRequest::Escape(why)) => {
                    assert!(why.contains(expected), "{path}: {why}");
                }
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    /// Returns the path of a request as `go` writes it.
    fn path_of(request: &GoRequest) -> String {
        let escaped = |key: &VersionKey| {
            let (path, version) = key.as_go().unwrap();
            let version = escape_version(&version.to_string()).unwrap();
            (escape_path(path), version)
        };
        match request {
            GoRequest::Index => "index".to_owned(),
            GoRequest::List(module) => format!("{}/@v/list", escape_path(module)),
            GoRequest::Latest(module) => format!("{}/@latest", escape_path(module)),
            GoRequest::Version(key, file) => {
                let (path, version) = escaped(key);
                let extension = match file {
                    GoFile::Info => "info",
                    GoFile::Mod => "mod",
                    GoFile::Zip => "zip",
                };
                format!("{path}/@v/{version}.{extension}")
            }
            GoRequest::Sumdb(name, request) => {
                let request = match request {
                    SumdbRequest::Supported => "supported".to_owned(),
                    SumdbRequest::Latest => "latest".to_owned(),
                    SumdbRequest::Lookup(key) => {
                        let (path, version) = escaped(key);
                        format!("lookup/{path}@{version}")
                    }
                    SumdbRequest::Tile(tile) => tile.to_string(),
                };
                let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
                format!("sumdb/{name}/{request}")
            }
        }
    }

    /// Pieces of paths that `go` sends, and of others.
    const PIECES: &[&str] = &[
        "example.com/m",
        "github.com/!azure",
        "/v2",
        "/@v/",
        "/@latest",
        "list",
        "v1.0.0",
        "v2.0.0-!r!c.1",
        "+incompatible",
        ".info",
        ".mod",
        ".zip",
        "sumdb/",
        "mods.example.com/",
        "lookup/",
        "@",
        "supported",
        "latest",
        "tile/8/0/",
        "x001/",
        "000",
        ".p/5",
        "index",
        "cached-only/",
        "!",
        "A",
        "/",
        "..",
        "%2F",
        "%21",
        "%00",
        "%FF",
        "%",
    ];

    /// Paths that look like those of `go`.
    const LIKELY: &str = "(cached-only/)?(index|(example|go)\\.com/[a-z!]{1,4}(/v2)?/@(latest|v/list|v/v[12]\\.[0-9]\\.0(-!r!c|-RC)?(\\+incompatible)?\\.(info|mod|zip))|sumdb/[a-z.%2]{0,4}/(supported|latest|lookup/example\\.com/m(/v2)?@v[12]\\.0\\.0|tile/8/[0-2]/(x00[0-9]/)?00[0-9](\\.p/[0-9])?))";

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4 * fixed_seed().cases, ..fixed_seed() })]

        #[test]
        fn a_path_that_is_read_is_written_alike(path in prop_oneof![LIKELY, texts_of(PIECES)]) {
            if let Ok(request) = GoRequest::parse(&path) {
                let written = path_of(&request);
                prop_assert_eq!(GoRequest::parse(&written), Ok(request), "{}", written);
            }
        }

        #[test]
        fn an_encoded_path_is_the_same(path in LIKELY) {
            let path = path.replace('%', "");
            let encoded = utf8_percent_encode(&path, NON_ALPHANUMERIC).to_string();
            prop_assert_eq!(GoRequest::parse(&encoded), GoRequest::parse(&path), "{}", path);
        }
    }
}
