//! Lists open pulls (GitHub REST: "List pull requests", "Conditional requests", "Rate limits").

use axum::http::HeaderMap;
use axum::http::header::ETAG;
use chrono::DateTime;
use tracing::warn;

use super::answers::PullAnswer;
use super::call::{Call, RequestFailure};
use super::pages::{PAGE, has_more};
use super::{GitHub, repo_path};
use crate::forges::{ListedPage, ListedPull, OpenPulls, PageQuery, RequestBudget};
use crate::model::{PullNumber, PullRef, RepoId};

/// Maximum length of a stored tag; GitHub's have 68 characters.
const MAX_ETAG: usize = 200;

/// Fetches a page, oldest pull first, so that a new pull changes no page but the last.
pub(super) async fn open_pulls(
    github: &GitHub,
    repo: &RepoId,
    page: PageQuery<'_>,
) -> Result<OpenPulls, RequestFailure> {
    let query = format!(
        "state=open&sort=created&direction=asc&per_page={PAGE}&page={}",
        page.number
    );
    let what = format!("the open pull requests of {}", repo.full_name());
    let call = Call::get(format!("{}/pulls?{query}", repo_path(repo)), what).unless(page.etag);
    let answer = github.credentials.send(&github.wire, repo, &call).await?;
    let budget = budget(
        &answer.headers,
        github.credentials.are_per_owner(&github.wire, repo).await?,
    );
    if answer.unchanged {
        return Ok(OpenPulls {
            page: ListedPage::Unchanged,
            budget,
        });
    }
    let entries: Vec<PullAnswer> = answer.json(&github.wire.host, &call.what)?;
    let more = has_more(&answer.headers, entries.len());
    let pulls = entries
        .into_iter()
        .filter_map(|entry| listed(repo, entry))
        .collect();
    Ok(OpenPulls {
        page: ListedPage::Fresh {
            pulls,
            more,
            etag: etag(&answer.headers),
        },
        budget,
    })
}

/// Converts one entry. An unreadable entry is logged and skipped, so that it does not hide the others.
fn listed(repo: &RepoId, entry: PullAnswer) -> Option<ListedPull> {
    let number = PullNumber(entry.number);
    let at = PullRef {
        repo: repo.clone(),
        subject: number.into(),
    };
    let updated_at = entry.updated_at.unwrap_or(DateTime::UNIX_EPOCH);
    match entry.into_pull(&at) {
        Ok(pull) => Some(ListedPull {
            number,
            at: pull.pull_head(),
            updated_at,
            archived: pull.archived,
        }),
        Err(message) => {
            warn!(pull = %at, message, "Could not parse an open pull request in the list of GitHub");
            None
        }
    }
}

fn etag(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(ETAG)?.to_str().ok()?;
    (text.len() <= MAX_ETAG).then(|| text.to_owned())
}

fn budget(headers: &HeaderMap, per_owner: bool) -> Option<RequestBudget> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let reset = i64::try_from(number("x-ratelimit-reset")?).ok()?;
    Some(RequestBudget {
        remaining: number("x-ratelimit-remaining")?,
        limit: number("x-ratelimit-limit")?,
        resets_at: DateTime::from_timestamp(reset, 0)?,
        per_owner,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_known_only_if_all_of_it_is_said() {
        let told = |headers: &[(&'static str, &str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            budget(&headers, true)
                .map(|budget| (budget.remaining, budget.limit, budget.resets_at.timestamp()))
        };
        let all = [
            ("x-ratelimit-remaining", "12"),
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-reset", "1750000000"),
        ];
        assert_eq!(told(&all), Some((12, 5000, 1_750_000_000)));
        for missing in 0..all.len() {
            let rest: Vec<_> = all
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != missing)
                .map(|(_, pair)| *pair)
                .collect();
            assert_eq!(told(&rest), None);
        }
        assert_eq!(
            told(&[all[0], all[1], ("x-ratelimit-reset", "never")]),
            None
        );
        assert_eq!(
            told(&[
                all[0],
                all[1],
                ("x-ratelimit-reset", "18446744073709551615")
            ]),
            None
        );
    }

    #[test]
    fn a_tag_of_any_length_is_not_kept() {
        let with = |tag: &str| etag(&HeaderMap::from_iter([(ETAG, tag.parse().unwrap())]));
        assert_eq!(with("W/\"abc\"").as_deref(), Some("W/\"abc\""));
        assert_eq!(with(&"x".repeat(MAX_ETAG + 1)), None);
        assert_eq!(etag(&HeaderMap::new()), None);
    }
}
