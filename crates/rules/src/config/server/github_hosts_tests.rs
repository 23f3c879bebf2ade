//! Tests of the file of `--gh-hosts-file`.

use std::collections::BTreeMap;

use insta::assert_snapshot;

use super::{GitHubCredentials, RawSettings, SecretSource, ServerConfig, forge_hosts};
use crate::secret::Secret;

const TWO: &str = "\
hosts:
  - host: GitHub.Example.com
    user: '@lockkeeper'
    token_file: /run/token
    webhook_secret_file: ~/webhook
  - host: code.example.com
    api_url: https://api.code.example.com/v3
    app: {id: 12, key_file: app.pem, installation: 5000000000, slug: locks}
    webhook_secret_file: /run/both
";

/// Secret files that exist, with their content.
const SECRETS: [(&str, &str); 6] = [
    ("/run/token", "ghp_x"),
    ("/srv/app.pem", "PEM"),
    ("/home/kim/webhook", "the-secret-of-example\n"),
    (
        "/run/both",
        "the-old-secret-of-code\nthe-new-secret-of-code\n",
    ),
    ("/run/short", "hunter2"),
    ("/run/empty", " \n"),
];

/// Returns settings with a file of hosts and these flags.
fn raw(text: &str, flags: &[(&str, &str)]) -> RawSettings {
    let usual = [
        ("repo-allowlist", "*"),
        ("gh-hosts-file", "/etc/lk/hosts.yaml"),
    ];
    let owned = |(flag, value): &(&str, &str)| ((*flag).to_owned(), vec![(*value).to_owned()]);
    let secret = |(path, text): (&str, &str)| (path.into(), Ok(Secret::new(text)));
    RawSettings {
        flags: usual.iter().chain(flags).map(owned).collect(),
        files: BTreeMap::from([("gh-hosts-file".to_owned(), Ok(text.to_owned()))]),
        secret_files: SECRETS
            .into_iter()
            .map(secret)
            .chain([("/run/absent".into(), Err("No such file".to_owned()))])
            .collect(),
        home: Some("/home/kim".into()),
        working_dir: "/srv".into(),
        ..RawSettings::default()
    }
}

fn config(text: &str, flags: &[(&str, &str)]) -> ServerConfig {
    let read = ServerConfig::from_raw(&raw(text, flags), Vec::new());
    read.unwrap_or_else(|errors| panic!("{errors}")).0
}

/// Returns the hosts of a configuration, each with the number of its webhook secrets.
fn hosts(config: &ServerConfig) -> Vec<String> {
    let hosts = config.github.iter();
    hosts
        .map(|one| format!("{} {}", one.host, one.webhooks.secrets.len()))
        .collect()
}

/// Returns the problems with these settings.
fn refused(text: &str, flags: &[(&str, &str)]) -> String {
    let errors = ServerConfig::from_raw(&raw(text, flags), Vec::new()).unwrap_err();
    let problems = errors.problems().iter().map(ToString::to_string);
    problems.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_hosts_of_the_file_are_enough() {
    let config = config(TWO, &[]);
    assert_eq!(
        hosts(&config),
        ["github.example.com 1", "code.example.com 2"]
    );
    let [example, code] = config.github.as_slice() else {
        panic!("the file lists two hosts")
    };
    assert_eq!(
        [example, code].map(|github| github.api_url.as_str()),
        [
            "https://github.example.com/api/v3/",
            "https://api.code.example.com/v3/"
        ]
    );
    assert_eq!(
        example.auth,
        GitHubCredentials::Token {
            user: "lockkeeper".to_owned(),
            token: SecretSource::File("/run/token".into())
        }
    );
    assert_eq!(
        code.auth,
        GitHubCredentials::App {
            id: 12,
            key: SecretSource::File("/srv/app.pem".into()),
            installation: Some(5_000_000_000),
            slug: Some("locks".to_owned()),
        }
    );
    assert_eq!(
        code.webhooks.secrets,
        [
            Secret::new("the-old-secret-of-code"),
            Secret::new("the-new-secret-of-code")
        ]
    );
}

const FLAGS: [(&str, &str); 3] = [
    ("gh-user", "bot"),
    ("gh-token-file", "/run/token"),
    ("gh-webhook-secret", "the-secret-of-github"),
];

#[test]
fn the_host_of_the_flags_is_served_beside_those_of_the_file() {
    let both = config(TWO, &FLAGS);
    assert_eq!(
        hosts(&both),
        ["github.com 1", "github.example.com 1", "code.example.com 2"]
    );
    let unset = [("gh-app-id", "0"), ("allow-unsigned-webhooks", "false")];
    assert_eq!(hosts(&config(TWO, &unset)).len(), 2);
    assert_snapshot!(refused(TWO, &[("gh-hostname", "github.com")]), @"
    --gh-user (LOCKKEEPER_GH_USER): no account and no App for GitHub is set
         Fix: set --gh-user and --gh-token-file (an account), or --gh-app-id and --gh-app-key-file (a GitHub App); or remove the other --gh-* settings and --allow-unsigned-webhooks to serve only the hosts of --gh-hosts-file
    --gh-webhook-secret (LOCKKEEPER_GH_WEBHOOK_SECRET): missing, so anybody could send webhooks in GitHub's name
         Fix: set LOCKKEEPER_GH_WEBHOOK_SECRET to the secret of the webhook on GitHub; for a trial without a secret, set --allow-unsigned-webhooks
    ");
    let same = [&FLAGS[..], &[("gh-hostname", "code.example.com")]].concat();
    assert_snapshot!(refused(TWO, &same), @"
    --gh-hosts-file (LOCKKEEPER_GH_HOSTS_FILE): lists `code.example.com`, which is also the host of --gh-hostname
         Fix: remove it from the file, or remove the other --gh-* settings to serve only the hosts of the file
    ");
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_places() {
    let text = "\
hosts:
  - host: a.test
    user: bot
    tokn_file: /run/token
    webhook_secret_file: /run/absent
  - host: https://b.test
    user: bot
    token_file: /run/empty
    app: {id: 0, key_file: /srv/app.pem}
  - host: c.test
    api_url: c.test/api
    webhook_secret_file: /run/short
  - host: A.test
    token: ghp_inline
    app: {id: 7}
    webhook_secret_file: /run/unread
";
    assert_snapshot!(refused(text, &[]), @"
    /etc/lk/hosts.yaml:2:5: an entry of `hosts` has no `token_file`
         Fix: name the file with the personal access token of the account
    /etc/lk/hosts.yaml:4:5: `tokn_file` is not a key of an entry of `hosts`
         Fix: did you mean `token_file`?
    /etc/lk/hosts.yaml:5:26: `/run/absent` cannot be read: No such file
         Fix: check the path, and check that the user account of the server can read the file
    /etc/lk/hosts.yaml:6:5: an entry of `hosts` has no `webhook_secret_file`
         Fix: name the file with the secret of the webhooks on this host
    /etc/lk/hosts.yaml:6:11: `https://b.test` is not a valid host name
         Fix: write only the name, such as `github.example.com`
    /etc/lk/hosts.yaml:8:17: `/run/empty` is empty, but `token_file` needs a secret
         Fix: write the secret into the file
    /etc/lk/hosts.yaml:9:5: both an account and an App are set
         Fix: keep either `user` with `token_file`, or `app`
    /etc/lk/hosts.yaml:10:5: an entry of `hosts` has no credentials
         Fix: write `user` and `token_file` (an account), or `app` (a GitHub App)
    /etc/lk/hosts.yaml:11:14: `c.test/api` is not a URL: relative URL without a base
         Fix: write a URL such as `https://github.example.com/api/v3`
    /etc/lk/hosts.yaml:13:5: `a.test` is listed twice
         Fix: keep one entry for each host
    /etc/lk/hosts.yaml:14:5: `token` is not a key of an entry of `hosts`
         Fix: the keys of an entry of `hosts` are `host`, `api_url`, `user`, `token_file`, `app`, `webhook_secret_file`
    /etc/lk/hosts.yaml:15:10: `app` has no `key_file`
         Fix: name the file with the private key of the App
    /etc/lk/hosts.yaml:16:26: `/run/unread` was not read
         Fix: check that the file exists
    ");
    assert_snapshot!(refused("hosts: []", &[]), @"
    /etc/lk/hosts.yaml:1:1: `hosts` is empty
         Fix: list at least one host, or start the server without this file
    ");
    assert_snapshot!(refused("", &[]), @"
    /etc/lk/hosts.yaml: the file is empty
         Fix: list at least one host, or start the server without this file
    ");
    assert_snapshot!(refused("hots: []", &[]), @"
    /etc/lk/hosts.yaml:1:1: the file has no `hosts`
         Fix: list at least one host, or start the server without this file
    /etc/lk/hosts.yaml:1:1: `hots` is not a key of the file
         Fix: did you mean `hosts`?
    ");
}

#[test]
fn no_secret_of_the_file_is_repeated_in_messages() {
    let text = TWO.replace("/run/both", "/run/short");
    assert!(!refused(&text, &[]).contains("hunter2"));
    let settings = raw(&text, &[]);
    assert!(!format!("{settings:?}").contains("hunter2"));
    for text in [
        "hosts: [{token: hunter2}]",
        "hosts: [{host: a.test, webhook_secret: hunter2}]",
        "token: 'hunter2",
        "hosts: [{token_file: {hunter2: x}}]",
    ] {
        let refused = refused(text, &[]);
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_short_secret_is_a_warning_for_users_of_atlantis() {
    let text = TWO.replace("/run/both", "/run/short");
    let (config, warnings) =
        ServerConfig::from_raw(&raw(&text, &[("compat", "atlantis")]), Vec::new()).unwrap();
    assert_eq!(config.github[1].webhooks.secrets.len(), 1);
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_snapshot!(told.join("\n"), @"/etc/lk/hosts.yaml:9: a secret in `/run/short` is 7 characters long; a secret needs at least 16, so that it cannot be guessed; create a longer one, for example with `openssl rand -hex 20`");
}

#[test]
fn a_url_without_encryption_is_a_warning() {
    let text = TWO.replace(
        "https://api.code.example.com",
        "http://api.code.example.com",
    );
    let (_, warnings) = ServerConfig::from_raw(&raw(&text, &[]), Vec::new()).unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_snapshot!(told.join("\n"), @"/etc/lk/hosts.yaml:7: credentials are sent to api.code.example.com without encryption");
}

#[test]
fn no_run_may_read_the_secrets_of_any_host() {
    let secret = |config: &ServerConfig| -> Vec<String> {
        let own = config.sandbox.secret.iter();
        let of_hosts = own.filter(|own| own.what.contains("--gh-hosts-file"));
        of_hosts
            .map(|own| format!("{}: {}", own.path.display(), own.what))
            .collect()
    };
    assert_snapshot!(secret(&config(TWO, &FLAGS)).join("\n"), @"
    /run/token: a secret (`token_file` in the file of --gh-hosts-file)
    /home/kim/webhook: a secret (`webhook_secret_file` in the file of --gh-hosts-file)
    /run/both: a secret (`webhook_secret_file` in the file of --gh-hosts-file)
    /srv/app.pem: a secret (`key_file` in the file of --gh-hosts-file)
    ");
    let merged = "\
hosts:
  - &first {host: a.test, user: bot, token_file: /run/token, webhook_secret_file: /run/both}
  - <<: *first
    host: b.test
";
    let both = config(merged, &[]);
    assert_eq!(hosts(&both).len(), 2);
    assert_eq!(
        secret(&both).len(),
        4,
        "an entry takes the files of another"
    );
}

#[test]
fn subcommands_know_all_hosts_without_their_secrets() {
    let raw = RawSettings {
        secret_files: BTreeMap::new(),
        ..raw(TWO, &[])
    };
    let all = ["github.com", "github.example.com", "code.example.com"];
    let expected = crate::model::ForgeHosts::with(all.map(|host| host.parse().unwrap()));
    assert_eq!(forge_hosts(&raw).unwrap(), expected);
    let broken = self::raw("hosts: [{hots: a}]", &[]);
    assert!(forge_hosts(&broken).is_err());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let mut raw = raw(TWO, &[]);
    raw.files.insert(
        "gh-hosts-file".to_owned(),
        Err("Permission denied".to_owned()),
    );
    let errors = ServerConfig::from_raw(&raw, Vec::new()).unwrap_err();
    assert_snapshot!(errors.problems()[0], @"
    --gh-hosts-file (LOCKKEEPER_GH_HOSTS_FILE): `/etc/lk/hosts.yaml` cannot be read: Permission denied
         Fix: check the path, and check that the user account of the server can read the file
    ");
}
