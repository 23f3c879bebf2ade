//! Writes the configuration of Terraform and OpenTofu for a run that may use the registry of modules: a `host` block for
//! the registry, and everything that the administrator has configured.
//!
//! The tools read one file that `TF_CLI_CONFIG_FILE` names, or else a file in the home directory and all files of a
//! directory there. Of two blocks for the same host the last one counts, so a block of the administrator stays in
//! effect.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs::Permissions;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hcl_edit::structure::Block;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tempfile::TempDir;

use super::{ChildEnvironment, RegistryAccess, file_owner};
use crate::model::{Distribution, RunUser};

/// Variable with the path of the configuration.
pub(super) const CONFIG_FILE: &str = "TF_CLI_CONFIG_FILE";

/// Variables that name the configuration in place of the files in the home directory. The first one counts.
const NAMED_BY: [&str; 2] = [CONFIG_FILE, "TERRAFORM_CONFIG"];

/// Maximum size of all files of the administrator together.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of bytes of the names of Go modules in a variable. The system refuses programs with longer ones.
const MAX_NAMES: usize = 64 << 10;

/// Blocks that the tools do not take as an attribute.
const LABELLED: [&str; 3] = ["credentials", "oci_credentials", "host"];
const UNLABELLED: &str = "oci_default_credentials";

/// Block with the sources of provider packages, which has further blocks in it.
const PROVIDERS: &str = "provider_installation";

/// Makes the environment of a run with access to the registry. The configuration is written into a new directory in
/// `parent`, the second value, which runs may read. If they have a user or a sandbox, they cannot change it.
pub(super) fn environment(
    environment: &ChildEnvironment,
    access: &RegistryAccess,
    tool: Distribution,
    parent: &Path,
    user: Option<RunUser>,
) -> Result<(ChildEnvironment, Option<TempDir>)> {
    let with = with_go(environment, access);
    let Some(files) = configured(environment, tool)? else {
        return Ok((with, None));
    };
    let files = contents(&files, user)?;
    if has_credentials(environment, access.host(), &files) {
        return Ok((with, None));
    }
    std::fs::create_dir_all(parent)?;
    let dir = tempfile::Builder::new()
        .prefix("registry-")
        .tempdir_in(parent)?;
    let file = dir.path().join("cli.tfrc");
    std::fs::write(&file, text(access, &files))?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o400))?;
    if let Some(user) = user {
        file_owner::allow_read(parent, dir.path(), &file, user)?;
    }
    let with = with.with(CONFIG_FILE, OsString::from(&file));
    Ok((with, Some(dir)))
}

/// Lets `go` get modules from the registry, unless it has no Go modules for this run or the administrator has configured
/// `go` otherwise.
///
/// The checksum database stays as it is, and must not see the names of the registry. `go` asks one database about all modules
/// but those in `GONOSUMDB`, and the log of the registry does not have the modules that come from their repositories: `go`
/// would refuse them. If `GOSUMDB` names this log, all modules come from the registry, and `go` proves them.
fn with_go(environment: &ChildEnvironment, access: &RegistryAccess) -> ChildEnvironment {
    let names = access.go_names().filter(|names| names.len() <= MAX_NAMES);
    let (Some(mut names), None) = (names, environment.get("GOPROXY")) else {
        return environment.clone();
    };
    let with = environment
        .clone()
        .with("GOPROXY", access.go_proxy().into());
    let database = environment.get("GOSUMDB");
    let is_proved = database.is_some_and(|database| access.is_own_log(database));
    if is_proved || environment.get("GONOSUMDB").is_some() {
        return with;
    }
    // `GOPRIVATE` counts only where `GONOSUMDB` is not set.
    if let Some(private) = environment
        .get("GOPRIVATE")
        .and_then(|names| names.to_str())
    {
        names = format!("{private},{names}");
    }
    with.with("GONOSUMDB", names.into())
}

/// Lists the files from which the tool would read its configuration. `None`: a variable names one by a relative path,
/// so it is in the checkout, and the server does not read it.
fn configured(environment: &ChildEnvironment, tool: Distribution) -> Result<Option<Vec<PathBuf>>> {
    let named = NAMED_BY.iter().filter_map(|name| environment.get(name));
    if let Some(named) = named.map(PathBuf::from).find(|path| path != Path::new("")) {
        return Ok(named.is_absolute().then(|| vec![named]));
    }
    let absolute = |name| {
        environment
            .get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let Some(home) = absolute("HOME") else {
        return Ok(Some(Vec::new()));
    };
    let (mut main, mut dir) = (home.join(".terraformrc"), home.join(".terraform.d"));
    let own = home.join(".tofurc");
    if tool == Distribution::Terraform && own.exists() && !main.exists() {
        // A step or hook may run the other tool, and finds only this configuration.
        main = own;
    } else if tool == Distribution::OpenTofu {
        let xdg = absolute("XDG_CONFIG_HOME").map(|dir| dir.join("opentofu"));
        if own.exists() {
            main = own;
        } else if let Some(xdg) = xdg.as_ref().filter(|_| !main.exists()) {
            main = xdg.join("tofurc");
        }
        if let Some(xdg) = xdg.filter(|_| !dir.exists()) {
            dir = xdg;
        }
    }
    let mut below = match std::fs::read_dir(&dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>>>()?,
        Err(_) => Vec::new(),
    };
    below.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".tfrc") || name.ends_with(".tfrc.json")
    });
    below.sort();
    Ok(Some([vec![main], below].concat()))
}

/// Returns the text of the configuration.
fn text(access: &RegistryAccess, files: &[String]) -> String {
    let mut text = format!(
        "host \"{}\" {{\n  services = {{\n    \"modules.v1\" = \"{}\"\n  }}\n}}\n",
        access.host(),
        access.modules_url(),
    );
    for file in files {
        text.push('\n');
        text.push_str(file);
        text.push('\n');
    }
    text
}

/// Returns true if the administrator has configured a token for a host. Tools then use the registry as everyone else does,
/// because the token may read more than a run.
fn has_credentials(environment: &ChildEnvironment, host: &str, files: &[String]) -> bool {
    let variable = format!("TF_TOKEN_{}", host.replace('-', "__").replace('.', "_"));
    let in_file = |text: &String| {
        // A file that does not parse is for the tool to report.
        hcl_edit::parser::parse_body(text).is_ok_and(|body| {
            let mut blocks = body.get_blocks("credentials");
            let is_for = |block: &Block| {
                let label = block.labels.first();
                label.is_some_and(|label| label.as_str().eq_ignore_ascii_case(host))
            };
            blocks.any(is_for)
        })
    };
    environment.get(&variable).is_some() || files.iter().any(in_file)
}

/// Returns the texts of the files that the user of runs may read, in the native syntax.
fn contents(files: &[PathBuf], user: Option<RunUser>) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut left = MAX_BYTES;
    for file in files {
        // Another user of runs must not get what that user could not read.
        if user.is_some_and(|user| !may_read(file, user)) {
            continue;
        }
        // The tools pass over files that they cannot read.
        let Ok(opened) = std::fs::File::open(file) else {
            continue;
        };
        let mut own = String::new();
        let length = opened.take(left + 1).read_to_string(&mut own)? as u64;
        left = left.checked_sub(length).ok_or_else(|| {
            let what = format!("the configuration in {} is too large", file.display());
            Error::new(ErrorKind::FileTooLarge, what)
        })?;
        texts.push(native(own));
    }
    Ok(texts)
}

/// Returns true if a user may read a file, by the permissions of the file and of the directories above it.
fn may_read(file: &Path, user: RunUser) -> bool {
    let has = |path: &Path, bit: u32| {
        std::fs::metadata(path).is_ok_and(|meta| {
            let shift = if meta.uid() == user.uid {
                6
            } else if meta.gid() == user.gid {
                3
            } else {
                0
            };
            (meta.mode() >> shift) & bit != 0
        })
    };
    has(file, 0o4) && file.ancestors().skip(1).all(|dir| has(dir, 0o1))
}

/// Returns a configuration in the native syntax, so that several can stand in one file. One that is damaged stays as it
/// is, so that the tool reports it.
fn native(text: String) -> String {
    if !text.trim_start().starts_with('{') {
        return text;
    }
    let Ok(Ordered::Object(settings)) = serde_json::from_str(&text) else {
        return text;
    };
    let mut native = String::new();
    for (name, value) in settings {
        if name == PROVIDERS {
            for sources in listed(&value) {
                native.push_str(&blocks(PROVIDERS, sources));
            }
        } else if LABELLED.contains(&name.as_str()) {
            native.push_str(&labelled_blocks(&name, &value));
        } else if name == UNLABELLED {
            for body in listed(&value) {
                writeln!(native, "{name} {}", inline_block(body))
                    .expect("writing to a text does not fail");
            }
        } else {
            writeln!(native, "{} = {}", quoted(&name), inline(&value))
                .expect("writing to a text does not fail");
        }
    }
    native
}

/// A value of JSON with its fields in their order: of two sources of providers, the tools ask the first one first.
enum Ordered {
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    /// Anything else, as JSON.
    Plain(Value),
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OrderedVisitor;
        impl<'de> Visitor<'de> for OrderedVisitor {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Ordered, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Ordered::Object(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> std::result::Result<Ordered, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Ordered::Array(elements))
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(text.into()))
            }

            fn visit_bool<E>(self, value: bool) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(value.into()))
            }

            fn visit_i64<E>(self, number: i64) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(number.into()))
            }

            fn visit_unit<E>(self) -> std::result::Result<Ordered, E> {
                Ok(Ordered::Plain(Value::Null))
            }
        }
        deserializer.deserialize_any(OrderedVisitor)
    }
}

fn quoted(name: &str) -> Value {
    Value::from(name)
}

/// Writes blocks with a label each.
fn labelled_blocks(name: &str, value: &Ordered) -> String {
    let mut text = String::new();
    let Ordered::Object(by_label) = value else {
        return text;
    };
    for (label, bodies) in by_label {
        for body in listed(bodies) {
            writeln!(text, "{name} {} {}", quoted(label), inline_block(body))
                .expect("writing to a text does not fail");
        }
    }
    text
}

/// Writes the body of a block over several lines, because a line of one has a single field.
fn inline_block(value: &Ordered) -> String {
    let mut text = "{\n".to_owned();
    if let Ordered::Object(fields) = value {
        for (name, value) in fields {
            writeln!(text, "  {name} = {}", inline(value))
                .expect("writing to a text does not fail");
        }
    }
    text.push('}');
    text
}

/// Returns the elements of an array, or the value itself.
fn listed(value: &Ordered) -> &[Ordered] {
    match value {
        Ordered::Array(all) => all,
        one @ (Ordered::Object(_) | Ordered::Plain(_)) => std::slice::from_ref(one),
    }
}

/// Formats a block that contains other blocks, as HCL.
fn blocks(name: &str, value: &Ordered) -> String {
    let mut text = format!("{name} {{\n");
    if let Ordered::Object(sources) = value {
        for (name, value) in sources {
            for block in listed(value) {
                writeln!(text, "  {} {}", quoted(name), inline(block))
                    .expect("writing to a text does not fail");
            }
        }
    }
    text.push_str("}\n");
    text
}

/// Writes a value in one line.
fn inline(value: &Ordered) -> String {
    match value {
        Ordered::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{} = {}", quoted(name), inline(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Ordered::Array(all) => {
            let all: Vec<String> = all.iter().map(inline).collect();
            format!("[{}]", all.join(", "))
        }
        Ordered::Plain(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::run_registry::access_of_tests;
    use super::*;

    fn of(pairs: &[(&str, &Path)]) -> ChildEnvironment {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    /// Returns the configuration that a run gets, without the block of the registry.
    fn written(environment: &ChildEnvironment, tool: Distribution) -> Option<String> {
        let top = tempfile::tempdir().unwrap();
        let access = access_of_tests();
        let made = super::environment(environment, &access, tool, &top.path().join("tmp"), None);
        let (with, dir) = made.unwrap();
        let dir = dir?;
        let file = with.get(CONFIG_FILE).unwrap();
        assert!(Path::new(file).starts_with(dir.path()));
        let permissions = std::fs::metadata(file).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o400);
        let text = std::fs::read_to_string(file).unwrap();
        let block = format!(
            "host \"mods.example.com\" {{\n  services = {{\n    \"modules.v1\" = \"{}\"\n  }}\n}}\n",
            access.modules_url()
        );
        let rest = text.strip_prefix(&block).expect("the block comes first");
        Some(rest.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_configuration_of_the_administrator_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir(at(".terraform.d")).unwrap();
        for (path, text) in [
            (".terraformrc", "plugin_cache_dir = \"/cache\""),
            (".tofurc", "disable_checkpoint = true"),
            (".terraform.d/b.tfrc", "host \"mods.example.com\" {}"),
            (
                ".terraform.d/a.tfrc.json",
                r#"{"credentials": {"x.example": {"token": "\"t"}}}"#,
            ),
            (".terraform.d/other.txt", "not read"),
            ("named.tfrc", "credentials \"y.example\" {}"),
        ] {
            std::fs::write(at(path), text).unwrap();
        }
        let home = dir.path();
        let (terraform, tofu) = (Distribution::Terraform, Distribution::OpenTofu);
        let below = r#"credentials "x.example" { token = "\"t" } host "mods.example.com" {}"#;
        for (pairs, tool, expected) in [
            (
                vec![("HOME", home)],
                terraform,
                Some(format!("plugin_cache_dir = \"/cache\" {below}")),
            ),
            (
                vec![("HOME", home)],
                tofu,
                Some(format!("disable_checkpoint = true {below}")),
            ),
            (
                vec![("HOME", home), (CONFIG_FILE, &at("named.tfrc"))],
                terraform,
                Some("credentials \"y.example\" {}".to_owned()),
            ),
            (
                vec![("HOME", home), ("TERRAFORM_CONFIG", &at("none.tfrc"))],
                terraform,
                Some(String::new()),
            ),
            (
                vec![(CONFIG_FILE, Path::new("/dev/null"))],
                tofu,
                Some(String::new()),
            ),
            (vec![], terraform, Some(String::new())),
            (
                vec![("HOME", home), (CONFIG_FILE, Path::new("named.tfrc"))],
                terraform,
                None,
            ),
        ] {
            assert_eq!(written(&of(&pairs), tool), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_token_of_the_administrator_for_the_registry_stays_in_effect() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let file = home.join(".terraformrc");
        let tool = Distribution::Terraform;
        for (text, is_written) in [
            (
                "credentials \"mods.example.com\" {\n  token = \"x\"\n}\n",
                false,
            ),
            (
                r#"{"credentials": {"Mods.example.com": {"token": "x"}}}"#,
                false,
            ),
            (
                "credentials \"other.example.com\" {\n  token = \"x\"\n}\n",
                true,
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = written(&of(&[("HOME", home)]), tool);
            assert_eq!(found.is_some(), is_written, "{text}");
        }
        let token = of(&[("TF_TOKEN_mods_example_com", Path::new("x"))]);
        assert_eq!(written(&token, tool), None);
    }

    #[test]
    fn a_configuration_of_opentofu_counts_where_terraform_has_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".tofurc"), "disable_checkpoint = true").unwrap();
        let found = written(&of(&[("HOME", dir.path())]), Distribution::Terraform);
        assert_eq!(found.as_deref(), Some("disable_checkpoint = true"));
    }

    #[test]
    fn sources_in_json_keep_their_order() {
        let json =
            r#"{"provider_installation": {"filesystem_mirror": {"path": "/m"}, "direct": {}}}"#;
        let text = native(json.to_owned());
        assert!(
            text.find("filesystem_mirror") < text.find("direct"),
            "{text}"
        );
    }

    #[test]
    fn a_configuration_in_json_is_rewritten_as_the_tools_read_it() {
        let json = r#"{"disable_checkpoint": true, "provider_installation": [{"direct": {},
            "network_mirror": [{"include": ["a/b", "c/d"], "url": "https://x/"}]}]}"#;
        let text = native(json.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "\"disable_checkpoint\" = true provider_installation { \"direct\" { } \
             \"network_mirror\" { \"include\" = [\"a/b\", \"c/d\"], \"url\" = \"https://x/\" } }"
        );
        for text in ["{\"a\": ", "a = 1"] {
            assert_eq!(native(text.to_owned()), text);
        }
    }

    #[test]
    fn variables_of_go_are_set_unless_the_administrator_has_set_them() {
        let top = tempfile::tempdir().unwrap();
        let access = access_of_tests();
        let variables = |pairs: &[(&str, &Path)]| {
            let tool = Distribution::Terraform;
            let made = super::environment(&of(pairs), &access, tool, top.path(), None);
            let (with, _) = made.unwrap();
            ["GOPROXY", "GONOSUMDB"].map(|name| {
                let value = with.get(name)?;
                Some(value.to_str().unwrap().to_owned())
            })
        };
        let ours = Some(access.go_proxy());
        assert_eq!(
            variables(&[]),
            [ours.clone(), Some("example.com/net".to_owned())]
        );
        let off = Path::new("off");
        assert_eq!(
            variables(&[("GOPROXY", off)]),
            [Some("off".to_owned()), None]
        );
        assert_eq!(
            variables(&[("GONOSUMDB", off)]),
            [ours.clone(), Some("off".to_owned())]
        );
        assert_eq!(
            variables(&[("GOPRIVATE", Path::new("corp.example.com"))]),
            [
                ours.clone(),
                Some("corp.example.com,example.com/net".to_owned())
            ]
        );
        // The log of the registry proves its modules.
        assert_eq!(
            variables(&[("GOSUMDB", Path::new("log.example.com+0a1b2c3d+AAAA"))]),
            [ours.clone(), None]
        );
        assert_eq!(
            variables(&[("GOSUMDB", Path::new("sum.example.org"))]),
            [ours, Some("example.com/net".to_owned())]
        );
    }

    #[test]
    fn another_user_gets_only_what_that_user_could_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let user = RunUser {
            uid: 4343,
            gid: 4344,
        };
        for (of_dir, of_file, expected) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o700, 0o644, false),
            (0o755, 0o600, false),
        ] {
            let mode = |path: &Path, mode| {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(path, mode).unwrap();
            };
            mode(&file, of_file);
            mode(dir.path(), of_dir);
            assert_eq!(may_read(&file, user), expected, "{of_dir:o} {of_file:o}");
        }
    }
}
