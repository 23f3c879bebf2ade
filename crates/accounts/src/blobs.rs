//! Texts of the refs that hold a blob instead of a commit: the account sequence and the labels of a star.

use std::collections::BTreeSet;
use std::fmt;

use crate::findings::Problem;
use crate::refs::AccountId;
use crate::text::shown;

/// The next free account number, the text of `refs/sequences/accounts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountSequence(pub AccountId);

/// Labels that an account gave a change, the text of a ref below `refs/starred-changes/`. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StarLabels(BTreeSet<String>);

impl AccountSequence {
    /// Parses the text. Blanks around the number are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        const LONGEST: usize = 64;
        let text = bytes.get(..bytes.len().min(LONGEST));
        let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let number = text.filter(|_| bytes.len() <= LONGEST);
        let number = number.and_then(|text| text.trim_ascii().parse().ok());
        number.map(Self).ok_or_else(|| {
            Problem::error(
                None,
                format!(
                    "`{}` is not an account number",
                    shown(text.unwrap_or_default())
                ),
                "write the next free number in plain digits",
            )
        })
    }
}

impl fmt::Display for AccountSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StarLabels {
    /// The label of changes whose updates the account wants to hear of.
    pub const STAR: &'static str = "star";
    /// The label of changes whose updates the account does not want to hear of.
    pub const IGNORE: &'static str = "ignore";
    /// Maximum number of labels of one star.
    pub const MAX_LABELS: usize = 50;
    /// Maximum length of a label in characters.
    pub const MAX_CHARS: usize = 100;

    /// Creates a set of labels. Returns an error for a label with blanks, and for too many.
    pub fn new(labels: impl IntoIterator<Item = String>) -> Result<Self, Problem> {
        let labels: BTreeSet<String> = labels.into_iter().collect();
        labels
            .iter()
            .try_for_each(|label| check_label(None, label))?;
        if labels.is_empty() {
            return Err(Problem::error(
                None,
                "there is no label",
                "delete the ref instead",
            ));
        }
        if labels.len() > Self::MAX_LABELS {
            return Err(Problem::error(
                None,
                format!("there are {} labels", labels.len()),
                format!("keep at most {}", Self::MAX_LABELS),
            ));
        }
        if labels.contains(Self::STAR) && labels.contains(Self::IGNORE) {
            return Err(Problem::error(
                None,
                format!("`{}` and `{}` exclude each other", Self::STAR, Self::IGNORE),
                "remove one of them",
            ));
        }
        Ok(Self(labels))
    }

    /// Parses the text: one label a line, sorted and without duplicates.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        // A label has at most four bytes for each character.
        const MAX_BYTES: usize = StarLabels::MAX_LABELS * (4 * StarLabels::MAX_CHARS + 1);
        if bytes.len() > MAX_BYTES {
            return Err(Problem::error(
                None,
                format!("the text has {} bytes", bytes.len()),
                format!("keep at most {} labels", Self::MAX_LABELS),
            ));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Problem::error(None, "the text is not UTF-8", "write it as UTF-8"))?;
        let mut previous = None;
        for (line, label) in (1..).zip(text.lines()) {
            check_label(Some(line), label)?;
            if previous.is_some_and(|previous| previous >= label) {
                return Err(Problem::error(
                    line,
                    format!("the label `{}` is not in order", shown(label)),
                    "sort the labels by their bytes, each once",
                ));
            }
            previous = Some(label);
        }
        Self::new(text.lines().map(str::to_owned))
    }

    /// Returns true if the label was given.
    pub fn contains(&self, label: &str) -> bool {
        self.0.contains(label)
    }

    /// Returns the labels as a set.
    pub fn into_set(self) -> BTreeSet<String> {
        self.0
    }

    /// Returns the labels in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn check_label(line: Option<usize>, label: &str) -> Result<(), Problem> {
    let invalid = |c: char| c.is_whitespace() || c.is_control();
    if label.is_empty() || label.contains(invalid) {
        return Err(Problem::error(
            line,
            format!("`{}` is not a label", shown(label)),
            "write one word without blanks on each line",
        ));
    }
    if label.chars().count() > StarLabels::MAX_CHARS {
        return Err(Problem::error(
            line,
            format!("the label `{}` is too long", shown(label)),
            format!("use at most {} characters", StarLabels::MAX_CHARS),
        ));
    }
    Ok(())
}

impl fmt::Display for StarLabels {
    /// Writes one label a line, without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, label) in self.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{label}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn a_sequence_is_a_plain_number() {
        let sequence = AccountSequence::parse(b"1000001\n").unwrap();
        assert_eq!(sequence.0, AccountId::FIRST.next().unwrap());
        assert_eq!(sequence.to_string(), "1000001");
        for text in [
            "",
            "0",
            "01",
            "1k",
            "1 2",
            "-1",
            "4294967296",
            &" ".repeat(65),
        ] {
            assert!(AccountSequence::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(AccountSequence::parse(b"\xff").is_err());
    }

    #[test]
    fn labels_are_sorted_words() {
        let labels = StarLabels::parse("blue\nstar\nöl\n".as_bytes()).unwrap();
        assert_eq!(labels.to_string(), "blue\nstar\nöl");
        assert!(labels.contains(StarLabels::STAR) && !labels.contains("red"));
        let lines: Vec<String> = (100..151).map(|number| number.to_string()).collect();
        let too_many = lines.join("\n");
        let too_long = "x".repeat(101);
        for (text, reason) in [
            ("", "there is no label; delete the ref instead"),
            (
                "b\na",
                "line 2: the label `a` is not in order; sort the labels by their bytes, each once",
            ),
            (
                "a\na",
                "line 2: the label `a` is not in order; sort the labels by their bytes, each once",
            ),
            (
                "a\nb c",
                "line 2: `b c` is not a label; write one word without blanks on each line",
            ),
            (
                "\n",
                "line 1: `` is not a label; write one word without blanks on each line",
            ),
            (
                "ignore\nstar",
                "`star` and `ignore` exclude each other; remove one of them",
            ),
            (&too_many, "there are 51 labels; keep at most 50"),
        ] {
            let error = StarLabels::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), reason);
        }
        let error = StarLabels::parse(too_long.as_bytes()).unwrap_err();
        assert!(
            error.to_string().ends_with("use at most 100 characters"),
            "{error}"
        );
        assert!(StarLabels::parse(&vec![b'x'; 30_000]).is_err());
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn labels_that_were_written_are_read(labels in proptest::collection::btree_set("[a-zé]{1,4}", 1..9)) {
            let labels = StarLabels::new(labels).unwrap();
            prop_assert_eq!(StarLabels::parse(labels.to_string().as_bytes()), Ok(labels));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            drop(StarLabels::parse(&bytes));
            drop(AccountSequence::parse(&bytes));
        }
    }
}
