//! Attacks with hints: deliveries that name an installation of the App for repositories of others.

use serde_json::json;

use crate::support::bot::{Bot, WebhookRequest};
use crate::support::db::{Backend, story};

story!(
    a_signed_delivery_about_a_served_repository_teaches_its_installation,
    strangers_teach_nothing,
    without_a_secret_nobody_teaches_anything,
);

const README: (&str, &str) = ("README.md", "Networks.\n");
/// Installation that the App does not have.
const STRANGE: u64 = 71;

/// Returns a delivery about a repository that comes from the strange installation.
fn hint(id: &str, repo: &str) -> WebhookRequest {
    let body = json!({
        "repository": {"id": 9001, "full_name": repo}, "installation": {"id": STRANGE},
    });
    WebhookRequest::new(id, "push", &body)
}

/// Asks GitHub about a repository. Returns true if the server tried the strange installation for it.
async fn uses_the_strange_installation(bot: &Bot, repo: &str) -> bool {
    let repo = format!("github.test/{repo}").parse().unwrap();
    let forge = bot.replica.ctx.forges.of(&repo).unwrap();
    forge.repository(&repo).await.unwrap_err();
    let token = format!("/app/installations/{STRANGE}/access_tokens");
    let requests = bot.github.requests();
    requests.iter().any(|request| request.path == token)
}

async fn a_signed_delivery_about_a_served_repository_teaches_its_installation(backend: Backend) {
    let bot = Bot::as_app(backend, &[README]).await;
    assert_eq!(bot.post(&hint("1", "acme/labs")).await.0, 200);
    assert!(uses_the_strange_installation(&bot, "acme/labs").await);
    bot.end(&[]).await;
}

async fn strangers_teach_nothing(backend: Backend) {
    let bot = Bot::as_app(backend, &[README]).await;
    for (delivery, expected) in [
        (hint("1", "acme/labs").unsigned(), 401),
        (hint("2", "acme/labs").signed_with("a-guessed-secret"), 401),
        // Somebody else on the same GitHub, whose webhook has the same secret.
        (hint("3", "other/labs"), 403),
    ] {
        assert_eq!(bot.post(&delivery).await.0, expected);
    }
    for repo in ["acme/labs", "other/labs"] {
        assert!(!uses_the_strange_installation(&bot, repo).await, "{repo}");
    }
    bot.end(&[]).await;
}

async fn without_a_secret_nobody_teaches_anything(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[README]).await;
    bot.configure("gh-webhook-secret", "");
    bot.configure("allow-unsigned-webhooks", "true");
    bot.crash_and_restart().await;
    assert_eq!(bot.post(&hint("1", "acme/labs").unsigned()).await.0, 200);
    assert_eq!(bot.post(&hint("2", "acme/labs")).await.0, 200);
    assert!(!uses_the_strange_installation(&bot, "acme/labs").await);
    bot.end(&[]).await;
}
