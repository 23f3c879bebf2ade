//! Generates the tables of settings in the documentation, and compares them: the most important settings for the
//! README, and all settings for `docs/flags.md`.

use super::SETTINGS;
use super::absent::{ABSENT, AbsentReason, UnsupportedFlag};
use super::setting::{Fallback, Setting, SettingGroup, ValueKind};
use crate::config::generated_docs::{compare, compare_block};

/// Settings that most servers need, in the order of the README.
const IMPORTANT: [&str; 18] = [
    "repo-allowlist",
    "gh-app-id",
    "gh-app-key-file",
    "gh-user",
    "gh-token-file",
    "gh-webhook-secret",
    "atlantis-url",
    "port",
    "web-basic-auth",
    "web-username",
    "web-password",
    "data-dir",
    "database-url",
    "repo-config",
    "gh-team-allowlist",
    "default-tf-distribution",
    "config",
    "compat",
];

/// Returns the lines between `<!-- flags:begin -->` and `<!-- flags:end -->` in the README.
fn important_flags() -> String {
    let find = |flag| SETTINGS.iter().find(|setting| setting.flag == flag);
    let rows: Vec<String> = IMPORTANT
        .into_iter()
        .filter_map(find)
        .map(short_row)
        .collect();
    format!(
        "| Flag | Default | Meaning |\n|--|--|--|\n{}\n",
        rows.join("\n")
    )
}

fn short_row(setting: &Setting) -> String {
    format!(
        "| {} | {} | {} |",
        names(setting),
        default(setting),
        escaped(setting.help)
    )
}

/// Returns the text of `docs/flags.md`.
fn flags_page() -> String {
    let mut out = HEAD.to_owned();
    for group in SettingGroup::ALL {
        let rows: Vec<String> = SETTINGS
            .iter()
            .filter(|setting| setting.group == *group)
            .map(row)
            .collect();
        let head = "| Flag | Variable | Kind | Default | Meaning |\n|--|--|--|--|--|";
        out.extend([
            "\n## ",
            group.title(),
            "\n\n",
            head,
            "\n",
            &rows.join("\n"),
            "\n",
        ]);
    }
    out.push_str(ABSENT_HEAD);
    out.extend(ABSENT.iter().map(absent_row));
    out
}

const HEAD: &str = "\
# Settings of the server

<!-- Generated from the settings in crates/rules/src/config/server; a test compares them. To write it again:
     LOCKKEEPER_WRITE_DOCS=1 cargo test -p lockkeeper-rules config::server::readme -->

You can set each setting with a flag of `lockkeeper server`, with an environment variable, or in the YAML file that
`--config` names. Its key in the file is the name of the flag. A flag wins over a variable, and a variable over the file.
If `LOCKKEEPER_X` is not set, `ATLANTIS_X` is read. An empty value counts as not set.

```yaml settings
# lockkeeper server --config /etc/lockkeeper/server.yaml
repo-allowlist: [github.com/acme/*]
gh-user: acme-bot
gh-token-file: /run/secrets/token
gh-webhook-secret: \"…\" # or the variable LOCKKEEPER_GH_WEBHOOK_SECRET
port: 4141
```

The server does not start if a key does not exist, a value has the wrong kind or a number is out of range. It reports all
errors of flags, variables and the file at once, with their places. Do not let other users read a file with secrets.
`repo-config` names another file, with the rules for repositories. The server can read it again while it runs: see
[operations](operations.md).

Kinds: a *switch* without a value is on (`--lock-queue=false` is off). A *list* has commas between its items, or is a list
in the file. A *time* is written like `90m` or `2h`, a *size* like `20GiB`. A *path* can begin with `~/`.
";

const ABSENT_HEAD: &str = "
## Flags of Atlantis that do not exist here

The server recognizes these flags, variables and keys. *Not yet*: the server does not start with one of these, so that
nobody relies on a setting without effect. A value that requests nothing (`false`, or the default of Atlantis) is
accepted. *Not needed*: the requested behaviour is always on, and the server logs a warning. *Without effect*: the server
starts, logs a warning and lists the flag on the operations page, because its absence weakens nothing. A value of the wrong
kind is always an error.

| Flag | Kind | What happens |
|--|--|--|
";

fn absent_row(absent: &UnsupportedFlag) -> String {
    let what = match absent.reason {
        AbsentReason::NotYet => "Not yet.".to_owned(),
        AbsentReason::Instead(why) => format!("Refused: {why}."),
        AbsentReason::Always(why) => format!("Not needed: {why}."),
        AbsentReason::WithoutEffect(why) => format!("Without effect: {why}."),
    };
    let off = absent
        .off
        .map(|way_out| format!(" `false` causes a warning: {way_out}."))
        .unwrap_or_default();
    format!(
        "| `--{}` | {} | {what}{off} |\n",
        absent.flag,
        kind(absent.kind)
    )
}

fn row(setting: &Setting) -> String {
    let (names, default) = (names(setting), default(setting));
    format!(
        "| {names} | `{}` | {} | {default} | {} |",
        setting.variable(),
        kind(setting.kind),
        escaped(setting.help)
    )
}

fn names(setting: &Setting) -> String {
    let names = std::iter::once(&setting.flag).chain(setting.aliases);
    names
        .map(|name| format!("`--{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn default(setting: &Setting) -> String {
    match setting.default {
        Fallback::Unset => String::new(),
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::Differs { ours, atlantis } => {
            format!("`{ours}` (`{atlantis}` with `--compat atlantis`)")
        }
        Fallback::Derived(words) => escaped(words),
    }
}

fn kind(kind: ValueKind) -> String {
    match kind {
        ValueKind::Text => "text".to_owned(),
        ValueKind::Secret => "secret".to_owned(),
        ValueKind::Secrets => "secrets".to_owned(),
        ValueKind::List => "list".to_owned(),
        ValueKind::Switch => "switch".to_owned(),
        ValueKind::Number(_, u64::MAX) => "number".to_owned(),
        ValueKind::Number(min, max) => format!("number, {min} to {max}"),
        ValueKind::Duration => "time".to_owned(),
        ValueKind::Size => "size".to_owned(),
        ValueKind::Path => "path".to_owned(),
        ValueKind::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn escaped(text: &str) -> String {
    text.replace('<', "&lt;").replace('|', "\\|")
}

#[test]
fn the_table_in_the_readme_is_the_table_of_settings() {
    compare_block("README.md", "flags", &important_flags());
}

#[test]
fn the_page_of_flags_is_the_table_of_settings() {
    compare("docs/flags.md", &flags_page());
}

#[test]
fn every_flag_is_on_the_page_once() {
    let page = flags_page();
    let flags = SETTINGS
        .iter()
        .map(|setting| setting.flag)
        .chain(ABSENT.iter().map(|absent| absent.flag));
    for flag in flags {
        assert_eq!(
            page.matches(&format!("\n| `--{flag}`")).count(),
            1,
            "--{flag}"
        );
    }
}
