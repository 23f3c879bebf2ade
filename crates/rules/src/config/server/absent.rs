//! Flags of Atlantis that this version does not have (reference 10.1 to 10.3). The server recognises them, so that
//! nobody relies on a setting without effect.

use super::setting::{PREFIXES, ValueKind, variable};

/// The reason why a flag of Atlantis is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentReason {
    /// Refused until a later version supports the flag.
    NotYet,
    /// Refused, because another setting or component does the same.
    Instead(&'static str),
    /// Accepted without effect: the feature behind the flag does not exist here, and its absence weakens nothing.
    WithoutEffect(&'static str),
    /// Accepted with a warning, because the requested behaviour is always on.
    Always(&'static str),
}

/// One flag of Atlantis that this version does not have.
#[derive(Clone, Copy, Debug)]
pub struct UnsupportedFlag {
    /// Name of the flag, without dashes.
    pub flag: &'static str,
    /// Kind of value. The server checks the value, although it does not use it.
    pub kind: ValueKind,
    /// Values that request the behaviour that is in effect anyway, mostly the default of Atlantis. The server accepts
    /// them.
    pub harmless: &'static [&'static str],
    /// The reason why the flag is missing.
    pub reason: AbsentReason,
    /// Warning for a switch that cannot be switched off: the alternative for people who try. `None`: switching it off
    /// requests nothing that differs from the current behaviour.
    pub off: Option<&'static str>,
}

impl UnsupportedFlag {
    const fn value(flag: &'static str, harmless: &'static [&'static str]) -> Self {
        Self {
            flag,
            kind: ValueKind::Text,
            harmless,
            reason: AbsentReason::NotYet,
            off: None,
        }
    }

    const fn switch(flag: &'static str) -> Self {
        Self {
            kind: ValueKind::Switch,
            ..Self::value(flag, &["false"])
        }
    }

    const fn taking(mut self, kind: ValueKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns true if the bare flag means `true`.
    pub const fn is_switch(&self) -> bool {
        matches!(self.kind, ValueKind::Switch)
    }

    const fn because(mut self, reason: AbsentReason) -> Self {
        self.reason = reason;
        self
    }

    const fn warning_if_off(mut self, off: &'static str) -> Self {
        self.off = Some(off);
        self
    }

    /// Returns the variable of Lockkeeper and the one of Atlantis.
    pub fn variables(&self) -> [String; 2] {
        PREFIXES.map(|prefix| variable(prefix, self.flag))
    }
}

/// Kind for any whole number.
const COUNT: ValueKind = ValueKind::Number(0, u64::MAX);
const POSTGRES: AbsentReason =
    AbsentReason::Instead("servers share work through a PostgreSQL database: use --database-url");
const MIRROR: AbsentReason =
    AbsentReason::Always("every repository is fetched once into a mirror that all checkouts share");
const PARALLEL: AbsentReason = AbsentReason::Always(
    "projects run in parallel, at most --parallel-pool-size of them on this server",
);
const PLANS_ONE_BY_ONE: &str = "write `parallel_plan: false` into the atlantis.yaml of a repository to plan its \
                                projects one at a time";
const APPLIES_ONE_BY_ONE: &str = "write `parallel_apply: false` into the atlantis.yaml of a repository to apply its \
                                  projects one at a time";
const OWN_STATUS: AbsentReason =
    AbsentReason::Always("a status that Lockkeeper itself must set never prevents an apply");
const OTHER_GATES: &str =
    "set the requirements for an apply with `apply_requirements` in the file of --repo-config";
const SAME_ORIGIN: AbsentReason =
    AbsentReason::Always("output is streamed without websockets, and only to pages of this server");
const OTHER_SITES: &str = "other sites can link to the page of a run";

const COSMETIC: AbsentReason = AbsentReason::WithoutEffect("it only changes how comments look");
const OTHER_FORGE: AbsentReason =
    AbsentReason::WithoutEffect("it is only for forges that this version does not support");

/// All flags of Atlantis that this version does not have.
pub static ABSENT: &[UnsupportedFlag] = &[
    UnsupportedFlag::value("api-secret", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("azuredevops-hostname", &["dev.azure.com"]),
    UnsupportedFlag::value("azuredevops-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("azuredevops-user", &[]),
    UnsupportedFlag::value("azuredevops-webhook-password", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("azuredevops-webhook-user", &[]),
    UnsupportedFlag::value("bitbucket-api-user", &[]),
    UnsupportedFlag::value("bitbucket-base-url", &["https://api.bitbucket.org"]),
    UnsupportedFlag::value("bitbucket-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("bitbucket-user", &[]),
    UnsupportedFlag::value("bitbucket-webhook-secret", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("checkout-depth", &["0"])
        .taking(COUNT)
        .because(MIRROR),
    UnsupportedFlag::value("gh-org", &[]).because(AbsentReason::WithoutEffect(
        "Lockkeeper does not create an App",
    )),
    UnsupportedFlag::value("gitea-base-url", &["https://gitea.com"]),
    UnsupportedFlag::value("gitea-page-size", &["30"])
        .taking(COUNT)
        .because(OTHER_FORGE),
    UnsupportedFlag::value("gitea-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("gitea-user", &[]),
    UnsupportedFlag::value("gitea-webhook-secret", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("gitlab-group-allowlist", &[]).taking(ValueKind::List),
    UnsupportedFlag::value("gitlab-hostname", &["gitlab.com"]),
    UnsupportedFlag::value("gitlab-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("gitlab-user", &[]),
    UnsupportedFlag::value("gitlab-webhook-secret", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("language", &["en"]).because(COSMETIC),
    UnsupportedFlag::value("language-config-file", &[])
        .taking(ValueKind::Path)
        .because(COSMETIC),
    UnsupportedFlag::value("locking-db-type", &["boltdb"])
        .taking(ValueKind::Choice(&["boltdb", "redis"]))
        .because(POSTGRES),
    UnsupportedFlag::value(
        "markdown-template-overrides-dir",
        &["~/.markdown_templates"],
    )
    .taking(ValueKind::Path)
    .because(COSMETIC),
    UnsupportedFlag::value("redis-cluster-addresses", &[])
        .taking(ValueKind::List)
        .because(POSTGRES),
    UnsupportedFlag::value("redis-db", &["0"])
        .taking(COUNT)
        .because(POSTGRES),
    UnsupportedFlag::value("redis-host", &[]).because(POSTGRES),
    UnsupportedFlag::value("redis-password", &[])
        .taking(ValueKind::Secret)
        .because(POSTGRES),
    UnsupportedFlag::value("redis-port", &["0", "6379"])
        .taking(ValueKind::Number(0, 65_535))
        .because(POSTGRES),
    UnsupportedFlag::value("redis-username", &[]).because(POSTGRES),
    UnsupportedFlag::value("slack-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("stats-namespace", &["atlantis"]).because(AbsentReason::WithoutEffect(
        "the names of all metrics on `/metrics` begin with `lockkeeper_`",
    )),
    UnsupportedFlag::value("tfe-hostname", &["app.terraform.io"]),
    UnsupportedFlag::value("tfe-token", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::value("webhook-http-headers", &[]).taking(ValueKind::Secret),
    UnsupportedFlag::switch("disable-global-apply-lock"),
    UnsupportedFlag::switch("discard-approval-on-plan"),
    UnsupportedFlag::switch("enable-drift-detection"),
    UnsupportedFlag::switch("enable-drift-remediation"),
    UnsupportedFlag::switch("enable-external-stores"),
    UnsupportedFlag::switch("enable-profiling-api")
        .because(AbsentReason::WithoutEffect("this API does not exist")),
    UnsupportedFlag::switch("gh-allow-mergeable-bypass-apply")
        .because(OWN_STATUS)
        .warning_if_off(OTHER_GATES),
    UnsupportedFlag::switch("gitlab-status-retry-enabled").because(OTHER_FORGE),
    UnsupportedFlag::switch("hide-prev-plan-comments").because(COSMETIC),
    UnsupportedFlag::switch("parallel-apply")
        .because(PARALLEL)
        .warning_if_off(APPLIES_ONE_BY_ONE),
    UnsupportedFlag::switch("parallel-plan")
        .because(PARALLEL)
        .warning_if_off(PLANS_ONE_BY_ONE),
    UnsupportedFlag::switch("pending-apply-status").because(OTHER_FORGE),
    UnsupportedFlag::switch("redis-insecure-skip-verify").because(POSTGRES),
    UnsupportedFlag::switch("redis-tls-enabled").because(POSTGRES),
    UnsupportedFlag::switch("skip-clone-no-changes").because(MIRROR),
    UnsupportedFlag::switch("tfe-local-execution-mode"),
    UnsupportedFlag::switch("websocket-check-origin")
        .because(SAME_ORIGIN)
        .warning_if_off(OTHER_SITES),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Switches that are always on, although switching them off would request nothing different.
    const OFF_IS_SO: &[(&str, &str)] =
        &[("skip-clone-no-changes", "the repository is always fetched")];

    #[test]
    fn whoever_switches_off_what_is_always_done_is_told_unless_there_is_a_reason() {
        let is_excused = |flag: &str| OFF_IS_SO.iter().any(|(excused, _)| *excused == flag);
        for absent in ABSENT {
            let is_always = matches!(absent.reason, AbsentReason::Always(_));
            assert_eq!(
                absent.off.is_some(),
                absent.is_switch() && is_always && !is_excused(absent.flag),
                "--{}: is its off told, or excused?",
                absent.flag
            );
        }
    }
}
