//! Reads `environment_profiles`: variables of the server that only the runs of some projects get, under other names.
//!
//! `environment_profile` of an entry selects the projects. A repository can set neither of the two keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::repo::DirGlob;
use crate::config::variables;
use crate::config::yaml::{
    Field, FileReader, KeyDoc, KeyShape, Located, Shaped, YamlNode, YamlValue, mapping, quoted,
    shown,
};
use crate::model::{ProjectKey, WorkspaceName};

/// Environment profiles by name.
pub type EnvironmentProfiles = BTreeMap<String, EnvironmentProfile>;

/// Variables for the runs of some projects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentProfile {
    /// Variables for the runs of plans.
    pub plan: Vec<ProfileVariable>,
    /// Variables for applies, imports and `state rm`.
    pub apply: Vec<ProfileVariable>,
}

/// A variable of a run, and the server's variable with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileVariable {
    /// Name in the environment of the run.
    pub name: String,
    /// Name in the environment of the server.
    pub source: String,
}

impl EnvironmentProfile {
    /// Returns the variables of both stages.
    pub fn variables(&self) -> impl Iterator<Item = &ProfileVariable> {
        self.plan.iter().chain(&self.apply)
    }
}

/// Returns the server's variables that any profile names. Runs without that profile do not get them.
pub fn sources(profiles: &EnvironmentProfiles) -> BTreeSet<&str> {
    profiles
        .values()
        .flat_map(EnvironmentProfile::variables)
        .map(|variable| variable.source.as_str())
        .collect()
}

/// Rules that select a profile for the projects of a repository. The last matching rule is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct ProfileRules(Arc<[ProfileRule]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProfileRule {
    /// Directories of the rule. `None` stands for every directory.
    dir: Option<DirGlob>,
    /// Workspace of the rule. `None` stands for every workspace.
    workspace: Option<WorkspaceName>,
    profile: String,
}

impl ProfileRules {
    /// Returns the profile of a project.
    pub(super) fn profile_of(&self, project: &ProjectKey) -> Option<&str> {
        let fits = |rule: &&ProfileRule| {
            rule.dir
                .as_ref()
                .is_none_or(|dir| dir.matches(&project.dir))
                && rule
                    .workspace
                    .as_ref()
                    .is_none_or(|workspace| *workspace == project.workspace)
        };
        self.0.iter().rfind(fits).map(|rule| rule.profile.as_str())
    }
}

impl Shaped for ProfileRules {
    const SHAPE: KeyShape =
        KeyShape::Any(&[KeyShape::Text, KeyShape::List(&ProfileRuleMapping::SHAPE)]);
}

mapping! {
    /// Keys of a rule of `environment_profile`.
    pub(in crate::config) struct ProfileRuleMapping("a rule of `environment_profile`") {
        dir: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Directories of the projects, from the root of the repository: `prod`, `prod/*`, or `prod/**` for all below it.",
            example: "prod/**",
        },
        workspace: Located = KeyDoc {
            default: "all",
            meaning: "Workspace of the projects.",
            example: "prod",
        },
        profile: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Profile of these projects.",
            example: "prod",
        },
    }
}

mapping! {
    /// Keys of an entry of `environment_profiles`.
    pub(in crate::config) struct ProfileMapping("an environment profile") {
        plan: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Variables for plans: `NAME`, or `NAME=SOURCE` for the value of the server's variable `SOURCE`.",
            example: "[AWS_ACCESS_KEY_ID=PROD_READ_KEY_ID]",
        },
        apply: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Variables for applies, imports and `state rm`, in the same form.",
            example: "[AWS_ACCESS_KEY_ID=PROD_WRITE_KEY_ID]",
        },
    }
}

/// Reads `environment_profiles` from the file.
pub(super) fn read_profiles(
    reader: &mut FileReader,
    profiles: &Field<BTreeMap<String, ProfileMapping>>,
) -> EnvironmentProfiles {
    let entries = profiles.entries(reader);
    entries
        .iter()
        .map(|(name, node)| {
            (
                name.text.trim().to_owned(),
                read_profile(reader, name, node),
            )
        })
        .collect()
}

fn read_profile(reader: &mut FileReader, name: &Located, node: &YamlNode) -> EnvironmentProfile {
    if name.text.trim().is_empty() || name.text.chars().any(char::is_control) {
        let what = format!("`{}` cannot be the name of a profile", shown(&name.text));
        reader.problem(name.place, what, "use a word such as `prod`");
    }
    if node.value == YamlValue::Null {
        return EnvironmentProfile::default();
    }
    let Some(profile) = reader.mapping::<ProfileMapping>(node) else {
        return EnvironmentProfile::default();
    };
    EnvironmentProfile {
        plan: read_variables(reader, &profile.plan),
        apply: read_variables(reader, &profile.apply),
    }
}

fn read_variables(reader: &mut FileReader, field: &Field<Vec<Located>>) -> Vec<ProfileVariable> {
    let mut variables: Vec<ProfileVariable> = Vec::new();
    for text in field.read(reader).unwrap_or_default() {
        let Some(variable) = read_variable(reader, &text) else {
            continue;
        };
        if variables.iter().any(|known| known.name == variable.name) {
            let what = format!("`{}` is in `{}` twice", shown(&variable.name), field.name());
            reader.problem(text.place, what, "keep one of the two");
        }
        variables.push(variable);
    }
    variables
}

fn read_variable(reader: &mut FileReader, text: &Located) -> Option<ProfileVariable> {
    let (name, source) = text
        .text
        .split_once('=')
        .unwrap_or((&text.text, &text.text));
    let (name, source) = (name.trim(), source.trim());
    let refused = |name: &str| {
        let shown = shown(name);
        let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(is_fine)
        {
            let what = format!("`{shown}` is not a valid name of a variable");
            return Some((
                what,
                "write `NAME`, or `NAME=SOURCE` with the name of a variable of the server; do not write values here",
            ));
        }
        variables::is_of_server(name).then(|| {
            let what = format!("`{shown}` is a setting of the server, which runs never get");
            (what, "remove it; if a provider needs the secret, set it on the server under a second name")
        })
    };
    let of_process = || {
        variables::stays(source).then(|| {
            let what = format!(
                "`{}` stays in the environment of the server's process, so it cannot be limited to one profile",
                shown(source)
            );
            (what, "set the value on the server under another name, and write `NAME=SOURCE` here")
        })
    };
    if let Some((what, help)) = refused(name)
        .or_else(|| refused(source))
        .or_else(of_process)
    {
        reader.problem(text.place, what, help);
        return None;
    }
    Some(ProfileVariable {
        name: name.to_owned(),
        source: source.to_owned(),
    })
}

/// Reads `environment_profile` from an entry of the server's file.
pub(super) fn read_rules(
    reader: &mut FileReader,
    profiles: &EnvironmentProfiles,
    field: &Field<ProfileRules>,
) -> Option<ProfileRules> {
    let node = field.node()?;
    if let Some(name) = node.as_text() {
        let profile = known(reader, profiles, &name)?;
        return Some(ProfileRules(
            [ProfileRule {
                dir: None,
                workspace: None,
                profile,
            }]
            .into(),
        ));
    }
    let YamlValue::List(items) = &node.value else {
        let what = format!("`{}`", field.name());
        reader.wrong_kind(node, &what, "a name or a list of rules");
        return None;
    };
    Some(ProfileRules(
        items
            .iter()
            .filter_map(|item| read_rule(reader, profiles, item))
            .collect(),
    ))
}

fn read_rule(
    reader: &mut FileReader,
    profiles: &EnvironmentProfiles,
    node: &YamlNode,
) -> Option<ProfileRule> {
    const DIR_HELP: &str = "name the directories that may use the profile, such as `dir: prod/**`, because a pull request \
                            can set any workspace";
    let rule: ProfileRuleMapping = reader.mapping(node)?;
    let dir = reader
        .required(&rule, &rule.dir, DIR_HELP)
        .and_then(|text| {
            let read = DirGlob::new(text.text.trim());
            read.map_err(|error| {
                reader.problem(
                    text.place,
                    error.to_string(),
                    "write `prod`, `prod/*` or `prod/**`",
                );
            })
            .ok()
        });
    let workspace = rule.workspace.read(reader).map(|text| {
        let read = WorkspaceName::new(text.text.trim());
        read.map_err(|error| {
            reader.problem(
                text.place,
                error.to_string(),
                "write the name of a workspace",
            );
        })
        .ok()
    });
    let profile = reader
        .required(&rule, &rule.profile, "name one of `environment_profiles`")
        .and_then(|name| known(reader, profiles, &name));
    // A condition with a mistake must not become a rule without that condition.
    let workspace = match workspace {
        Some(read) => Some(read?),
        None => None,
    };
    Some(ProfileRule {
        dir: Some(dir?),
        workspace,
        profile: profile?,
    })
}

fn known(
    reader: &mut FileReader,
    profiles: &EnvironmentProfiles,
    name: &Located,
) -> Option<String> {
    let text = name.text.trim();
    if profiles.contains_key(text) {
        return Some(text.to_owned());
    }
    let names = || profiles.keys().map(String::as_str);
    let help = reader.nearest(text, names()).map_or_else(
        || match profiles.len() {
            0 => "define it under `environment_profiles` at the top of the file".to_owned(),
            _ => format!(
                "define it under `environment_profiles`; the defined ones are {}",
                quoted(names().take(20).map(shown))
            ),
        },
        |meant| format!("did you mean `{}`?", shown(meant)),
    );
    reader.problem(
        name.place,
        format!("there is no environment profile `{}`", shown(text)),
        help,
    );
    None
}
