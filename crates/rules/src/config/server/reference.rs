//! Lists every flag of `atlantis server` (reference 10.1 to 10.3), and tests that Lockkeeper knows each by all its
//! names.

use std::collections::BTreeMap;

use super::absent::{ABSENT, AbsentReason};
use super::*;
use SyntaxShape::{Number, Switch, Text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyntaxShape {
    Text,
    Switch,
    Number,
}

/// Name, kind and default in Atlantis. An empty default stands for none.
const FLAGS: [(&str, SyntaxShape, &str); 125] = [
    (
        "allow-commands",
        Text,
        "version,plan,apply,unlock,approve_policies,cancel",
    ),
    ("api-secret", Text, ""),
    ("atlantis-url", Text, "http://<hostname>:<port>"),
    ("autodiscover-mode", Text, "auto"),
    ("automerge-method", Text, ""),
    (
        "autoplan-file-list",
        Text,
        "**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,**/terragrunt.hcl,**/.terraform.lock.hcl",
    ),
    ("autoplan-modules-from-projects", Text, ""),
    ("azuredevops-hostname", Text, "dev.azure.com"),
    ("azuredevops-token", Text, ""),
    ("azuredevops-user", Text, ""),
    ("azuredevops-webhook-password", Text, ""),
    ("azuredevops-webhook-user", Text, ""),
    ("bitbucket-api-user", Text, ""),
    ("bitbucket-base-url", Text, "https://api.bitbucket.org"),
    ("bitbucket-token", Text, ""),
    ("bitbucket-user", Text, ""),
    ("bitbucket-webhook-secret", Text, ""),
    (
        "blocked-extra-args",
        Text,
        "-chdir,--chdir,-plugin-dir,--plugin-dir",
    ),
    ("checkout-strategy", Text, "branch"),
    ("config", Text, ""),
    ("data-dir", Text, "~/.atlantis"),
    ("default-tf-distribution", Text, "terraform"),
    ("default-tf-version", Text, ""),
    ("disable-automerge-label", Text, ""),
    ("disable-autoplan-label", Text, ""),
    ("disable-unlock-label", Text, ""),
    ("emoji-reaction", Text, ""),
    ("executable-name", Text, "atlantis"),
    ("gh-app-key", Text, ""),
    ("gh-app-key-file", Text, ""),
    ("gh-app-slug", Text, ""),
    ("gh-hostname", Text, "github.com"),
    ("gh-org", Text, ""),
    ("gh-team-allowlist", Text, ""),
    ("gh-token", Text, ""),
    ("gh-token-file", Text, ""),
    ("gh-user", Text, ""),
    ("gh-webhook-secret", Text, ""),
    ("gitea-base-url", Text, "https://gitea.com"),
    ("gitea-token", Text, ""),
    ("gitea-user", Text, ""),
    ("gitea-webhook-secret", Text, ""),
    ("gitlab-group-allowlist", Text, ""),
    ("gitlab-hostname", Text, "gitlab.com"),
    ("gitlab-token", Text, ""),
    ("gitlab-user", Text, ""),
    ("gitlab-webhook-secret", Text, ""),
    ("ignore-vcs-status-names", Text, ""),
    ("language", Text, "en"),
    ("language-config-file", Text, ""),
    ("locking-db-type", Text, "boltdb"),
    ("log-level", Text, "info"),
    (
        "markdown-template-overrides-dir",
        Text,
        "~/.markdown_templates",
    ),
    ("redis-cluster-addresses", Text, ""),
    ("redis-host", Text, ""),
    ("redis-password", Text, ""),
    ("redis-username", Text, ""),
    ("repo-allowlist", Text, ""),
    ("repo-config", Text, ""),
    ("repo-config-json", Text, ""),
    ("share-plan-dir", Text, ""),
    ("slack-token", Text, ""),
    ("ssl-cert-file", Text, ""),
    ("ssl-key-file", Text, ""),
    ("stats-namespace", Text, "atlantis"),
    ("tf-distribution", Text, ""),
    ("tf-download-url", Text, "https://releases.hashicorp.com"),
    ("tfe-hostname", Text, "app.terraform.io"),
    ("tfe-token", Text, ""),
    ("var-file-allowlist", Text, ""),
    ("vcs-status-name", Text, "atlantis"),
    ("web-password", Text, "atlantis"),
    ("web-username", Text, "atlantis"),
    ("webhook-http-headers", Text, ""),
    ("allow-draft-prs", Switch, "false"),
    ("allow-fork-prs", Switch, "false"),
    ("automerge", Switch, "false"),
    ("autoplan-modules", Switch, "false"),
    ("disable-apply-all", Switch, "false"),
    ("disable-autoplan", Switch, "false"),
    ("disable-global-apply-lock", Switch, "false"),
    ("disable-markdown-folding", Switch, "false"),
    ("disable-repo-locking", Switch, "false"),
    ("discard-approval-on-plan", Switch, "false"),
    ("enable-diff-markdown-format", Switch, "false"),
    ("enable-drift-detection", Switch, "false"),
    ("enable-drift-remediation", Switch, "false"),
    ("enable-external-stores", Switch, "false"),
    ("enable-policy-checks", Switch, "false"),
    ("enable-profiling-api", Switch, "false"),
    ("enable-regexp-cmd", Switch, "false"),
    ("fail-on-pre-workflow-hook-error", Switch, "false"),
    ("gh-allow-mergeable-bypass-apply", Switch, "false"),
    ("gitlab-status-retry-enabled", Switch, "false"),
    ("hide-prev-plan-comments", Switch, "false"),
    ("hide-unchanged-plan-comments", Switch, "false"),
    ("include-git-untracked-files", Switch, "false"),
    ("parallel-apply", Switch, "false"),
    ("parallel-plan", Switch, "false"),
    ("pending-apply-status", Switch, "false"),
    ("quiet-policy-checks", Switch, "false"),
    ("redis-insecure-skip-verify", Switch, "false"),
    ("redis-tls-enabled", Switch, "false"),
    ("restrict-file-list", Switch, "false"),
    ("silence-allowlist-errors", Switch, "false"),
    ("silence-fork-pr-errors", Switch, "false"),
    ("silence-no-projects", Switch, "false"),
    ("silence-vcs-status-no-plans", Switch, "false"),
    ("silence-vcs-status-no-projects", Switch, "false"),
    ("skip-clone-no-changes", Switch, "false"),
    ("tf-download", Switch, "true"),
    ("tfe-local-execution-mode", Switch, "false"),
    ("use-tf-plugin-cache", Switch, "true"),
    ("web-basic-auth", Switch, "false"),
    ("websocket-check-origin", Switch, "false"),
    ("write-git-creds", Switch, "false"),
    ("checkout-depth", Number, "0"),
    ("gitea-page-size", Number, "30"),
    ("max-comments-per-command", Number, "100"),
    ("parallel-pool-size", Number, "15"),
    ("port", Number, "4141"),
    ("redis-db", Number, "0"),
    ("redis-port", Number, "6379"),
    ("gh-app-id", Number, "0"),
    ("gh-app-installation-id", Number, "0"),
];

/// Defaults that differ even with `--compat atlantis`, each with the reason.
const OTHERWISE: &[(&str, &str)] = &[
    (
        "allow-commands",
        "commands that this version does not have are left out",
    ),
    ("atlantis-url", "follows from the machine, said in words"),
    (
        "emoji-reaction",
        "`eyes`: who comments should see that it was read (differences.md)",
    ),
    ("gh-app-id", "0 is none"),
    ("gh-app-installation-id", "0 is none"),
    (
        "tf-distribution",
        "the other name of default-tf-distribution",
    ),
    (
        "tf-download-url",
        "the same, said in words: nobody named a mirror",
    ),
    (
        "web-password",
        "a password that everybody knows protects nothing (differences.md)",
    ),
];

fn setting_of(flag: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.flag == flag || setting.aliases.contains(&flag))
}

fn absent_of(flag: &str) -> Option<&'static UnsupportedFlag> {
    ABSENT.iter().find(|absent| absent.flag == flag)
}

fn kind_of(flag: &str) -> ValueKind {
    let absent = || absent_of(flag).map(|absent| absent.kind);
    setting_of(flag)
        .map(|setting| setting.kind)
        .or_else(absent)
        .unwrap_or_else(|| panic!("--{flag} is in no table"))
}

#[test]
fn every_flag_of_the_reference_is_known_and_of_the_same_kind() {
    let mut names: Vec<&str> = FLAGS.iter().map(|(flag, ..)| *flag).collect();
    for (flag, shape, _) in FLAGS {
        let found = match kind_of(flag) {
            ValueKind::Switch => Switch,
            ValueKind::Number(..) => Number,
            ValueKind::Text
            | ValueKind::Secret
            | ValueKind::Secrets
            | ValueKind::List
            | ValueKind::Duration
            | ValueKind::Size
            | ValueKind::Path
            | ValueKind::Choice(_) => Text,
        };
        assert_eq!(found, shape, "--{flag}");
        assert!(
            setting_of(flag).is_none() || absent_of(flag).is_none(),
            "--{flag} is in both tables"
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FLAGS.len());
    let only_ours: Vec<_> = ABSENT
        .iter()
        .filter(|absent| names.binary_search(&absent.flag).is_err())
        .collect();
    assert!(only_ours.is_empty(), "not flags of Atlantis: {only_ours:?}");
}

#[test]
fn defaults_are_those_of_the_reference_or_there_is_a_reason() {
    for (flag, _, default) in FLAGS
        .iter()
        .filter(|(flag, ..)| OTHERWISE.iter().all(|(other, _)| other != flag))
    {
        let Some(setting) = setting_of(flag) else {
            continue;
        };
        assert_eq!(
            setting.default_text(Compat::Atlantis).unwrap_or_default(),
            *default,
            "--{flag}"
        );
    }
    for (flag, _) in OTHERWISE {
        let (_, _, default) = FLAGS.iter().find(|(known, ..)| known == flag).unwrap();
        let setting = setting_of(flag).unwrap();
        assert_ne!(
            setting.default_text(Compat::Atlantis),
            Some(*default),
            "--{flag} is like the reference again"
        );
    }
}

/// Returns a value that requests something, so that a missing flag makes a difference.
fn sample(flag: &str) -> &'static str {
    match kind_of(flag) {
        ValueKind::Switch => "true",
        ValueKind::Number(..) => "17",
        ValueKind::Choice(words) => words.last().copied().unwrap(),
        ValueKind::Duration => "90m",
        ValueKind::Size => "5GiB",
        ValueKind::Text
        | ValueKind::Secret
        | ValueKind::Secrets
        | ValueKind::List
        | ValueKind::Path => "something",
    }
}

/// Returns every way to set a flag, each with its name in messages.
fn ways(flag: &str, value: &str) -> Vec<(String, RawSettings)> {
    let by_flag = || RawSettings {
        // The command line resolves aliases (`cli::server_args`).
        flags: BTreeMap::from([(
            setting_of(flag).map_or(flag, |s| s.flag).to_owned(),
            vec![value.to_owned()],
        )]),
        ..RawSettings::default()
    };
    let by_variable = |prefix| {
        let variables = BTreeMap::from([(variable(prefix, flag), value.to_owned())]);
        (
            variable(prefix, flag),
            RawSettings {
                variables,
                ..RawSettings::default()
            },
        )
    };
    let mut ways = vec![
        (format!("--{flag}"), by_flag()),
        by_variable("LOCKKEEPER_"),
        by_variable("ATLANTIS_"),
    ];
    if flag != "config" {
        let (settings_file, problems) =
            SettingsFile::parse("s.yaml", &format!("{flag}: '{value}'"));
        assert_eq!(problems, [], "{flag}");
        ways.push((
            "s.yaml".to_owned(),
            RawSettings {
                settings_file,
                ..RawSettings::default()
            },
        ));
    }
    ways
}

/// Returns all problems and warnings of these settings.
fn told(raw: &RawSettings) -> String {
    match ServerConfig::from_raw(raw, Vec::new()) {
        Ok(_) => panic!("nothing says which repositories are served"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn every_flag_is_accepted_in_every_way_and_none_is_ignored() {
    for (flag, ..) in FLAGS {
        for (way, raw) in ways(flag, sample(flag)) {
            if let Some(setting) = setting_of(flag) {
                assert_eq!(
                    raw.given(setting).map(|given| given.text),
                    Some(sample(flag)),
                    "{way}"
                );
                continue;
            }
            let told = told(&raw);
            match absent_of(flag).unwrap().reason {
                AbsentReason::NotYet => {
                    assert!(
                        told.contains("not available in this version yet"),
                        "{way}: {told}"
                    );
                }
                AbsentReason::Instead(why) => assert!(told.contains(why), "{way}: {told}"),
                AbsentReason::WithoutEffect(_) | AbsentReason::Always(_) => {
                    assert!(!told.contains(flag), "{way}: {told}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_word_or_number_is_an_error_even_if_the_flag_does_nothing() {
    let is_strict = |kind| {
        matches!(
            kind,
            ValueKind::Switch | ValueKind::Number(..) | ValueKind::Choice(_)
        )
    };
    for (flag, ..) in FLAGS.iter().filter(|(flag, ..)| is_strict(kind_of(flag))) {
        for (way, raw) in ways(flag, "perhaps") {
            let told = told(&raw);
            assert!(
                told.contains("`perhaps` is n")
                    && !told.contains("not available in this version yet"),
                "{way}: {told}"
            );
        }
    }
}

#[test]
fn the_default_of_atlantis_is_no_reason_to_refuse_a_flag() {
    for (flag, _, default) in FLAGS.iter().filter(|(flag, ..)| absent_of(flag).is_some()) {
        for (way, raw) in ways(flag, default) {
            let told = told(&raw);
            assert!(!told.contains(flag), "{way}={default}: {told}");
        }
    }
}
