//! Generates the tables of settings in the documentation from [`super::table`] and [`super::absent`]: the most
//! important settings for the README, and all settings for `docs/flags.md`.

use super::absent::{ABSENT, Absent, Reason};
use super::setting::{Fallback, Group, Kind, Setting};
use super::table::SETTINGS;

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
pub fn important_flags() -> String {
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
pub fn flags_page() -> String {
    let mut out = HEAD.to_owned();
    for group in Group::ALL {
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

<!-- Made from the tables in src/config/server; a test compares. To write it anew:
     LOCKKEEPER_WRITE_DOCS=1 cargo test --lib config::server::readme -->

Every setting can be given as a flag of `lockkeeper server`, as a variable, or in the YAML file that `--config` names,
where its key is the name of the flag. A flag wins over a variable, a variable over the file. `ATLANTIS_X` is read where
`LOCKKEEPER_X` is not set. An empty value counts as not given.

```yaml settings
# lockkeeper server --config /etc/lockkeeper/server.yaml
repo-allowlist: [github.com/acme/*]
gh-user: acme-bot
gh-token-file: /run/secrets/token
gh-webhook-secret: \"…\" # or the variable LOCKKEEPER_GH_WEBHOOK_SECRET
port: 4141
```

A key that does not exist, a value of the wrong kind or a number out of range keeps the server from starting; all mistakes
of flags, variables and the file are told at once, with their places. Let nobody else read a file with secrets in it.
`repo-config` names the other file, with what holds for single repositories; see [operations](operations.md) for how it
is read again while the server runs.

Kinds: a *switch* is on when it is there alone (`--lock-queue=false` is off); a *list* has commas between its items, and
may be a list in the file; a *time* is written like `90m` or `2h`, a *size* like `20GiB`; a *path* may begin with `~/`.
";

const ABSENT_HEAD: &str = "
## Flags of Atlantis that are not there

They are known by name, as flag, variable and key. *Not yet*: the server does not start with one of these, so that nobody
believes in a setting that does nothing; a value that asks for nothing (`false`, or the default in Atlantis) is no harm.
*Not needed*: it is so in any case, and the server says so in a warning. *Without effect*: the server starts and names it in a
warning and on the operations page, since to do without it weakens nothing. A value of the wrong kind is an error for all of
them.

| Flag | Kind | What happens |
|--|--|--|
";

fn absent_row(absent: &Absent) -> String {
    let what = match absent.reason {
        Reason::NotYet => "Not yet.".to_owned(),
        Reason::Instead(why) => format!("Refused: {why}."),
        Reason::Always(why) => format!("Not needed: {why}."),
        Reason::WithoutEffect(why) => format!("Without effect: {why}."),
    };
    let off = absent
        .off
        .map(|way_out| format!(" `false` is warned of: {way_out}."))
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

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Secrets => "secrets".to_owned(),
        Kind::List => "list".to_owned(),
        Kind::Switch => "switch".to_owned(),
        Kind::Number(_, u64::MAX) => "number".to_owned(),
        Kind::Number(min, max) => format!("number, {min} to {max}"),
        Kind::Duration => "time".to_owned(),
        Kind::Size => "size".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn escaped(text: &str) -> String {
    text.replace('<', "&lt;").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str) -> (PathBuf, String) {
        // The manifest can be in a folder below the root of the project.
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let path = here
            .ancestors()
            .map(|dir| dir.join(name))
            .find(|path| path.exists())
            .expect("the file is there");
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    }

    /// Compares a file with the expected text, or writes that text if `LOCKKEEPER_WRITE_DOCS` is set.
    fn compare(name: &str, expected: impl FnOnce(&str) -> String) {
        let (path, found) = file(name);
        let expected = expected(&found);
        if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
            std::fs::write(&path, &expected).unwrap();
            return;
        }
        assert!(
            found == expected,
            "{name} is old: run this test with LOCKKEEPER_WRITE_DOCS=1; expected:\n{expected}"
        );
    }

    #[test]
    fn the_table_in_the_readme_is_the_table_of_settings() {
        compare("README.md", |found| {
            let (head, rest) = found
                .split_once("<!-- flags:begin -->\n")
                .expect("README.md has the mark flags:begin");
            let (_, tail) = rest
                .split_once("<!-- flags:end -->")
                .expect("README.md has the mark flags:end");
            format!(
                "{head}<!-- flags:begin -->\n\n{}\n<!-- flags:end -->{tail}",
                important_flags()
            )
        });
    }

    #[test]
    fn the_page_of_flags_is_the_table_of_settings() {
        compare("docs/flags.md", |_| flags_page());
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
}
