//! Selects the variables of the server that runs get: variables for every run of a stage, and variables of
//! environment profiles, which no other run gets.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use super::ServiceInputs;
use super::sandbox::Boundaries;
use crate::config::repos::{self, ProfileVariable};
use crate::config::server::{PassEnvironment, RunStage, ServerConfig};
use crate::workflow::{ChildEnvironment, ProfileSetup, StageSetup};

/// Environments of runs, by stage and by profile.
pub(super) struct Environments {
    /// Environment of plans, and of every program that is no run of a project.
    pub plans: ChildEnvironment,
    /// Environment of applies, imports and `state rm`.
    applies: ChildEnvironment,
    /// Environments of the plans and the applies of each environment profile.
    profiles: BTreeMap<String, [ChildEnvironment; 2]>,
}

/// Environments of runs within their boundaries.
pub(super) struct Setups {
    pub plans: StageSetup,
    pub applies: StageSetup,
    pub profiles: BTreeMap<String, ProfileSetup>,
}

impl Environments {
    /// Selects the environments from the environment of the server. Fails if a profile names a variable that does not
    /// exist.
    pub(super) fn of(config: &ServerConfig, parts: &ServiceInputs) -> anyhow::Result<Self> {
        let mut all = parts.environment.clone();
        if config.sandbox.run_as.is_some() {
            // The home of the server is not the home of another user.
            all.remove("HOME");
        }
        Self::pick(
            &all,
            &config.runs.environment,
            config.repo_rules.repos.environment_profiles(),
        )
    }

    fn pick(
        all: &BTreeMap<String, String>,
        passed: &PassEnvironment,
        profiles: &repos::EnvironmentProfiles,
    ) -> anyhow::Result<Self> {
        let kept = repos::sources(profiles);
        let stage = |stage| picked(all, passed, stage, &kept);
        let (plans, applies) = (stage(RunStage::Plan), stage(RunStage::Apply));
        let profiles = profiles.iter().map(|(name, profile)| {
            let plans = with(
                &plans,
                &profile.plan,
                all,
                &format!("the profile `{name}` for plans"),
            )?;
            let applies = with(
                &applies,
                &profile.apply,
                all,
                &format!("the profile `{name}` for applies"),
            )?;
            anyhow::Ok((name.clone(), [plans, applies]))
        });
        Ok(Self {
            profiles: profiles.collect::<anyhow::Result<_>>()?,
            plans,
            applies,
        })
    }

    /// Returns the setups of the stages: the environments together with the boundaries.
    pub(super) fn setups(self, boundaries: &Boundaries<'_>) -> anyhow::Result<Setups> {
        let profiles = self.profiles.into_iter().map(|(name, [plans, applies])| {
            let (plans, applies) = (boundaries.setup(plans)?, boundaries.setup(applies)?);
            anyhow::Ok((name, ProfileSetup { plans, applies }))
        });
        Ok(Setups {
            profiles: profiles.collect::<anyhow::Result<_>>()?,
            plans: boundaries.setup(self.plans)?,
            applies: boundaries.setup(self.applies)?,
        })
    }
}

/// Selects the variables for every run of a stage. Variables that a profile names are not among them.
fn picked(
    all: &BTreeMap<String, String>,
    passed: &PassEnvironment,
    stage: RunStage,
    kept: &BTreeSet<&str>,
) -> ChildEnvironment {
    let handed = all
        .iter()
        .filter(|(name, _)| passed.passes(name, stage) && !kept.contains(name.as_str()));
    handed
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Adds the variables of a profile to an environment. They replace variables of the same name.
fn with(
    base: &ChildEnvironment,
    variables: &[ProfileVariable],
    all: &BTreeMap<String, String>,
    of: &str,
) -> anyhow::Result<ChildEnvironment> {
    let mut named = Vec::new();
    for ProfileVariable { name, source } in variables {
        let Some(value) = all.get(source) else {
            bail!(
                "`environment_profiles` of --repo-config: {of} has `{name}`, but the server has no variable \
                 `{source}`. Start the server with `{source}`, or remove the line"
            )
        };
        named.push((name.into(), value.into()));
    }
    Ok(base
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(named)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::repos::ServerRepos;

    const SERVER: [(&str, &str); 8] = [
        ("PATH", "/usr/bin"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_PROFILE", "dev"),
        ("AWS_ROLE_ARN", "dev-role"),
        ("PROD_READ", "prod-read"),
        ("PROD_WRITE", "prod-write"),
        ("AWS_PROD_TOKEN", "prod-token"),
        ("LAB_TOKEN", "lab"),
    ];

    fn environments(server: &[(&str, &str)], profiles: &str) -> anyhow::Result<Environments> {
        let all = server
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let passed = PassEnvironment::new(names(&["*"]))
            .of_stages(names(&["LAB_*"]), names(&["AWS_ROLE_ARN"]));
        let repos =
            ServerRepos::parse("repos.yaml", &format!("environment_profiles: {profiles}")).unwrap();
        Environments::pick(&all, &passed, repos.environment_profiles())
    }

    fn shown(environment: &ChildEnvironment) -> String {
        let line = |(name, value): (&std::ffi::OsString, &std::ffi::OsString)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        environment.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_profile_names_goes_to_its_stage_and_to_nobody_else() {
        let profiles = "{prod: {plan: [AWS_PROFILE=PROD_READ, AWS_PROD_TOKEN], apply: [AWS_PROFILE=PROD_WRITE]}, \
                        lab: {plan: [LAB_TOKEN]}, none: }";
        let found = environments(&SERVER, profiles).unwrap();
        let mut told = format!(
            "plans: {}\napplies: {}\n",
            shown(&found.plans),
            shown(&found.applies)
        );
        for (name, [plans, applies]) in &found.profiles {
            writeln!(
                told,
                "{name}, plans: {}\n{name}, applies: {}",
                shown(plans),
                shown(applies)
            )
            .unwrap();
        }
        insta::assert_snapshot!(told, @"
        plans: AWS_PROFILE=dev AWS_REGION=eu-west-1 PATH=/usr/bin
        applies: AWS_PROFILE=dev AWS_REGION=eu-west-1 AWS_ROLE_ARN=dev-role PATH=/usr/bin
        lab, plans: AWS_PROFILE=dev AWS_REGION=eu-west-1 LAB_TOKEN=lab PATH=/usr/bin
        lab, applies: AWS_PROFILE=dev AWS_REGION=eu-west-1 AWS_ROLE_ARN=dev-role PATH=/usr/bin
        none, plans: AWS_PROFILE=dev AWS_REGION=eu-west-1 PATH=/usr/bin
        none, applies: AWS_PROFILE=dev AWS_REGION=eu-west-1 AWS_ROLE_ARN=dev-role PATH=/usr/bin
        prod, plans: AWS_PROD_TOKEN=prod-token AWS_PROFILE=prod-read AWS_REGION=eu-west-1 PATH=/usr/bin
        prod, applies: AWS_PROFILE=prod-write AWS_REGION=eu-west-1 AWS_ROLE_ARN=dev-role PATH=/usr/bin
        ");
    }

    #[test]
    fn a_variable_that_is_not_there_is_named() {
        for (profiles, expected) in [
            (
                "{prod: {plan: [AWS_PROFILE=PROD_REED]}}",
                "the profile `prod` for plans has `AWS_PROFILE`, but the server has no variable `PROD_REED`",
            ),
            (
                "{prod: {apply: [TOKEN]}}",
                "the profile `prod` for applies has `TOKEN`, but the server has no variable `TOKEN`",
            ),
        ] {
            let error = environments(&SERVER, profiles)
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
