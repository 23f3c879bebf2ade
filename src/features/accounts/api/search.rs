//! `GET /api/accounts/?q=QUERY&n=LIMIT&S=SKIP&o=DETAILS&o=ALL_EMAILS`, and with `suggest` for somebody who types.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::refs::AccountId;
use serde::Serialize;
use tokio::time::timeout;

use super::super::query::AccountQuery;
use super::super::search::AccountSearch;
use super::super::store::AccountRow;
use super::super::view::AccountJson;
use super::{AccountRequest, ApiRoute, unusable};
use crate::kit::web::WebError;
use crate::kit::web::text::shown;

/// Maximum number of accounts in an answer.
const MOST: u32 = 500;
/// Maximum number of accounts to skip.
const MAX_SKIP: u32 = 100_000;
/// Longest wait for other searches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of suggestions without another limit.
const SUGGESTIONS: u32 = 10;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (Method::GET, "/api/accounts/", get(search)),
        (Method::GET, "/api/accounts", get(search)),
    ]
}

/// Parameters of a search.
#[derive(Debug, Default)]
struct SearchParameters {
    query: String,
    limit: Option<u32>,
    skip: u32,
    is_suggestion: bool,
    has_details: bool,
    has_all_emails: bool,
}

/// Account in an answer. The last one says if there are more.
#[derive(Serialize)]
struct FoundAccountJson {
    #[serde(flatten)]
    account: FoundFieldsJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary_emails: Option<Vec<String>>,
    #[serde(rename = "_more_accounts", skip_serializing_if = "std::ops::Not::not")]
    has_more: bool,
}

/// Fields that the parameter `o` names.
#[derive(Serialize)]
#[serde(untagged)]
enum FoundFieldsJson {
    Details(Box<AccountJson>),
    Number {
        #[serde(rename = "_account_id")]
        account_id: u32,
    },
}

async fn search(RawQuery(query): RawQuery, api: AccountRequest) -> Result<Response, WebError> {
    let wanted = SearchParameters::read(query.as_deref().unwrap_or_default())?;
    let query = if wanted.is_suggestion {
        AccountQuery::suggest(&wanted.query)?
    } else {
        AccountQuery::parse(&wanted.query)?
    };
    let default = if wanted.is_suggestion {
        SUGGESTIONS
    } else {
        MOST
    };
    let asked = wanted.limit.into_iter().chain(query.limit).min();
    let limit = asked.unwrap_or(default).min(MOST);
    let sees_addresses = api.caller.has(Capability::ModifyAccount);
    let search = AccountSearch {
        conditions: &query.conditions,
        sees_addresses,
        watches_of: api
            .caller
            .own()
            .map(|own| own.number)
            .filter(|_| !sees_addresses),
        skip: i64::from(wanted.skip),
        limit: i64::from(limit) + 1,
    };
    // All others wait here, and not for the connections of the database that everybody needs.
    let turn = timeout(PATIENCE, api.sign_in.searches.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        let why = "Other searches take the time of the server. Try again in a moment.";
        return Err(WebError::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", why));
    };
    let mut rows = api.users().store().account_search(search).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let has_emails = sees_addresses && (wanted.has_all_emails || wanted.is_suggestion);
    let external_ids = if has_emails {
        let numbers: Vec<AccountId> = rows.iter().map(|row| row.number).collect();
        api.users().external_ids_of(&numbers).await?
    } else {
        BTreeMap::new()
    };
    let mut found = Vec::new();
    for row in &rows {
        let ids = external_ids.get(&row.number).map_or(&[][..], Vec::as_slice);
        let secondary_emails = has_emails.then(|| other_emails(row, ids));
        let has_details = wanted.is_suggestion || wanted.has_details || wanted.has_all_emails;
        found.push(FoundAccountJson {
            account: if has_details {
                FoundFieldsJson::Details(Box::new(AccountJson::of_row(row)))
            } else {
                FoundFieldsJson::Number {
                    account_id: row.number.get(),
                }
            },
            secondary_emails,
            has_more: false,
        });
    }
    if let Some(last) = found.last_mut() {
        last.has_more = has_more;
    }
    Ok(Json(found).into_response())
}

impl SearchParameters {
    fn read(query: &str) -> Result<Self, WebError> {
        let mut wanted = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("q", query) => query.clone_into(&mut wanted.query),
                ("n", number) => wanted.limit = Some(number_of("n", number)?.max(1)),
                ("S" | "start", number) => {
                    wanted.skip = number_of("S", number)?;
                    if wanted.skip > MAX_SKIP {
                        return Err(unusable(format!(
                            "`S` is above {MAX_SKIP}; narrow the query"
                        )));
                    }
                }
                ("suggest", _) => wanted.is_suggestion = true,
                ("o", "DETAILS") => wanted.has_details = true,
                ("o", "ALL_EMAILS") => wanted.has_all_emails = true,
                (name, value) => {
                    return Err(unusable(format!(
                        "there is no parameter `{}={}`; known are q, n, S, suggest, o=DETAILS and o=ALL_EMAILS",
                        shown(name),
                        shown(value)
                    )));
                }
            }
        }
        Ok(wanted)
    }
}

fn number_of(name: &str, text: &str) -> Result<u32, WebError> {
    text.parse()
        .map_err(|_| unusable(format!("the parameter `{name}` is no number")))
}

/// Returns the addresses of an account but the preferred one.
fn other_emails(row: &AccountRow, ids: &[ExternalId]) -> Vec<String> {
    let emails = ids.iter().filter_map(|id| id.email.as_ref());
    let mut emails: Vec<String> = emails.map(|email| email.as_str().to_owned()).collect();
    emails.retain(|email| Some(email) != row.preferred_email.as_ref());
    emails.sort();
    emails.dedup();
    emails
}
