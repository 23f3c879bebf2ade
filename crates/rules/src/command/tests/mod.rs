//! Tests the grammar as a whole: the reference's table of comments, the replies, and rules for any comment.

mod replies;
mod round_trip;
mod truth_table;

use super::quote::MUTED_AT;
use super::*;

fn grammar() -> Grammar {
    Grammar::new(BotNames::new(&["lockkeeper"], Some("bot"))).with_allowed(&CommandName::ALL)
}

/// Summarises the reading of a comment in one line: the command as typed, `mistake: reason`, or `ignored: why`.
fn outcome_in(grammar: &Grammar, comment: &str) -> String {
    match grammar.read(comment) {
        CommentReading::Command(command) => command.to_string(),
        CommentReading::Mistake(mistake) => format!("mistake: {}", mistake.reason()),
        CommentReading::Ignored(reason) => format!("ignored: {reason:?}"),
    }
}

fn outcome(comment: &str) -> String {
    outcome_in(&grammar(), comment)
}

fn check(rows: &[(&str, &str)]) {
    for (comment, expected) in rows {
        assert_eq!(outcome(comment), *expected, "{comment:?}");
    }
}

fn mistake_in(grammar: &Grammar, comment: &str) -> String {
    match grammar.read(comment) {
        CommentReading::Mistake(mistake) => mistake.markdown().replace(MUTED_AT, "@"),
        other @ (CommentReading::Command(_) | CommentReading::Ignored(_)) => {
            panic!("{comment:?} is no mistake but {other:?}")
        }
    }
}

fn mistake(comment: &str) -> String {
    mistake_in(&grammar(), comment)
}
