//! Variables of the server that Terraform and steps get. Pull requests decide which code runs there, so a list names
//! the variables that runs get. All others stay with the server.

use super::allowlist::wildcard_matches;
use super::problems::StartupProblem;
use super::reader::{ReadResult, SettingReader};
use crate::config::variables::is_of_server;

/// Variables that every run gets: those that programs need to work at all, and the credentials of common providers.
const ALWAYS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TF_*",
    // Not `TG_*`, the newer prefix: other programs have variables with such names, and some are secret.
    "TERRAGRUNT_*",
    "AWS_*",
    "ARM_*",
    "AZURE_*",
    "GOOGLE_*",
    "GCLOUD_*",
    "CLOUDSDK_*",
    "KUBE_*",
    // The version of conftest for policy sets without one.
    "DEFAULT_CONFTEST_VERSION",
];

/// Part of the work of a run that may have credentials of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStage {
    /// Stage that reads: plans, and the hooks around them.
    Plan,
    /// Stage that changes: applies, imports and `state rm`, and the hooks around them.
    Apply,
}

/// Variables of the server that child processes get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassEnvironment {
    more: Vec<String>,
    plan: Vec<String>,
    apply: Vec<String>,
}

impl PassEnvironment {
    /// Creates the list from the built-in names and `more`, in which `*` stands for any characters.
    pub fn new(more: Vec<String>) -> Self {
        Self {
            more,
            ..Self::default()
        }
    }

    /// Limits some names to one stage: applies do not get variables that are listed for plans, and the other way
    /// round.
    #[must_use]
    pub fn of_stages(self, plan: Vec<String>, apply: Vec<String>) -> Self {
        Self {
            plan,
            apply,
            ..self
        }
    }

    /// Returns true if a stage gets a variable of this name. Names are compared exactly, as on Unix. Only the names
    /// of the server's own settings, which no stage gets, are compared without case.
    pub fn passes(&self, name: &str, stage: RunStage) -> bool {
        let is_in = |patterns: &[String]| {
            patterns
                .iter()
                .any(|pattern| wildcard_matches(pattern, name))
        };
        if is_of_server(name) {
            return false;
        }
        match (is_in(&self.plan), is_in(&self.apply)) {
            (false, false) => {
                is_in(&self.more) || ALWAYS.iter().any(|pattern| wildcard_matches(pattern, name))
            }
            (plans, applies) => match stage {
                RunStage::Plan => plans,
                RunStage::Apply => applies,
            },
        }
    }
}

/// Reads the lists of variables.
pub(super) fn read_pass_environment(reader: &mut SettingReader<'_>) -> ReadResult<PassEnvironment> {
    let mut names = |flag| {
        let names = reader.list(flag);
        let mut result = Ok(());
        for name in &names {
            if let Some(problem) = problem_with(flag, name) {
                result = Err(reader.record(problem));
            }
        }
        result.map(|()| names)
    };
    let (more, plan) = (names("pass-environment"), names("pass-environment-plan"));
    let apply = names("pass-environment-apply");
    Ok(PassEnvironment::new(more?).of_stages(plan?, apply?))
}

fn problem_with(flag: &'static str, name: &str) -> Option<StartupProblem> {
    let refused = |what: String, fix| Some(StartupProblem::with(flag, what, fix));
    if is_of_server(name) {
        let what =
            format!("`{name}` would pass the server's own secrets to code from pull requests");
        return refused(
            what,
            "remove it; if a provider needs the secret, set it under another name",
        );
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '.' | '-'))
    {
        return refused(
            format!("`{name}` is not a valid name of a variable"),
            "write only names; do not write values here",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_handed_over() {
        let more = PassEnvironment::new(vec!["DATADOG_*".to_owned(), "VAULT_TOKEN".to_owned()]);
        for (name, expected) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("AWS_PROFILE", true),
            ("TF_VAR_region", true),
            ("TG_PROVIDER_CACHE", false),
            ("TERRAGRUNT_DOWNLOAD", true),
            ("MY_TG_TF_PATH", false),
            ("DATADOG_API_KEY", true),
            ("VAULT_TOKEN", true),
            ("VAULT_ADDR", false),
            ("GITHUB_TOKEN", false),
            ("MY_PATH", false),
            ("path", false),
        ] {
            for stage in [RunStage::Plan, RunStage::Apply] {
                assert_eq!(more.passes(name, stage), expected, "{name}");
            }
        }
    }

    #[test]
    fn what_is_kept_for_a_stage_is_handed_to_no_other() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let pass = PassEnvironment::default().of_stages(
            names(&["AWS_PROFILE", "READ_*"]),
            names(&["AWS_ROLE_ARN", "READ_X"]),
        );
        for (name, plans, applies) in [
            ("AWS_PROFILE", true, false),
            ("AWS_ROLE_ARN", false, true),
            ("READ_ONLY", true, false),
            ("READ_X", true, true),
            ("AWS_REGION", true, true),
            ("OTHER", false, false),
        ] {
            let passed = (
                pass.passes(name, RunStage::Plan),
                pass.passes(name, RunStage::Apply),
            );
            assert_eq!(passed, (plans, applies), "{name}");
        }
    }

    #[test]
    fn the_servers_own_variables_are_never_handed_over() {
        let everything = PassEnvironment::new(vec!["*".to_owned()]);
        let everything = everything.of_stages(vec!["*".to_owned()], vec!["*".to_owned()]);
        assert!(everything.passes("GITHUB_TOKEN", RunStage::Plan));
        for name in [
            "LOCKKEEPER_GH_TOKEN",
            "ATLANTIS_GH_TOKEN",
            "DATABASE_URL",
            "lockkeeper_gh_token",
            "LOCKKEEPER_STORE_AWS_SECRET_ACCESS_KEY",
        ] {
            assert!(
                !everything.passes(name, RunStage::Plan)
                    && !everything.passes(name, RunStage::Apply),
                "{name}"
            );
        }
    }
}
