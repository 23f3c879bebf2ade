//! Reads `registry` of a repository's file: the modules that its tags publish.

use lockkeeper_registry::names::ModuleName;
use lockkeeper_registry::tags::TagPattern;

use crate::config::yaml::{Field, FileReader, KeyDoc, Located, Mapping, mapping};
use crate::model::RepoPath;

/// Modules that a repository publishes from its tags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistryRequest {
    /// True if Go modules are published, and false if they are not. `None`: they are if their names are in a namespace.
    pub go: Option<bool>,
    /// Terraform modules. `None`: the name of the repository decides.
    pub modules: Option<Vec<PublishedModule>>,
}

/// A Terraform module that a repository publishes from its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedModule {
    /// Directory of the module.
    pub dir: RepoPath,
    /// Name in the registry.
    pub name: ModuleName,
    /// Tags that are versions of the module.
    pub tags: TagPattern,
}

impl RegistryRequest {
    /// Maximum number of modules, because each is tried on every tag.
    pub const MAX_MODULES: usize = 200;
}

mapping! {
    /// Keys of `registry` in a repository's file.
    pub(in crate::config) struct RegistryMapping("`registry`") {
        go: bool = KeyDoc {
            default: "if a namespace of the owner has their names",
            meaning: "Publish Go modules from tags such as `v1.2.3` and `dir/v1.2.3`.",
            example: "true",
        },
        modules: Vec<PublishedModuleMapping> = KeyDoc {
            default: "the module that the repository is named after",
            meaning: "Terraform modules to publish from tags; `[]`: none.",
            example: "[{dir: modules/vpc, name: acme/vpc/aws}]",
        },
    }
}

mapping! {
    /// Keys of an entry of `modules`.
    pub(in crate::config) struct PublishedModuleMapping("a module of `registry`") {
        name: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Name in the registry: `NAMESPACE/NAME/SYSTEM`.",
            example: "acme/vpc/aws",
        },
        dir: Located = KeyDoc {
            default: "the root of the repository",
            meaning: "Directory of the module.",
            example: "modules/vpc",
        },
        tags: Located = KeyDoc {
            default: "`v*`, below the directory: `modules/vpc/v*`",
            meaning: "Tags that are versions of the module. `*` stands for the version, as in `1.2.3`.",
            example: "vpc-v*",
        },
    }
}

/// Reads `registry` of a repository's file.
pub(super) fn read(
    reader: &mut FileReader,
    registry: &Field<RegistryMapping>,
) -> Option<RegistryRequest> {
    let block = registry.read(reader)?;
    let go = block.go.read(reader);
    if !block.modules.is_set() {
        return Some(RegistryRequest { go, modules: None });
    }
    let entries = block.modules.read(reader).unwrap_or_default();
    if entries.len() > RegistryRequest::MAX_MODULES {
        let what = format!(
            "`registry` has {} modules; the maximum is {}",
            entries.len(),
            RegistryRequest::MAX_MODULES
        );
        reader.problem(
            block.place(),
            what,
            "publish the other ones from another repository, or with `lockkeeper registry publish`",
        );
        return None;
    }
    let mut modules: Vec<PublishedModule> = Vec::new();
    for entry in &entries {
        let Some(module) = read_module(reader, entry) else {
            continue;
        };
        let is_same =
            |other: &PublishedModule| other.name == module.name && other.tags == module.tags;
        if modules.iter().any(is_same) {
            let what = format!(
                "two modules are `{}`, and the tags `{}` are versions of both",
                module.name, module.tags
            );
            reader.problem(
                entry.place(),
                what,
                "give each module another `name`, or other `tags`",
            );
        }
        modules.push(module);
    }
    Some(RegistryRequest {
        go,
        modules: Some(modules),
    })
}

fn read_module(reader: &mut FileReader, entry: &PublishedModuleMapping) -> Option<PublishedModule> {
    const DIR_HELP: &str = "write a path from the root of the repository, such as `modules/vpc`";
    if !entry.name.is_set() {
        reader.problem(
            entry.place(),
            "a module of `registry` has no `name`".to_owned(),
            "add `name: NAMESPACE/NAME/SYSTEM`",
        );
    }
    let name = entry.name.read(reader).and_then(|text| {
        let help = "write a name such as `acme/vpc/aws`";
        let name = text.text.parse::<ModuleName>();
        name.map_err(|error| reader.problem(text.place, error.to_string(), help))
            .ok()
    });
    let dir = match entry.dir.read(reader) {
        Some(text) => RepoPath::new(&text.text)
            .map_err(|error| reader.problem(text.place, error.to_string(), DIR_HELP))
            .ok(),
        None if entry.dir.is_set() => None,
        None => Some(RepoPath::root()),
    };
    let pattern_help = "write a pattern such as `vpc-v*`";
    let tags = match (entry.tags.read(reader), &dir) {
        (Some(text), _) => text
            .text
            .parse::<TagPattern>()
            .map_err(|error| reader.problem(text.place, error.to_string(), pattern_help))
            .ok(),
        (None, Some(dir)) if !entry.tags.is_set() => {
            let below = if dir.is_root() { "" } else { dir.as_str() };
            let what = format!("no tag can be named after the directory `{dir}`");
            TagPattern::of_dir(below)
                .map_err(|_| reader.problem(entry.place(), what, "add `tags` with a pattern"))
                .ok()
        }
        (None, _) => None,
    };
    Some(PublishedModule {
        dir: dir?,
        name: name?,
        tags: tags?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{RepoConfig, RepoPermissions};
    use super::*;

    fn parse(registry: &str) -> Result<Option<RegistryRequest>, String> {
        let text = format!("version: 3\nregistry: {registry}\n");
        let whole = RepoConfig::parse("lockkeeper.yaml", &text, &RepoPermissions::default());
        let part = RepoConfig::parse_registry("lockkeeper.yaml", &text);
        let whole = whole.map(|config| config.registry);
        assert_eq!(
            whole.as_ref().map_err(ToString::to_string),
            part.as_ref().map_err(ToString::to_string),
        );
        part.map_err(|errors| errors.to_string())
    }

    #[test]
    fn modules_have_a_directory_and_a_pattern() {
        let found = parse(
            "{go: false, modules: [{name: acme/vpc/aws}, {name: acme/dns/aws, dir: modules/dns}, \
             {name: acme/db/aws, dir: db, tags: 'db-v*'}]}",
        );
        let found = found.unwrap().unwrap();
        assert_eq!(found.go, Some(false));
        let shown = found.modules.unwrap().into_iter().map(|module| {
            let PublishedModule { dir, name, tags } = module;
            format!("{dir} {name} {tags}")
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                ". acme/vpc/aws v*",
                "modules/dns acme/dns/aws modules/dns/v*",
                "db acme/db/aws db-v*"
            ]
        );
        assert_eq!(
            parse("{modules: []}").unwrap().unwrap().modules,
            Some(vec![])
        );
        assert_eq!(parse("{}").unwrap(), Some(RegistryRequest::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for (registry, problem) in [
            ("{modules: [{dir: a}]}", "has no `name`"),
            ("{modules: [{name: acme}]}", "three parts"),
            (
                "{modules: [{name: acme/vpc/aws, dir: ../x}]}",
                "leaves the repository",
            ),
            ("{modules: [{name: acme/vpc/aws, tags: v1}]}", "one `*`"),
            (
                "{modules: [{name: acme/vpc/aws, tags: '-*'}]}",
                "a pattern of tags",
            ),
            (
                "{modules: [{name: acme/vpc/aws, tag: 'v*'}]}",
                "did you mean `tags`?",
            ),
            (
                "{modules: [{name: acme/vpc/aws}, {name: acme/vpc/aws}]}",
                "two modules are",
            ),
            ("{gone: true}", "`gone` is not a key of `registry`"),
        ] {
            let error = parse(registry).unwrap_err();
            assert!(error.contains(problem), "{registry}: {error}");
        }
        let many = vec!["{name: acme/vpc/aws}"; RegistryRequest::MAX_MODULES + 1].join(",");
        let error = parse(&format!("{{modules: [{many}]}}")).unwrap_err();
        assert!(error.contains("the maximum is 200"), "{error}");
    }

    #[test]
    fn the_rest_of_the_file_counts_only_by_its_keys() {
        let text = "version: 3\nprojects: [{dir: a, workflow: nowhere}]\nregistry: {go: true}\n";
        let found = RepoConfig::parse_registry("lockkeeper.yaml", text).unwrap();
        assert_eq!(found.unwrap().go, Some(true));
        let unknown = RepoConfig::parse_registry("lockkeeper.yaml", "version: 3\nregistri: {}\n");
        assert!(unknown.unwrap_err().to_string().contains("`registry`"));
        assert_eq!(
            RepoConfig::parse_registry("x", "version: 3\n").unwrap(),
            None
        );
    }
}
