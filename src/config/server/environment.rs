//! Which of the server's variables Terraform and steps get. Pull requests decide what runs there, so the list
//! names what is handed over; everything else stays with the server.

use super::allowlist::wildcard_matches;
use super::problems::Problem;
use super::reader::{Read, Reader};

/// Handed over always: what programs need to work at all, and what the usual providers authenticate with.
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
    // Not `TG_*`, its newer ones: other programs have variables of that name, some of them secret.
    "TERRAGRUNT_*",
    "AWS_*",
    "ARM_*",
    "AZURE_*",
    "GOOGLE_*",
    "GCLOUD_*",
    "CLOUDSDK_*",
    "KUBE_*",
];

/// Never handed over: the server's own settings, secrets among them.
const NEVER: &[&str] = &["LOCKKEEPER_*", "ATLANTIS_*", "DATABASE_URL"];

/// Which of the server's variables children get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassEnvironment {
    more: Vec<String>,
}

impl PassEnvironment {
    /// The built-in list and `more` names, in which `*` stands for any characters.
    pub fn new(more: Vec<String>) -> Self {
        Self { more }
    }

    /// Whether a variable of this name is handed over. Names are compared exactly, as Unix does; what is never
    /// handed over is compared without case.
    pub fn passes(&self, name: &str) -> bool {
        let is_ours = NEVER.iter().any(|pattern| wildcard_matches(pattern, &name.to_ascii_uppercase()));
        let mut patterns = ALWAYS.iter().copied().chain(self.more.iter().map(String::as_str));
        !is_ours && patterns.any(|pattern| wildcard_matches(pattern, name))
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let more = reader.list("pass-environment");
        let mut result = Ok(());
        for name in &more {
            if let Some(problem) = problem_with(name) {
                result = Err(reader.record(problem));
            }
        }
        result.map(|()| Self::new(more))
    }
}

fn problem_with(name: &str) -> Option<Problem> {
    let upper = name.to_ascii_uppercase();
    let refused = |what: String, fix| Some(Problem::with("pass-environment", what, fix));
    if NEVER.iter().any(|pattern| wildcard_matches(pattern, &upper)) {
        let what = format!("`{name}` would hand the server's own secrets to code from pull requests");
        return refused(what, "remove it; give the secret under another name if a provider needs it");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '.' | '-')) {
        return refused(format!("`{name}` is not the name of a variable"), "write names only, values are not set here");
    }
    None
}

impl Default for PassEnvironment {
    fn default() -> Self {
        Self::new(Vec::new())
    }
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
            assert_eq!(more.passes(name), expected, "{name}");
        }
    }

    #[test]
    fn the_servers_own_variables_are_never_handed_over() {
        let everything = PassEnvironment::new(vec!["*".to_owned()]);
        assert!(everything.passes("GITHUB_TOKEN"));
        for name in ["LOCKKEEPER_GH_TOKEN", "ATLANTIS_GH_TOKEN", "DATABASE_URL", "lockkeeper_gh_token"] {
            assert!(!everything.passes(name), "{name}");
        }
    }
}
