//! Crashes of the server at a chosen moment, restarts, and work beside other servers.

use std::sync::Arc;
use std::task::Poll;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::map_request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use lockkeeper::app::{self, Replica};
use lockkeeper::config::access::TeamAuthz;
use lockkeeper::queue::Tick;

use super::{Bot, build, config_of, services};

impl Bot {
    /// Works, but stops after this many wake-ups: a kill between any two instructions. Returns `false` if everything
    /// was done before.
    ///
    /// The effect of the last wake-up, a commit or a request, has happened. Nothing after it has.
    pub async fn work_until_killed(&self, wakes: usize) -> bool {
        let mut work = Box::pin(self.settle());
        let mut left = wakes;
        std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(true);
            }
            left -= 1;
            work.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Does all work that is due until a time, and moves the clock to that time.
    pub async fn settle_until(&self, then: DateTime<Utc>) {
        loop {
            let short = self.replica.tick_short().await.expect("the queue answers");
            let command = self
                .replica
                .tick_command()
                .await
                .expect("the queue answers");
            if short == Tick::Worked || command == Tick::Worked {
                continue;
            }
            match self.next_due().await.filter(|next| *next < then) {
                Some(next) => self.db.clock.advance_to(next),
                None => break,
            }
        }
        self.db.clock.advance_to(then);
    }

    /// Restarts the server with other values of some flags. A flag without values is removed.
    pub async fn restart_with(&mut self, flags: &[(&str, &[&str])]) {
        for (flag, values) in flags {
            self.flags.remove(*flag);
            if !values.is_empty() {
                self.flags.insert(
                    (*flag).to_owned(),
                    values.iter().map(|value| (*value).to_owned()).collect(),
                );
            }
        }
        self.crash_and_restart().await;
    }

    /// Restarts the server with a program that decides about permissions.
    pub async fn restart_asking(&mut self, program: TeamAuthz) {
        self.crash_and_restart().await;
        self.replicas += 1;
        let (mut ctx, name) = services(&self.db, &self.flags, self.replicas).await;
        let ctx_mut = Arc::get_mut(&mut ctx).expect("nobody else has it yet");
        ctx_mut.change_settings(|settings| {
            Arc::make_mut(&mut settings.repo_rules.repos).team_authz = Some(program);
        });
        self.replica = Arc::new(Replica::new(ctx, &name));
    }

    /// Starts another server with the same database, on its own machine.
    pub async fn replica_beside(&mut self) -> Arc<Replica> {
        self.replicas += 1;
        let mut flags = self.flags.clone();
        let data = self.db.dir.path().join(format!("data-{}", self.replicas));
        flags.insert("data-dir".to_owned(), vec![data.display().to_string()]);
        build(&self.db, &flags, self.replicas).await
    }

    /// Returns the router of another server, for a person who has signed in there.
    pub async fn pages_of(&self, replica: &Arc<Replica>) -> axum::Router {
        const PASSWORD: &str = "correct horse battery";
        let mut flags = self.flags.clone();
        for (flag, value) in [
            ("web-basic-auth", "true"),
            ("web-username", "ops"),
            ("web-password", PASSWORD),
        ] {
            flags.insert(flag.to_owned(), vec![value.to_owned()]);
        }
        let config = config_of(&flags);
        let pages = app::router(&replica.ctx, &config, replica.ctx.closing.clone()).await;
        let said = format!("Basic {}", STANDARD.encode(format!("ops:{PASSWORD}")));
        pages
            .expect("the pages can be built")
            .layer(map_request(move |mut request: Request| {
                let said = HeaderValue::from_str(&said).expect("it is ASCII");
                request
                    .headers_mut()
                    .entry(header::AUTHORIZATION)
                    .or_insert(said);
                request
                    .headers_mut()
                    .insert(header::HOST, HeaderValue::from_static("locks.example.com"));
                std::future::ready(request)
            }))
    }

    /// Waits until Terraform was called this often for the step.
    pub async fn calls_of(&self, call: &str, times: usize) {
        let mut news = self.replica.ctx.runs.hub.subscribe();
        while self.calls().iter().filter(|other| *other == call).count() < times {
            news.recv().await.expect("the hub lives as long as the bot");
        }
    }

    /// Returns the statuses that still say that work is in progress.
    pub fn pending(&self, pull: lockkeeper::model::PullNumber) -> Vec<String> {
        self.statuses(pull)
            .lines()
            .filter(|line| line.contains(": Pending, "))
            .map(str::to_owned)
            .collect()
    }
}

/// Works with several servers at once, each on several jobs, until nothing is left to do.
pub async fn work_together(replicas: &[&Arc<Replica>]) {
    let mut workers = tokio::task::JoinSet::new();
    for replica in replicas {
        for _ in 0..3 {
            workers.spawn(work_to_the_end(Arc::clone(replica)));
        }
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("no worker panics");
    }
}

async fn work_to_the_end(replica: Arc<Replica>) {
    loop {
        let short = replica.tick_short().await.expect("the queue answers");
        let command = replica.tick_command().await.expect("the queue answers");
        let idle = short == Tick::Idle && command == Tick::Idle;
        if idle
            && replica
                .ctx
                .store
                .job_list_open()
                .await
                .expect("the jobs can be listed")
                .is_empty()
        {
            return;
        }
    }
}
