//! Flags of Atlantis that this version does not have (reference 10.1 to 10.3). The server recognises them, so that
//! nobody relies on a setting without effect.

use super::setting::{Kind, PREFIXES, variable};

/// The reason why a flag of Atlantis is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
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
pub struct Absent {
    /// Name of the flag, without dashes.
    pub flag: &'static str,
    /// Kind of value. The server checks the value, although it does not use it.
    pub kind: Kind,
    /// Values that request the behaviour that is in effect anyway, mostly the default of Atlantis. The server accepts
    /// them.
    pub harmless: &'static [&'static str],
    /// The reason why the flag is missing.
    pub reason: Reason,
    /// Warning for a switch that cannot be switched off: the alternative for people who try. `None`: switching it off
    /// requests nothing that differs from the current behaviour.
    pub off: Option<&'static str>,
}

impl Absent {
    const fn value(flag: &'static str, harmless: &'static [&'static str]) -> Self {
        Self {
            flag,
            kind: Kind::Text,
            harmless,
            reason: Reason::NotYet,
            off: None,
        }
    }

    const fn switch(flag: &'static str) -> Self {
        Self {
            kind: Kind::Switch,
            ..Self::value(flag, &["false"])
        }
    }

    const fn taking(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns true if the bare flag means `true`.
    pub const fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch)
    }

    const fn because(mut self, reason: Reason) -> Self {
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
const COUNT: Kind = Kind::Number(0, u64::MAX);
const POSTGRES: Reason =
    Reason::Instead("servers share work through a PostgreSQL database: use --database-url");
const MIRROR: Reason =
    Reason::Always("every repository is fetched once into a mirror that all checkouts share");
const PARALLEL: Reason =
    Reason::Always("projects run in parallel, at most --parallel-pool-size of them on this server");
const PLANS_ONE_BY_ONE: &str = "write `parallel_plan: false` into the atlantis.yaml of a repository to plan its \
                                projects one at a time";
const APPLIES_ONE_BY_ONE: &str = "write `parallel_apply: false` into the atlantis.yaml of a repository to apply its \
                                  projects one at a time";
const OWN_STATUS: Reason =
    Reason::Always("a status that Lockkeeper itself must set never prevents an apply");
const OTHER_GATES: &str =
    "set the requirements for an apply with `apply_requirements` in the file of --repo-config";
const SAME_ORIGIN: Reason =
    Reason::Always("output is streamed without websockets, and only to pages of this server");
const OTHER_SITES: &str = "other sites can link to the page of a run";

const COSMETIC: Reason = Reason::WithoutEffect("it only changes how comments look");
const OTHER_FORGE: Reason =
    Reason::WithoutEffect("it is only for forges that this version does not support");

/// All flags of Atlantis that this version does not have.
pub static ABSENT: &[Absent] = &[
    Absent::value("api-secret", &[]).taking(Kind::Secret),
    Absent::value("azuredevops-hostname", &["dev.azure.com"]),
    Absent::value("azuredevops-token", &[]).taking(Kind::Secret),
    Absent::value("azuredevops-user", &[]),
    Absent::value("azuredevops-webhook-password", &[]).taking(Kind::Secret),
    Absent::value("azuredevops-webhook-user", &[]),
    Absent::value("bitbucket-api-user", &[]),
    Absent::value("bitbucket-base-url", &["https://api.bitbucket.org"]),
    Absent::value("bitbucket-token", &[]).taking(Kind::Secret),
    Absent::value("bitbucket-user", &[]),
    Absent::value("bitbucket-webhook-secret", &[]).taking(Kind::Secret),
    Absent::value("checkout-depth", &["0"])
        .taking(COUNT)
        .because(MIRROR),
    Absent::value("gh-org", &[])
        .because(Reason::WithoutEffect("Lockkeeper does not create an App")),
    Absent::value("gitea-base-url", &["https://gitea.com"]),
    Absent::value("gitea-page-size", &["30"])
        .taking(COUNT)
        .because(OTHER_FORGE),
    Absent::value("gitea-token", &[]).taking(Kind::Secret),
    Absent::value("gitea-user", &[]),
    Absent::value("gitea-webhook-secret", &[]).taking(Kind::Secret),
    Absent::value("gitlab-group-allowlist", &[]).taking(Kind::List),
    Absent::value("gitlab-hostname", &["gitlab.com"]),
    Absent::value("gitlab-token", &[]).taking(Kind::Secret),
    Absent::value("gitlab-user", &[]),
    Absent::value("gitlab-webhook-secret", &[]).taking(Kind::Secret),
    Absent::value("language", &["en"]).because(COSMETIC),
    Absent::value("language-config-file", &[])
        .taking(Kind::Path)
        .because(COSMETIC),
    Absent::value("locking-db-type", &["boltdb"])
        .taking(Kind::Choice(&["boltdb", "redis"]))
        .because(POSTGRES),
    Absent::value(
        "markdown-template-overrides-dir",
        &["~/.markdown_templates"],
    )
    .taking(Kind::Path)
    .because(COSMETIC),
    Absent::value("redis-cluster-addresses", &[])
        .taking(Kind::List)
        .because(POSTGRES),
    Absent::value("redis-db", &["0"])
        .taking(COUNT)
        .because(POSTGRES),
    Absent::value("redis-host", &[]).because(POSTGRES),
    Absent::value("redis-password", &[])
        .taking(Kind::Secret)
        .because(POSTGRES),
    Absent::value("redis-port", &["0", "6379"])
        .taking(Kind::Number(0, 65_535))
        .because(POSTGRES),
    Absent::value("redis-username", &[]).because(POSTGRES),
    Absent::value("slack-token", &[]).taking(Kind::Secret),
    Absent::value("stats-namespace", &["atlantis"]).because(Reason::WithoutEffect(
        "the names of all metrics on `/metrics` begin with `lockkeeper_`",
    )),
    Absent::value("tfe-hostname", &["app.terraform.io"]),
    Absent::value("tfe-token", &[]).taking(Kind::Secret),
    Absent::value("webhook-http-headers", &[]).taking(Kind::Secret),
    Absent::switch("disable-global-apply-lock"),
    Absent::switch("discard-approval-on-plan"),
    Absent::switch("enable-drift-detection"),
    Absent::switch("enable-drift-remediation"),
    Absent::switch("enable-external-stores"),
    Absent::switch("enable-policy-checks"),
    Absent::switch("enable-profiling-api")
        .because(Reason::WithoutEffect("this API does not exist")),
    Absent::switch("gh-allow-mergeable-bypass-apply")
        .because(OWN_STATUS)
        .warning_if_off(OTHER_GATES),
    Absent::switch("gitlab-status-retry-enabled").because(OTHER_FORGE),
    Absent::switch("hide-prev-plan-comments").because(COSMETIC),
    Absent::switch("parallel-apply")
        .because(PARALLEL)
        .warning_if_off(APPLIES_ONE_BY_ONE),
    Absent::switch("parallel-plan")
        .because(PARALLEL)
        .warning_if_off(PLANS_ONE_BY_ONE),
    Absent::switch("pending-apply-status").because(OTHER_FORGE),
    Absent::switch("quiet-policy-checks").because(COSMETIC),
    Absent::switch("redis-insecure-skip-verify").because(POSTGRES),
    Absent::switch("redis-tls-enabled").because(POSTGRES),
    Absent::switch("skip-clone-no-changes").because(MIRROR),
    Absent::switch("tfe-local-execution-mode"),
    Absent::switch("websocket-check-origin")
        .because(SAME_ORIGIN)
        .warning_if_off(OTHER_SITES),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Switches that are always on, although switching them off would request nothing different.
    const OFF_IS_SO: &[(&str, &str)] = &[(
        "skip-clone-no-changes",
        "the repository is fetched whatever changed",
    )];

    #[test]
    fn whoever_switches_off_what_is_always_done_is_told_unless_there_is_a_reason() {
        let is_excused = |flag: &str| OFF_IS_SO.iter().any(|(excused, _)| *excused == flag);
        for absent in ABSENT {
            let is_always = matches!(absent.reason, Reason::Always(_));
            assert_eq!(
                absent.off.is_some(),
                absent.is_switch() && is_always && !is_excused(absent.flag),
                "--{}: is its off told, or excused?",
                absent.flag
            );
        }
    }
}
