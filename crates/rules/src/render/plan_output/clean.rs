//! Turns output into plain text, without the progress messages of a refresh.
//!
//! A pull request can put any character into an attribute, and Terraform prints texts of several lines as they are. A
//! terminal sequence must therefore never hide text. Sequences that select colours are removed, every other control
//! character becomes U+FFFD, and each line is read separately. Comments, pages and raw texts all use [`parts`].

use std::sync::LazyLock;

use regex::Regex;

/// Maximum number of bytes between `ESC [` and `m`. The longest sequence that tools print has a third of that.
const MAX_PARAMETERS: usize = 64;

/// A part of a line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinePart<'a> {
    /// A character to show. Control characters except the tab have become U+FFFD.
    Shown(char),
    /// The parameters of `ESC [ … m` (ECMA-48, "Select Graphic Rendition").
    Colours(&'a str),
}

/// Splits one line of output into visible characters and sequences that select colours. Carriage returns at its end
/// belong to the line break.
pub fn parts(line: &str) -> impl Iterator<Item = LinePart<'_>> {
    let mut rest = line.trim_end_matches('\r');
    std::iter::from_fn(move || {
        if let Some((parameters, after)) = colours(rest) {
            rest = after;
            return Some(LinePart::Colours(parameters));
        }
        let mut chars = rest.chars();
        let first = chars.next()?;
        rest = chars.as_str();
        Some(LinePart::Shown(if first.is_control() && first != '\t' {
            '\u{fffd}'
        } else {
            first
        }))
    })
}

/// Returns the parameters of a sequence at the start of the text, and the text after it.
fn colours(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("\u{1b}[")?;
    let end = inner
        .bytes()
        .take(MAX_PARAMETERS + 1)
        .position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    let after = inner[end..].strip_prefix('m')?;
    Some((&inner[..end], after))
}

/// Removes colours, and replaces every other control character by U+FFFD.
pub fn clean(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for (at, line) in raw.split('\n').enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.extend(parts(line).filter_map(|part| match part {
            LinePart::Shown(c) => Some(c),
            LinePart::Colours(_) => None,
        }));
    }
    text
}

/// Applies [`clean`] and drops the lines in which the tool reports that it refreshes and reads. They are dropped at
/// any place, the first line included. All other lines stay, such as the output of a step before the plan.
pub fn without_progress(raw: &str) -> String {
    let text = clean(raw);
    let kept: Vec<&str> = text.lines().filter(|line| !is_progress(line)).collect();
    let first = kept
        .iter()
        .position(|line| !line.trim().is_empty())
        .unwrap_or(kept.len());
    kept[first..].join("\n").trim_end().to_owned()
}

/// Recognises `aws_vpc.a: Refreshing state... [id=vpc-1]`, `data.x.y: Read complete after 0s`, and the frame around
/// the refresh of versions before 0.14.
fn is_progress(line: &str) -> bool {
    static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
        let of_resource = r"\S.*: (?:Refreshing state\.\.\.|Refreshing\.\.\.|Reading\.\.\.|Still reading\.\.\.|Read complete after |Preparing import\.\.\.|(?:Still )?[Oo]pening\.\.\.|Opening complete after |(?:Still )?[Cc]losing\.\.\.|Closing complete after ).*";
        let of_state = r"(?:Acquiring|Releasing) state lock\. This may take a few moments\.\.\.";
        let of_old = r"Refreshing Terraform state in-memory prior to plan\.\.\.|The refreshed state will be used to calculate this plan, but will not be|persisted to local or remote state storage\.|-{40,}";
        Regex::new(&format!("^(?:{of_resource}|{of_state}|{of_old})$")).expect("a constant pattern")
    });
    PROGRESS.is_match(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_even_from_the_very_first_line() {
        let raw = "\u{1b}[0m\u{1b}[1mterraform_data.imp: Preparing import... [id=abc]\u{1b}[0m\n\
            terraform_data.two: Refreshing state... [id=56390aad]\n\
            data.terraform_remote_state.x: Reading...\n\
            data.terraform_remote_state.x: Read complete after 0s\n\n\
            No changes. Your infrastructure matches the configuration.\n";
        assert_eq!(
            without_progress(raw),
            "No changes. Your infrastructure matches the configuration."
        );
    }

    #[test]
    fn what_other_steps_printed_is_kept() {
        let raw =
            "tflint: 0 issues\nterraform_data.a: Refreshing state... [id=1]\n\nPlan: 1 to add\n";
        assert_eq!(without_progress(raw), "tflint: 0 issues\n\nPlan: 1 to add");
    }

    /// Returns the three resources of the attack, as `terraform plan -no-color` prints them.
    fn attack(opener: &str, terminator: &str) -> String {
        format!(
            "  # terraform_data.a_notes will be created\n          second {opener}0;\n  # terraform_data.b_backdoor will be \
             created\n      + input = \"AdministratorAccess\"\n  # terraform_data.c_notes will be created\n          \
             {terminator} first line\n\nPlan: 3 to add, 0 to change, 0 to destroy.\n"
        )
    }

    #[test]
    fn no_sequence_hides_the_lines_after_it() {
        let openers = [
            "\u{1b}]", "\u{1b}P", "\u{1b}X", "\u{1b}^", "\u{1b}_", "\u{1b}[", "\u{1b}(", "\u{1b}",
        ];
        let of_eight_bits = ["\u{90}", "\u{98}", "\u{9b}", "\u{9d}", "\u{9e}", "\u{9f}"];
        let terminators = [
            "\u{7}",
            "\u{1b}\\",
            "\u{9c}",
            "\u{18}",
            "\u{1a}",
            "\r",
            "\u{8}\u{8}",
            "",
        ];
        for opener in openers.into_iter().chain(of_eight_bits) {
            for terminator in terminators {
                let plain = attack(opener, terminator);
                let coloured = plain
                    .replace("  # ", "\u{1b}[1m  # ")
                    .replace(" created", "\u{1b}[0m created");
                for raw in [&plain, &coloured] {
                    let text = clean(raw);
                    assert!(
                        text.contains("\n  # terraform_data.b_backdoor will be created\n"),
                        "{raw:?}"
                    );
                    assert!(
                        text.contains("\n      + input = \"AdministratorAccess\"\n"),
                        "{raw:?}"
                    );
                    assert!(
                        text.contains("0;\n") && text.contains(" first line\n"),
                        "{raw:?}"
                    );
                    assert!(
                        text.contains("\nPlan: 3 to add, 0 to change, 0 to destroy.\n"),
                        "{raw:?}"
                    );
                    assert!(
                        !text.contains(|c: char| c.is_control() && c != '\n'),
                        "{text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn only_colours_are_removed() {
        for (raw, expected) in [
            (
                "\u{1b}[31mred\u{1b}[0m \u{1b}[38:2::1:2:3;1mx\u{1b}[my",
                "red xy",
            ),
            ("a\u{1b}[2Kb\u{1b}[1Ac", "a\u{fffd}[2Kb\u{fffd}[1Ac"),
            ("\u{1b}[31", "\u{fffd}[31"),
            ("\u{1b}[?31m\u{1b}[a b m", "\u{fffd}[?31m\u{fffd}[a b m"),
            (
                "a\tb\r\r\nc\rd\u{7f}\u{85}",
                "a\tb\nc\u{fffd}d\u{fffd}\u{fffd}",
            ),
            ("é\u{1b}[1m\u{1b}", "é\u{fffd}"),
        ] {
            assert_eq!(clean(raw), expected, "{raw:?}");
        }
        let long = format!("\u{1b}[{}m", "1;".repeat(MAX_PARAMETERS / 2));
        assert_eq!(clean(&long), "");
        assert_eq!(
            clean(&long.replace('m', "1m")).chars().count(),
            long.len() + 1
        );
    }

    proptest::proptest! {
        #[test]
        fn every_printable_character_is_shown_unless_it_selects_colours(
            raw in "([a-zé0-9;:m\\[\\]PX^_\\\\ ?]|\u{1b}|\u{1b}\\[|\u{7}|\u{90}|\u{98}|\u{9b}|\u{9c}|\u{9d}|\u{9e}|\u{9f}|\r|\n){0,80}",
        ) {
            let coloured = Regex::new("\u{1b}\\[[0-9;:]{0,64}m").unwrap();
            for (line, shown) in raw.split('\n').zip(clean(&raw).split('\n')) {
                let without = coloured.replace_all(line.trim_end_matches('\r'), "");
                let expected = without.replace(|c: char| c.is_control(), "\u{fffd}");
                proptest::prop_assert_eq!(shown, expected);
            }
        }
    }

    #[test]
    fn only_progress_leaves_nothing() {
        assert_eq!(without_progress("a.b: Refreshing state... [id=1]\r\n"), "");
        assert_eq!(without_progress(""), "");
    }
}
