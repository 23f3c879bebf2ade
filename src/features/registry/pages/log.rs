//! `/registry/log`: the newest records; `/registry/log/{id}`: a record with its proof.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use lockkeeper_registry::records::{LogAction, LogId, Record, RecordChange};
use serde::{Deserialize, Serialize};

use super::{PageReaders, PageScope, RegistryPages, name_path};
use crate::kit::web::extract::{LenientQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, query, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::code_span;

/// Number of records on a page.
const SHOWN: i64 = 50;

/// `?before=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LogQuery {
    /// ID of the record after the newest one on the page.
    before: Option<i64>,
}

#[derive(Serialize)]
struct LogPage {
    /// Name of the deployment.
    name: String,
    /// Public key of the log.
    key: String,
    size: u64,
    /// True if the person sees nothing at all.
    is_closed: bool,
    records: Vec<RecordLine>,
    /// Query of the newest records, if the page is another one.
    newest: bool,
    next: Option<String>,
}

/// A record in the list.
#[derive(Serialize)]
struct RecordLine {
    id: i64,
    /// Content. `None`: the person may not see it.
    seen: Option<RecordFacts>,
}

#[derive(Serialize)]
struct RecordFacts {
    badge: Badge,
    name: String,
    version: String,
    path: String,
    at: PastTime,
    reason: Option<String>,
    maker: String,
}

impl RecordFacts {
    fn new(record: &Record, now: DateTime<Utc>) -> Self {
        let (name, version) = (record.key().name(), record.key().version());
        let change = record.change();
        Self {
            badge: match change.action() {
                LogAction::Add => Badge::new("good", "added"),
                LogAction::Deprecate => Badge::new("warn", "deprecated"),
                LogAction::Delete => Badge::new("bad", "taken down"),
            },
            path: name_path(&name, Some(&version)),
            name: name.as_str().to_owned(),
            version,
            at: PastTime::new(record.time().get(), now),
            reason: match change {
                RecordChange::Add(_) => None,
                RecordChange::Deprecate(notice) | RecordChange::Delete(_, notice) => {
                    Some(shown(notice.reason.as_str()))
                }
            },
            maker: record.maker().deployment.to_string(),
        }
    }
}

/// `GET /registry/log`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    pages: RegistryPages,
    LenientQuery(params): LenientQuery<LogQuery>,
) -> Result<Response, WebError> {
    let now = web.clock.now();
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let registry = &pages.0.registry;
    let is_closed = matches!(scope.readers, PageReaders::Nothing);
    // The number of changes of private modules is nobody's business either.
    let size = if is_closed {
        0
    } else {
        web.store.registry_log_size().await?
    };
    let end = i64::try_from(size).unwrap_or(i64::MAX).saturating_add(1);
    let before = params.before.unwrap_or(end).clamp(1, end);
    let from = (before - SHOWN).max(1);
    let records = match LogId::new(from) {
        Ok(id) => web.store.registry_records(id, before - from).await?,
        Err(_) => Vec::new(),
    };
    let line = |(id, text): &(LogId, String)| {
        let record = Record::parse(text.as_bytes()).ok();
        let record = record.filter(|record| scope.sees(&record.key().name()));
        RecordLine {
            id: id.get(),
            seen: record.map(|record| RecordFacts::new(&record, now)),
        }
    };
    let view = LogPage {
        name: registry.name().as_str().to_owned(),
        key: registry.verifier().to_string(),
        size,
        records: records.iter().rev().map(line).collect(),
        is_closed,
        newest: before < end,
        next: (from > 1).then(|| query(&[("before", &from.to_string())])),
    };
    visitor.page("registry_log.html", &view)
}

#[derive(Serialize)]
struct RecordPage {
    id: i64,
    record: RecordFacts,
    text: String,
    /// Hash of the record.
    leaf: String,
    /// Hashes by which the hash of the record leads to the root.
    proof: Vec<String>,
    /// Signed head of the log.
    head: String,
}

/// `GET /registry/log/{id}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    pages: RegistryPages,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    let scope = PageScope::of(&web, &pages, &visible).await?;
    let id = asked.parse().ok().and_then(|id| LogId::new(id).ok());
    let id = id.ok_or_else(|| unknown(&asked))?;
    if matches!(scope.readers, PageReaders::Nothing) {
        return Err(unknown(&asked));
    }
    let proven = pages.0.registry.proven_record(id).await?;
    let proven = proven.ok_or_else(|| unknown(&asked))?;
    let record = Record::parse(proven.text.as_bytes()).ok();
    // The answer for a record that the person may not see is that for one that is not there.
    let record = record.filter(|record| scope.sees(&record.key().name()));
    let record = record.ok_or_else(|| unknown(&asked))?;
    let view = RecordPage {
        id: id.get(),
        record: RecordFacts::new(&record, web.clock.now()),
        leaf: proven.leaf.to_string(),
        proof: proven.proof.iter().map(ToString::to_string).collect(),
        head: proven.head.to_string(),
        text: proven.text,
    };
    visitor.page("registry_record.html", &view)
}

fn unknown(asked: &str) -> WebError {
    WebError::new(
        StatusCode::NOT_FOUND,
        "Record not found",
        format!(
            "The log has no record {}, or you may not see it.",
            code_span(&shown(asked))
        ),
    )
}
