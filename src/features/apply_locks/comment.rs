//! Comments and statuses for stopped applies: by whom, since when, why, until when, and the way out (P10).

use crate::model::{ApplyLock, ApplyScope, code_span, minute};
use crate::render::CommandRefusal;

/// Refuses an apply because of these apply locks, and names all of them. `page` is where they can be ended.
pub(crate) fn apply_refusal(locks: &[ApplyLock], page: &str) -> CommandRefusal {
    let sentences = locks
        .iter()
        .enumerate()
        .map(|(at, lock)| sentence(lock, at > 0));
    let page = code_span(page);
    CommandRefusal::new(
        "apply_locked",
        sentences.collect::<Vec<_>>().join("\n"),
        [
            format!(
                "If you can use the pages of this server, allow applies again on {page}. An administrator can also run \
                     `lockkeeper apply-lock clear`."
            ),
            format!("The plans are kept until then; {}", retry_hint(locks)),
        ],
    )
}

/// Text of the commit status while these apply locks stop an apply.
pub(crate) fn apply_locks_line(locks: &[ApplyLock]) -> String {
    let others = locks.len().saturating_sub(1);
    let more = if others > 0 {
        format!(" (and {others} more)")
    } else {
        String::new()
    };
    let first = locks.first().map(|lock| {
        let place = match &lock.scope {
            ApplyScope::Server | ApplyScope::Unknown(_) => "on this server".to_owned(),
            ApplyScope::Repo(_) => "in this repository".to_owned(),
            ApplyScope::Path { dir, .. } => format!("in {dir}"),
        };
        let until = lock
            .ends_at
            .map(|end| format!(" until {}", minute(end)))
            .unwrap_or_default();
        format!(" {place}{until} by {}", lock.holder.login)
    });
    format!("Applies are stopped{}{more}.", first.unwrap_or_default())
}

fn sentence(lock: &ApplyLock, is_another: bool) -> String {
    let (start, holder) = (
        if is_another {
            "Applies are also"
        } else {
            "applies are"
        },
        code_span(&lock.holder.login),
    );
    let place = match &lock.scope {
        ApplyScope::Server => "on this whole server".to_owned(),
        ApplyScope::Repo(repo) => format!("in the repository `{repo}`"),
        ApplyScope::Path { repo, dir } => {
            format!(
                "in the directory {} of `{repo}` and below it",
                code_span(dir.as_str())
            )
        }
        ApplyScope::Unknown(text) => {
            format!(
                "in the unknown scope {}, which this version treats as the whole server",
                code_span(text)
            )
        }
    };
    let until = lock
        .ends_at
        .map_or_else(|| "somebody allows them again".to_owned(), minute);
    let why = lock.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = if why.is_empty() {
        "No reason was given.".to_owned()
    } else {
        format!("Reason: {why}")
    };
    format!(
        "{start} stopped {place}, by {holder} since {}, until {until}. {why}",
        minute(lock.taken_at)
    )
}

/// Says when to comment again: after the last of them expires, if each does.
fn retry_hint(locks: &[ApplyLock]) -> String {
    let ends: Option<Vec<_>> = locks.iter().map(|lock| lock.ends_at).collect();
    match ends.and_then(|ends| ends.into_iter().max()) {
        Some(end) => format!("run the command again after {}.", minute(end)),
        None => "run the command again afterwards.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Person;
    use crate::render::status::{MAX_DESCRIPTION_CHARS, describe};

    fn lock(scope: ApplyScope, ends_at: Option<&str>) -> ApplyLock {
        ApplyLock {
            id: uuid::Uuid::from_u128(1).into(),
            scope,
            holder: Person::of_login("olga"),
            reason: "the database\nmoves".to_owned(),
            taken_at: "2026-03-02T09:00:00Z".parse().unwrap(),
            ends_at: ends_at.map(|end| end.parse().unwrap()),
        }
    }

    fn network() -> ApplyScope {
        ApplyScope::in_repo(
            "github.com/acme/infra".parse().unwrap(),
            Some("network".parse().unwrap()),
        )
    }

    #[test]
    fn every_lock_in_the_way_is_named_and_the_last_end_of_all_counts() {
        let (noon, night) = (Some("2026-03-02T12:00:00Z"), Some("2026-03-02T23:00:00Z"));
        let all = [
            lock(network(), night),
            lock(ApplyScope::Unknown("team `x`".to_owned()), noon),
        ];
        let refusal = apply_refusal(&all, "https://locks.example/apply-locks");
        insta::assert_snapshot!(refusal.text.message, @"
        applies are stopped in the directory `network` of `github.com/acme/infra` and below it, by `olga` since 2026-03-02 09:00 UTC, until 2026-03-02 23:00 UTC. Reason: the database moves
        Applies are also stopped in the unknown scope `team 'x'`, which this version treats as the whole server, by `olga` since 2026-03-02 09:00 UTC, until 2026-03-02 12:00 UTC. Reason: the database moves
        ");
        assert!(
            refusal.text.hints[1].ends_with("run the command again after 2026-03-02 23:00 UTC."),
            "{:?}",
            refusal.text.hints
        );
        let mixed = apply_refusal(
            &[lock(network(), noon), lock(ApplyScope::Server, None)],
            "x",
        );
        assert!(mixed.text.hints[1].ends_with("run the command again afterwards."));
    }

    #[test]
    fn the_refusal_says_who_stopped_applies_and_how_to_allow_them_again() {
        let refusal = apply_refusal(
            &[lock(ApplyScope::Server, None)],
            "https://locks.example/apply-locks",
        );
        insta::assert_snapshot!(format!("{}\n{}", refusal.text.message, refusal.text.hints.join("\n")), @"
        applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: the database moves
        If you can use the pages of this server, allow applies again on `https://locks.example/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
        The plans are kept until then; run the command again afterwards.
        ");
    }

    #[test]
    fn the_status_names_the_first_and_counts_the_others() {
        let (server, path) = (
            lock(ApplyScope::Server, None),
            lock(network(), Some("2026-03-02T12:00:00Z")),
        );
        assert_eq!(
            apply_locks_line(std::slice::from_ref(&server)),
            "Applies are stopped on this server by olga."
        );
        let line = apply_locks_line(&[path, server]);
        assert_eq!(
            line,
            "Applies are stopped in network until 2026-03-02 12:00 UTC by olga (and 1 more)."
        );
        let long = ApplyLock {
            holder: Person::of_login("x".repeat(500)),
            ..lock(ApplyScope::Server, None)
        };
        assert_eq!(
            describe(&apply_locks_line(&[long])).chars().count(),
            MAX_DESCRIPTION_CHARS
        );
    }
}
