//! Converts the payload of a delivery to an event.

use std::borrow::Cow;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

use super::repositories;
use super::shape::{
    ActionFields, CommentPayload, EditChanges, GrantPayload, InstallPayload, PullPayload,
    RepositoryPayload, SendingInstallation, WebhookUser,
};
use crate::forges::ParsedDelivery;
use crate::model::{
    BranchName, CommentEvent, CommitSha, Event, HostName, PullAction, PullEvent, PullRef, RepoId,
    Subject,
};

/// Maximum length of a comment in bytes: GitHub allows 65,536 characters of at most four bytes.
const MAX_COMMENT: usize = 65_536 * 4;
/// Maximum length of a login; GitHub's own are shorter than 50 even with the suffix of an enterprise.
const MAX_LOGIN: usize = 100;
/// Account that GitHub shows in place of deleted ones.
const DELETED_USER: &str = "ghost";

/// Reason why a delivery is not understood; the place is given as a JSON path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The content type is neither of the two that GitHub can send.
    #[error(
        "the Content-Type `{0}` is neither application/json nor application/x-www-form-urlencoded"
    )]
    ContentType(String),
    /// The form has no payload.
    #[error("the form has no field `payload`")]
    NoPayload,
    /// The JSON is malformed, or a needed field is missing or invalid.
    #[error("at `{path}`: {message}")]
    At {
        /// Path inside the payload: `pull_request.number`; `.` for the whole.
        path: String,
        /// Description of the error, in one line.
        message: String,
    },
}

/// Content of a payload, and the installation of the App that sent it.
#[derive(Debug)]
pub(super) struct ReadPayload {
    pub delivery: ParsedDelivery,
    /// Installation with access to the repositories of the delivery. `None`: the webhook of a repository sent it, or the
    /// App has lost the access.
    pub installation: Option<u64>,
}

/// Converts a delivery to an event; `host` is the name under which its repositories are known. Deliveries that
/// request nothing become [`Event::Ignored`] with the reason, and their body may have any shape.
pub(super) fn parse(
    event: &str,
    headers: &HeaderMap,
    body: &[u8],
    host: &HostName,
) -> Result<ReadPayload, PayloadError> {
    let by = |sender: Option<SendingInstallation>, delivery| ReadPayload {
        delivery,
        installation: sender.map(|sender| sender.id),
    };
    match event {
        "pull_request" => pull_request(&json(headers, body)?, host),
        "issue_comment" => issue_comment(&json(headers, body)?, host),
        "push" => {
            let payload: RepositoryPayload = read(&json(headers, body)?)?;
            repositories::pushed(&payload, host).map(|read| by(payload.installation, read))
        }
        "repository" => {
            let payload: RepositoryPayload = read(&json(headers, body)?)?;
            repositories::changed(&payload, host).map(|read| by(payload.installation, read))
        }
        "installation_repositories" => {
            let payload: GrantPayload = read(&json(headers, body)?)?;
            repositories::granted(&payload, host).map(|read| by(payload.installation, read))
        }
        "installation" => {
            let payload: InstallPayload = read(&json(headers, body)?)?;
            let sender = payload.installation.filter(|_| payload.gives_access());
            repositories::installed(&payload, host).map(|read| by(sender, read))
        }
        "ping" => Ok(nameless(ignored(
            "a ping: GitHub only checks that the webhook is reachable",
        ))),
        other => Ok(nameless(ignored(format!(
            "events of type `{other}` are not used"
        )))),
    }
}

fn pull_request(json: &[u8], host: &HostName) -> Result<ReadPayload, PayloadError> {
    let payload: PullPayload = match read(json) {
        Ok(payload) => payload,
        Err(error) => {
            return requesting_nothing(json, error, |acted| {
                used_action(acted.action.as_deref(), acted.changes.as_ref()).err()
            });
        }
    };
    let repositories = repositories::identified([&payload.repository], host);
    let installation = payload.installation.map(|sender| sender.id);
    let event = match used_action(payload.action.as_deref(), payload.changes.as_ref()) {
        Err(reason) => ignored(reason),
        Ok(action) => Event::Pull(PullEvent {
            pull: pull_ref(
                host,
                &payload.repository.full_name,
                ("pull_request.number", payload.pull_request.number),
            )?,
            action,
            draft: payload.pull_request.draft.unwrap_or(false),
            // Invalid values here do not refuse a delivery, because the forge provides them again when they matter.
            head: payload
                .pull_request
                .head
                .and_then(|end| CommitSha::new(&end.sha?).ok()),
            base_branch: payload
                .pull_request
                .base
                .and_then(|end| BranchName::new(&end.branch?).ok()),
            sender: login(payload.sender.as_ref(), "sender.login")?,
            sender_id: payload.sender.as_ref().and_then(|user| user.id),
        }),
    };
    Ok(ReadPayload {
        delivery: ParsedDelivery {
            event,
            repositories,
        },
        installation,
    })
}

/// Returns the action if it requests something, or else the reason why not. Unlike reference 2.2, a reopened pull and
/// another base branch count: an apply would no longer match the earlier plans.
fn used_action(action: Option<&str>, changes: Option<&EditChanges>) -> Result<PullAction, String> {
    let base_changed = changes.is_some_and(|changes| changes.base.is_some());
    match action.unwrap_or_default() {
        "opened" => Ok(PullAction::Opened),
        "reopened" => Ok(PullAction::Reopened),
        "ready_for_review" => Ok(PullAction::ReadyForReview),
        "synchronize" => Ok(PullAction::Updated),
        "closed" => Ok(PullAction::Closed),
        "edited" if base_changed => Ok(PullAction::BaseChanged),
        "edited" => {
            Err("only the title or the description of the pull request was edited".to_owned())
        }
        "converted_to_draft" => {
            Err("a pull request that becomes a draft needs no new plan".to_owned())
        }
        other => Err(format!(
            "the action `{}` of a pull request is not used",
            cut(other)
        )),
    }
}

fn issue_comment(json: &[u8], host: &HostName) -> Result<ReadPayload, PayloadError> {
    let payload: CommentPayload = match read(json) {
        Ok(payload) => payload,
        Err(error) => {
            return requesting_nothing(json, error, |acted| {
                let issue = acted.issue.as_ref();
                let is_on_pull = issue.is_some_and(|issue| issue.pull_request.is_some());
                unused_comment(acted.action.as_deref(), is_on_pull)
            });
        }
    };
    let repositories = repositories::identified([&payload.repository], host);
    let installation = payload.installation.map(|sender| sender.id);
    let is_on_pull = payload.issue.pull_request.is_some();
    let event = match unused_comment(payload.action.as_deref(), is_on_pull) {
        Some(reason) => ignored(reason),
        None => comment(payload, host)?,
    };
    Ok(ReadPayload {
        delivery: ParsedDelivery {
            event,
            repositories,
        },
        installation,
    })
}

/// Returns the reason why a comment requests nothing, unless it may have a command.
fn unused_comment(action: Option<&str>, is_on_pull: bool) -> Option<String> {
    match action.unwrap_or_default() {
        "created" if is_on_pull => None,
        "created" => Some("the comment is on an issue, not on a pull request".to_owned()),
        "edited" => Some("edited comments are not read again. Write a new comment".to_owned()),
        "deleted" => Some("a comment was deleted. Its command stays in effect".to_owned()),
        other => Some(format!(
            "the action `{}` of a comment is not used",
            cut(other)
        )),
    }
}

fn comment(payload: CommentPayload, host: &HostName) -> Result<Event, PayloadError> {
    let body = payload.comment.body.unwrap_or_default();
    if body.len() > MAX_COMMENT {
        return Err(at(
            "comment.body",
            &format!("{} bytes are more than GitHub allows", body.len()),
        ));
    }
    let user = payload.comment.user.as_ref();
    Ok(Event::Comment(CommentEvent {
        pull: pull_ref(
            host,
            &payload.repository.full_name,
            ("issue.number", payload.issue.number),
        )?,
        comment: payload.comment.id.into(),
        body,
        author: login(user, "comment.user.login")?,
        author_id: user.and_then(|user| user.id),
        author_is_bot: user.and_then(|user| user.kind.as_deref()) == Some("Bot"),
        written_at: payload
            .comment
            .created_at
            .and_then(|time| time.parse().ok()),
    }))
}

/// Ignores a payload without a needed field if it requests nothing, or else returns the error. GitHub sends no such
/// payload, so only these are parsed a second time.
fn requesting_nothing(
    json: &[u8],
    error: PayloadError,
    unused: impl FnOnce(&ActionFields) -> Option<String>,
) -> Result<ReadPayload, PayloadError> {
    match unused(&read(json)?) {
        Some(reason) => Ok(nameless(ignored(reason))),
        None => Err(error),
    }
}

fn pull_ref(
    host: &HostName,
    full_name: &str,
    (path, number): (&str, i64),
) -> Result<PullRef, PayloadError> {
    let repo = repo_id(host, full_name)?;
    if number < 1 {
        return Err(at(
            path,
            &format!("{number} is not the number of a pull request"),
        ));
    }
    Ok(PullRef {
        repo,
        subject: Subject::pull(number),
    })
}

pub(super) fn repo_id(host: &HostName, full_name: &str) -> Result<RepoId, PayloadError> {
    let repo = RepoId::new(host.clone(), full_name)
        .map_err(|error| at("repository.full_name", &error.to_string()))?;
    if repo.owner().contains('/') {
        return Err(at("repository.full_name", "expected `owner/name`"));
    }
    Ok(repo)
}

fn login(user: Option<&WebhookUser>, path: &str) -> Result<String, PayloadError> {
    let login = user.map_or(DELETED_USER, |user| user.login.as_str());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '[' | ']');
    if login.is_empty() || login.len() > MAX_LOGIN || !login.chars().all(plain) {
        return Err(at(path, "not the login of an account"));
    }
    Ok(login.to_owned())
}

/// Returns the JSON text inside the body: all of it, or the field `payload` of a form.
pub(super) fn json<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, PayloadError> {
    let given = headers
        .get(CONTENT_TYPE)
        .map_or(Cow::Borrowed("application/json"), |value| {
            String::from_utf8_lossy(value.as_bytes())
        });
    let kind = given
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match kind.as_str() {
        "application/x-www-form-urlencoded" => form_payload(body),
        json if json == "application/json" || json.ends_with("+json") => Ok(Cow::Borrowed(body)),
        _ => Err(PayloadError::ContentType(cut(&given))),
    }
}

fn form_payload(body: &[u8]) -> Result<Cow<'_, [u8]>, PayloadError> {
    let mut fields = url::form_urlencoded::parse(body);
    let (_, payload) = fields
        .find(|(name, _)| name == "payload")
        .ok_or(PayloadError::NoPayload)?;
    Ok(Cow::Owned(payload.into_owned().into_bytes()))
}

pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, PayloadError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| at(&error.path().to_string(), &error.inner().to_string()))?;
    deserializer
        .end()
        .map_err(|error| at(".", &error.to_string()))?;
    Ok(value)
}

fn at(path: &str, message: &str) -> PayloadError {
    PayloadError::At {
        path: cut(path),
        message: cut(message),
    }
}

/// Shortens the sender's text for our own messages and puts it on one line.
fn cut(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect()
}

pub(super) fn ignored(reason: impl Into<String>) -> Event {
    Event::Ignored {
        reason: reason.into(),
    }
}

/// Returns the delivery of an event that names no repository.
fn nameless(event: Event) -> ReadPayload {
    ReadPayload {
        delivery: ParsedDelivery {
            event,
            repositories: Vec::new(),
        },
        installation: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse_as(event: &str, content_type: &str, body: &[u8]) -> Result<Event, PayloadError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        parse(event, &headers, body, &HostName::new("github.com").unwrap())
            .map(|read| read.delivery.event)
    }

    fn parse_json(event: &str, body: &Value) -> Result<Event, PayloadError> {
        parse_as(
            event,
            "application/json; charset=utf-8",
            body.to_string().as_bytes(),
        )
    }

    fn opened(change: impl FnOnce(&mut Value)) -> Result<Event, PayloadError> {
        let mut body = json!({
            "action": "opened", "pull_request": {"number": 12}, "repository": {"full_name": "Acme/Infra"},
            "sender": {"login": "jane"},
        });
        change(&mut body);
        parse_json("pull_request", &body)
    }

    fn commented(change: impl FnOnce(&mut Value)) -> Result<Event, PayloadError> {
        let mut body = json!({
            "action": "created", "issue": {"number": 12, "pull_request": {}}, "repository": {"full_name": "acme/infra"},
            "comment": {"id": 7, "body": "lockkeeper plan", "user": {"login": "jane", "type": "User"}},
        });
        change(&mut body);
        parse_json("issue_comment", &body)
    }

    #[test]
    fn only_the_needed_fields_are_required() {
        let Ok(Event::Pull(event)) = opened(|_| {}) else {
            panic!("not a pull event")
        };
        assert_eq!(event.pull.to_string(), "github.com/acme/infra#12");
        assert!(!event.draft);
        assert!(
            matches!(commented(|_| {}), Ok(Event::Comment(event)) if event.comment == 7.into())
        );
    }

    #[test]
    fn a_deleted_account_is_the_ghost() {
        let by = |event| match event {
            Ok(Event::Comment(event)) => event.author,
            Ok(Event::Pull(event)) => event.sender,
            Ok(Event::Ignored { reason }) => panic!("{reason}"),
            Ok(Event::Repositories { .. }) => panic!("it is about no repository"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(
            by(commented(|body| body["comment"]["user"] = Value::Null)),
            "ghost"
        );
        assert_eq!(by(opened(|body| body["sender"] = Value::Null)), "ghost");
    }

    #[test]
    fn errors_name_the_place() {
        let text = |result: Result<Event, PayloadError>| result.unwrap_err().to_string();
        insta::assert_snapshot!(text(opened(|body| body["pull_request"]["number"] = json!("12"))),
            @r#"at `pull_request.number`: invalid type: string "12", expected i64 at line 1 column 48"#);
        insta::assert_snapshot!(
            text(opened(|body| body["pull_request"]["number"] = json!(0))),
            @"at `pull_request.number`: 0 is not the number of a pull request"
        );
        insta::assert_snapshot!(
            text(opened(|body| body["repository"]["full_name"] = json!("../x"))),
            @"at `repository.full_name`: `../x` is not a repository: each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`"
        );
        insta::assert_snapshot!(
            text(opened(|body| body["repository"]["full_name"] = json!("a/b/c"))),
            @"at `repository.full_name`: expected `owner/name`"
        );
        insta::assert_snapshot!(
            text(opened(|body| body["sender"]["login"] = json!("x\n@y"))),
            @"at `sender.login`: not the login of an account"
        );
        insta::assert_snapshot!(
            text(opened(|body| body["sender"]["login"] = json!("x".repeat(101)))),
            @"at `sender.login`: not the login of an account"
        );
        insta::assert_snapshot!(
            text(commented(|body| body["comment"]["body"] = json!("x".repeat(MAX_COMMENT + 1)))),
            @"at `comment.body`: 262145 bytes are more than GitHub allows"
        );
        insta::assert_snapshot!(
            text(parse_as("pull_request", "application/json", b"{\"action\": \"ope")),
            @"at `action`: EOF while parsing a string at line 1 column 15"
        );
        insta::assert_snapshot!(
            text(parse_as("pull_request", "application/json", b"{} {}")),
            @"at `.`: trailing characters at line 1 column 4"
        );
        insta::assert_snapshot!(
            text(parse_as("pull_request", "text/plain", b"{}")),
            @"the Content-Type `text/plain` is neither application/json nor application/x-www-form-urlencoded"
        );
        insta::assert_snapshot!(
            text(parse_as("pull_request", "application/x-www-form-urlencoded", b"a=1")),
            @"the form has no field `payload`"
        );
    }

    #[test]
    fn a_form_carries_the_same_json() {
        let body = json!({"action": "opened", "pull_request": {"number": 12}, "repository": {"full_name": "a/b+&="}});
        let form: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("other", "1")
            .append_pair("payload", &body.to_string())
            .finish();
        let refused = parse_as(
            "pull_request",
            "application/x-www-form-urlencoded",
            form.as_bytes(),
        )
        .unwrap_err();
        assert!(
            refused.to_string().contains("a/b+&="),
            "the name arrives decoded: {refused}"
        );
        let form = form.replace("%2B%26%3D", "");
        let parsed = parse_as(
            "pull_request",
            "Application/X-WWW-Form-Urlencoded",
            form.as_bytes(),
        );
        assert!(matches!(parsed, Ok(Event::Pull(event)) if event.pull.repo.full_name() == "a/b"));
    }

    #[test]
    fn unused_events_and_actions_need_no_particular_shape() {
        for (event, body) in [
            ("star", json!([])),
            ("pull_request", json!({"action": "labeled"})),
            ("pull_request", json!({"action": "edited", "repository": 1})),
            ("issue_comment", json!({"action": "edited", "issue": null})),
            ("issue_comment", json!({"action": "created", "issue": {}})),
            ("ping", json!(1)),
        ] {
            assert!(
                matches!(parse_json(event, &body), Ok(Event::Ignored { .. })),
                "{event}"
            );
        }
        let Ok(Event::Ignored { reason }) =
            opened(|body| body["action"] = json!("x\n".repeat(900)))
        else {
            panic!()
        };
        assert!(reason.len() < 300 && !reason.contains('\n'), "{reason}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
            Just(json!("created")),
            Just(json!("opened")),
            Just(json!("acme/infra")),
        ];
        let key = prop::sample::select(vec![
            "action",
            "issue",
            "pull_request",
            "number",
            "comment",
            "id",
            "body",
            "user",
            "login",
            "repository",
            "full_name",
            "sender",
            "installation",
            "changes",
            "base",
            "draft",
        ]);
        leaf.prop_recursive(5, 64, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(key.clone(), inner, 0..8).prop_map(|map| map
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_json_never_panics(body in any_json(), event in "(pull_request|issue_comment|ping|push)") {
            drop(parse_json(&event, &body));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            body in prop::collection::vec(any::<u8>(), 0..200), event in "(pull_request|issue_comment)",
            kind in "(application/json|application/x-www-form-urlencoded)",
        ) {
            drop(parse_as(&event, &kind, &body));
        }

        #[test]
        fn what_is_understood_is_within_bounds(number in any::<i64>(), name in ".{0,30}", login in ".{0,30}") {
            let parsed = opened(|body| {
                body["pull_request"]["number"] = json!(number);
                body["repository"]["full_name"] = json!(format!("acme/{name}"));
                body["sender"]["login"] = json!(login);
            });
            if let Ok(Event::Pull(event)) = parsed {
                prop_assert!(event.pull.subject.stored() > 0);
                prop_assert_eq!(event.pull.repo.full_name().matches('/').count(), 1);
                prop_assert!(!event.sender.is_empty() && !event.sender.contains(char::is_whitespace));
            }
        }
    }
}
