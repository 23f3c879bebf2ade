//! Holds the templates of comments and the filters that put values into them.
//!
//! Every value that a template prints is escaped as prose, unless a filter made it Markdown. A forgotten filter
//! therefore shows ugly text, never the markup of another person. An undefined name is an error, and a test renders
//! every template.

use std::sync::LazyLock;

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Output, State, UndefinedBehavior, syntax::SyntaxConfig};
use serde::Serialize;

use super::escape;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

const SOURCES: [(&str, &str); 19] = [
    (
        "parts.md.j2",
        include_str!("../../../../templates/comments/parts.md.j2"),
    ),
    (
        "results.md.j2",
        include_str!("../../../../templates/comments/results.md.j2"),
    ),
    (
        "table.md.j2",
        include_str!("../../../../templates/comments/table.md.j2"),
    ),
    (
        "project.md.j2",
        include_str!("../../../../templates/comments/project.md.j2"),
    ),
    (
        "policies.md.j2",
        include_str!("../../../../templates/comments/policies.md.j2"),
    ),
    (
        "refusal.md.j2",
        include_str!("../../../../templates/comments/refusal.md.j2"),
    ),
    (
        "config_errors.md.j2",
        include_str!("../../../../templates/comments/config_errors.md.j2"),
    ),
    (
        "broken.md.j2",
        include_str!("../../../../templates/comments/broken.md.j2"),
    ),
    (
        "no_projects.md.j2",
        include_str!("../../../../templates/comments/no_projects.md.j2"),
    ),
    (
        "explained.md.j2",
        include_str!("../../../../templates/comments/explained.md.j2"),
    ),
    (
        "help.md.j2",
        include_str!("../../../../templates/comments/help.md.j2"),
    ),
    (
        "mistake.md.j2",
        include_str!("../../../../templates/comments/mistake.md.j2"),
    ),
    (
        "released.md.j2",
        include_str!("../../../../templates/comments/released.md.j2"),
    ),
    (
        "dropped.md.j2",
        include_str!("../../../../templates/comments/dropped.md.j2"),
    ),
    (
        "cancelled.md.j2",
        include_str!("../../../../templates/comments/cancelled.md.j2"),
    ),
    (
        "not_merged.md.j2",
        include_str!("../../../../templates/comments/not_merged.md.j2"),
    ),
    (
        "lock_idle.md.j2",
        include_str!("../../../../templates/comments/lock_idle.md.j2"),
    ),
    (
        "lock_expired.md.j2",
        include_str!("../../../../templates/comments/lock_expired.md.j2"),
    ),
    (
        "lock_lost.md.j2",
        include_str!("../../../../templates/comments/lock_lost.md.j2"),
    ),
];

/// Renders one template with its context.
pub(super) fn render(name: &str, context: &impl Serialize) -> String {
    let template = ENVIRONMENT
        .get_template(name)
        .expect("every template is embedded and parsed by a test");
    let text = template
        .render(Value::from(Serde(context)))
        .expect("every template is rendered with samples by a test");
    text.trim().to_owned() + "\n"
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::Custom("markdown".into()));
    env.set_formatter(format);
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    env.set_syntax(syntax.expect("a constant syntax"));
    env.add_filter("code", |text: String| markdown(escape::code(&text)));
    env.add_filter("cell", |text: String| markdown(escape::cell(&text)));
    env.add_filter("fence", |text: String, language: String| {
        markdown(escape::fence(&text, &language))
    });
    env.add_filter("command", |text: String| markdown(list_item_fence(&text)));
    // Only for Markdown of our own making, in which `command/` has put everything hostile into code.
    env.add_filter("trusted", markdown);
    env.add_filter("link", link);
    for (name, source) in SOURCES {
        env.add_template(name, source)
            .expect("every template is parsed by a test");
    }
    env
}

fn markdown(text: String) -> Value {
    Value::from_safe_string(text)
}

/// Returns an address, or the empty text (which is false) if people should not follow it.
fn link(url: Option<String>) -> Value {
    markdown(
        url.and_then(|url| escape::link_target(&url))
            .unwrap_or_default(),
    )
}

/// Formats a command that belongs to the list item above it.
fn list_item_fence(command: &str) -> String {
    let fence = escape::fence(command, "shell");
    fence
        .lines()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn format(out: &mut Output, _: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let text = value.to_string();
    let text = if value.is_safe() {
        text
    } else {
        keep_ends(&text)
    };
    out.write_str(&text).map_err(minijinja::Error::from)
}

/// Escapes a text and keeps single spaces at its ends, which templates use as separators.
fn keep_ends(text: &str) -> String {
    let space = |found: bool| if found { " " } else { "" };
    let (start, end) = (text.starts_with(' '), text.ends_with(' ') && text.len() > 1);
    format!("{}{}{}", space(start), escape::prose(text), space(end))
}
