//! Flags of Atlantis that this version does not have (reference 10.1 to 10.3). They are recognised so that
//! nobody believes in a setting that does nothing.

use super::setting::PREFIXES;
use super::setting::variable;

/// Why a flag of Atlantis is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is to come.
    NotYet,
    /// It is refused; another setting or part does what it was for.
    Instead(&'static str),
    /// What it asks for is always the case; setting it is only worth a warning.
    Always(&'static str),
}

/// One flag of Atlantis that this version does not have.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// Name of the flag, without dashes.
    pub flag: &'static str,
    /// Whether the bare flag means `true`.
    pub is_switch: bool,
    /// Values that ask for what is the case anyway, mostly the default of Atlantis: no reason to refuse.
    pub harmless: &'static [&'static str],
    /// Why.
    pub reason: Reason,
}

impl Absent {
    const fn value(flag: &'static str, harmless: &'static [&'static str]) -> Self {
        Self { flag, is_switch: false, harmless, reason: Reason::NotYet }
    }

    const fn switch(flag: &'static str) -> Self {
        Self { flag, is_switch: true, harmless: &["false"], reason: Reason::NotYet }
    }

    const fn because(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }

    /// The variables of Atlantis and ours.
    pub fn variables(&self) -> [String; 2] {
        PREFIXES.map(|prefix| variable(prefix, self.flag))
    }
}

const POSTGRES: Reason = Reason::Instead("servers that share work share a PostgreSQL database: use --database-url");
const OWN_GIT: Reason = Reason::Always(
    "Lockkeeper hands its credentials to git itself; private modules that Terraform fetches need credentials of \
     their own",
);
const MIRROR: Reason = Reason::Always("every repository is fetched once into a mirror that all checkouts share");
const PARALLEL: Reason =
    Reason::Always("projects run side by side, at most --parallel-pool-size of them on this server");
const SAME_ORIGIN: Reason = Reason::Always("output is streamed without websockets, and only to pages of this server");

/// The flags.
pub static ABSENT: &[Absent] = &[
    Absent::value("api-secret", &[]),
    Absent::value("automerge-method", &[]),
    Absent::value("azuredevops-hostname", &["dev.azure.com"]),
    Absent::value("azuredevops-token", &[]),
    Absent::value("azuredevops-user", &[]),
    Absent::value("azuredevops-webhook-password", &[]),
    Absent::value("azuredevops-webhook-user", &[]),
    Absent::value("bitbucket-api-user", &[]),
    Absent::value("bitbucket-base-url", &["https://api.bitbucket.org"]),
    Absent::value("bitbucket-token", &[]),
    Absent::value("bitbucket-user", &[]),
    Absent::value("bitbucket-webhook-secret", &[]),
    Absent::value("checkout-depth", &["0"]).because(MIRROR),
    Absent::value("config", &[]),
    Absent::value("disable-automerge-label", &[]),
    Absent::value("disable-autoplan-label", &[]),
    Absent::value("disable-unlock-label", &[]),
    Absent::value("gh-org", &[]),
    Absent::value("gitea-base-url", &["https://gitea.com"]),
    Absent::value("gitea-page-size", &["30"]),
    Absent::value("gitea-token", &[]),
    Absent::value("gitea-user", &[]),
    Absent::value("gitea-webhook-secret", &[]),
    Absent::value("gitlab-group-allowlist", &[]),
    Absent::value("gitlab-hostname", &["gitlab.com"]),
    Absent::value("gitlab-token", &[]),
    Absent::value("gitlab-user", &[]),
    Absent::value("gitlab-webhook-secret", &[]),
    Absent::value("ignore-vcs-status-names", &[]),
    Absent::value("language", &["en"]),
    Absent::value("language-config-file", &[]),
    Absent::value("locking-db-type", &["boltdb"]).because(POSTGRES),
    Absent::value("markdown-template-overrides-dir", &[]),
    Absent::value("redis-cluster-addresses", &[]).because(POSTGRES),
    Absent::value("redis-db", &["0"]).because(POSTGRES),
    Absent::value("redis-host", &[]).because(POSTGRES),
    Absent::value("redis-password", &[]).because(POSTGRES),
    Absent::value("redis-port", &["0", "6379"]).because(POSTGRES),
    Absent::value("redis-username", &[]).because(POSTGRES),
    Absent::value("slack-token", &[]),
    Absent::value("ssl-cert-file", &[]),
    Absent::value("ssl-key-file", &[]),
    Absent::value("stats-namespace", &[]),
    Absent::value("tf-download-url", &[]),
    Absent::value("tfe-hostname", &["app.terraform.io"]),
    Absent::value("tfe-token", &[]),
    Absent::value("webhook-http-headers", &[]),
    Absent::switch("automerge"),
    Absent::switch("disable-apply-all"),
    Absent::switch("disable-global-apply-lock"),
    Absent::switch("disable-markdown-folding"),
    Absent::switch("discard-approval-on-plan"),
    Absent::switch("enable-diff-markdown-format"),
    Absent::switch("enable-drift-detection"),
    Absent::switch("enable-drift-remediation"),
    Absent::switch("enable-external-stores"),
    Absent::switch("enable-policy-checks"),
    Absent::switch("enable-profiling-api"),
    Absent::switch("fail-on-pre-workflow-hook-error"),
    Absent::switch("gh-allow-mergeable-bypass-apply"),
    Absent::switch("gitlab-status-retry-enabled"),
    Absent::switch("hide-prev-plan-comments"),
    Absent::switch("hide-unchanged-plan-comments"),
    Absent::switch("parallel-apply").because(PARALLEL),
    Absent::switch("parallel-plan").because(PARALLEL),
    Absent::switch("pending-apply-status"),
    Absent::switch("quiet-policy-checks"),
    Absent::switch("redis-insecure-skip-verify").because(POSTGRES),
    Absent::switch("redis-tls-enabled").because(POSTGRES),
    Absent::switch("skip-clone-no-changes").because(MIRROR),
    Absent::switch("tf-download"),
    Absent::switch("tfe-local-execution-mode"),
    Absent::switch("use-tf-plugin-cache"),
    Absent::switch("websocket-check-origin").because(SAME_ORIGIN),
    Absent::switch("write-git-creds").because(OWN_GIT),
];
