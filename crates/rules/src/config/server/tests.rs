//! Tests of the configuration as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use insta::assert_snapshot;

use super::reader::SettingReader;
use super::*;
use crate::config::repo::Patterns;
use crate::model::CommandKind;
use crate::secret::Secret;

/// Minimum settings of a user with a token.
const LEAST: [(&str, &str); 4] = [
    ("repo-allowlist", "github.com/acme/*"),
    ("gh-user", "@lockkeeper-bot"),
    ("gh-token-file", "token"),
    ("gh-webhook-secret", "the-old-webhook-secret"),
];

/// Returns flags by name and value. Leaves out a flag with the value `-`.
fn raw(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> RawSettings {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (flag, value) in flags {
        all.entry((*flag).to_owned())
            .or_default()
            .push((*value).to_owned());
    }
    RawSettings {
        flags: all,
        files: BTreeMap::new(),
        secret_files: BTreeMap::new(),
        settings_file: SettingsFile::default(),
        variables: variables
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        home: Some("/home/kim".into()),
        working_dir: "/srv".into(),
        hostname: "box".to_owned(),
    }
}

fn read_with(
    flags: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Result<(ServerConfig, String), String> {
    let all: Vec<_> = LEAST
        .iter()
        .filter(|(flag, _)| !flags.contains(&(flag, "-")))
        .chain(flags)
        .copied()
        .collect();
    let all: Vec<_> = all.into_iter().filter(|(_, value)| *value != "-").collect();
    match ServerConfig::from_raw(&raw(&all, variables), Vec::new()) {
        Ok((config, warnings)) => Ok((
            config,
            warnings
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        )),
        Err(errors) => Err(errors.to_string()),
    }
}

fn config(flags: &[(&str, &str)]) -> ServerConfig {
    read_with(flags, &[]).unwrap().0
}

/// Returns the problems without the surrounding text.
fn errors(flags: &[(&str, &str)]) -> String {
    let text = read_with(flags, &[]).expect_err("there is something wrong with the flags");
    text.lines()
        .filter(|line| line.starts_with(' '))
        .map(str::trim_start)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_least_that_must_be_set_is_enough() {
    let config = config(&[]);
    assert_eq!(config.github[0].api_url.as_str(), "https://api.github.com/");
    assert_eq!(config.web.public_url.as_str(), "http://box:4141/");
    assert_eq!(
        config.storage.data_dir,
        PathBuf::from("/home/kim/.lockkeeper")
    );
    assert_eq!(
        config.storage.database,
        Database::Sqlite("/home/kim/.lockkeeper/lockkeeper.db".into())
    );
    assert_eq!(
        config.github[0].auth,
        GitHubCredentials::Token {
            user: "lockkeeper-bot".to_owned(),
            token: SecretSource::File("/srv/token".into())
        }
    );
    assert_eq!(config.comments.executable_names, ["lockkeeper"]);
    assert_eq!(config.runs.timeout.as_secs(), 7200);
    assert_eq!(config.planning.autoplan_files.texts().count(), 8);
}

#[test]
fn nothing_set_is_answered_with_everything_that_is_missing() {
    let errors =
        ServerConfig::from_raw(&raw(&[], &[]), vec![unknown_flag("repo-alowlist")]).unwrap_err();
    assert_snapshot!(errors, @"
    the server cannot start because of 4 problems in its configuration

      1. --repo-alowlist: this flag does not exist
         Fix: did you mean --repo-allowlist?

      2. --repo-allowlist (LOCKKEEPER_REPO_ALLOWLIST): missing
         Fix: name the repositories to serve, such as `github.com/acme/*`

      3. --gh-user (LOCKKEEPER_GH_USER): no account and no App for GitHub is set
         Fix: set --gh-user and --gh-token-file (an account), or --gh-app-id and --gh-app-key-file (a GitHub App)

      4. --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): missing, so anybody could send webhooks in GitHub's name
         Fix: set LOCKKEEPER_GH_WEBHOOK_SECRET to the secret of the webhook on GitHub; for a trial without a secret, set --allow-unsigned-webhooks

    All settings: lockkeeper server --help
    ");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let flags = [
        ("repo-allowlist", "-"),
        ("repo-allowlist", "https://github.com/acme"),
        ("gh-token", "ghp_inline"),
        ("gh-hostname", "https://github.com"),
        ("port", "ninety"),
        ("bind-address", "everywhere"),
        ("atlantis-url", "ftp://x"),
        ("web-password", "hunter2"),
        ("database-url", "mysql://root:hunter2@db/x"),
        ("executable-name", "two words"),
        ("allow-commands", "plan,destroy"),
        ("autoplan-file-list", "**/*.tf,[a"),
        ("checkout-strategy", "rebase"),
        ("default-tf-version", "1.9"),
        ("run-timeout", "forever"),
        ("parallel-pool-size", "1001"),
        ("pass-environment", "LOCKKEEPER_GH_TOKEN,A=b"),
        ("log-level", "trace"),
        ("compat", "digger"),
        ("gitlab-token", "glpat"),
        ("redis-host", "redis"),
        (
            "repo-config-json",
            "{\"repos\": [{\"id\": \"github.com/acme/*\", \"workflw\": 1}]}",
        ),
        ("automerge", "false"),
    ];
    let text = read_with(&flags, &[]).unwrap_err();
    assert!(
        !text.contains("hunter2") && !text.contains("ghp_inline") && !text.contains("glpat"),
        "{text}"
    );
    assert_snapshot!(text, @r#"
    the server cannot start because of 23 problems in its configuration

      1. --compat (LOCKKEEPER_COMPAT): `digger` is not one of the choices
         Fix: choose `atlantis`

      2. --gitlab-token (LOCKKEEPER_GITLAB_TOKEN): not available in this version yet
         Fix: remove --gitlab-token

      3. --redis-host (LOCKKEEPER_REDIS_HOST): not supported: servers share work through a PostgreSQL database: use --database-url
         Fix: remove --redis-host

      4. --repo-allowlist (LOCKKEEPER_REPO_ALLOWLIST): `https://github.com/acme` is not an entry for repositories: write it without `://`
         Fix: name the repositories to serve, such as `github.com/acme/*`

      5. --checkout-strategy (LOCKKEEPER_CHECKOUT_STRATEGY): `rebase` is not one of the choices
         Fix: choose `branch` or `merge`

      6. --repo-config-json:1:19: `github.com/acme/*` is neither a repository nor a regular expression between slashes
         {"repos": [{"id": "github.com/acme/*", "workflw": 1}]}
                           ^^^^^^^^^^^^^^^^^^^
         Fix: write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)

      7. --repo-config-json:1:40: `workflw` is not a key of an entry of `repos`
         {"repos": [{"id": "github.com/acme/*", "workflw": 1}]}
                                                ^^^^^^^^^
         Fix: did you mean `workflow`?

      8. --gh-token (LOCKKEEPER_GH_TOKEN): set, although --gh-token-file is set too
         Fix: keep one of the two

      9. --gh-hostname (LOCKKEEPER_GH_HOSTNAME): `https://github.com` is not a valid host name
         Fix: write only the name, such as `github.example.com`

     10. --port (LOCKKEEPER_PORT): `ninety` is not a number in the allowed range
         Fix: write a whole number from 0 to 65535

     11. --bind-address (LOCKKEEPER_BIND_ADDRESS): `everywhere` is not an IP address
         Fix: write an IP address such as `127.0.0.1` or `::`

     12. --atlantis-url (LOCKKEEPER_ATLANTIS_URL): `ftp://x` does not begin with http:// or https://
         Fix: write the URL people use, such as `https://locks.example.com`

     13. --web-basic-auth (LOCKKEEPER_WEB_BASIC_AUTH): not set, but a user name or password for the pages is set, which would have no effect
         Fix: set --web-basic-auth, or remove --web-username and --web-password

     14. --database-url (LOCKKEEPER_DATABASE_URL): the URL is for an unsupported kind of database
         Fix: write postgres://user:password@host/name, or sqlite:/path/to/file

     15. --executable-name (LOCKKEEPER_EXECUTABLE_NAME): `two words` cannot begin a command
         Fix: use words of letters, digits, `-`, `_` and `.`

     16. --allow-commands (LOCKKEEPER_ALLOW_COMMANDS): the command `destroy` does not exist
         Fix: choose from plan, apply, unlock, cancel, explain, approve_policies, version, import, state, or `all`

     17. --autoplan-file-list (LOCKKEEPER_AUTOPLAN_FILE_LIST): `[a` is not a valid pattern: `[` is not closed by `]`
         Fix: write patterns as in .dockerignore, such as `**/*.tf`, separated by commas

     18. --default-tf-version (LOCKKEEPER_DEFAULT_TF_VERSION): `1.9` is not a version
         Fix: write a full version, such as `1.9.8`

     19. --run-timeout (LOCKKEEPER_RUN_TIMEOUT): `forever` is not a duration
         Fix: write a time such as `90m`, `2h` or `1h30m`

     20. --parallel-pool-size (LOCKKEEPER_PARALLEL_POOL_SIZE): `1001` is not a number in the allowed range
         Fix: write a whole number from 0 to 1000

     21. --pass-environment (LOCKKEEPER_PASS_ENVIRONMENT): `LOCKKEEPER_GH_TOKEN` would pass the server's own secrets to code from pull requests
         Fix: remove it; if a provider needs the secret, set it under another name

     22. --pass-environment (LOCKKEEPER_PASS_ENVIRONMENT): `A=b` is not a valid name of a variable
         Fix: write only names; do not write values here

     23. --log-level (LOCKKEEPER_LOG_LEVEL): `trace` is not one of the choices
         Fix: choose `debug`, `info`, `warn` or `error`

    All settings: lockkeeper server --help
    "#);
}

#[test]
fn half_a_way_to_log_in_is_refused() {
    let app = [("gh-user", "-"), ("gh-token-file", "-")];
    let with = |more: &[(&'static str, &'static str)]| errors(&[&app[..], more].concat());
    assert_snapshot!(with(&[]), @"
    1. --gh-user (LOCKKEEPER_GH_USER): no account and no App for GitHub is set
    Fix: set --gh-user and --gh-token-file (an account), or --gh-app-id and --gh-app-key-file (a GitHub App)
    ");
    assert_snapshot!(with(&[("gh-user", "kim")]), @r"
    1. --gh-user (LOCKKEEPER_GH_USER): set, but there is no token
    Fix: set --gh-token-file (LOCKKEEPER_GH_TOKEN_FILE) or LOCKKEEPER_GH_TOKEN
    ");
    assert_snapshot!(with(&[("gh-app-id", "7")]), @r"
    1. --gh-app-id (LOCKKEEPER_GH_APP_ID): set, but there is no private key
    Fix: set --gh-app-key-file (LOCKKEEPER_GH_APP_KEY_FILE) or LOCKKEEPER_GH_APP_KEY
    ");
    assert_snapshot!(with(&[("gh-app-key-file", "k.pem")]), @r"
    1. --gh-app-id (LOCKKEEPER_GH_APP_ID): missing, but there is a key
    Fix: write the App ID shown in the App's settings
    ");
    assert_snapshot!(errors(&[("gh-user", "-")]), @"
    1. --gh-user (LOCKKEEPER_GH_USER): missing, but there is a token
    Fix: name the account of the token
    ");
    assert_snapshot!(errors(&[("gh-app-id", "7"), ("gh-app-key-file", "k.pem")]), @"
    1. --gh-app-id (LOCKKEEPER_GH_APP_ID): both an account and an App are set
    Fix: keep either --gh-user with its token, or --gh-app-id with its key
    ");
    assert_snapshot!(errors(&[("gh-app-slug", "locks")]), @"
    1. --gh-app-slug (LOCKKEEPER_GH_APP_SLUG): set, but it has no effect without --gh-app-id
    Fix: keep either --gh-user with its token, or --gh-app-id with its key
    ");
}

#[test]
fn an_app_logs_in_with_its_key() {
    let flags = [
        ("gh-user", "-"),
        ("gh-token-file", "-"),
        ("gh-app-id", "7"),
        ("gh-app-key-file", "~/k.pem"),
    ];
    let config = config(
        &[
            &flags[..],
            &[("gh-app-installation-id", "0"), ("gh-app-slug", "locks")],
        ]
        .concat(),
    );
    let key = SecretSource::File("/home/kim/k.pem".into());
    let slug = Some("locks".to_owned());
    assert_eq!(
        config.github[0].auth,
        GitHubCredentials::App {
            id: 7,
            key,
            installation: None,
            slug
        }
    );
}

#[test]
fn old_and_new_webhook_secret_are_both_good() {
    let by_flags = config(&[("gh-webhook-secret", "new,with,commas,and-long")]);
    assert_eq!(
        by_flags.github[0].webhooks.secrets,
        [
            Secret::new("the-old-webhook-secret"),
            Secret::new("new,with,commas,and-long")
        ]
    );
    let variables = [(
        "ATLANTIS_GH_WEBHOOK_SECRET",
        "the-old-webhook-secret\nthe-new-webhook-secret\n",
    )];
    let (by_variable, _) = read_with(&[("gh-webhook-secret", "-")], &variables).unwrap();
    assert_eq!(
        by_variable.github[0].webhooks.secrets,
        [
            Secret::new("the-old-webhook-secret"),
            Secret::new("the-new-webhook-secret")
        ]
    );
}

#[test]
fn unsigned_webhooks_must_be_wanted() {
    let (config, warnings) = read_with(
        &[
            ("gh-webhook-secret", "-"),
            ("allow-unsigned-webhooks", "true"),
        ],
        &[],
    )
    .unwrap();
    assert_eq!(config.github[0].webhooks.secrets, []);
    assert_snapshot!(warnings, @"--allow-unsigned-webhooks (LOCKKEEPER_ALLOW_UNSIGNED_WEBHOOKS): webhooks are not verified: everyone who can reach the server can send it commands");
    assert_snapshot!(errors(&[("allow-unsigned-webhooks", "true")]), @"
    1. --allow-unsigned-webhooks (LOCKKEEPER_ALLOW_UNSIGNED_WEBHOOKS): set, although there is a webhook secret
    Fix: remove it; with a secret, every webhook must be signed
    ");
}

#[test]
fn addresses_of_the_api_follow_from_the_host() {
    for (flags, expected) in [
        (
            vec![("gh-hostname", "GHE.Example.com")],
            "https://ghe.example.com/api/v3/",
        ),
        (
            vec![("gh-hostname", "acme.ghe.com")],
            "https://api.acme.ghe.com/",
        ),
        (
            vec![("gh-api-url", "http://127.0.0.1:9/api")],
            "http://127.0.0.1:9/api/",
        ),
    ] {
        assert_eq!(
            config(&flags).github[0].api_url.as_str(),
            expected,
            "{flags:?}"
        );
    }
}

#[test]
fn pages_are_protected_wholly_or_not_at_all() {
    let both = config(&[
        ("web-basic-auth", "true"),
        ("web-password", "correct horse battery"),
    ]);
    let (username, password) = (
        "lockkeeper".to_owned(),
        Secret::new("correct horse battery"),
    );
    assert_eq!(both.web.auth, WebAccess::Basic { username, password });
    assert_snapshot!(errors(&[("web-basic-auth", "true")]), @r"
    1. --web-password (LOCKKEEPER_WEB_PASSWORD): missing, but --web-basic-auth is set; there is no default password
    Fix: set LOCKKEEPER_WEB_PASSWORD
    ");
    assert_snapshot!(errors(&[("web-username", "kim")]), @"
    1. --web-basic-auth (LOCKKEEPER_WEB_BASIC_AUTH): not set, but a user name or password for the pages is set, which would have no effect
    Fix: set --web-basic-auth, or remove --web-username and --web-password
    ");
}

#[test]
fn certificate_and_key_go_together() {
    let both = config(&[("ssl-cert-file", "~/cert.pem"), ("ssl-key-file", "key.pem")]).web;
    let files = TlsFiles {
        certificate: "/home/kim/cert.pem".into(),
        key: "/srv/key.pem".into(),
    };
    assert_eq!(
        (both.tls, both.public_url.as_str()),
        (Some(files), "https://box:4141/")
    );
    assert_snapshot!(errors(&[("ssl-cert-file", "cert.pem")]), @"
    1. --ssl-key-file (LOCKKEEPER_SSL_KEY_FILE): missing, but there is a certificate
    Fix: name the file with the private key of the certificate
    ");
    assert_snapshot!(errors(&[("ssl-key-file", "key.pem")]), @"
    1. --ssl-cert-file (LOCKKEEPER_SSL_CERT_FILE): missing, but there is a private key
    Fix: name the file with the certificate of the key
    ");
}

#[test]
fn the_source_of_the_repositorys_file_is_a_word_or_a_branch() {
    use crate::config::repos::ConfigSource;
    let source = |text| {
        config(&[("repo-config-source", text)])
            .repo_rules
            .config_source
    };
    let branch = ConfigSource::Branch("release/1".parse().unwrap());
    assert_eq!(
        [source(""), source("base"), source("branch:release/1")],
        [None, Some(ConfigSource::Base), Some(branch)]
    );
    assert_snapshot!(errors(&[("repo-config-source", "main")]), @"
    1. --repo-config-source (LOCKKEEPER_REPO_CONFIG_SOURCE): `main` is neither `pull_head`, `merge_result`, `base` nor `branch:NAME`
    Fix: write `pull_head`, `merge_result`, `base`, or `branch:` and the name of a branch
    ");
}

#[test]
fn the_registry_has_the_name_of_the_server_unless_another_is_set() {
    let own = |flags: &[(&str, &str)]| config(flags).registry.own;
    assert_eq!(own(&[("encryption-key-file", "keys")]), None);
    let on = [("registry", "true"), ("encryption-key-file", "keys")];
    let with = |more: &[(&'static str, &'static str)]| own(&[&on, more].concat()).unwrap();
    let registry = with(&[("atlantis-url", "https://Mods.example.com:8443/locks")]);
    assert_eq!(
        (registry.name.as_str(), registry.is_open),
        ("mods.example.com", false)
    );
    assert_eq!(
        (registry.host.as_str(), registry.is_for_runs),
        ("mods.example.com:8443", true)
    );
    let registry = with(&[
        ("registry-name", "go.example.com"),
        ("registry-anonymous-read", "true"),
    ]);
    assert_eq!(
        (registry.name.as_str(), registry.is_open),
        ("go.example.com", true)
    );
    assert_eq!(with(&[]).name.as_str(), "box");
    assert_eq!(with(&[]).host, "box:4141");
    let registry = with(&[
        ("registry-host", "Mods.example.com:443"),
        ("no-registry-for-runs", "true"),
    ]);
    assert_eq!(
        (registry.host.as_str(), registry.is_for_runs),
        ("mods.example.com", false)
    );
    for host in [
        "https://mods.example.com",
        "mods/x",
        "a b",
        "x@mods",
        "a_b",
        "[::1]",
        "xn--mods-5qa.example.com",
        "mods..com",
        "a\"b",
    ] {
        let text = errors(&[&on[..], &[("registry-host", host)]].concat());
        assert!(text.contains("--registry-host"), "{host}: {text}");
    }
    assert_snapshot!(errors(&[&on[..], &[("atlantis-url", "https://[::1]")]].concat()), @"
    1. --registry-name (LOCKKEEPER_REGISTRY_NAME): not set, and `[::1]`, the host of --atlantis-url, cannot be the name
    Fix: write a name such as `mods.example.com`, in lower case
    ");
    assert_snapshot!(errors(&[&on[..], &[("registry-name", "Mods")]].concat()), @"
    1. --registry-name (LOCKKEEPER_REGISTRY_NAME): a deployment is named like a host, in lower case and with at most 253 bytes
    Fix: write a name such as `mods.example.com`, in lower case
    ");
}

#[test]
fn the_packages_of_the_registry_are_in_the_data_directory_or_in_an_object_store() {
    let on = [("registry", "true"), ("encryption-key-file", "keys")];
    let with = |more: &[(&'static str, &'static str)]| {
        config(&[&on, more].concat()).registry.own.unwrap().packages
    };
    assert_eq!(with(&[]), None);
    for (url, kind, bucket, prefix, shown) in [
        (
            "s3://Packages/mods/a=b/",
            ObjectStoreKind::S3,
            "Packages",
            "mods/a=b",
            "s3://Packages/mods/a=b",
        ),
        (
            "gs://my_mods",
            ObjectStoreKind::Google,
            "my_mods",
            "",
            "gs://my_mods",
        ),
        (
            "az://mods/",
            ObjectStoreKind::Azure,
            "mods",
            "",
            "az://mods",
        ),
    ] {
        let found = with(&[("registry-store", url)]).unwrap();
        assert_eq!(
            (found.kind, found.bucket.as_str(), found.prefix.as_str()),
            (kind, bucket, prefix)
        );
        assert_eq!(found.to_string(), shown);
    }
    for url in [
        "/srv/packages",
        "file:///srv/packages",
        "http://packages/mods",
        "s3:packages",
        "s3://",
        "s3://a",
        "s3://id:secret@packages",
        "s3://packages?token=secret",
        "s3://packages/a//b",
        "s3://packages/../b",
        "s3://packages/a b",
    ] {
        let text = errors(&[&on[..], &[("registry-store", url)]].concat());
        assert!(text.starts_with("1. --registry-store "), "{url}: {text}");
        assert!(!text.contains("secret"), "{url}: {text}");
    }
}

#[test]
fn a_setting_of_the_registry_without_a_registry_or_keys_is_refused() {
    assert_snapshot!(errors(&[("registry", "true")]), @"
    1. --encryption-key-file (LOCKKEEPER_ENCRYPTION_KEY_FILE): missing, but --registry is set: the key that signs the log is encrypted in the database
    Fix: write the output of `lockkeeper credentials keygen` into a file, and name the file
    ");
    assert_snapshot!(errors(&[("registry-name", "mods")]), @"
    1. --registry-name (LOCKKEEPER_REGISTRY_NAME): set, but --registry is not, so it would have no effect
    Fix: set --registry, or remove this setting
    ");
    for (flag, value) in [
        ("registry-host", "mods"),
        ("no-registry-for-runs", "true"),
        ("registry-store", "s3://packages"),
    ] {
        let text = errors(&[(flag, value)]);
        assert!(
            text.starts_with(&format!("1. --{flag} ")) && text.contains("--registry is not"),
            "{text}"
        );
    }
    assert_snapshot!(errors(&[("registry-anonymous-read", "true")]), @"
    1. --registry-anonymous-read (LOCKKEEPER_REGISTRY_ANONYMOUS_READ): set, but --registry is not, so it would have no effect
    Fix: set --registry, or remove this setting
    ");
}

/// Checks the patterns with the reader that the search for projects uses.
#[test]
fn every_wrong_pattern_is_told_with_its_flag_and_what_dockerignore_allows_is_accepted() {
    let fine = config(&[
        ("autoplan-file-list", "x{.tf, !a/**,[^a]*.tf"),
        ("autoplan-modules-from-projects", "{a"),
    ]);
    let patterns = |texts: &[&str]| Patterns::new(texts.iter().copied()).unwrap();
    assert_eq!(
        fine.planning.autoplan_files,
        patterns(&["x{.tf", "!a/**", "[^a]*.tf"])
    );
    assert_eq!(fine.planning.module_files, Some(patterns(&["{a"])));
    let flags = [
        ("autoplan-file-list", "**/*.tf,[a-],!,b\\"),
        ("autoplan-modules-from-projects", "[z-a]"),
    ];
    assert_snapshot!(errors(&flags), @r"
    1. --autoplan-file-list (LOCKKEEPER_AUTOPLAN_FILE_LIST): `[a-]` is not a valid pattern: `[…]` is empty, or has a `-` or `]` that needs a backslash before it
    Fix: write patterns as in .dockerignore, such as `**/*.tf`, separated by commas
    2. --autoplan-file-list (LOCKKEEPER_AUTOPLAN_FILE_LIST): `!` is not a valid pattern: no pattern follows the `!`
    Fix: write patterns as in .dockerignore, such as `**/*.tf`, separated by commas
    3. --autoplan-file-list (LOCKKEEPER_AUTOPLAN_FILE_LIST): `b\` is not a valid pattern: no character follows the `\` at the end
    Fix: write patterns as in .dockerignore, such as `**/*.tf`, separated by commas
    4. --autoplan-modules-from-projects (LOCKKEEPER_AUTOPLAN_MODULES_FROM_PROJECTS): `[z-a]` is not a valid pattern: the end of a range in `[…]` is before its beginning
    Fix: write patterns as in .dockerignore, such as `**/*.tf`, separated by commas
    ");
}

#[test]
fn a_command_concerns_a_thousand_projects_at_most_unless_the_operator_says_otherwise() {
    assert_eq!(config(&[]).planning.max_projects, 1_000);
    assert_eq!(
        config(&[("max-projects", "10000")]).planning.max_projects,
        10_000
    );
    for wrong in ["0", "10001", "many"] {
        assert_eq!(
            errors(&[("max-projects", wrong)]),
            format!(
                "1. --max-projects (LOCKKEEPER_MAX_PROJECTS): `{wrong}` is not a number in the allowed range\n\
                 Fix: write a whole number from 1 to 10000"
            )
        );
    }
}

#[test]
fn switches_of_comments_and_labels_are_off_and_unset_by_default() {
    let labels = |config: ServerConfig| {
        [
            config.planning.no_autoplan_label,
            config.comments.no_unlock_label,
            config.planning.no_automerge_label,
        ]
    };
    let look = |is_set| LookConfig {
        disable_apply_all: is_set,
        disable_folding: is_set,
        hide_unchanged: is_set,
        diff_markdown: is_set,
        quiet_policy_checks: is_set,
    };
    let plain = config(&[]);
    assert_eq!(plain.comments.look, look(false));
    assert_eq!(labels(plain), [None, None, None]);
    let flags = [
        "disable-apply-all",
        "disable-markdown-folding",
        "hide-unchanged-plan-comments",
        "enable-diff-markdown-format",
        "quiet-policy-checks",
    ];
    let all = config(&flags.map(|flag| (flag, "true"))).comments.look;
    assert_eq!(all, look(true));
    let given = [
        ("disable-autoplan-label", "wip"),
        ("disable-unlock-label", " keep "),
        ("disable-automerge-label", "wait"),
    ];
    assert_eq!(
        labels(config(&given)),
        ["wip", "keep", "wait"].map(|label| Some(label.to_owned()))
    );
}

#[test]
fn databases_are_told_apart_by_their_url() {
    let database =
        |url| read_with(&[("database-url", url)], &[]).map(|(config, _)| config.storage.database);
    let postgres = "postgres://kim:pass@db/locks";
    assert_eq!(
        database(postgres),
        Ok(Database::Postgres(Secret::new(postgres)))
    );
    assert_eq!(
        database("sqlite:locks.db"),
        Ok(Database::Sqlite("/srv/locks.db".into()))
    );
    assert_eq!(
        database("sqlite:///var/locks.db"),
        Ok(Database::Sqlite("/var/locks.db".into()))
    );
    for url in [
        "sqlite:",
        "sqlite::memory:",
        "sqlite:x?mode=ro",
        "postgres:db",
        "db.example.com",
    ] {
        assert!(database(url).is_err(), "{url}");
        let flags = read_with(&[("reviewed-flags-url", url)], &[]);
        assert!(flags.is_err(), "{url}");
    }
    // The password of one server is not for another one.
    let variables = [("PGPASSWORD", "hunter2")];
    let (config, _) =
        read_with(&[("reviewed-flags-url", "postgres://kim@db/f")], &variables).unwrap();
    assert_eq!(
        config.accounts.reviewed_flags,
        Some(Database::Postgres(Secret::new("postgres://kim@db/f")))
    );
    assert_eq!(self::config(&[]).accounts.reviewed_flags, None);
    let file = ("reviewed-flags-url", "sqlite:/srv/f.db");
    assert_eq!(
        self::config(&[file]).accounts.reviewed_flags,
        Some(Database::Sqlite("/srv/f.db".into()))
    );
    assert_snapshot!(errors(&[file, ("database-url", postgres)]), @"
    1. --reviewed-flags-url (LOCKKEEPER_REVIEWED_FLAGS_URL): a file, which servers that share --database-url do not share
    Fix: write postgres://user:password@host/name
    ");
}

/// Reads the server-side file, with its text in the form that `cli/` provides.
fn read_file(text: Result<&str, &str>) -> Result<(ServerConfig, String), String> {
    let flags: Vec<_> = LEAST
        .into_iter()
        .chain([("repo-config", "etc/repos.yaml")])
        .collect();
    let text = text.map(str::to_owned).map_err(str::to_owned);
    let raw = RawSettings {
        files: BTreeMap::from([("repo-config".to_owned(), text)]),
        ..raw(&flags, &[])
    };
    let (config, warnings) =
        ServerConfig::from_raw(&raw, Vec::new()).map_err(|errors| errors.to_string())?;
    Ok((
        config,
        warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    ))
}

#[test]
fn repositories_are_configured_by_a_file_or_by_json() {
    let yaml = "repos:\n  - id: /.*/\n    repo_locks: {mode: on_apply}\n    repo_locking: false\n";
    let (by_file, warnings) = read_file(Ok(yaml)).unwrap();
    let old = warnings
        .lines()
        .find(|line| line.contains("repo_locking"))
        .unwrap();
    assert_snapshot!(old, @"repos.yaml line 2: `repo_locking` is deprecated: write `repo_locks: {mode: disabled}`");
    let policy = |config: &ServerConfig| {
        let rules = config
            .repo_rules
            .repos
            .rules(&"github.com/acme/infra".parse().unwrap());
        rules
            .lock_policy(
                None,
                &crate::model::ProjectKey::of_dir(".".parse().unwrap()),
            )
            .to_string()
    };
    let json = r#"{"repos": [{"id": "/.*/", "repo_locks": {"mode": "on_apply"}}], "team_authz": {"command": "x"}}"#;
    let by_json = config(&[("repo-config-json", json)]);
    assert!(by_json.repo_rules.repos.team_authz.is_some());
    let (without, warnings) = read_with(
        &[("disable-repo-locking", "true"), ("repo-config-json", json)],
        &[],
    )
    .unwrap();
    assert_snapshot!(warnings.lines().find(|line| line.contains("locking")).unwrap(), @"--disable-repo-locking (LOCKKEEPER_DISABLE_REPO_LOCKING): no lock is taken anywhere, so two pull requests can change the same state at once; deprecated: write `repo_locks: {mode: disabled}` for these repositories into the file of --repo-config");
    assert_snapshot!([by_file, by_json, without, config(&[])].map(|config| policy(&config)).join("\n"), @"
    mode `disabled` (line 2 of the server's `repos.yaml`, for `/.*/`), scope `workspace` (the default), ttl `none` (the default)
    mode `on_apply` (line 1 of the server's `--repo-config-json`, for `/.*/`), scope `workspace` (the default), ttl `none` (the default)
    mode `disabled` (`--disable-repo-locking` of the server), scope `workspace` (the default), ttl `none` (the default)
    mode `on_plan` (the default), scope `workspace` (the default), ttl `none` (the default)
    ");
}

#[test]
fn policy_checks_need_policy_sets_and_sets_need_the_switch() {
    assert_snapshot!(errors(&[("enable-policy-checks", "true")]), @"
    1. --enable-policy-checks (LOCKKEEPER_ENABLE_POLICY_CHECKS): policy checks are switched on, but the rules for repositories (`--repo-config`) have no policy sets, so that every plan would pass without a check
    Fix: write `policies: {policy_sets: [{name: NAME, path: /FOLDER/OF/POLICIES}]}` into the file of --repo-config, or remove the flag
    ");
    let json = r#"{"policies": {"owners": {"users": ["ann"]}, "policy_sets": [{"name": "a", "path": "/p"}]}}"#;
    let is_checked = |config: &ServerConfig| {
        let rules = config
            .repo_rules
            .repos
            .rules(&"github.com/acme/infra".parse().unwrap());
        let project = crate::model::ProjectKey::of_dir(".".parse().unwrap());
        rules.policies(None, &project).is_some()
    };
    let (off, warnings) = read_with(&[("repo-config-json", json)], &[]).unwrap();
    assert!(!is_checked(&off) && !off.planning.policy_checks);
    assert_snapshot!(warnings.lines().find(|line| line.contains("policy")).unwrap(), @"the policy sets of --repo-config have no effect: set --enable-policy-checks, or `policy_check: true` for some of its repositories");
    let flags = [
        ("repo-config-json", json),
        ("enable-policy-checks", "true"),
        ("quiet-policy-checks", "true"),
    ];
    let (on, warnings) = read_with(&flags, &[]).unwrap();
    assert!(is_checked(&on) && on.planning.policy_checks);
    assert!(on.comments.look.quiet_policy_checks);
    assert!(!warnings.contains("policy"), "{warnings}");
}

#[test]
fn policy_sets_that_nobody_may_approve_are_told() {
    let json = r#"{"policies": {"policy_sets": [
        {"name": "a", "path": "/p"},
        {"name": "b", "path": "/p", "owners": {"teams": ["acme/ops"]}},
        {"name": "c", "engine": "steps", "owners": {"users": []}}
    ]}}"#;
    let told = |is_on: &str| {
        let flags = [("repo-config-json", json), ("enable-policy-checks", is_on)];
        let (_, warnings) = read_with(&flags, &[]).unwrap();
        let lines: Vec<&str> = warnings
            .lines()
            .filter(|line| line.contains("owners"))
            .collect();
        lines.join("\n")
    };
    assert_snapshot!(told("true"), @"nobody may approve violations of policy sets without owners (`a`, `c`), so a plan that violates them is never applied, unless the rule names a team. Write `owners: {teams: [TEAM]}` below `policies` in the rules for repositories (--repo-config)");
    assert_eq!(told("false"), "", "nothing is checked");
}

#[test]
fn plans_wait_for_locks_unless_told_otherwise() {
    let queue = |flags: &[(&str, &str)]| config(flags).locking.queue;
    assert_eq!(
        (
            queue(&[]),
            queue(&[("lock-queue", "false")]),
            queue(&[("lock-queue", "true")])
        ),
        (true, false, true)
    );
}

#[test]
fn mistakes_in_the_file_of_repositories_are_shown_where_they_are() {
    let yaml = "repos:\n  - id: github.com/acme/*\n    repo_locks:\n      mode: on_aply\n      ttl: 3 moons\nworkflws: {}\n";
    assert_snapshot!(read_file(Ok(yaml)).unwrap_err(), @r"
    the server cannot start because of 4 problems in its configuration

      1. /srv/etc/repos.yaml:2:9: `github.com/acme/*` is neither a repository nor a regular expression between slashes
           - id: github.com/acme/*
                 ^^^^^^^^^^^^^^^^^
         Fix: write `host/owner/repo`, or an expression such as `/github\.com/acme/.*/` (`/.*/` is every repository)

      2. /srv/etc/repos.yaml:4:13: `on_aply` is not a value of `mode`
               mode: on_aply
                     ^^^^^^^
         Fix: did you mean `on_apply`? The words are `on_plan`, `on_apply`, `disabled`

      3. /srv/etc/repos.yaml:5:12: `3 moons` is not a valid idle time of a lock
               ttl: 3 moons
                    ^^^^^^^
         Fix: write a time of up to a year, such as `72h` or `3d`, or `none` for no limit

      4. /srv/etc/repos.yaml:6:1: `workflws` is not a key of the file
         workflws: {}
         ^^^^^^^^
         Fix: did you mean `workflows`?

    All settings: lockkeeper server --help
    ");
    assert_snapshot!(read_file(Err("No such file or directory (os error 2)")).unwrap_err(), @"
    the server cannot start because of 1 problem in its configuration

      1. --repo-config (LOCKKEEPER_REPO_CONFIG): `/srv/etc/repos.yaml` cannot be read: No such file or directory (os error 2)
         Fix: check the path, and check that the user account of the server can read the file

    All settings: lockkeeper server --help
    ");
    assert_snapshot!(errors(&[("repo-config", "repos.yaml"), ("repo-config-json", "{}")]), @"
    1. --repo-config (LOCKKEEPER_REPO_CONFIG): set, although --repo-config-json is set too
    Fix: keep one of the two
    ");
    assert_snapshot!(errors(&[("repo-config-json", "[")]), @"
    1. --repo-config-json:1:1: this is not valid JSON: unclosed bracket '['
    [
    ^
    Fix: put texts in quotes, and close every bracket
    ");
}

#[test]
fn names_come_from_atlantis_if_wanted() {
    let config = config(&[("compat", "atlantis"), ("vcs-status-name", "locks")]);
    assert_eq!(config.comments.executable_names, ["atlantis"]);
    assert_eq!(config.comments.status_name, "locks");
    assert_eq!(
        config.storage.data_dir,
        PathBuf::from("/home/kim/.atlantis")
    );
}

#[test]
fn switching_off_what_is_always_so_is_warned_of_with_the_way_out() {
    let flags = [
        ("parallel-plan", "false"),
        ("skip-clone-no-changes", "false"),
        ("parallel-apply", "true"),
    ];
    let variables = [
        ("ATLANTIS_GH_ALLOW_MERGEABLE_BYPASS_APPLY", "no"),
        ("LOCKKEEPER_WEBSOCKET_CHECK_ORIGIN", "0"),
    ];
    let (_, warnings) = read_with(&flags, &variables).unwrap();
    assert_snapshot!(warnings, @"
    --gh-allow-mergeable-bypass-apply (LOCKKEEPER_GH_ALLOW_MERGEABLE_BYPASS_APPLY): cannot be switched off here: a status that Lockkeeper itself must set never prevents an apply; set the requirements for an apply with `apply_requirements` in the file of --repo-config
    --parallel-apply (LOCKKEEPER_PARALLEL_APPLY): not needed: projects run in parallel, at most --parallel-pool-size of them on this server
    --parallel-plan (LOCKKEEPER_PARALLEL_PLAN): cannot be switched off here: projects run in parallel, at most --parallel-pool-size of them on this server; write `parallel_plan: false` into the atlantis.yaml of a repository to plan its projects one at a time
    --websocket-check-origin (LOCKKEEPER_WEBSOCKET_CHECK_ORIGIN): cannot be switched off here: output is streamed without websockets, and only to pages of this server; other sites can link to the page of a run
    --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): every process of this machine can read it on the command line; use the variable or a file instead
    ");
}

#[test]
fn the_settings_of_an_atlantis_server_are_understood() {
    let variables = [
        ("ATLANTIS_PORT", "tcp://10.0.0.1:80"),
        ("ATLANTIS_REDIS_PORT", "tcp://10.0.0.1:6379"),
        (
            "ATLANTIS_ALLOW_COMMANDS",
            "version,plan,apply,unlock,approve_policies,cancel",
        ),
        ("ATLANTIS_WRITE_GIT_CREDS", "true"),
        ("ATLANTIS_TF_DISTRIBUTION", "opentofu"),
        ("ATLANTIS_AUTOMERGE", "false"),
        ("ATLANTIS_GITLAB_HOSTNAME", "gitlab.com"),
        ("ATLANTIS_PORT_4141_TCP_ADDR", "10.0.0.1"),
        ("LOCKKEEPER_SERVICE_HOST", "10.0.0.1"),
        ("LOCKKEEPER_EXECUTABLE_NAMES", "a"),
    ];
    let (config, warnings) =
        read_with(&[("gh-token-file", "-"), ("gh-token", "ghp_x")], &variables).unwrap();
    assert_eq!(config.web.listen.to_string(), "0.0.0.0:4141");
    assert_eq!(
        config.terraform.distribution,
        crate::model::Distribution::OpenTofu
    );
    assert!(config.repos.module_access);
    assert_eq!(
        config.comments.allowed.into_iter().collect::<Vec<_>>(),
        [
            CommandKind::Plan,
            CommandKind::Apply,
            CommandKind::Unlock,
            CommandKind::Cancel,
            CommandKind::Version,
            CommandKind::ApprovePolicies
        ]
    );
    assert_snapshot!(warnings, @"
    ATLANTIS_PORT: ignored, because it contains the address of a Kubernetes service instead of a number; to remove such variables, set `enableServiceLinks: false` in the pod
    ATLANTIS_REDIS_PORT: ignored, because it contains the address of a Kubernetes service instead of a number; to remove such variables, set `enableServiceLinks: false` in the pod
    LOCKKEEPER_EXECUTABLE_NAMES: ignored, because this setting does not exist; did you mean LOCKKEEPER_EXECUTABLE_NAME?
    --gh-token (LOCKKEEPER_GH_TOKEN): every process of this machine can read it on the command line; use the variable or a file instead
    --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): every process of this machine can read it on the command line; use the variable or a file instead
    ");
}

/// Reads a settings file together with flags and variables.
fn read_settings_file(
    text: &str,
    more: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Result<ServerConfig, String> {
    let (settings_file, problems) = SettingsFile::parse("/etc/server.yaml", text);
    let raw = RawSettings {
        settings_file,
        ..raw(more, variables)
    };
    ServerConfig::from_raw(&raw, problems)
        .map(|(config, _)| config)
        .map_err(|errors| errors.to_string())
}

#[test]
fn a_file_of_settings_is_heard_after_flags_and_variables() {
    let text = "repo-allowlist: [github.com/acme/*]\ngh-user: '@kim'\ngh-token: ghp_x\ngh-webhook-secret: [the-old-webhook-secret, the-new-webhook-secret]\n\
                port: 80\ndata-dir: ~/keep\nbind-address: 127.0.0.1\nlog-level: debug\nparallel-pool-size: 0\n";
    let variables = [
        ("ATLANTIS_BIND_ADDRESS", "127.0.0.2"),
        ("LOCKKEEPER_LOG_LEVEL", ""),
    ];
    let config = read_settings_file(text, &[("port", "81")], &variables).unwrap();
    assert_eq!(config.web.listen.to_string(), "127.0.0.2:81");
    assert_eq!(config.storage.data_dir, PathBuf::from("/home/kim/keep"));
    assert_eq!(
        config.github[0].webhooks.secrets,
        [
            Secret::new("the-old-webhook-secret"),
            Secret::new("the-new-webhook-secret")
        ]
    );
    assert_eq!(config.logging.level, LogLevel::Debug);
    assert_eq!(config.runs.parallel.get(), 15);
    let GitHubCredentials::Token { user, .. } = &config.github[0].auth else {
        panic!("a token is set")
    };
    assert_eq!(user, "kim");
}

#[test]
fn mistakes_of_the_file_and_of_flags_are_told_together() {
    let text = "repo-allowlst: [a]\nport: ninety\ngitlab-token: glpat\nautomerge: perhaps\nwebhooks: []\ngh-token: ghp_a\n\
                gh-token-file: token\nenable-drift-detection: true\nrun-timeout: soon\n";
    let told = read_settings_file(text, &[("log-level", "trace"), ("port", "-")], &[]).unwrap_err();
    assert_snapshot!(told, @"
    the server cannot start because of 11 problems in its configuration

      1. /etc/server.yaml:1:1: the setting `repo-allowlst` does not exist
         Fix: did you mean `repo-allowlist`?

      2. /etc/server.yaml:5:1: `webhooks` (messages about applies to other programs) are not available in this version yet
         Fix: remove it

      3. --gitlab-token (LOCKKEEPER_GITLAB_TOKEN): not available in this version yet
         Fix: remove it from /etc/server.yaml:3:15

      4. --enable-drift-detection (LOCKKEEPER_ENABLE_DRIFT_DETECTION): not available in this version yet
         Fix: remove it from /etc/server.yaml:8:25

      5. --repo-allowlist (LOCKKEEPER_REPO_ALLOWLIST): missing
         Fix: name the repositories to serve, such as `github.com/acme/*`

      6. /etc/server.yaml:6:11: gh-token: set, although --gh-token-file is set too
         Fix: keep one of the two

      7. --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): missing, so anybody could send webhooks in GitHub's name
         Fix: set LOCKKEEPER_GH_WEBHOOK_SECRET to the secret of the webhook on GitHub; for a trial without a secret, set --allow-unsigned-webhooks

      8. --port (LOCKKEEPER_PORT): `-` is not a number in the allowed range
         Fix: write a whole number from 0 to 65535

      9. /etc/server.yaml:4:12: automerge: `perhaps` is not `true` or `false`
         automerge: perhaps
                    ^^^^^^^
         Fix: write `true` or `false`

     10. /etc/server.yaml:9:14: run-timeout: `soon` is not a duration
         run-timeout: soon
                      ^^^^
         Fix: write a time such as `90m`, `2h` or `1h30m`

     11. --log-level (LOCKKEEPER_LOG_LEVEL): `trace` is not one of the choices
         Fix: choose `debug`, `info`, `warn` or `error`

    All settings: lockkeeper server --help
    ");
    assert!(!told.contains("glpat") && !told.contains("ghp_a"));
}

#[test]
fn every_setting_is_read_by_somebody() {
    let all: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.flag).collect();
    let token = raw(&LEAST, &[]);
    let app = raw(&[("gh-app-id", "7"), ("gh-app-key", "k")], &[]);
    let mut asked = BTreeSet::new();
    for raw in [&token, &app] {
        let mut reader = SettingReader::new(raw, Vec::new());
        ServerConfig::read(&mut reader).map_or_else(drop, drop);
        asked.extend(reader.asked().iter().copied());
    }
    assert_eq!(asked, all);
}

#[test]
fn debug_of_a_configuration_shows_no_secret() {
    let flags = [
        ("database-url", "postgres://kim:hunter2@db/x"),
        ("web-basic-auth", "true"),
        ("web-password", "hunter2-hunter2-2"),
    ];
    assert!(!format!("{:?}", config(&flags)).contains("hunter2"));
}

#[test]
fn every_wrong_entry_about_permission_is_named_with_flag_and_fix() {
    assert_snapshot!(errors(&[("gh-team-allowlist", "devs, ops:aply"), ("web-allow", "discards")]), @"
    1. --gh-team-allowlist (LOCKKEEPER_GH_TEAM_ALLOWLIST): the entry `devs` names no command
    Fix: write `devs:plan`, or `devs:*` for every command
    2. --gh-team-allowlist (LOCKKEEPER_GH_TEAM_ALLOWLIST): in the entry `ops:aply`, `aply` is not a command
    Fix: choose from plan, apply, unlock, unlock_any, discard, apply_lock, lease, sync, cancel, cancel_force, import, state_rm, approve_policies, version, owners, peers, or `*`
    3. --web-allow (LOCKKEEPER_WEB_ALLOW): `discards` is not an action
    Fix: choose from plan, apply, unlock, unlock_any, discard, apply_lock, lease, sync, cancel, cancel_force, import, state_rm, approve_policies, version, owners, peers, or write `all`, which does not include `peers`, or `none`
    ");
    let password = [
        ("web-basic-auth", "true"),
        ("web-password", "correct horse battery"),
    ];
    let with = |flags: &[(&'static str, &'static str)]| {
        config(&[&password[..], flags].concat()).permissions
    };
    let fine = with(&[
        ("gh-team-allowlist", " *:plan ,OPS:* "),
        ("web-allow", "discard"),
    ]);
    assert_eq!(
        (fine.teams.to_string(), fine.web.to_string()),
        ("*:plan,ops:*".to_owned(), "discard".to_owned())
    );
    assert_snapshot!(errors(&[("web-accounts-file", "/etc/accounts")]), @"
    1. --web-accounts-file (LOCKKEEPER_WEB_ACCOUNTS_FILE): set, but the pages require no password, so the limits would have no effect
    Fix: set --web-basic-auth and a password for the account of the whole server
    ");
    assert_eq!(fine.commenters, Commenters::Writers);
    assert_eq!(
        config(&[("compat", "atlantis")]).permissions.commenters,
        Commenters::Writers
    );
    assert_eq!(
        config(&[("allow-commenters", "everyone")])
            .permissions
            .commenters,
        Commenters::Everyone
    );
    let both = errors(&[
        ("gh-team-allowlist", "*:plan"),
        ("allow-commenters", "everyone"),
    ]);
    assert!(
        both.contains(
            "`everyone`, but --gh-team-allowlist already decides who may use which command"
        ),
        "{both}"
    );
    let unset = with(&[("gh-team-allowlist", ""), ("web-allow", "")]);
    assert!(unset.teams.is_empty() && unset.web.allows(crate::config::access::Action::ApplyLock));
}

#[test]
fn without_a_password_nothing_can_be_changed_unless_the_operator_says_what() {
    for flags in [&[][..], &[("web-allow", "none")], &[("web-allow", " ")]] {
        assert_eq!(
            config(flags).permissions.web,
            crate::config::access::WebRules::read_only(),
            "{flags:?}"
        );
    }
    let anonymous = |words| [("allow-anonymous-web", "true"), ("web-allow", words)];
    let (wanted, warnings) = read_with(&anonymous("discard,apply_lock"), &[]).unwrap();
    assert!(wanted.permissions.web.is_anonymous());
    assert_eq!(wanted.permissions.web.to_string(), "discard,apply_lock");
    assert_snapshot!(warnings.lines().last().unwrap(), @"--allow-anonymous-web (LOCKKEEPER_ALLOW_ANONYMOUS_WEB): everyone who can reach the server may use `discard`, `apply_lock` on its pages, and the audit log cannot name them");
    assert_snapshot!(errors(&[("web-allow", "discard,plan")]), @"
    1. --web-allow (LOCKKEEPER_WEB_ALLOW): names `plan`, `discard`, but the pages require no password, so everyone who can reach them could use these actions
    Fix: set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD; to allow the actions for everyone who can reach the server, set --allow-anonymous-web
    ");
    assert_snapshot!(errors(&anonymous("all")), @"
    1. --web-allow (LOCKKEEPER_WEB_ALLOW): names `plan`, `apply`, `unlock`, `lease`, `cancel_force`, `import`, `state_rm`, `approve_policies`, `version`, `owners` without a password, but these actions always require that people sign in
    Fix: name only the other actions, or set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD
    ");
    for flags in [
        &[("allow-anonymous-web", "true")][..],
        &anonymous("none"),
        &anonymous(""),
    ] {
        insta::allow_duplicates! {
            assert_snapshot!(errors(flags), @"
            1. --allow-anonymous-web (LOCKKEEPER_ALLOW_ANONYMOUS_WEB): set, but --web-allow names no actions for visitors
            Fix: name the actions in --web-allow, or remove --allow-anonymous-web
            ");
        }
    }
    let both = [
        ("web-basic-auth", "true"),
        ("web-password", "correct horse battery"),
    ];
    assert_snapshot!(errors(&[&both[..], &anonymous("discard")].concat()), @"
    1. --allow-anonymous-web (LOCKKEEPER_ALLOW_ANONYMOUS_WEB): set, but the pages require a password (--web-basic-auth), so there are no anonymous visitors
    Fix: remove one of the two
    ");
}

#[test]
fn what_can_be_guessed_is_refused_and_not_repeated() {
    let short = [
        ("gh-webhook-secret", "fifteen-letters"),
        ("web-basic-auth", "true"),
        ("web-password", "hunter2"),
    ];
    let refused = errors(&short);
    assert!(
        !refused.contains("fifteen-letters") && !refused.contains("hunter2"),
        "{refused}"
    );
    assert_snapshot!(refused, @"
    1. --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): 15 characters long; a secret needs at least 16, so that it cannot be guessed
    Fix: create a longer one, for example with `openssl rand -hex 20`
    2. --web-password (LOCKKEEPER_WEB_PASSWORD): 7 characters long; a secret needs at least 16, so that it cannot be guessed
    Fix: create a longer one, for example with `openssl rand -hex 20`
    ");
    let (_, warnings) = read_with(&[&short[..], &[("compat", "atlantis")]].concat(), &[]).unwrap();
    assert!(
        !warnings.contains("fifteen-letters") && !warnings.contains("hunter2"),
        "{warnings}"
    );
    assert_eq!(
        warnings.matches("so that it cannot be guessed").count(),
        2,
        "{warnings}"
    );
}

#[test]
fn a_host_that_is_none_is_named_with_flag_and_fix() {
    assert_snapshot!(errors(&[("web-hosts", "locks.internal, https://x.example")]), @"
    1. --web-hosts (LOCKKEEPER_WEB_HOSTS): `https://x.example` is neither a host name nor an address
    Fix: write names or addresses without a port, such as `lockkeeper.internal`, separated by commas
    ");
    assert!(
        config(&[("web-hosts", "locks.internal")])
            .web
            .hosts
            .knows("locks.internal:4141", None)
    );
}

#[test]
fn a_proxy_that_is_no_network_is_named_with_flag_and_fix() {
    assert_snapshot!(errors(&[("trusted-proxies", "::1, 10.0.0.0/33")]), @"
    1. --trusted-proxies (LOCKKEEPER_TRUSTED_PROXIES): `10.0.0.0/33` is neither an address nor a network
    Fix: write addresses, or networks such as `10.0.0.0/8`, separated by commas
    ");
    assert_eq!(config(&[]).web.trusted_proxies, TrustedProxies::default());
}

#[test]
fn what_weakens_nothing_is_accepted_without_effect_and_said() {
    let flags = [
        ("hide-prev-plan-comments", "true"),
        ("stats-namespace", "infra"),
        ("language", "en"),
    ];
    let (config, warnings) = read_with(&flags, &[("ATLANTIS_GITEA_PAGE_SIZE", "50")]).unwrap();
    assert_snapshot!(config.without_effect.join("\n"), @"
    --gitea-page-size (LOCKKEEPER_GITEA_PAGE_SIZE) has no effect: it is only for forges that this version does not support
    --stats-namespace (LOCKKEEPER_STATS_NAMESPACE) has no effect: the names of all metrics on `/metrics` begin with `lockkeeper_`
    --hide-prev-plan-comments (LOCKKEEPER_HIDE_PREV_PLAN_COMMENTS) has no effect: it only changes how comments look
    ");
    assert!(
        config
            .without_effect
            .iter()
            .all(|sentence| warnings.lines().any(|line| line == sentence)),
        "{warnings}"
    );
}

#[test]
fn every_name_is_used_once() {
    let mut seen = BTreeSet::new();
    let names = SETTINGS
        .iter()
        .flat_map(|s| std::iter::once(&s.flag).chain(s.aliases));
    for name in names.chain(ABSENT.iter().map(|absent| &absent.flag)) {
        assert!(seen.insert(*name), "--{name} exists twice");
    }
}

#[test]
fn help_is_one_sentence_or_more_and_ends_with_a_full_stop() {
    for setting in SETTINGS.iter() {
        assert!(
            setting.help.ends_with('.') && setting.help.len() > 15,
            "--{}",
            setting.flag
        );
    }
}

#[test]
fn the_copy_of_the_accounts_has_one_kind_of_credentials() {
    let mirror = |flags: &[(&str, &str)]| config(flags).accounts.mirror;
    let to = |url| ("accounts-mirror-to", url);
    let token = ("accounts-mirror-token-file", "token");
    let key = ("accounts-mirror-ssh-key-file", "/etc/lk/key");
    let hosts = ("accounts-mirror-known-hosts-file", "/etc/lk/hosts");
    assert_eq!(mirror(&[]), None);
    let by_token = mirror(&[to("https://kim%40acme.com@git.acme.com/a.git"), token]).unwrap();
    assert_eq!(by_token.url.as_str(), "https://git.acme.com/a.git");
    assert_eq!(
        by_token.access,
        AccountsMirrorAccess::Token {
            user: "kim@acme.com".to_owned(),
            file: "/srv/token".into()
        }
    );
    let open = mirror(&[to("http://localhost/a.git")]).unwrap();
    assert_eq!(open.access, AccountsMirrorAccess::Open);
    let by_ssh = mirror(&[to("ssh://git@git.acme.com/a.git"), key, hosts]).unwrap();
    assert_eq!(by_ssh.url.as_str(), "ssh://git.acme.com/a.git");
    assert_eq!(
        by_ssh.access,
        AccountsMirrorAccess::Ssh {
            user: "git".to_owned(),
            port: 22,
            key: "/etc/lk/key".into(),
            known_hosts: "/etc/lk/hosts".into()
        }
    );

    let https = to("https://kim@git.acme.com/a.git");
    let ssh = to("ssh://git@git.acme.com/a.git");
    let refused: [&[(&str, &str)]; 15] = [
        &[to("http://git.acme.com/a.git")],
        &[token],
        &[key, hosts],
        &[to("https://kim:hunter2@git.acme.com/a.git")],
        &[to("/srv/copy.git")],
        &[to("file:///srv/copy.git")],
        &[to("git@git.acme.com:a.git")],
        &[to("https://git.acme.com")],
        &[to("https://git.acme.com/a.git?x")],
        &[https],
        &[to("https://git.acme.com/a.git"), token],
        &[https, token, key],
        &[ssh, token],
        &[ssh, key],
        &[to("ssh://git.acme.com/a.git"), key, hosts],
    ];
    let refused: Vec<String> = refused.iter().map(|flags| errors(flags)).collect();
    assert!(!refused.concat().contains("hunter2"));
    assert_snapshot!(refused.join("\n"), @"
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): an http: URL, so everybody on the way could read the hashes of passwords. It is only supported for this machine itself
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-token-file (LOCKKEEPER_ACCOUNTS_MIRROR_TOKEN_FILE): set, but there is no repository to push the accounts to
    Fix: set --accounts-mirror-to, or remove this setting
    1. --accounts-mirror-ssh-key-file (LOCKKEEPER_ACCOUNTS_MIRROR_SSH_KEY_FILE): set, but there is no repository to push the accounts to
    Fix: set --accounts-mirror-to, or remove this setting
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): the URL contains a password, which lists of processes and logs would show. Write it into the file of --accounts-mirror-token-file
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): the text is not an https: or ssh: URL. For a copy in a directory, run `git clone --mirror` there (docs/accounts.md)
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): only https: and ssh: URLs are supported. A directory would be on one server only: run `git clone --mirror` there (docs/accounts.md)
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): the text is not an https: or ssh: URL. For a copy in a directory, run `git clone --mirror` there (docs/accounts.md)
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): the URL names no repository
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): the URL has a query or a fragment
    Fix: write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`
    1. --accounts-mirror-token-file (LOCKKEEPER_ACCOUNTS_MIRROR_TOKEN_FILE): missing, but --accounts-mirror-to names a user
    Fix: name the file with the password or token of the user
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): names no user, but there is a token
    Fix: name the user of the token, as in `https://NAME@git.example.com/ops/accounts.git`
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): an https: URL, but there is a key or a list of hosts for SSH
    Fix: write an ssh: URL, or remove --accounts-mirror-ssh-key-file and --accounts-mirror-known-hosts-file
    1. --accounts-mirror-token-file (LOCKKEEPER_ACCOUNTS_MIRROR_TOKEN_FILE): set, but --accounts-mirror-to is an ssh: URL
    Fix: write an https: URL, or remove the token
    1. --accounts-mirror-known-hosts-file (LOCKKEEPER_ACCOUNTS_MIRROR_KNOWN_HOSTS_FILE): missing, but --accounts-mirror-to is an ssh: URL
    Fix: write the output of `ssh-keyscan HOST` into a file, compare the keys with those that the host publishes, and name the file
    1. --accounts-mirror-to (LOCKKEEPER_ACCOUNTS_MIRROR_TO): an ssh: URL without a user
    Fix: name the user, as in `ssh://git@git.example.com/ops/accounts.git`
    ");
}
