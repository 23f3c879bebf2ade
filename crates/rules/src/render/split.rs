//! Splits one text into several comments, because forges limit the length of one (reference 9.5).
//!
//! The text is cut between lines, and inside a line only if that line alone is too long for a comment. At a cut, open
//! elements (code fence, `<details>`, table) are closed, and opened again in the next part. The text added that way
//! is *glue*; the parts without their glue are the text, byte for byte. Limits count bytes: every forge's count of
//! characters is at most that.

mod state;

use state::MarkdownState;

/// Minimum of the limit in bytes: below it, glue would leave no room for the text.
pub const MIN_LIMIT: usize = 1024;
/// Minimum number of following bytes that stay in the same part as a line that opens something.
const KEEP_WITH_NEXT: usize = 256;

/// Note at the start of every part but the first.
const CONTINUED: &str = "*Continued from the previous comment.*\n\n";
/// Note at the end of every part but the last.
const CONTINUES: &str = "\n\n**Continues in the next comment.**\n";
/// Mark at the start of the rest of a cut line; it also keeps the rest from being read as markup.
const REST_OF_LINE: &str = "…";

/// One comment of several: glue, a piece of the text, glue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommentPart<'a> {
    head: String,
    content: &'a str,
    tail: String,
}

impl CommentPart<'_> {
    fn text(&self) -> String {
        [self.head.as_str(), self.content, self.tail.as_str()].concat()
    }
}

/// Cuts a text into comments of at most `limit` bytes each (at least [`MIN_LIMIT`]).
pub fn split(text: &str, limit: usize) -> Vec<String> {
    pieces(text, limit.max(MIN_LIMIT))
        .iter()
        .map(CommentPart::text)
        .collect()
}

/// Splits a text as [`split`] does, into at most `most` comments (0: no limit).
///
/// If there are more, some in the middle are dropped: the start has the overview and the errors, the end what to do
/// next. `dropped` returns the sentence that states the number of dropped comments; it must be shorter than 500
/// bytes.
pub fn split_at_most(
    text: &str,
    limit: usize,
    most: usize,
    dropped: impl Fn(usize) -> String,
) -> Vec<String> {
    let limit = limit.max(MIN_LIMIT);
    let all = split(text, limit);
    if most == 0 || all.len() <= most {
        return all;
    }
    let room = dropped(all.len()).len() + CONTINUED.len() + 4;
    let mut pieces = pieces(text, limit.saturating_sub(room).max(MIN_LIMIT / 2));
    let gap = pieces.len() - most;
    let last_before = most - most / 2 - 1;
    pieces.drain(last_before + 1..=last_before + gap);
    let note = format!("\n\n{}\n", dropped(gap));
    let before = &mut pieces[last_before];
    before.tail = format!(
        "{}{note}",
        before.tail.strip_suffix(CONTINUES).unwrap_or(&before.tail)
    );
    pieces.iter().map(CommentPart::text).collect()
}

fn pieces(text: &str, limit: usize) -> Vec<CommentPart<'_>> {
    if text.len() <= limit {
        return vec![CommentPart {
            head: String::new(),
            content: text,
            tail: String::new(),
        }];
    }
    let mut cutter = Cutter {
        text,
        limit,
        head: String::new(),
        start: 0,
        end: 0,
        state: MarkdownState::default(),
        done: Vec::new(),
    };
    for line in text.split_inclusive('\n') {
        cutter.add_line(line);
    }
    cutter.finish()
}

/// Collects lines into pieces of limited size.
struct Cutter<'a> {
    text: &'a str,
    limit: usize,
    /// Glue at the start of the current piece.
    head: String,
    /// Start of the current piece in the text; `end` is its end.
    start: usize,
    end: usize,
    /// Elements that are open after the current piece.
    state: MarkdownState,
    done: Vec<CommentPart<'a>>,
}

impl<'a> Cutter<'a> {
    fn add_line(&mut self, line: &str) {
        if self.take_if_fits(line) {
            return;
        }
        let fresh = self.fresh_room();
        if line.len() <= fresh && self.end > self.start {
            self.cut(false);
            if self.take_if_fits(line) {
                return;
            }
        }
        self.add_pieces_of(line);
    }

    /// Adds a line that is longer than a comment: as much as fits, then the rest in the next comments.
    fn add_pieces_of(&mut self, line: &str) {
        let mut rest = line;
        while !self.take_if_fits(rest) {
            let room = self
                .limit
                .saturating_sub(self.used() + self.tail_after(rest.get(..1).unwrap_or(rest)).len());
            if room < KEEP_WITH_NEXT && self.end > self.start {
                self.cut(false);
                continue;
            }
            let at = cut_point(rest, room.saturating_sub(state::MAX_GLUE_OF_LINE));
            self.take(&rest[..at]);
            self.cut(true);
            rest = &rest[at..];
        }
    }

    /// Takes the line if the piece with all its glue stays within the limit.
    fn take_if_fits(&mut self, line: &str) -> bool {
        let next = self.state.after(line);
        let slack = if self.state.opens(line) {
            KEEP_WITH_NEXT.min(self.limit / 8)
        } else {
            0
        };
        let size = self.used() + line.len() + next.closing().len() + 1 + CONTINUES.len();
        let is_last = self.end + line.len() == self.text.len();
        if size + slack > self.limit && !(self.end == self.start && size <= self.limit) {
            return is_last && self.used() + line.len() <= self.limit && self.take_last(line);
        }
        self.take(line);
        true
    }

    /// Takes the last line, which needs no room for glue.
    fn take_last(&mut self, line: &str) -> bool {
        self.take(line);
        true
    }

    fn take(&mut self, line: &str) {
        self.state = self.state.after(line);
        self.end += line.len();
    }

    fn used(&self) -> usize {
        self.head.len() + (self.end - self.start)
    }

    /// Returns the room for text in a new piece that opens the elements which are open now.
    fn fresh_room(&self) -> usize {
        let glue = CONTINUED.len()
            + self.state.opening().len()
            + self.state.closing().len()
            + CONTINUES.len();
        self.limit.saturating_sub(glue + state::MAX_GLUE_OF_LINE)
    }

    fn tail_after(&self, line: &str) -> String {
        format!("\n{}{CONTINUES}", self.state.after(line).closing())
    }

    /// Ends the current piece and starts the next.
    fn cut(&mut self, inside_line: bool) {
        let content = &self.text[self.start..self.end];
        let newline = if content.ends_with('\n') || content.is_empty() {
            ""
        } else {
            "\n"
        };
        let tail = format!("{newline}{}{CONTINUES}", self.state.closing());
        self.done.push(CommentPart {
            head: std::mem::take(&mut self.head),
            content,
            tail,
        });
        self.head = format!(
            "{CONTINUED}{}{}",
            self.state.opening(),
            if inside_line { REST_OF_LINE } else { "" }
        );
        self.state.begin_part(inside_line);
        self.start = self.end;
    }

    fn finish(mut self) -> Vec<CommentPart<'a>> {
        if self.end > self.start {
            let content = &self.text[self.start..self.end];
            self.done.push(CommentPart {
                head: self.head,
                content,
                tail: String::new(),
            });
        } else if let Some(last) = self.done.last_mut() {
            last.tail = last
                .tail
                .strip_suffix(CONTINUES)
                .unwrap_or(&last.tail)
                .to_owned();
        }
        self.done
    }
}

/// Returns the place to cut a line that is too long: after the last space near `room`, else at a character.
fn cut_point(line: &str, room: usize) -> usize {
    let smallest = line.chars().next().map_or(0, char::len_utf8);
    let most = line.floor_char_boundary(room.clamp(smallest, line.len()));
    let near = line.floor_char_boundary(most.saturating_sub(200));
    line[near..most]
        .rfind(' ')
        .map_or(most, |at| near + at + 1)
        .max(smallest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn long_diff(lines: usize) -> String {
        let body = (0..lines)
            .map(|n| format!("+ line {n} of the plan\n"))
            .collect::<Vec<_>>()
            .concat();
        format!(
            "Ran Plan\n\n<details><summary>Output</summary>\n\n```diff\n{body}```\n\n</details>\n\nWhat next\n"
        )
    }

    #[test]
    fn a_short_text_is_left_alone() {
        assert_eq!(split("a\n```\nb", 65536), ["a\n```\nb"]);
        assert_eq!(split("", 65536), [""]);
    }

    #[test]
    fn fences_and_details_are_closed_and_opened_again() {
        let parts = split(&long_diff(100), 1024);
        assert_eq!(parts.len(), 3);
        assert!(
            parts[0].ends_with(
                "of the plan\n```\n\n</details>\n\n\n**Continues in the next comment.**\n"
            ),
            "{}",
            parts[0]
        );
        let head = "*Continued from the previous comment.*\n\n<details><summary>Output</summary>\n\n```diff\n+ line ";
        assert!(parts[1].starts_with(head), "{}", parts[1]);
        assert!(
            parts[2].ends_with("```\n\n</details>\n\nWhat next\n"),
            "{}",
            parts[2]
        );
    }

    #[test]
    fn a_table_keeps_its_head() {
        let rows = (0..100)
            .map(|n| format!("| `project-{n}` | planned |\n"))
            .collect::<Vec<_>>()
            .concat();
        let parts = split(
            &format!("Ran Plan\n\n| Project | Outcome |\n|:--|:--|\n{rows}\nEnd\n"),
            1024,
        );
        assert!(
            parts[1].starts_with(&format!(
                "{CONTINUED}| Project | Outcome |\n|:--|:--|\n| `project-"
            )),
            "{}",
            parts[1]
        );
    }

    #[test]
    fn a_line_longer_than_a_comment_is_cut_visibly() {
        let text = format!("```\n{}\n```\n", "x".repeat(3000));
        let parts = split(&text, 1024);
        assert!(
            parts[1].starts_with(&format!("{CONTINUED}```\n…xxx")),
            "{}",
            parts[1]
        );
    }

    #[test]
    fn the_middle_is_dropped_when_there_are_too_many_parts() {
        let text = long_diff(2000);
        let whole = split(&text, 2048).len();
        let parts = split_at_most(&text, 2048, 4, |n| format!("{n} comments left out."));
        assert_eq!(parts.len(), 4);
        assert!(parts[0].starts_with("Ran Plan") && parts[3].ends_with("What next\n"));
        assert!(
            parts[1].contains(" comments left out.\n") && !parts[1].contains(CONTINUES),
            "{}",
            parts[1]
        );
        assert!(parts.iter().all(|part| part.len() <= 2048));
        assert_eq!(
            split_at_most(&text, 2048, 0, |_| String::new()).len(),
            whole
        );
        let one = split_at_most(&text, 2048, 1, |n| format!("{n} comments left out."));
        assert!(one.len() == 1 && one[0].ends_with("left out.\n"), "{one:?}");
    }

    /// Returns true if a part closes every element that it opens.
    fn balanced(part: &str) -> bool {
        let mut state = MarkdownState::default();
        for line in part.split_inclusive('\n') {
            state = state.after(line);
        }
        state.closing().is_empty()
    }

    fn markdown() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            3 => "[a-zé`~|<> +-]{0,80}",
            1 => "[x `é]{900,2600}",
            1 => Just("| a | b |\n|--|--|\n| c | d |\n| e | f |".to_owned()),
            2 => "[a-z+é ]{1,40}\n".prop_map(|l| format!("```diff\n{}```", l.repeat(40))),
            1 => "[a-z+ ]{1,40}\n".prop_map(|l| format!("<details><summary>S</summary>\n\n~~~~\n{}~~~~\n\n</details>", l.repeat(60))),
            1 => "`{3,9}|~{3,9}|<details>|</details>".prop_map(|l: String| l),
        ];
        proptest::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn every_part_keeps_the_limit_and_its_balance_and_nothing_is_lost(text in markdown(), limit in MIN_LIMIT..4000usize) {
            let pieces = pieces(&text, limit);
            let joined: String = pieces.iter().map(|piece| piece.content).collect();
            prop_assert_eq!(&joined, &text);
            for (i, piece) in pieces.iter().enumerate() {
                let part = piece.text();
                prop_assert!(part.len() <= limit, "{} > {limit}", part.len());
                prop_assert!(!piece.content.is_empty() || pieces.len() == 1);
                prop_assert!(i + 1 == pieces.len() || balanced(&part), "{part}");
            }
        }

        #[test]
        fn any_text_can_be_split(text in any::<String>(), repeat in 1usize..300, limit in 0usize..3000, most in 0usize..5) {
            let text = text.repeat(repeat);
            let parts = split_at_most(&text, limit, most, |n| format!("{n} left out"));
            prop_assert!(parts.iter().all(|part| part.len() <= limit.max(MIN_LIMIT)));
            prop_assert!(most == 0 || parts.len() <= most);
        }
    }
}
