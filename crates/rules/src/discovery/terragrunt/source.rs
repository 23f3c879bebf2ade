//! Finds the code of a unit: the `source` of its `terraform` block, and the modules that the code calls.

use hcl_edit::structure::Structure;

use super::paths;
use crate::discovery::FileTree;
use crate::discovery::code::{UnreadFile, parse, parse_json, unmarked};
use crate::model::RepoPath;

/// Target of a `source`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// A directory of this repository.
    Local(RepoPath),
    /// Code that is fetched from elsewhere, which no change of this repository concerns.
    Remote,
    /// A directory of the disk outside this repository.
    Outside(String),
}

/// Hosts that may be written without a scheme.
const HOSTS: [&str; 4] = ["github.com/", "gitlab.com/", "bitbucket.org/", "git@"];

/// Reads a `source`, relative to a directory. `a//b` is the directory `b` of the copy of `a`.
pub(super) fn code(tree: &FileTree, text: &str, base: &RepoPath) -> Code {
    let text = text.split_once('?').map_or(text, |(path, _)| path);
    let text = text.strip_prefix("file://").unwrap_or(text);
    let is_path = text.starts_with(['/', '.']);
    if !is_path
        && (text.contains("::")
            || text.contains("://")
            || HOSTS.iter().any(|host| text.starts_with(host)))
    {
        return Code::Remote;
    }
    match paths::resolve(text, base) {
        Ok(dir) if is_path || tree.dir_exists(&dir) => Code::Local(dir),
        Ok(_) => Code::Remote,
        Err(_) if !is_path => Code::Remote,
        Err(what) => Code::Outside(what),
    }
}

/// Returns true if a file with this name is code.
pub(super) fn is_code(name: &str) -> bool {
    [".tf", ".tf.json", ".tofu", ".tofu.json"]
        .iter()
        .any(|ending| name.ends_with(ending))
}

/// Returns the directories of local modules (`./x`, `../x`) that a file calls; none if the file is not code by its
/// name.
pub(super) fn local_modules(file: &RepoPath, text: &str) -> Result<Vec<RepoPath>, UnreadFile> {
    let text = unmarked(text);
    let sources = match file.file_name() {
        name if name.ends_with(".tf.json") || name.ends_with(".tofu.json") => in_json(file, text)?,
        name if is_code(name) => in_code(file, text)?,
        _ => vec![],
    };
    let dir = file.parent();
    let local = sources
        .iter()
        .filter(|source| source.starts_with("./") || source.starts_with("../"));
    Ok(local.filter_map(|source| dir.join(source).ok()).collect())
}

fn in_code(file: &RepoPath, text: &str) -> Result<Vec<String>, UnreadFile> {
    let body = parse(file, text)?;
    let modules = body
        .iter()
        .filter_map(Structure::as_block)
        .filter(|block| block.has_ident("module"));
    let sources = modules.filter_map(|block| {
        block
            .body
            .get_attribute("source")?
            .value
            .as_str()
            .map(str::to_owned)
    });
    Ok(sources.collect())
}

fn in_json(file: &RepoPath, text: &str) -> Result<Vec<String>, UnreadFile> {
    let json = parse_json(file, text)?;
    let modules = json.get("module").and_then(serde_json::Value::as_object);
    let sources = modules
        .into_iter()
        .flatten()
        .filter_map(|(_, module)| module.get("source")?.as_str());
    Ok(sources.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::super::paths::ROOT;
    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    #[test]
    fn sources_are_told_apart() {
        let tree = FileTree::new([path("modules/app/main.tf"), path("live/a/terragrunt.hcl")]);
        let told = |text: &str| code(&tree, text, &path("live/a"));
        let cases = [
            ("../../modules/app", "modules/app"),
            ("../../modules//app", "modules/app"),
            ("../../modules//app?ref=v1", "modules/app"),
            (".", "live/a"),
            ("./sub", "live/a/sub"),
        ];
        for (text, dir) in cases {
            assert_eq!(told(text), Code::Local(path(dir)), "{text}");
        }
        assert_eq!(
            told(&format!("{ROOT}/modules//app")),
            Code::Local(path("modules/app"))
        );
        assert_eq!(
            told(&format!("file://{ROOT}/modules//app")),
            Code::Local(path("modules/app"))
        );
        for text in [
            "git::https://example.com/x.git//m?ref=v1",
            "git@github.com:acme/x.git",
            "github.com/acme/x",
            "tfr:///terraform-aws-modules/vpc/aws?version=1",
            "s3::https://x/y.zip",
            "acme/vpc/aws",
        ] {
            assert_eq!(told(text), Code::Remote, "{text}");
        }
        for text in ["../../../x", "/etc/x", &format!("{ROOT}/../x")] {
            assert!(matches!(told(text), Code::Outside(_)), "{text}");
        }
    }

    #[test]
    fn modules_are_read_from_code_of_both_forms() {
        let modules = |file: &str, text: &str| local_modules(&path(file), text).unwrap();
        let hcl = "module \"a\" {\n  source = \"../b\"\n}\nmodule \"r\" {\n  source = \"acme/x/aws\"\n}\n";
        assert_eq!(modules("m/a/main.tf", hcl), [path("m/b")]);
        assert_eq!(modules("m/a/main.tofu", hcl), [path("m/b")]);
        let json = r#"{"module": {"x": {"source": "./y"}, "z": {"source": 3}}}"#;
        assert_eq!(modules("m/a/main.tf.json", json), [path("m/a/y")]);
        assert_eq!(
            modules("m/a/main.tf", &format!("\u{feff}{hcl}")),
            [path("m/b")]
        );
        assert_eq!(
            modules("m/a/main.tf.json", &format!("\u{feff}{json}")),
            [path("m/a/y")]
        );
        assert_eq!(modules("m/a/README.md", hcl), []);
        assert_eq!(modules("a/main.tf", &hcl.replace("../b", "../../../b")), []);
        assert_eq!(
            local_modules(&path("a/main.tf"), "module {")
                .unwrap_err()
                .line,
            1
        );
        assert_eq!(
            local_modules(&path("a/main.tf.json"), "\n{")
                .unwrap_err()
                .line,
            2
        );
    }
}
