//! Attacks between two hosts of one server: somebody who is trusted on one of them tries to act on the other.

use lockkeeper::context::Ctx;
use lockkeeper::model::PullNumber;
use tower::ServiceExt as _;

use crate::support::bot::{Bot, OTHER_SECRET, SECRET, WebhookRequest, comment_payload};
use crate::support::db::{Backend, story};

story!(the_secret_of_one_host_signs_no_delivery_of_another);

const HOST: &str = "github.test";
const OTHER: &str = "code.test";
const README: (&str, &str) = ("README.md", "Networks.\n");

/// Returns a comment, as the webhook of a host brings it.
fn comment(id: &str, host: &str) -> WebhookRequest {
    let payload = comment_payload(PullNumber(1), 7, "alice", "Looks good.");
    WebhookRequest::new(id, "issue_comment", &payload).with("x-github-enterprise-host", host)
}

/// Brings a delivery to the server and returns the status of the answer.
async fn status(bot: &Bot, delivery: WebhookRequest) -> u16 {
    let router = lockkeeper::http::webhook_router(Ctx::clone(&bot.replica.ctx));
    let answer = router.oneshot(delivery.into_request()).await.unwrap();
    answer.status().as_u16()
}

async fn the_secret_of_one_host_signs_no_delivery_of_another(backend: Backend) {
    let mut bot = Bot::new(backend, &[README]).await;
    bot.configure("repo-allowlist", "github.test/acme/*,code.test/acme/*");
    let other = bot.serve_also(OTHER, &[README]).await;
    let hosts = [(HOST, SECRET), (OTHER, OTHER_SECRET)];
    for (host, own) in hosts {
        for (of, secret) in hosts {
            let id = format!("to-{host}-with-the-secret-of-{of}");
            let expected = if secret == own { 200 } else { 401 };
            let delivery = comment(&id, host).signed_with(secret);
            assert_eq!(status(&bot, delivery).await, expected, "{id}");
        }
        let unsigned = comment("unsigned", host).unsigned();
        assert_eq!(status(&bot, unsigned).await, 401, "{host}");
    }
    let stored = bot.deliveries().await;
    assert_eq!(stored.len(), 2, "{stored:?}");
    bot.settle_with(&other).await;
    bot.end(&[]).await;
}
