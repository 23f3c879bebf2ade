//! Serves a plain page per pull request, so that links in the demo work: title, statuses, and comments as text.

use axum::extract::{Path, State};
use axum::response::Html;
use chrono::{DateTime, Utc};

use crate::world::{EmulatedComment, EmulatedPull, Statuses};

use super::errors::ApiError;
use super::pulls::number;
use super::{Cx, time};

pub(super) async fn pull(
    State(cx): State<Cx>,
    Path((owner, repo, text)): Path<(String, String, String)>,
) -> Result<Html<String>, ApiError> {
    let state = cx.world.state();
    let repo = state.repo(&format!("{owner}/{repo}"))?;
    let pull = repo.pull(number(&text)?)?;
    Ok(Html(page(
        &repo.name.to_string(),
        pull,
        &repo.statuses_of(&pull.head),
    )))
}

fn page(repo: &str, pull: &EmulatedPull, statuses: &Statuses) -> String {
    let heading = escaped(&format!("{} #{}", pull.title, pull.number));
    let facts = format!(
        "{repo}: {} wants {} in {} ({}), head {}",
        pull.author,
        pull.head_branch,
        pull.base_branch,
        pull.state,
        pull.head.short()
    );
    let line = |status: &crate::ShaStatus| {
        let text = status.description.as_deref().unwrap_or_default();
        format!(
            "<li>{}: {} {}</li>\n",
            escaped(&status.context),
            status.state.as_str(),
            escaped(text)
        )
    };
    let statuses: String = statuses.latest.iter().map(line).collect();
    let comments: String = pull.comments.iter().map(said).collect();
    let body = pull
        .body
        .as_deref()
        .map(|body| format!("<pre>{}</pre>\n", escaped(body)))
        .unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{heading}</title>\n{STYLE}\n<main>\n\
         <h1>{heading}</h1>\n<p>{}</p>\n{body}<ul>\n{statuses}</ul>\n{comments}</main></html>\n",
        escaped(&facts)
    )
}

const STYLE: &str = "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    pre{white-space:pre-wrap;background:#f4f4f4;padding:1rem;overflow-wrap:anywhere}</style>";

fn said(comment: &EmulatedComment) -> String {
    let EmulatedComment {
        id,
        author,
        body,
        created_at,
        ..
    } = comment;
    let at: DateTime<Utc> = *created_at;
    format!(
        "<section id=\"issuecomment-{id}\"><h2>{}, {}</h2>\n<pre>{}</pre></section>\n",
        escaped(author),
        time(at),
        escaped(body)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_cannot_become_markup() {
        assert_eq!(
            escaped("</pre><script a='\"&"),
            "&lt;/pre&gt;&lt;script a=&#39;&quot;&amp;"
        );
    }
}
