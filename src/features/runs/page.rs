//! `/jobs/{id}`: a run and its output. The address stays the same while the run is under way and afterwards (P9).

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt;
use futures::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use super::ansi::AnsiToHtml;
use super::commands::pull_page;
use super::errors::{apply_must_be_confirmed, command_is_over, no_such_run, run_removed};
use super::policies::{PolicyPanel, panels};
use crate::authz::Resource;
use crate::config::access::Action;
use crate::kit::web::csrf::Confirmed;
use crate::kit::web::extract::Segment;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{Badge, PastTime, PullName, duration, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{Cancelling, WebError, WebState};
use crate::model::{RunId, RunKind};
use crate::render::escape::visible;
use crate::render::plan_output::clean;
use crate::store::{CommandRow, CommandState, OutputPiece, RunRow, RunState, StopKind, Store};

/// Number of pieces that are read at once; each has about 32 KiB at most.
pub(super) const PIECES: i64 = 32;
/// Maximum size of the output on the page, taken from its end. The rest is one click away, as text.
const SHOWN_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of lines on the page, because browsers slow down with more.
const SHOWN_LINES: u64 = 10_000;

#[derive(Serialize)]
struct RunPage {
    id: String,
    kind: &'static str,
    /// True for a run that changes infrastructure: only a user who may interrupt an apply may cancel it.
    changes: bool,
    /// Name of the hook, if the run is one.
    hook: Option<String>,
    live: bool,
    /// True if the run is not finished and nobody has cancelled it.
    cancellable: bool,
    /// Reason why it is being stopped.
    stopping: Option<String>,
    badge: Badge,
    pull: PullName,
    dir: String,
    workspace: String,
    name: Option<String>,
    message: Option<String>,
    asked_by: String,
    asked_for: &'static str,
    asked: PastTime,
    started: Option<PastTime>,
    finished: Option<PastTime>,
    took: Option<String>,
    /// Results of policy sets; empty if none was evaluated, or for visitors.
    policies: Vec<PolicyPanel>,
    output: RunOutputView,
}

#[derive(Default, Serialize)]
struct RunOutputView {
    html: String,
    /// Number of the last piece in the output.
    seq: i64,
    lines: u64,
    /// Number of lines before the first one that is shown.
    left_out: u64,
}

/// Finds a run by the identifier in the path, if the user may see it.
pub(super) async fn find_run(
    web: &WebState,
    visible: &VisibleScope,
    asked: &str,
) -> Result<RunRow, WebError> {
    let id: RunId = asked.parse().map_err(|_| no_such_run())?;
    if let Some(run) = web.store.run_get(id).await? {
        visible
            .require_access(&Resource::Repository(&run.pull.repo))
            .await?;
        return Ok(run);
    }
    Err(removed(web, asked).unwrap_or_else(no_such_run))
}

/// Returns the failure for a removed run. The identifier contains the time of the request (RFC 9562, version 7). A run
/// older than the retention time was removed; no run is older than Lockkeeper.
fn removed(web: &WebState, asked: &str) -> Option<WebError> {
    const FIRST: DateTime<Utc> =
        DateTime::from_timestamp(1_735_689_600, 0).expect("the first day of 2025");
    let (seconds, _) = Uuid::try_parse(asked).ok()?.get_timestamp()?.to_unix();
    let asked_at = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    let keep = web.keep_runs?;
    let is_old = web.clock.now() - asked_at > TimeDelta::from_std(keep).ok()?;
    (asked_at >= FIRST && is_old).then(|| run_removed(keep, asked_at))
}

/// Shows the page of a run.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    // The state is read before the output, because a finished run has printed everything.
    let run = find_run(&web, &visible, &asked).await?;
    let command = web
        .store
        .command_get(run.command)
        .await?
        .ok_or_else(no_such_run)?;
    // Findings quote the plan, so they are for the same people as its output.
    let (output, found) = if visitor.has_signed_in() {
        let output = read_output(&web.store, run.id).await?;
        (output, web.store.policy_plan_of_run(run.id).await?)
    } else {
        (RunOutputView::default(), None)
    };
    let now = web.clock.now();
    let page = RunPage {
        policies: found
            .map(|(plan, found)| panels(plan, &found, &(web.policy_sets)(), now))
            .unwrap_or_default(),
        ..RunPage::new(&run, &command, output, now)
    };
    visitor.page("job.html", &page)
}

impl RunPage {
    fn new(run: &RunRow, command: &CommandRow, output: RunOutputView, now: DateTime<Utc>) -> Self {
        let stamp = |at| PastTime::new(at, now);
        let goes_on = command.state != CommandState::Finished;
        let stop = command
            .stop
            .as_ref()
            .filter(|stop| stop.kind != StopKind::Closed);
        Self {
            id: run.id.to_string(),
            kind: match run.kind {
                RunKind::Plan => "Plan",
                RunKind::Apply => "Apply",
                RunKind::Version => "Version",
                RunKind::Import => "Import",
                RunKind::StateRm => "State rm",
            },
            changes: command.kind.changes(),
            live: run.state != RunState::Finished,
            cancellable: goes_on && run.state != RunState::Finished && stop.is_none(),
            stopping: stop
                .filter(|_| goes_on)
                .map(|stop| shown(&stop.why.replace('`', ""))),
            hook: run.hook.as_deref().map(shown),
            badge: if run.hook.is_some() {
                Badge::of_hook(run.state, run.outcome)
            } else {
                Badge::of_run(run.state, run.outcome)
            },
            pull: PullName::titled(&run.pull, &pull_page(command), command.title.as_deref()),
            dir: shown(run.project.dir.as_str()),
            workspace: shown(run.project.workspace.as_str()),
            name: run.project.name.as_ref().map(|name| shown(name.as_str())),
            message: run.message.as_deref().map(shown),
            asked_by: shown(&command.asker().to_string()),
            asked_for: command.kind.as_str(),
            asked: stamp(run.created_at),
            started: run.started_at.map(stamp),
            finished: run.finished_at.map(stamp),
            took: run
                .started_at
                .map(|start| duration(run.finished_at.unwrap_or(now) - start)),
            policies: Vec::new(),
            output,
        }
    }
}

/// Form that cancels a run, with the consent to interrupt an apply.
#[derive(Deserialize)]
pub(super) struct CancelForm {
    #[serde(default)]
    force: String,
}

/// `POST /jobs/{id}/cancel`: cancels the command of a run, with all its runs.
pub(super) async fn cancel(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
    form: Confirmed<CancelForm>,
) -> Result<Redirect, WebError> {
    let run = find_run(&web, &visible, &asked).await?;
    let force = form.fields.force == "yes";
    let action = if force {
        Action::CancelForce
    } else {
        Action::Cancel
    };
    let who = form.who.at_page();
    web.permit(
        &who,
        action,
        &Resource::Unseen {
            pull: &run.pull,
            args: &[],
        },
    )
    .await?;
    let outcome = web.cancel.cancel(run.command, &who.actor(), force).await?;
    warn!(who = form.who.name, command = %run.command, ?outcome, "Somebody cancelled a command");
    match outcome {
        Cancelling::Dropped | Cancelling::Interrupted => {
            Ok(Redirect::to(&web.link(&format!("/jobs/{}", run.id))))
        }
        Cancelling::ApplyRunning => Err(apply_must_be_confirmed()),
        Cancelling::Over => Err(command_is_over()),
    }
}

/// Reads the end of the output of a run. Earlier pieces are read for the line numbers and the colours, but not kept.
async fn read_output(store: &Store, run: RunId) -> Result<RunOutputView, WebError> {
    let (mut converter, mut end, mut seq) = (AnsiToHtml::default(), Tail::default(), 0);
    loop {
        let pieces = store.run_output_after(run, seq, PIECES).await?;
        let Some(last) = pieces.last() else {
            let lines = converter.lines();
            let left_out = end.pieces.front().map_or(0, |(before, _)| *before);
            return Ok(RunOutputView {
                html: end.html(),
                seq,
                lines,
                left_out,
            });
        };
        seq = last.seq;
        for piece in &pieces {
            end.push(&mut converter, piece);
        }
    }
}

/// The last pieces as HTML, each with the number of lines before it.
#[derive(Default)]
struct Tail {
    pieces: VecDeque<(u64, String)>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, converter: &mut AnsiToHtml, piece: &OutputPiece) {
        let before = converter.lines();
        let html = converter.convert(&piece.text);
        self.bytes += html.len();
        self.pieces.push_back((before, html));
        while self.pieces.len() > 1 && self.is_too_long(converter.lines()) {
            let dropped = self.pieces.pop_front().map_or(0, |(_, html)| html.len());
            self.bytes -= dropped;
        }
    }

    fn is_too_long(&self, lines: u64) -> bool {
        let first = self.pieces.front().map_or(lines, |(before, _)| *before);
        self.bytes > SHOWN_BYTES || lines - first > SHOWN_LINES
    }

    fn html(self) -> String {
        self.pieces.into_iter().map(|(_, html)| html).collect()
    }
}

/// `GET /jobs/{id}/output.txt`: the whole stored output, without colours.
pub(super) async fn plain(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Response, WebError> {
    let run = find_run(&web, &visible, &asked).await?;
    let body = Body::from_stream(plain_text(web.store.clone(), run.id));
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

fn plain_text(store: Store, run: RunId) -> impl Stream<Item = Result<Vec<u8>, sqlx::Error>> + Send {
    let pages = stream::try_unfold((store, 0), move |(store, seq)| async move {
        let pieces = store.run_output_after(run, seq, PIECES).await?;
        let next = pieces.last().map(|last| last.seq);
        Ok::<_, sqlx::Error>(next.map(|next| (pieces, (store, next))))
    });
    pages.map_ok(|pieces| {
        pieces
            .iter()
            .flat_map(|piece| plain_lines(&piece.text).into_bytes())
            .collect()
    })
}

/// Returns the text of a piece as its lines on the page show it.
fn plain_lines(text: &str) -> String {
    visible(&clean(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_text_and_the_page_show_the_same_characters() {
        let tags = regex::Regex::new("</div>|<[^>]*>").unwrap();
        let numbers = regex::Regex::new(r##"<a href="#L\d+" tabindex="-1">\d+</a>"##).unwrap();
        for opener in [
            "\u{1b}]",
            "\u{1b}P",
            "\u{1b}[",
            "\u{9d}",
            "\u{1b}[31m",
            "a\r",
            "\u{202e}",
            "\u{200b}",
        ] {
            let text =
                format!("one {opener}0;\n  # b_backdoor will be created\n\u{7} three\t\u{1b}\\\n");
            let html = AnsiToHtml::default().convert(&text);
            let lines = numbers.replace_all(&html, "").replace("</div>", "\n");
            assert_eq!(tags.replace_all(&lines, ""), plain_lines(&text), "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_long_output_is_kept_and_its_lines_keep_their_numbers() {
        let (mut converter, mut tail) = (AnsiToHtml::default(), Tail::default());
        for seq in 1..=50 {
            tail.push(
                &mut converter,
                &OutputPiece {
                    seq,
                    text: "x\n".repeat(1000),
                },
            );
        }
        assert_eq!(converter.lines(), 50_000);
        let before = tail.pieces.front().unwrap().0;
        assert_eq!(before, 40_000);
        assert!(tail.html().starts_with("<div class=\"l\" id=\"L40001\">"));
    }
}
