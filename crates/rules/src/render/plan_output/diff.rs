//! Moves the markers of a plan to the first column, as the forge's `diff` highlighting requires.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::clean::without_progress;

/// Selection of the markers that are moved to the first column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiffStyle {
    /// Markers of whole resources and outputs: two spaces, then the marker (reference 6.6).
    #[default]
    Resources,
    /// Also the markers of every attribute and block, and `~` becomes `!` (`--enable-diff-markdown-format`, reference
    /// 9.9).
    Everything,
}

/// Prepares the output of a plan for a `diff` fence: clean, without progress messages, with moved markers.
pub fn plan_text(raw: &str, style: DiffStyle) -> String {
    let text = without_progress(raw);
    match style {
        DiffStyle::Resources => text.lines().map(of_resource).collect::<Vec<_>>().join("\n"),
        DiffStyle::Everything => everything(&text),
    }
}

/// Turns `  + x` into `+ x`; a deeper marker stays.
fn of_resource(line: &str) -> &str {
    let inner = line.strip_prefix("  ").unwrap_or(line);
    let marked = ["+ ", "- ", "~ "]
        .iter()
        .any(|mark| inner.starts_with(mark));
    if marked { inner } else { line }
}

/// A text over several lines inside the plan. Its lines are content, not markers.
struct Heredoc {
    /// Word that ends the text.
    end: String,
    /// Column of the markers of its own lines, if the tool compares the text line by line.
    markers_at: Option<usize>,
}

fn everything(text: &str) -> String {
    let mut heredoc: Option<Heredoc> = None;
    let mut out = Vec::new();
    for line in text.lines() {
        match &heredoc {
            Some(open) if line.trim_start().starts_with(&open.end) => {
                heredoc = None;
                out.push(line.to_owned());
            }
            Some(open) => {
                out.push(
                    open.markers_at
                        .and_then(|at| moved_at(line, at))
                        .unwrap_or_else(|| line.to_owned()),
                );
            }
            None => {
                heredoc = opens_heredoc(line);
                out.push(moved(line).unwrap_or_else(|| line.to_owned()));
            }
        }
    }
    out.join("\n")
}

/// Recognises `~ input = <<-EOT`. Terraform indents the lines of a compared text by four more than the marker of the
/// attribute.
fn opens_heredoc(line: &str) -> Option<Heredoc> {
    static OPENS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?<indent> *)(?<mark>[-+~]?) .*<<[-~]?(?<end>[A-Z_]+)$")
            .expect("a constant pattern")
    });
    let found = OPENS.captures(line)?;
    let compared = &found["mark"] == "~";
    Some(Heredoc {
        end: found["end"].to_owned(),
        markers_at: compared.then_some(found["indent"].len() + 4),
    })
}

fn moved(line: &str) -> Option<String> {
    static MARKED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?<indent>  +)(?<mark>[-+~])(?<rest> .*)$").expect("a constant pattern")
    });
    MARKED
        .captures(line)
        .map(|c: Captures<'_>| join(&c["indent"], &c["mark"], &c["rest"]))
}

fn moved_at(line: &str, column: usize) -> Option<String> {
    let (indent, rest) = line.split_at_checked(column)?;
    let mark = rest
        .get(..1)
        .filter(|mark| matches!(*mark, "-" | "+" | "~"))?;
    let blank = indent.bytes().all(|b| b == b' ') && rest[1..].starts_with(' ');
    blank.then(|| join(indent, mark, &rest[1..]))
}

fn join(indent: &str, mark: &str, rest: &str) -> String {
    format!("{}{indent}{rest}", if mark == "~" { "!" } else { mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Terraform 1.11.4 without colours, shortened.
    const PLAN: &str = r#"terraform_data.one: Refreshing state... [id=c5500c5c]

Terraform will perform the following actions:

  # terraform_data.one will be updated in-place
  ~ resource "terraform_data" "one" {
        id     = "c5500c5c"
      ~ input  = "hello" -> "hallo"
    }

  # terraform_data.two must be replaced
-/+ resource "terraform_data" "two" {
      ~ input            = {
          - a = 1
        } -> <<-EOT
            line one
             + fake
            + fake
        EOT
      ~ text             = <<-EOT
            kept
          - old
          + new
        EOT
      ~ triggers_replace = [
          ~ "v1" -> "v2",
        ]
    }

Plan: 1 to add, 1 to change, 1 to destroy.

Changes to Outputs:
  - o = "x" -> null
"#;

    #[test]
    fn markers_of_resources_come_to_the_first_column() {
        insta::assert_snapshot!(plan_text(PLAN, DiffStyle::Resources));
    }

    #[test]
    fn markers_of_everything_come_to_the_first_column_but_texts_stay() {
        insta::assert_snapshot!(plan_text(PLAN, DiffStyle::Everything));
    }

    #[test]
    fn only_two_spaces_make_a_marker() {
        for (line, expected) in [
            ("  + a", "+ a"),
            (" - a", " - a"),
            ("      + a", "      + a"),
            ("  -/+ a", "  -/+ a"),
        ] {
            assert_eq!(of_resource(line), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_output_can_be_moved(raw in "([ ~+-]{0,6}[é<a]{0,3}(<<-EOT)?\n?){0,30}") {
            for style in [DiffStyle::Resources, DiffStyle::Everything] {
                let words = |text: &str| text.replace([' ', '\n', '!', '~', '+', '-'], "");
                proptest::prop_assert_eq!(words(&plan_text(&raw, style)), words(&clean_of(&raw)));
            }
        }
    }

    fn clean_of(raw: &str) -> String {
        super::super::clean(raw)
    }
}
