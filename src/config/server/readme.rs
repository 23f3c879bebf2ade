//! The table of settings in the README, made from [`super::table`].

use std::fmt::Write;

use super::setting::{Fallback, Group, Setting};
use super::table::SETTINGS;

/// The lines between `<!-- flags:begin -->` and `<!-- flags:end -->` in the README.
pub fn flag_tables() -> String {
    let mut out = String::new();
    for group in Group::ALL {
        let rows = SETTINGS.iter().filter(|setting| setting.group == *group).map(row);
        let head = "| Flag | Variable | Default | Meaning |\n|--|--|--|--|";
        writeln!(out, "\n**{}**\n\n{head}\n{}", group.title(), rows.collect::<Vec<_>>().join("\n"))
            .expect("writing to a string does not fail");
    }
    out
}

fn row(setting: &Setting) -> String {
    let names = std::iter::once(&setting.flag).chain(setting.aliases);
    let names = names.map(|name| format!("`--{name}`")).collect::<Vec<_>>().join(", ");
    let default = match setting.default {
        Fallback::Unset => String::new(),
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::Named { ours, atlantis } => format!("`{ours}` (`{atlantis}` with `--compat atlantis`)"),
        Fallback::Derived(words) => words.replace('<', "&lt;"),
    };
    let help = setting.help.replace('<', "&lt;");
    format!("| {names} | `{}` | {default} | {help} |", setting.variable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_readme_is_the_table_of_settings() {
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
        let (_, rest) = readme.split_once("<!-- flags:begin -->\n").expect("README.md has the mark flags:begin");
        let (block, _) = rest.split_once("<!-- flags:end -->").expect("README.md has the mark flags:end");
        let expected = flag_tables();
        assert!(block.trim() == expected.trim(), "put this between the marks in README.md:\n{expected}");
    }
}
