//! A server for two hosts of GitHub at once.

use std::path::Path;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::map_request;
use lockkeeper::app::Replica;
use lockkeeper::context::Ctx;
use lockkeeper::emulator::{Delivering, Emulator, Options};
use lockkeeper::http;
use lockkeeper::secret::Secret;

use super::{Bot, REPO, config_of, services_with};

/// Token of the bot at the second GitHub, which the first one does not accept.
const OTHER_TOKEN: &str = "ghp_the_bots_token_elsewhere";
/// Account of the bot at the second GitHub.
pub const OTHER_LOGIN: &str = "keeper";
/// Secret of the webhooks of the second GitHub.
pub const OTHER_SECRET: &str = "the-webhook-secret-elsewhere";

/// Writes the file of `--gh-hosts-file` for a host, with the files of its secrets, and returns its path.
fn hosts_file(directory: &Path, host: &str, api_url: &str) -> String {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    };
    let (token, webhook) = (write("token", OTHER_TOKEN), write("webhook", OTHER_SECRET));
    let text = format!(
        "hosts:\n  - host: {host}\n    api_url: {api_url}\n    user: {OTHER_LOGIN}\n    token_file: {token}\n    \
         webhook_secret_file: {webhook}\n"
    );
    write("hosts.yaml", &text)
}

impl Bot {
    /// Restarts the server so that it also serves another GitHub, with a repository of the same name and these files.
    pub async fn serve_also(&mut self, host: &str, files: &[(&str, &str)]) -> Emulator {
        let directory = self.db.dir.path().join(host);
        let options = Options::new(&directory, self.db.clock.clone(), Secret::new(OTHER_SECRET))
            .with_token(OTHER_LOGIN, Secret::new(OTHER_TOKEN));
        let other = Emulator::start(options).await.expect("the emulator starts");
        other
            .create_repo(REPO, files)
            .await
            .expect("the repository is made");
        let hosts = hosts_file(&directory, host, &other.api_url());
        self.configure("gh-hosts-file", &hosts);
        let config = config_of(&self.flags);
        let first = config.github[0].host.to_string();
        self.webhooks.abort();
        self.replicas += 1;
        let (ctx, name) = services_with(&self.db, &config, self.replicas).await;
        self.replica = Arc::new(Replica::new(ctx, &name));
        let target = self.door_of(&first).await;
        self.github.set_webhook_target(target.clone());
        self.events = target;
        other.set_webhook_target(self.door_of(host).await);
        other
    }

    /// Opens an address for the deliveries of a host. The emulator names its own address as the host.
    async fn door_of(&mut self, host: &str) -> url::Url {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let host = HeaderValue::from_str(host).expect("a host is ASCII");
        let named = map_request(move |mut request: Request| {
            let headers = request.headers_mut();
            headers.insert("X-GitHub-Enterprise-Host", host.clone());
            std::future::ready(request)
        });
        let router = http::webhook_router(Ctx::clone(&self.replica.ctx)).layer(named);
        self.webhooks = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("the server listens");
        });
        format!("http://{address}/events")
            .parse()
            .expect("an address makes a URL")
    }

    /// Does all work that follows from the deliveries of both hosts of GitHub.
    pub async fn settle_with(&self, other: &Emulator) {
        // The second round takes the deliveries about the comments of the bot.
        for _ in 0..2 {
            other.set_delivering(Delivering::Immediately).await;
            self.settle().await;
        }
    }
}
