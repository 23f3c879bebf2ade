//! Templates and static files, compiled into the program.

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use chrono::{DateTime, Utc};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, State, UndefinedBehavior, Value};
use rust_embed::{EmbeddedFile, RustEmbed};
use serde::Serialize;

use super::WebError;
use super::extract::Segment;
use super::text::{FutureTime, PastTime, shown};

/// Cache lifetime of a year, the longest that caches keep.
const FOREVER: &str = "public, max-age=31536000, immutable";

#[derive(RustEmbed)]
#[folder = "templates/web/"]
struct TemplateFiles;

/// Page templates. Their names end in `.html`, so that every value in them is escaped.
pub(crate) struct Templates(Environment<'static>);

impl Templates {
    /// Compiles the templates. `base` is put in front of links; it is the path of the public address.
    pub fn new(base: &str, version: &str, has_registry: bool) -> Self {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .expect("the usual marks"),
        );
        // Safe: the path of a URL contains no HTML special character.
        env.add_global("base", Value::from_safe_string(base.to_owned()));
        env.add_global("version", version.to_owned());
        env.add_global("has_registry", has_registry);
        let static_base = format!("{base}/static");
        env.add_function("asset", move |name: &str| asset(&static_base, name));
        env.add_filter("shown", |text: &str| shown(text));
        env.add_filter("ago", |state: &State<'_, '_>, at: &str| {
            moment(state, at).map(|(at, now)| Value::from(Serde(PastTime::new(at, now))))
        });
        env.add_filter("ahead", |state: &State<'_, '_>, at: &str| {
            moment(state, at).map(|(at, now)| Value::from(Serde(FutureTime::new(at, now))))
        });
        for name in TemplateFiles::iter().filter(|name| !name.contains('/')) {
            let text = text_of(&name);
            env.add_template_owned(name, text)
                .expect("a test loads every template");
        }
        Self(env)
    }

    /// Fills in a template.
    pub fn render<V: Serialize>(
        &self,
        name: &str,
        view: &V,
    ) -> Result<Html<String>, minijinja::Error> {
        self.0
            .get_template(name)?
            .render(Value::from(Serde(view)))
            .map(Html)
    }
}

/// Reads a time of a view, and the time at which the page is made.
fn moment(
    state: &State<'_, '_>,
    at: &str,
) -> Result<(DateTime<Utc>, DateTime<Utc>), minijinja::Error> {
    let now = state.lookup("now").unwrap_or_default().get_attr("iso")?;
    let read = |text: &str| {
        text.parse::<DateTime<Utc>>().map_err(|error| {
            minijinja::Error::new(
                minijinja::ErrorKind::InvalidOperation,
                format!("`{text}`: {error}"),
            )
        })
    };
    Ok((read(at)?, read(now.as_str().unwrap_or_default())?))
}

fn text_of(name: &str) -> String {
    let file = TemplateFiles::get(name).expect("the name comes from the list of files");
    String::from_utf8(file.data.into_owned()).expect("templates are text")
}

/// Returns the link to a static file. It contains a digest of the content, so that browsers may keep the file
/// forever.
fn asset(base: &str, name: &str) -> Result<Value, minijinja::Error> {
    let missing = || {
        minijinja::Error::new(
            minijinja::ErrorKind::InvalidOperation,
            format!("no static file {name}"),
        )
    };
    let file = static_file(name).ok_or_else(missing)?;
    Ok(Value::from_safe_string(format!(
        "{base}/{}/{name}",
        digest(&file)
    )))
}

fn static_file(name: &str) -> Option<EmbeddedFile> {
    TemplateFiles::get(&format!("static/{name}"))
}

fn digest(file: &EmbeddedFile) -> String {
    hex::encode(&file.metadata.sha256_hash()[..8])
}

/// Serves a static file. During a rollout an old page may ask a new replica. It gets the present file, and browsers
/// do not store it.
pub(crate) async fn file(
    Segment((hash, name)): Segment<(String, String)>,
) -> Result<Response, WebError> {
    let file = static_file(&name).ok_or_else(WebError::no_such_page)?;
    let cache = if hash == digest(&file) {
        FOREVER
    } else {
        "no-store"
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(content_type(&name)),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
    ];
    Ok((headers, file.data.into_owned()).into_response())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_can_be_loaded() {
        let Templates(env) = Templates::new("", "1", true);
        assert!(env.templates().count() > 3);
    }

    #[test]
    fn escaping_is_switched_off_for_html_that_we_write_ourselves() {
        let uses: usize = TemplateFiles::iter()
            .map(|name| text_of(&name).matches("|safe").count())
            .sum();
        assert_eq!(uses, 2);
        assert!(text_of("job.html").contains("{{ output.html|safe }}"));
        assert!(text_of("registry_module.html").contains("{{ contents.readme|safe }}"));
    }

    #[test]
    fn pages_hold_no_script_style_or_address_of_their_own() {
        for name in TemplateFiles::iter().filter(|name| name.ends_with(".html")) {
            let text = text_of(&name);
            for forbidden in [
                "style=",
                "<style",
                "onclick",
                "onload",
                "javascript:",
                "//fonts",
                "https://",
                "http://",
            ] {
                assert!(!text.contains(forbidden), "{name}: {forbidden}");
            }
            assert_eq!(
                text.matches("<script").count(),
                text.matches("<script src=\"{{ asset(").count(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_static_file_has_a_type() {
        for name in TemplateFiles::iter().filter(|name| name.starts_with("static/")) {
            assert_ne!(content_type(&name), "application/octet-stream", "{name}");
        }
    }
}
