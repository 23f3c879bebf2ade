//! Filters of watches: `branch:main -dir:"old code/**" (is:draft OR label:urgent)`.
//!
//! ```text
//! filter = all { "OR" all }
//! all    = term { [ "AND" ] term }
//! term   = "-" term | "(" filter ")" | name ":" value
//! value  = word without blanks, quotes and brackets | '"' text with \" and \\ '"'
//! ```

use std::fmt;
use std::str::FromStr;

use globset::GlobBuilder;

use crate::findings::Problem;
use crate::text::{quoted, shown, suggestion};

/// Condition on a change. Filters that print alike are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchFilter {
    /// A field of the change matches a pattern.
    Field(FilterField, String),
    /// The change belongs to the account of the watch.
    OwnerSelf,
    /// The change is in a state.
    Is(FilterState),
    /// The filter does not match.
    Not(Box<Self>),
    /// All of at least two filters match.
    All(Vec<Self>),
    /// Any of at least two filters matches.
    Any(Vec<Self>),
}

/// Field of a change that a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterField {
    /// Glob on the base branch.
    Branch,
    /// Glob on the directories of the projects.
    Dir,
    /// Glob on the workspaces of the projects.
    Workspace,
    /// Glob on the names of the projects.
    Project,
    /// Glob on the login of the author.
    Author,
    /// Name of a label.
    Label,
}

/// State of a change that a filter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterState {
    /// The account starred the change.
    Starred,
    /// The pull request is a draft.
    Draft,
    /// The last plan destroys a resource.
    Destroying,
    /// The last plan or apply failed.
    Failed,
}

/// Names before the colon.
const NAMES: [&str; 8] = [
    "branch",
    "dir",
    "workspace",
    "project",
    "author",
    "label",
    "owner",
    "is",
];

impl FilterField {
    /// All fields in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::Branch,
        Self::Dir,
        Self::Workspace,
        Self::Project,
        Self::Author,
        Self::Label,
    ];

    /// Returns the name before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Dir => "dir",
            Self::Workspace => "workspace",
            Self::Project => "project",
            Self::Author => "author",
            Self::Label => "label",
        }
    }
}

impl FilterState {
    /// All states in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Starred, Self::Draft, Self::Destroying, Self::Failed];

    /// Returns the word after `is:`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starred => "starred",
            Self::Draft => "draft",
            Self::Destroying => "destroying",
            Self::Failed => "failed",
        }
    }
}

impl WatchFilter {
    /// Maximum depth of brackets and negations.
    pub const MAX_DEPTH: usize = 20;

    /// Joins filters that all have to match. Returns `None` for an empty list.
    fn all(filters: Vec<Self>) -> Option<Self> {
        let flat = filters.into_iter().flat_map(|filter| {
            if let Self::All(inner) = filter {
                inner
            } else {
                vec![filter]
            }
        });
        Self::joined(flat.collect(), Self::All)
    }

    /// Joins filters so that one match is enough. Returns `None` for an empty list.
    fn any(filters: Vec<Self>) -> Option<Self> {
        let flat = filters.into_iter().flat_map(|filter| {
            if let Self::Any(inner) = filter {
                inner
            } else {
                vec![filter]
            }
        });
        Self::joined(flat.collect(), Self::Any)
    }

    fn joined(mut filters: Vec<Self>, join: fn(Vec<Self>) -> Self) -> Option<Self> {
        if filters.len() > 1 {
            return Some(join(filters));
        }
        filters.pop()
    }
}

/// Rest of the text, and the depth of the brackets around it.
struct FilterParser<'a> {
    rest: &'a str,
    depth: usize,
}

impl FromStr for WatchFilter {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.contains(char::is_control) {
            let what = format!("the filter `{}` has control characters", shown(text));
            return Err(Problem::error(None, what, "remove them"));
        }
        let mut parser = FilterParser {
            rest: text.trim(),
            depth: 0,
        };
        let filter = parser.any()?;
        if parser.rest.is_empty() {
            Ok(filter)
        } else {
            let what = format!("the filter `{}` has a `)` too many", shown(text));
            Err(Problem::error(None, what, "remove it"))
        }
    }
}

impl FilterParser<'_> {
    fn any(&mut self) -> Result<WatchFilter, Problem> {
        let mut filters = vec![self.all()?];
        while self.take_word("OR") {
            filters.push(self.all()?);
        }
        WatchFilter::any(filters).ok_or_else(|| self.no_term())
    }

    fn all(&mut self) -> Result<WatchFilter, Problem> {
        let mut filters = vec![self.term()?];
        while !self.rest.is_empty() && !self.rest.starts_with(')') && !self.is_at_word("OR") {
            self.take_word("AND");
            filters.push(self.term()?);
        }
        WatchFilter::all(filters).ok_or_else(|| self.no_term())
    }

    fn term(&mut self) -> Result<WatchFilter, Problem> {
        if self.depth >= WatchFilter::MAX_DEPTH {
            return Err(Problem::error(
                None,
                "the filter is nested too deeply",
                format!(
                    "use at most {} brackets and `-` inside each other",
                    WatchFilter::MAX_DEPTH
                ),
            ));
        }
        if self.take("-") {
            self.depth += 1;
            let filter = self.term()?;
            self.depth -= 1;
            return Ok(WatchFilter::Not(Box::new(filter)));
        }
        if self.take("(") {
            self.rest = self.rest.trim_start();
            self.depth += 1;
            let filter = self.any()?;
            self.depth -= 1;
            if !self.take(")") {
                return Err(Problem::error(
                    None,
                    "the filter has an open `(`",
                    "close it with `)`",
                ));
            }
            self.rest = self.rest.trim_start();
            return Ok(filter);
        }
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || "()\"".contains(c));
        let word = &self.rest[..end.unwrap_or(self.rest.len())];
        let Some((name, _)) = word.split_once(':') else {
            return Err(self.no_term());
        };
        self.rest = &self.rest[name.len() + 1..];
        let value = self.value()?;
        self.rest = self.rest.trim_start();
        predicate(name, value)
    }

    /// Takes the text after the colon.
    fn value(&mut self) -> Result<String, Problem> {
        if !self.take("\"") {
            let end = self
                .rest
                .find(|c: char| c.is_whitespace() || "()\"".contains(c));
            let (value, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            return self.after_value(value.to_owned());
        }
        let mut value = String::new();
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    self.rest = chars.as_str();
                    return self.after_value(value);
                }
                '\\' if chars.as_str().starts_with(['"', '\\']) => value.extend(chars.next()),
                c => value.push(c),
            }
        }
        let what = "the filter has an open double quote";
        Err(Problem::error(
            None,
            what,
            "close it, escaped as `\\\"` in the file",
        ))
    }

    /// Checks that a value ends where a word can end.
    fn after_value(&self, value: String) -> Result<String, Problem> {
        let next = self.rest.chars().next();
        if next.is_none_or(|c| c.is_whitespace() || c == ')') {
            return Ok(value);
        }
        let what = format!("the filter has `{}` right after a value", shown(self.rest));
        Err(Problem::error(
            None,
            what,
            "put the whole value in double quotes, or write a blank",
        ))
    }

    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn is_at_word(&self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(', ')']))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.is_at_word(word);
        if is_there {
            self.rest = self.rest[word.len()..].trim_start();
        }
        is_there
    }

    fn no_term(&self) -> Problem {
        let names = NAMES.map(|name| format!("{name}:"));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let fix = format!("write {}, or `*` alone for everything", quoted(&names));
        let what = match self.rest {
            "" => "the filter ends where a condition should follow".to_owned(),
            rest => format!("`{}` is not a condition", shown(rest)),
        };
        Problem::error(None, what, fix)
    }
}

fn predicate(name: &str, value: String) -> Result<WatchFilter, Problem> {
    let cannot = |fix: String| {
        let what = format!("`{}:` cannot be `{}`", shown(name), shown(&value));
        Problem::error(None, what, fix)
    };
    match name {
        "owner" if value == "self" => return Ok(WatchFilter::OwnerSelf),
        "owner" => return Err(cannot("write `owner:self`".to_owned())),
        "is" => {
            let state = FilterState::ALL
                .into_iter()
                .find(|state| state.as_str() == value);
            let words = FilterState::ALL.map(FilterState::as_str);
            let state = state.ok_or_else(|| cannot(suggestion(&value, &words)))?;
            return Ok(WatchFilter::Is(state));
        }
        _ => {}
    }
    let field = FilterField::ALL
        .into_iter()
        .find(|field| field.as_str() == name);
    let field = field.ok_or_else(|| {
        let what = format!("unknown filter `{}:`", shown(name));
        Problem::error(None, what, suggestion(name, &NAMES))
    })?;
    if value.is_empty() {
        return Err(cannot("write a value after the colon".to_owned()));
    }
    if field != FilterField::Label {
        // In Gerrit this begins a regular expression. As a glob it would match nothing, and nobody would see why.
        if value.starts_with('^') {
            let fix = "write a glob such as `release-*` instead of a regular expression";
            return Err(cannot(fix.to_owned()));
        }
        let glob = GlobBuilder::new(&value).literal_separator(true).build();
        glob.map_err(|error| cannot(format!("correct the pattern: {}", error.kind())))?;
    }
    Ok(WatchFilter::Field(field, value))
}

impl fmt::Display for WatchFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, filters: &[Self], separator: &str| {
            for (index, filter) in filters.iter().enumerate() {
                if index > 0 {
                    f.write_str(separator)?;
                }
                match filter {
                    Self::Any(_) => write!(f, "({filter})")?,
                    Self::Field(..)
                    | Self::OwnerSelf
                    | Self::Is(_)
                    | Self::Not(_)
                    | Self::All(_) => {
                        write!(f, "{filter}")?;
                    }
                }
            }
            Ok(())
        };
        match self {
            Self::Field(field, value) => {
                write!(f, "{}:", field.as_str())?;
                let is_special = |c: char| c.is_whitespace() || "()\"".contains(c);
                if value.contains(is_special) {
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
                    write!(f, "\"{value}\"")
                } else {
                    f.write_str(value)
                }
            }
            Self::OwnerSelf => f.write_str("owner:self"),
            Self::Is(state) => write!(f, "is:{}", state.as_str()),
            Self::Not(filter) => match **filter {
                Self::All(_) | Self::Any(_) => write!(f, "-({filter})"),
                Self::Field(..) | Self::OwnerSelf | Self::Is(_) | Self::Not(_) => {
                    write!(f, "-{filter}")
                }
            },
            Self::All(filters) => joined(f, filters, " "),
            Self::Any(filters) => joined(f, filters, " OR "),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    fn printed(text: &str) -> String {
        text.parse::<WatchFilter>().unwrap().to_string()
    }

    #[test]
    fn a_filter_is_printed_in_one_form() {
        for (text, form) in [
            ("branch:main", "branch:main"),
            ("  branch:main   owner:self ", "branch:main owner:self"),
            ("is:draft AND is:failed", "is:draft is:failed"),
            ("(is:draft (is:failed))", "is:draft is:failed"),
            (
                "is:draft OR is:failed dir:a/**",
                "is:draft OR is:failed dir:a/**",
            ),
            (
                "(is:draft OR is:failed) dir:a",
                "(is:draft OR is:failed) dir:a",
            ),
            (
                "(is:draft OR is:failed) OR dir:a",
                "is:draft OR is:failed OR dir:a",
            ),
            ("-(is:draft OR(is:failed))", "-(is:draft OR is:failed)"),
            ("--is:draft", "--is:draft"),
            ("label:\"needs review\"", "label:\"needs review\""),
            ("label:\"a\\\\\\\"b\"", "label:\"a\\\\\\\"b\""),
            ("dir:\"plain\"", "dir:plain"),
            ("dir:a\\*b", "dir:a\\*b"),
            ("project:{a,b}[0-9]", "project:{a,b}[0-9]"),
            ("author:OR", "author:OR"),
        ] {
            assert_eq!(printed(text), form, "{text}");
        }
    }

    #[test]
    fn an_invalid_filter_has_a_way_out() {
        for (text, problem) in [
            (
                "brnch:main",
                "unknown filter `brnch:`; did you mean `branch`?",
            ),
            (
                "is:drafty",
                "`is:` cannot be `drafty`; did you mean `draft`?",
            ),
            ("owner:kim", "`owner:` cannot be `kim`; write `owner:self`"),
            (
                "branch:",
                "`branch:` cannot be ``; write a value after the colon",
            ),
            (
                "dir:a[",
                "`dir:` cannot be `a[`; correct the pattern: unclosed character class; missing ']'",
            ),
            (
                "branch:^release-.*",
                "`branch:` cannot be `^release-.*`; write a glob such as `release-*` instead of a regular expression",
            ),
            ("(is:draft", "the filter has an open `(`; close it with `)`"),
            (
                "is:draft)",
                "the filter `is:draft)` has a `)` too many; remove it",
            ),
            (
                "label:\"x",
                "the filter has an open double quote; close it, escaped as `\\\"` in the file",
            ),
            (
                "label:\"x\"y",
                "the filter has `y` right after a value; put the whole value in double quotes, or write a blank",
            ),
            (
                "main",
                "`main` is not a condition; write `branch:`, `dir:`, `workspace:`, `project:`, `author:`, `label:`, \
                 `owner:`, `is:`, or `*` alone for everything",
            ),
        ] {
            assert_eq!(
                text.parse::<WatchFilter>().unwrap_err().to_string(),
                problem
            );
        }
        for text in [
            "",
            "is:draft OR",
            "OR is:draft",
            "is:draft AND",
            "-",
            "()",
            "* is:draft",
            "is:draft\n",
        ] {
            assert!(text.parse::<WatchFilter>().is_err(), "{text}");
        }
        let deep = format!("{}is:draft", "-".repeat(10_000));
        let error = deep.parse::<WatchFilter>().unwrap_err();
        assert!(error.to_string().contains("at most 20"), "{error}");
    }

    fn filter() -> impl Strategy<Value = WatchFilter> {
        let field = proptest::sample::select(FilterField::ALL.to_vec());
        let leaf = prop_oneof![
            (field, "[a-c*/ ()\"-]{1,5}")
                .prop_map(|(field, value)| WatchFilter::Field(field, value)),
            Just(WatchFilter::OwnerSelf),
            proptest::sample::select(FilterState::ALL.to_vec()).prop_map(WatchFilter::Is),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            let several = proptest::collection::vec(inner.clone(), 2..4);
            prop_oneof![
                inner.prop_map(|filter| WatchFilter::Not(Box::new(filter))),
                several
                    .clone()
                    .prop_map(|filters| WatchFilter::all(filters).unwrap()),
                several.prop_map(|filters| WatchFilter::any(filters).unwrap()),
            ]
        })
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn a_printed_filter_is_read_as_the_same(filter in filter()) {
            // Three stars are not a pattern.
            if let Ok(read) = filter.to_string().parse::<WatchFilter>() {
                prop_assert_eq!(read, filter);
            } else {
                prop_assert!(filter.to_string().contains("**"), "{}", filter);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "(is:draft|OR|AND|dir:|[-()\"\\\\*a é\\[]){0,12}|.{0,20}") {
            if let Ok(filter) = text.parse::<WatchFilter>() {
                prop_assert_eq!(filter.to_string().parse(), Ok(filter));
            }
        }
    }
}
