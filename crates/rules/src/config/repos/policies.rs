//! Reads `policies`: the policy sets of the server, and who may approve violations (reference 5.5).
//!
//! Only the administrator defines sets. A repository can at most switch checks on or off, and let its own steps check,
//! if `allowed_overrides` permits that (`policy_check`, `custom_policy_check`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper_policy::sets::{
    ItemRegex, MAX_OWNER_TEAMS, PolicyConfig, PolicyEngine, PolicyOwners, PolicySet, PolicySource,
    ReportFormat, SetName, SetScope, WaiverFile,
};
use semver::Version;

use super::entry::Workflows;
use crate::config::repo::parse_version;
use crate::config::workflow::read_set_name;
use crate::config::yaml::{
    Field, FilePosition, FileReader, FromYaml, KeyDoc, KeyShape, Located, Mapping, Shaped,
    ValueName, Vocabulary, YamlNode, mapping, shown, words,
};
use crate::model::{BranchName, ProjectKey, RepoId, RepoPath, text_enum};

/// Policy checks of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPolicies {
    /// Sets that concern the project, in the order of the file. The labels of the pull request are not considered
    /// yet: [`PolicySet::concerns`] does that.
    pub sets: Vec<Arc<PolicySet>>,
    /// Sets of the server that steps of the workflow check in this project, in the order of the file, also those that do not
    /// concern it: the order says which step is for which set.
    pub step_sets: Vec<SetName>,
    /// Version of conftest; `None` for that of the server.
    pub conftest_version: Option<Version>,
}

/// Policy checks are switched on, but there is nothing to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "policy checks are switched on, but the rules for repositories (`--repo-config`) have no policy sets, so that every \
     plan would pass without a check"
)]
pub struct NoPolicySets;

impl NoPolicySets {
    /// Suggestion for the administrator.
    pub const FIX: &str = "write `policies: {policy_sets: [{name: NAME, path: /FOLDER/OF/POLICIES}]}` into the file of \
                           --repo-config, or remove the flag";
}

/// Policy sets of the server, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DefinedPolicies {
    conftest_version: Option<Version>,
    sets: Vec<SetVariants>,
}

/// A policy set, for each of the two ways of checking.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SetVariants {
    usual: Arc<PolicySet>,
    /// The set in projects with `custom_policy_check`. It differs if the set has no `engine`: there, a step of the
    /// workflow checks it, as in Atlantis.
    custom: Arc<PolicySet>,
}

impl DefinedPolicies {
    /// Maximum number of sets, because each of them is evaluated for every plan.
    const MAX_SETS: usize = 100;

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the sets that concern a project, for pull requests with any labels.
    pub(super) fn of_project(&self, project: &ProjectKey, custom: bool) -> ProjectPolicies {
        let of_way = |set: &SetVariants| Arc::clone(if custom { &set.custom } else { &set.usual });
        let sets: Vec<Arc<PolicySet>> = self
            .sets
            .iter()
            .map(of_way)
            .filter(|set| set.concerns_project(project))
            .collect();
        let step_sets = self.sets.iter().map(of_way).filter_map(|set| {
            let is_for_steps = matches!(set.engine, PolicyEngine::Steps(_));
            is_for_steps.then(|| set.name.clone())
        });
        ProjectPolicies {
            step_sets: step_sets.collect(),
            sets,
            conftest_version: self.conftest_version.clone(),
        }
    }

    /// Refuses steps that name a set which does not exist, or which no step checks.
    pub(super) fn check_steps(&self, reader: &mut FileReader, workflows: &Workflows) {
        for workflow in workflows.values() {
            for name in workflow.policy_check.policy_sets() {
                let set = self.sets.iter().find(|set| set.usual.name == *name);
                let (problem, help) = match set.map(|set| set.custom.engine) {
                    Some(PolicyEngine::Steps(_)) => continue,
                    Some(PolicyEngine::Conftest | PolicyEngine::Embedded) => (
                        "which steps do not check",
                        "write `engine: steps` for the set, or remove `policy_set` from the step",
                    ),
                    None => (
                        "which does not exist",
                        "write the name of one of the `policy_sets`, or remove `policy_set` from the step",
                    ),
                };
                let what = format!(
                    "a step of the workflow `{}` names the policy set `{}`, {problem}",
                    shown(&workflow.name),
                    shown(name.as_str())
                );
                reader.problem_of_file(what, help);
            }
        }
    }

    /// Returns the sets as they are in projects without `custom_policy_check`.
    pub(super) fn config(&self) -> PolicyConfig {
        PolicyConfig {
            conftest_version: self.conftest_version.clone(),
            sets: self
                .sets
                .iter()
                .map(|set| PolicySet::clone(&set.usual))
                .collect(),
        }
    }
}

text_enum! {
    /// Values of `source` of a policy set.
    pub(in crate::config) enum SourceWord {
        /// A directory of the server.
        Local = "local",
        /// A directory on a branch of the repository itself.
        Branch = "branch",
        /// A directory of another repository.
        Repository = "repository",
    }
}

impl Shaped for SourceWord {
    const SHAPE: KeyShape = KeyShape::Words(|| words(Self::ALL, Self::as_str));
}

impl FromYaml for SourceWord {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        let word = Located::read(reader, node, name)?;
        // A word of Atlantis that never worked there.
        if word.text.trim() == "github" {
            reader.problem(
                word.place,
                "`github` is not a source of policies here".to_owned(),
                "write `source: repository`, with `repository: github.com/OWNER/NAME` and a tag or a full commit as `ref`",
            );
            return None;
        }
        reader.word_of(&word, &name.of_word(), &words(Self::ALL, Self::as_str))
    }
}

text_enum! {
    /// Values of `engine` of a policy set.
    pub(in crate::config) enum EngineWord {
        /// Evaluation by the program `conftest`.
        Conftest = "conftest",
        /// Evaluation of Rego inside this program.
        Embedded = "embedded",
        /// Checks by steps of the workflow.
        Steps = "steps",
    }
}

impl Vocabulary for EngineWord {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

impl Vocabulary for ReportFormat {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

mapping! {
    /// Keys of `policies` at the top level.
    pub(in crate::config) struct PoliciesMapping("`policies`") {
        conftest_version: Located = KeyDoc {
            default: "`DEFAULT_CONFTEST_VERSION`, else the one on the `PATH`",
            meaning: "Exact version of conftest.",
            example: "0.60.0",
        },
        owners: OwnersMapping = KeyDoc {
            default: "nobody",
            meaning: "People who may approve violations of every set.",
            example: "{teams: [acme/security]}",
        },
        approve_count: i32 = KeyDoc {
            default: "`1`",
            meaning: "Number of people who must approve violations of a set.",
            example: "2",
        },
        sticky_policy_approvals: bool = KeyDoc {
            default: "`false`",
            meaning: "Count approvals of earlier plans, as long as they cover all violations of the new plan.",
            example: "true",
        },
        policy_item_regex: Located = KeyDoc {
            default: "each finding is an item",
            meaning: "Expression that cuts the output of a set into items. An approval covers the items that the person saw.",
            example: "'(?m)^FAIL.*$'",
        },
        policy_sets: Vec<PolicySetMapping> = KeyDoc {
            default: "none",
            meaning: "Policy sets. Every plan of a project is checked against each set that concerns it.",
            example: "[{name: network, path: /etc/lockkeeper/policies}]",
        },
    }
}

mapping! {
    /// Keys of `owners` of policies.
    pub(in crate::config) struct OwnersMapping("`owners`") {
        users: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Logins on the forge.",
            example: "[ann]",
        },
        teams: Vec<Located> = KeyDoc {
            default: "`[]`",
            meaning: "Teams on the forge, as in `--gh-team-allowlist`.",
            example: "[acme/security]",
        },
    }
}

mapping! {
    /// Keys of a policy set.
    pub(in crate::config) struct PolicySetMapping("a policy set") {
        name: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Name in comments and for `--policy-set`, at most 100 characters.",
            example: "network",
        },
        path: Located = KeyDoc {
            default: "required, except with `engine: steps`",
            meaning: "Directory or file with the policies: an absolute path of the server, or a path in the repository of the policies.",
            example: "/etc/lockkeeper/policies",
        },
        source: SourceWord = KeyDoc {
            default: "`repository` or `branch` if that key is set, else `local`",
            meaning: "Place of the policies: the server, a branch of the same repository, or another repository.",
            example: "local",
        },
        branch: Located = KeyDoc {
            default: "none",
            meaning: "Branch of the same repository that has the policies. Not a key of Atlantis.",
            example: "main",
        },
        repository: Located = KeyDoc {
            default: "none",
            meaning: "Repository that has the policies. Not a key of Atlantis.",
            example: "github.com/acme/policies",
        },
        reference as "ref": Located = KeyDoc {
            default: "required with `repository`",
            meaning: "Tag or full commit of that repository. Not a key of Atlantis.",
            example: "v1.4.0",
        },
        engine: EngineWord = KeyDoc {
            default: "`conftest`; `steps` in projects with `custom_policy_check`",
            meaning: "Way of checking: the program conftest, Rego inside Lockkeeper, or `run` steps of the workflow. Not a key of Atlantis.",
            example: "embedded",
        },
        format: ReportFormat = KeyDoc {
            default: "`text`",
            meaning: "Format of the output of the step, with `engine: steps` or `custom_policy_check`. Not a key of Atlantis.",
            example: "sarif",
        },
        namespaces: Vec<Located> = KeyDoc {
            default: "`[main]`",
            meaning: "Rego packages to evaluate, with `engine: embedded`; `['*']`: all. Not a key of Atlantis.",
            example: "[main, network]",
        },
        when: PolicyScopeMapping = KeyDoc {
            default: "all projects",
            meaning: "Projects that the set concerns. Not a key of Atlantis.",
            example: "{dirs: [prod/**]}",
        },
        owners: OwnersMapping = KeyDoc {
            default: "those of `policies`",
            meaning: "More people who may approve violations of this set.",
            example: "{users: [ann]}",
        },
        approve_count: i32 = KeyDoc {
            default: "that of `policies`",
            meaning: "Number of people who must approve violations.",
            example: "2",
        },
        sticky_policy_approvals: bool = KeyDoc {
            default: "that of `policies`",
            meaning: "Count approvals of earlier plans, as long as they cover all violations of the new plan.",
            example: "true",
        },
        policy_item_regex: Located = KeyDoc {
            default: "that of `policies`",
            meaning: "Expression that cuts the output into items.",
            example: "'(?m)^FAIL.*$'",
        },
        prevent_self_approve: bool = KeyDoc {
            default: "`false`",
            meaning: "Do not count the approval of an author of the pull request.",
            example: "true",
        },
        waivers: WaiversMapping = KeyDoc {
            default: "none",
            meaning: "File of the repository with exceptions for a time, on a branch that pull requests cannot change. Not a key of \
                      Atlantis.",
            example: "{branch: main, path: policies/waivers.yaml}",
        },
    }
}

mapping! {
    /// Keys of `when` of a policy set.
    pub(in crate::config) struct PolicyScopeMapping("`when`") {
        dirs: Vec<Located> = KeyDoc {
            default: "all",
            meaning: "Patterns of directories.",
            example: "[prod/**]",
        },
        names: Vec<Located> = KeyDoc {
            default: "all",
            meaning: "Names of projects.",
            example: "[network]",
        },
        workspaces: Vec<Located> = KeyDoc {
            default: "all",
            meaning: "Workspaces.",
            example: "[prod]",
        },
        labels: Vec<Located> = KeyDoc {
            default: "all",
            meaning: "Labels of the pull request when it is planned; one of them is enough.",
            example: "[production]",
        },
    }
}

mapping! {
    /// Keys of `waivers` of a policy set.
    pub(in crate::config) struct WaiversMapping("`waivers`") {
        branch: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Branch that has the file.",
            example: "main",
        },
        path: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Path of the file, from the root of the repository.",
            example: "policies/waivers.yaml",
        },
    }
}

/// Settings of `policies` for sets without their own.
struct SetDefaults {
    owners: PolicyOwners,
    approve_count: u32,
    sticky: bool,
    item_regex: ItemRegex,
}

/// Reads `policies` from the file of the server.
pub(super) fn read(reader: &mut FileReader, field: &Field<PoliciesMapping>) -> DefinedPolicies {
    let Some(policies) = field.read(reader) else {
        return DefinedPolicies::default();
    };
    let defaults = SetDefaults {
        owners: read_owners(reader, &policies.owners),
        approve_count: read_count(reader, &policies.approve_count).unwrap_or(1),
        sticky: policies
            .sticky_policy_approvals
            .read(reader)
            .unwrap_or_default(),
        item_regex: read_item_regex(reader, &policies.policy_item_regex).unwrap_or_default(),
    };
    DefinedPolicies {
        conftest_version: read_version(reader, &policies.conftest_version),
        sets: read_sets(reader, &policies.policy_sets, &defaults),
    }
}

fn read_version(reader: &mut FileReader, field: &Field<Located>) -> Option<Version> {
    let version = field.read(reader)?;
    let parsed = parse_version(version.text.trim());
    if parsed.is_none() {
        let what = format!("`{}` is not a version of conftest", shown(&version.text));
        reader.problem(
            version.place,
            what,
            "write one exact version, such as `0.60.0`",
        );
    }
    parsed
}

fn read_sets(
    reader: &mut FileReader,
    field: &Field<Vec<PolicySetMapping>>,
    defaults: &SetDefaults,
) -> Vec<SetVariants> {
    let nodes = field.items(reader).unwrap_or_default();
    if nodes.len() > DefinedPolicies::MAX_SETS {
        let what = format!(
            "there are {} policy sets; the maximum is {}",
            nodes.len(),
            DefinedPolicies::MAX_SETS
        );
        reader.problem_of_file(what, "put the policies of several sets into one directory");
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut sets = Vec::new();
    for node in nodes {
        let Some(set) = read_set(reader, node, defaults) else {
            continue;
        };
        let name = set.usual.name.clone();
        if !names.insert(name.clone()) {
            let what = format!("there are two policy sets `{}`", shown(name.as_str()));
            reader.problem(
                node.place,
                what,
                "give each set a name of its own, because approvals and comments use it",
            );
        }
        sets.push(set);
    }
    check_teams(reader, field, &sets);
    sets
}

/// Notes that the sets have more teams as owners than are looked up.
fn check_teams(
    reader: &mut FileReader,
    field: &Field<Vec<PolicySetMapping>>,
    sets: &[SetVariants],
) {
    let teams: BTreeSet<String> = sets
        .iter()
        .flat_map(|set| &set.usual.owners.teams)
        .map(|team| team.to_ascii_lowercase())
        .collect();
    if let Some(place) = field.place()
        && teams.len() > MAX_OWNER_TEAMS
    {
        let what = format!(
            "the policy sets have {} teams as owners, and the members of at most {MAX_OWNER_TEAMS} are looked up, so the \
             others may have no effect",
            teams.len()
        );
        let help = "put the owners into fewer teams, or name them as `users`";
        reader.without_effect(place, what, help);
    }
}

fn read_set(
    reader: &mut FileReader,
    node: &YamlNode,
    defaults: &SetDefaults,
) -> Option<SetVariants> {
    const NAME_HELP: &str = "name the set: `name: network`; comments and approvals use the name";
    let set: PolicySetMapping = reader.mapping(node)?;
    let name = reader
        .required(&set, &set.name, NAME_HELP)
        .and_then(|name| read_set_name(reader, &name));
    let engine = set.engine.read(reader);
    let format = set.format.read(reader);
    check_format(reader, &set, engine);
    let source = if engine == Some(EngineWord::Steps) {
        check_unused(reader, &set);
        Some(PolicySource::Steps)
    } else {
        read_source(reader, &set, engine)
    };
    let namespaces = read_namespaces(reader, &set, engine);
    let scope = set
        .when
        .read(reader)
        .map(|when| read_scope(reader, &when))
        .unwrap_or_default();
    let own = read_owners(reader, &set.owners);
    let owners = PolicyOwners {
        users: joined(&defaults.owners.users, own.users),
        teams: joined(&defaults.owners.teams, own.teams),
    };
    let approve_count = read_count(reader, &set.approve_count).unwrap_or(defaults.approve_count);
    let sticky = set
        .sticky_policy_approvals
        .read(reader)
        .unwrap_or(defaults.sticky);
    let item_regex = read_item_regex(reader, &set.policy_item_regex)
        .unwrap_or_else(|| defaults.item_regex.clone());
    let prevent_self_approve = set.prevent_self_approve.read(reader).unwrap_or_default();
    let waivers = set
        .waivers
        .read(reader)
        .and_then(|waivers| read_waivers(reader, &waivers));
    let by_steps = PolicyEngine::Steps(format.unwrap_or(ReportFormat::Text));
    let usual = PolicySet {
        name: name?,
        source: source?,
        engine: match engine {
            None | Some(EngineWord::Conftest) => PolicyEngine::Conftest,
            Some(EngineWord::Embedded) => PolicyEngine::Embedded,
            Some(EngineWord::Steps) => by_steps,
        },
        namespaces,
        scope,
        owners,
        approve_count,
        prevent_self_approve,
        sticky,
        item_regex,
        waivers,
    };
    let custom = if engine.is_none() {
        PolicySet {
            source: PolicySource::Steps,
            engine: by_steps,
            ..usual.clone()
        }
    } else {
        usual.clone()
    };
    Some(SetVariants {
        usual: Arc::new(usual),
        custom: Arc::new(custom),
    })
}

/// Refuses `format` where no step prints anything.
fn check_format(reader: &mut FileReader, set: &PolicySetMapping, engine: Option<EngineWord>) {
    let by_itself = match engine {
        None | Some(EngineWord::Steps) => return,
        Some(engine @ (EngineWord::Conftest | EngineWord::Embedded)) => engine,
    };
    if let Some(place) = set.format.place() {
        let what =
            format!("`format` does not go with `engine: {by_itself}`, whose output is known");
        reader.problem(
            place,
            what,
            "remove it, or write `engine: steps` if a step of the workflow checks",
        );
    }
}

/// Notes keys that say where the policies are, although a step of the workflow brings its own.
fn check_unused(reader: &mut FileReader, set: &PolicySetMapping) {
    let written: Vec<(&str, FilePosition)> =
        [&set.path, &set.branch, &set.repository, &set.reference]
            .into_iter()
            .map(|field| (field.name(), field.place()))
            .chain([(set.source.name(), set.source.place())])
            .filter_map(|(name, place)| Some((name, place?)))
            .collect();
    for (name, place) in written {
        reader.without_effect(
            place,
            format!("`{name}` of a policy set with `engine: steps` has no effect"),
            "the step of the workflow decides where its policies are",
        );
    }
    // Their values are checked nevertheless.
    for field in [&set.path, &set.branch, &set.repository, &set.reference] {
        field.read(reader);
    }
    set.source.read(reader);
}

fn read_source(
    reader: &mut FileReader,
    set: &PolicySetMapping,
    engine: Option<EngineWord>,
) -> Option<PolicySource> {
    const PATH_HELP: &str = "write the directory of the policies: `path: /etc/lockkeeper/policies`";
    let written = set.source.read(reader);
    if written.is_none() && set.source.is_set() {
        return None;
    }
    let source = written.unwrap_or(if set.repository.is_set() {
        SourceWord::Repository
    } else if set.branch.is_set() {
        SourceWord::Branch
    } else {
        SourceWord::Local
    });
    check_source(reader, set, source);
    let path = reader.required(set, &set.path, PATH_HELP);
    match source {
        SourceWord::Local => read_local(reader, &path?, engine),
        SourceWord::Branch => {
            const HELP: &str = "name the branch that has the policies: `branch: main`";
            let branch = reader
                .required(set, &set.branch, HELP)
                .and_then(|branch| read_ref(reader, &branch, HELP));
            let path = read_path(reader, &path?);
            Some(PolicySource::Branch {
                branch: branch?,
                path: path?,
            })
        }
        SourceWord::Repository => {
            const HELP: &str =
                "name the repository that has the policies: `repository: github.com/acme/policies`";
            const REF_HELP: &str = "name a tag or a full commit, so that nobody changes the policies unseen: `ref: v1.4.0`";
            let repository = reader
                .required(set, &set.repository, HELP)
                .and_then(|repository| read_repository(reader, &repository));
            let reference = reader
                .required(set, &set.reference, REF_HELP)
                .and_then(|reference| read_ref(reader, &reference, REF_HELP));
            let path = read_path(reader, &path?);
            Some(PolicySource::Repository {
                repository: repository?,
                reference: reference?,
                path: path?,
            })
        }
    }
}

/// Refuses keys that belong to another source.
fn check_source(reader: &mut FileReader, set: &PolicySetMapping, source: SourceWord) {
    let others: &[(&Field<Located>, SourceWord)] = &[
        (&set.branch, SourceWord::Branch),
        (&set.repository, SourceWord::Repository),
        (&set.reference, SourceWord::Repository),
    ];
    for (field, of) in others.iter().filter(|(_, of)| *of != source) {
        if let Some(place) = field.place() {
            let what = format!(
                "`{}` does not go with `source: {source}`, so it is unclear where the policies are",
                field.name()
            );
            reader.problem(place, what, format!("remove it, or write `source: {of}`"));
        }
    }
}

/// Reads a path of the server. A relative one is only accepted without `engine`: projects with `custom_policy_check` have no
/// use for it, and in others the set is not evaluated.
fn read_local(
    reader: &mut FileReader,
    path: &Located,
    engine: Option<EngineWord>,
) -> Option<PolicySource> {
    const FOR_STEPS: &str = "steps check the set where `custom_policy_check` is true; elsewhere, the set is not evaluated and \
                             nothing can be applied. Write an absolute path of the server, or `branch: main` for a \
                             directory on a branch of the repository";
    const HELP: &str = "write an absolute path of the server, `branch: main` for a directory on a branch of the \
                        repository, or `engine: steps` if a step of the workflow checks; a relative path would be in the \
                        checkout of the pull request, which could change the policies";
    let text = path.text.trim();
    let local = PathBuf::from(text);
    if local.is_absolute() && !text.chars().any(char::is_control) {
        return Some(PolicySource::Local(local));
    }
    if engine.is_none() && !text.is_empty() && !text.chars().any(char::is_control) {
        let what = format!(
            "policies are never read from `{}`, because the path is relative",
            shown(text)
        );
        reader.without_effect(path.place, what, FOR_STEPS);
        return Some(PolicySource::Relative(text.to_owned()));
    }
    let what = format!("`{}` is not an absolute path", shown(text));
    reader.problem(path.place, what, HELP);
    None
}

fn read_path(reader: &mut FileReader, path: &Located) -> Option<RepoPath> {
    const HELP: &str =
        "write the path from the root of the repository that has the policies, such as `policies`";
    let refuse = |_| {
        let what = format!("`{}` is not a path of a repository", shown(&path.text));
        reader.problem(path.place, what, HELP);
    };
    RepoPath::new(path.text.trim()).map_err(refuse).ok()
}

fn read_ref(reader: &mut FileReader, name: &Located, help: &str) -> Option<String> {
    let refuse = |_| {
        let what = format!("`{}` is not the name of a branch or tag", shown(&name.text));
        reader.problem(name.place, what, help);
    };
    // The rules of git for names are the same for tags; a commit fits them too.
    BranchName::new(name.text.trim())
        .map(|name| name.as_str().to_owned())
        .map_err(refuse)
        .ok()
}

fn read_repository(reader: &mut FileReader, repository: &Located) -> Option<String> {
    let refuse = |_| {
        reader.problem(
            repository.place,
            format!("`{}` is not a repository", shown(&repository.text)),
            "write `host/owner/name`, such as `github.com/acme/policies`",
        );
    };
    repository
        .text
        .trim()
        .parse::<RepoId>()
        .map(|repository| repository.to_string())
        .map_err(refuse)
        .ok()
}

fn read_namespaces(
    reader: &mut FileReader,
    set: &PolicySetMapping,
    engine: Option<EngineWord>,
) -> Vec<String> {
    let names = texts(reader, &set.namespaces);
    if let Some(place) = set.namespaces.place()
        && engine != Some(EngineWord::Embedded)
    {
        reader.problem(
            place,
            "`namespaces` needs `engine: embedded`".to_owned(),
            "remove it; for conftest, write `--namespace NAME` or `--all-namespaces` as `extra_args` of the step \
             `policy_check`",
        );
    }
    names
}

fn read_scope(reader: &mut FileReader, when: &PolicyScopeMapping) -> SetScope {
    let [dirs, names, workspaces] =
        [&when.dirs, &when.names, &when.workspaces].map(|field| read_patterns(reader, field));
    let labels = texts(reader, &when.labels);
    SetScope::new(dirs, names, workspaces, labels).unwrap_or_else(|error| {
        reader.problem(
            when.place(),
            error.to_string(),
            "use fewer or shorter patterns and labels",
        );
        SetScope::default()
    })
}

/// Reads a list of patterns. Checks each of them alone, so that the place of a mistake is shown.
fn read_patterns(reader: &mut FileReader, field: &Field<Vec<Located>>) -> Vec<String> {
    let mut patterns = Vec::new();
    for Located { place, text } in field.read(reader).unwrap_or_default() {
        match SetScope::new(vec![text.clone()], vec![], vec![], vec![]) {
            Ok(_) => patterns.push(text),
            Err(error) => reader.problem(
                place,
                error.to_string(),
                "write a name or a directory, or a pattern such as `prod/**`",
            ),
        }
    }
    patterns
}

fn read_owners(reader: &mut FileReader, field: &Field<OwnersMapping>) -> PolicyOwners {
    let Some(owners) = field.read(reader) else {
        return PolicyOwners::default();
    };
    PolicyOwners {
        users: texts(reader, &owners.users),
        teams: texts(reader, &owners.teams),
    }
}

/// Reads a list of texts. Refuses empty ones, which would match nothing or too much.
fn texts(reader: &mut FileReader, field: &Field<Vec<Located>>) -> Vec<String> {
    let mut texts = Vec::new();
    for Located { place, text } in field.read(reader).unwrap_or_default() {
        let text = text.trim();
        if text.is_empty() {
            let what = format!("an item of `{}` is empty", field.name());
            reader.problem(place, what, "write its name, or remove it");
        } else {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// Returns both lists without repetitions. Logins and teams are compared without case.
fn joined(first: &[String], second: Vec<String>) -> Vec<String> {
    let mut all = first.to_vec();
    for text in second {
        if all.iter().all(|known| !known.eq_ignore_ascii_case(&text)) {
            all.push(text);
        }
    }
    all
}

/// Reads a number of approvals. As in Atlantis, a number below 1 counts as none.
fn read_count(reader: &mut FileReader, field: &Field<i32>) -> Option<u32> {
    let count = field.read(reader)?;
    let positive = u32::try_from(count).ok().filter(|count| *count > 0);
    if let (None, Some(place)) = (positive, field.place()) {
        reader.without_effect(
            place,
            format!("`approve_count: {count}` has no effect"),
            "violations always need an approval; to let them pass, remove the set or use rules that only warn",
        );
    }
    positive
}

fn read_item_regex(reader: &mut FileReader, field: &Field<Located>) -> Option<ItemRegex> {
    let text = field.read(reader)?;
    if text.text.is_empty() {
        reader.problem(
            text.place,
            format!("`{}` is empty, so that an approval would cover everything", field.name()),
            "write an expression that matches each item of the output, such as `(?m)^FAIL.*$`, or remove it",
        );
        return None;
    }
    reader.expression(&text).map(ItemRegex)
}

fn read_waivers(reader: &mut FileReader, waivers: &WaiversMapping) -> Option<WaiverFile> {
    const BRANCH_HELP: &str = "name a branch that pull requests cannot change: `branch: main`";
    const PATH_HELP: &str =
        "write the path from the root of the repository, such as `policies/waivers.yaml`";
    let branch = reader
        .required(waivers, &waivers.branch, BRANCH_HELP)
        .and_then(|branch| read_ref(reader, &branch, BRANCH_HELP));
    let path = reader.required(waivers, &waivers.path, PATH_HELP)?;
    let file = read_path(reader, &path)?;
    if file.is_root() {
        let what = format!("`{}` is not a file", shown(&path.text));
        reader.problem(path.place, what, PATH_HELP);
        return None;
    }
    Some(WaiverFile {
        branch: branch?,
        path: file,
    })
}

#[cfg(test)]
mod tests;
