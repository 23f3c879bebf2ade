//! Stories about reconcilers as servers run them, and about the data for administrators and monitors.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use lockkeeper::app::Replica;
use lockkeeper::emulator::{Delivering, Fault};
use lockkeeper::features::{reconciler as find, reconcilers};
use lockkeeper::kit::reconcile::{Scope, TickResult, TurnResult};
use lockkeeper::queue::LEASE;
use tower::ServiceExt;

use super::NETWORK;
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, execute, story, tell};
use crate::support::rows::recent_runs;

const LOCK: &str = "acme/infra/network/default by #1";

story!(
    every_reconciler_has_its_numbers_and_its_line_on_the_page_before_and_after_its_first_look,
    a_repair_that_fails_says_so_and_goes_on_until_it_goes_well,
    a_token_that_the_forge_refuses_is_told_before_anybody_waits_for_a_plan,
    a_panic_is_told_for_a_day,
    a_change_to_the_audit_log_is_found_shown_and_raised,
    the_audit_log_is_verified_round_and_round,
    old_runs_are_removed_with_what_they_printed_and_those_of_a_plan_that_counts_are_not,
    what_happens_is_counted,
);

mod what_one_per_group_does_is_done_once_in_a_period_and_by_another_when_a_server_dies {
    #[test]
    fn postgres() {
        super::tell(super::once_in_a_period());
    }
}

mod a_server_that_starts_looks_for_lost_closes_although_another_has_just_looked {
    #[test]
    fn postgres() {
        super::tell(super::at_the_start());
    }
}

async fn get(pages: &Router, path: &str) -> String {
    let request = Request::get(path)
        .header("host", "locks.example.com")
        .body(Body::empty())
        .unwrap();
    let response = pages.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    String::from_utf8(body.to_vec())
        .unwrap()
        .replace("&#x2f;", "/")
        .replace("&#x27;", "'")
}

/// Returns the value of a series.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Reads the metrics at a time when the cached ones are too old.
async fn metrics(bot: &Bot, pages: &Router) -> String {
    bot.db.clock.advance(Duration::from_secs(6));
    get(pages, "/metrics").await
}

async fn every_reconciler_has_its_numbers_and_its_line_on_the_page_before_and_after_its_first_look(
    backend: Backend,
) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let pages = bot.pages_of(&bot.replica).await;
    for looked in [false, true] {
        let (metrics, page, json) = (
            metrics(&bot, &pages).await,
            get(&pages, "/operations").await,
            get(&pages, "/api/operations").await,
        );
        for reconciler in reconcilers() {
            let name = reconciler.name;
            let ticks = format!(
                "lockkeeper_reconciler_ticks_total{{reconciler=\"{name}\",outcome=\"success\"}}"
            );
            assert_eq!(
                value(&metrics, &ticks),
                Some(f64::from(u8::from(looked))),
                "{name}: {metrics}"
            );
            for series in [
                "repaired_total",
                "failures",
                "last_success_timestamp_seconds",
            ] {
                let series = format!("lockkeeper_reconciler_{series}{{reconciler=\"{name}\"}}");
                assert!(
                    value(&metrics, &series).is_some(),
                    "{series} is missing in {metrics}"
                );
            }
            assert!(
                page.contains(&format!("id=\"repair-{name}\""))
                    && page.contains(reconciler.repairs),
                "{page}"
            );
            assert!(json.contains(&format!("\"name\":\"{name}\"")), "{json}");
            bot.replica.tick(name).await.unwrap();
        }
    }
    assert!(bot.replica.tick("nothing").await.is_err());
    bot.end(&[]).await;
}

async fn a_token_that_the_forge_refuses_is_told_before_anybody_waits_for_a_plan(backend: Backend) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let pages = bot.pages_of(&bot.replica).await;
    bot.replica.tick_leases().await.unwrap();
    let ready =
        |forge| format!(r#"{{"status":"ok","checks":{{"database":"ok","forge":"{forge}"}}}}"#);
    assert_eq!(get(&pages, "/readyz?verbose").await, ready("unknown"));
    bot.replica.tick("forge").await.unwrap();
    assert_eq!(get(&pages, "/readyz?verbose").await, ready("ok"));
    bot.github.fault("GET /user", 1, Fault::Unauthorized);
    bot.replica.tick("forge").await.unwrap_err();
    assert_eq!(get(&pages, "/readyz?verbose").await, ready("failing"));
    assert_eq!(get(&pages, "/readyz").await, r#"{"status":"ok"}"#);
    let page = get(&pages, "/operations").await;
    assert!(
        page.contains("The reconciler forge has failed once: github.test"),
        "{page}"
    );
    let failures = "lockkeeper_reconciler_failures{reconciler=\"forge\"}";
    assert_eq!(value(&metrics(&bot, &pages).await, failures), Some(1.0));
    bot.replica.tick("forge").await.unwrap();
    assert_eq!(get(&pages, "/readyz?verbose").await, ready("ok"));
    bot.end(&[]).await;
}

async fn a_panic_is_told_for_a_day(backend: Backend) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let pages = bot.pages_of(&bot.replica).await;
    bot.replica.tick_leases().await.unwrap();
    bot.replica.tick("panics").await.unwrap();
    bot.replica
        .ctx
        .server
        .panics
        .note("src/queue/worker.rs:120");
    bot.replica.tick("panics").await.unwrap_err();
    let page = get(&pages, "/operations").await;
    let told = "panicked once in the last 24 hours, most recently at 2026-03-02T09:00:00Z in src/queue/worker.rs:120.";
    assert!(
        page.contains("The reconciler panics has failed once: the server ") && page.contains(told),
        "{page}"
    );
    bot.db
        .clock
        .advance(Duration::from_hours(24) + Duration::from_secs(1));
    bot.replica.tick_leases().await.unwrap();
    bot.replica.tick("panics").await.unwrap();
    bot.end(&[]).await;
}

async fn closed_pulls(replica: &Arc<Replica>) -> TurnResult {
    replica.turn(find("closed_pulls").unwrap()).await.unwrap()
}

async fn once_in_a_period() {
    let mut bot = Bot::new(Backend::Postgres, &[NETWORK]).await;
    let (other, third) = (bot.replica_beside().await, bot.replica_beside().await);
    let servers = [&bot.replica, &other, &third];
    for server in servers {
        server.tick_leases().await.unwrap();
    }
    let period = find("closed_pulls").unwrap().period;
    let looked = TurnResult::Ran(TickResult::default());
    assert_eq!(closed_pulls(&other).await, looked);
    let second = Duration::from_secs(1);
    bot.db.clock.advance(period.saturating_sub(second));
    for server in servers {
        server.tick_leases().await.unwrap();
    }
    for server in servers {
        assert_eq!(
            closed_pulls(server).await,
            TurnResult::Skipped,
            "{} must wait",
            server.name()
        );
    }
    bot.db.clock.advance(Duration::from_secs(1));
    assert_eq!(closed_pulls(&third).await, looked);
    assert_eq!(closed_pulls(&other).await, TurnResult::Skipped);
    // The third server dies. The others do not wait for its turn to end.
    for server in [&bot.replica, &other] {
        bot.db.clock.advance(LEASE);
        server.tick_leases().await.unwrap();
    }
    bot.db.clock.advance(Duration::from_secs(1));
    other.tick("orphans").await.unwrap();
    assert_eq!(closed_pulls(&bot.replica).await, looked);
    for reconciler in reconcilers().filter(|reconciler| reconciler.scope == Scope::EveryReplica) {
        for server in [&bot.replica, &other] {
            assert!(
                matches!(server.turn(reconciler).await.unwrap(), TurnResult::Ran(_)),
                "{}",
                reconciler.name
            );
        }
    }
    bot.end(&[]).await;
}

async fn at_the_start() {
    let mut bot = Bot::new(Backend::Postgres, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    bot.replica.tick_leases().await.unwrap();
    assert_eq!(
        closed_pulls(&bot.replica).await,
        TurnResult::Ran(TickResult {
            looked_at: 1,
            repaired: 0
        })
    );
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.github.lose_next().unwrap();
    let started = bot.replica_beside().await;
    started.tick_leases().await.unwrap();
    assert_eq!(closed_pulls(&started).await, TurnResult::Skipped);
    let first = async |name| started.first_turn(find(name).unwrap()).await.unwrap();
    assert_eq!(
        first("closed_pulls").await,
        TurnResult::Ran(TickResult {
            looked_at: 1,
            repaired: 1
        })
    );
    bot.settle().await;
    assert!(bot.answer(pull).contains("its lock is free"));
    let audit = find("audit").unwrap();
    assert!(matches!(
        bot.replica.turn(audit).await.unwrap(),
        TurnResult::Ran(_)
    ));
    assert_eq!(
        first("audit").await,
        TurnResult::Skipped,
        "what can wait for its period does"
    );
    bot.end(&[]).await;
}

async fn a_repair_that_fails_says_so_and_goes_on_until_it_goes_well(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.github.lose_next().unwrap();
    bot.github
        .fault("GET /repos/*/*/pulls/*", 1000, Fault::BadGateway);
    let pages = bot.pages_of(&bot.replica).await;
    let which = find("closed_pulls").unwrap();
    for times in 1..=2 {
        // The turn is released after a failure, so this server can take it again at once.
        let error = bot.replica.turn(which).await.unwrap_err();
        assert!(
            format!("{error:#}").contains("acme/infra#1 could not be checked"),
            "{error:#}"
        );
        let failures = "lockkeeper_reconciler_failures{reconciler=\"closed_pulls\"}";
        assert_eq!(
            value(&metrics(&bot, &pages).await, failures),
            Some(f64::from(times))
        );
    }
    let page = get(&pages, "/operations").await;
    assert!(
        page.contains(
            "The reconciler closed_pulls has failed 2 times in a row: github.test/acme/infra#1 could not be checked"
        ),
        "{page}"
    );
    assert!(
        page.contains("github.test could not be reached for pull request acme/infra#1"),
        "{page}"
    );
    bot.github.clear_faults();
    assert_eq!(
        bot.replica.turn(which).await.unwrap(),
        TurnResult::Ran(TickResult {
            looked_at: 1,
            repaired: 1
        })
    );
    bot.settle().await;
    assert!(bot.answer(pull).contains("its lock is free"));
    let (metrics, page) = (
        metrics(&bot, &pages).await,
        get(&pages, "/operations").await,
    );
    assert!(page.contains("No problems found."), "{page}");
    for (series, expected) in [
        (
            "lockkeeper_reconciler_ticks_total{reconciler=\"closed_pulls\",outcome=\"failure\"}",
            2.0,
        ),
        (
            "lockkeeper_reconciler_ticks_total{reconciler=\"closed_pulls\",outcome=\"success\"}",
            1.0,
        ),
        (
            "lockkeeper_reconciler_repaired_total{reconciler=\"closed_pulls\"}",
            1.0,
        ),
        (
            "lockkeeper_reconciler_failures{reconciler=\"closed_pulls\"}",
            0.0,
        ),
    ] {
        assert_eq!(
            value(&metrics, series),
            Some(expected),
            "{series}: {metrics}"
        );
    }
    bot.end(&[]).await;
}

async fn a_change_to_the_audit_log_is_found_shown_and_raised(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    let pages = bot.pages_of(&bot.replica).await;
    let broken = |metrics: &str| value(metrics, "lockkeeper_audit_broken");
    assert_eq!(bot.replica.tick("audit_seal").await.unwrap().looked_at, 1);
    assert_eq!(
        bot.replica.tick("audit").await.unwrap().looked_at,
        2,
        "one event, looked at by both walks"
    );
    assert_eq!(broken(&metrics(&bot, &pages).await), Some(0.0));
    execute(
        &bot.db,
        "UPDATE lock_events SET reason = reason || '!' WHERE seq = 1",
    )
    .await;
    for _ in 0..2 {
        let error = bot.replica.tick("audit").await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("event 1 was changed after it was written"),
            "{error:#}"
        );
        assert_eq!(broken(&metrics(&bot, &pages).await), Some(1.0));
    }
    let page = get(&pages, "/operations").await;
    assert!(
        page.contains("The audit log is broken: event 1 was changed after it was written."),
        "{page}"
    );
    execute(
        &bot.db,
        "UPDATE lock_events SET reason = rtrim(reason, '!') WHERE seq = 1",
    )
    .await;
    bot.replica.tick("audit").await.unwrap();
    assert_eq!(broken(&metrics(&bot, &pages).await), Some(0.0));
    let key = bot.store().audit_keys().await.unwrap()[0].public;
    assert!(
        get(&pages, "/operations").await.contains(&key.to_string()),
        "the public key is shown"
    );
    execute(&bot.db, "DELETE FROM lock_events").await;
    for repair in ["audit", "audit_seal"] {
        let error = bot.replica.tick(repair).await.unwrap_err();
        assert!(
            error.to_string().contains("event 1 is missing"),
            "{error:#}"
        );
    }
    let page = get(&pages, "/operations").await;
    assert!(
        page.contains("The audit log is broken: event 1 is missing."),
        "{page}"
    );
    bot.end(&[LOCK]).await;
}

async fn the_audit_log_is_verified_round_and_round(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    assert_eq!(bot.replica.tick("audit_seal").await.unwrap().looked_at, 1);
    for events in [2, 1, 1] {
        let looked_at = bot.replica.tick("audit").await.unwrap().looked_at;
        assert_eq!(
            looked_at, events,
            "what is new once, all of it in every round"
        );
    }
    bot.end(&[LOCK]).await;
}

async fn old_runs_are_removed_with_what_they_printed_and_those_of_a_plan_that_counts_are_not(
    backend: Backend,
) {
    let dns = ("dns/main.tf", "# narrow\n");
    let mut bot = Bot::with(backend, &[NETWORK, dns], &[("keep-runs", "30d")]).await;
    let closed = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    let open = bot
        .open_pull("names", &[("dns/main.tf", "# wider\n")])
        .await;
    bot.answer(closed);
    bot.answer(open);
    bot.github.close(REPO, closed, "alice").await.unwrap();
    bot.settle().await;
    bot.answer(closed);
    let runs = recent_runs(bot.store(), 10).await;
    assert_eq!(runs.len(), 2);
    bot.db.clock.advance(Duration::from_hours(24 * 29));
    bot.replica.tick("retention").await.unwrap();
    assert_eq!(
        recent_runs(bot.store(), 10).await.len(),
        2,
        "it is not old yet"
    );
    bot.db.clock.advance(Duration::from_hours(24 * 2));
    let events = bot.store().lock_event_list(100).await.unwrap();
    bot.replica.tick("retention").await.unwrap();
    let left = recent_runs(bot.store(), 10).await;
    assert_eq!(
        left.iter().map(|run| run.pull.subject).collect::<Vec<_>>(),
        [open.into()]
    );
    let gone = runs
        .iter()
        .find(|run| run.pull.subject == closed.into())
        .unwrap();
    assert_eq!(bot.store().run_output(gone.id).await.unwrap(), "");
    assert!(
        bot.store()
            .command_get(gone.command)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        bot.store().lock_event_list(100).await.unwrap(),
        events,
        "the audit log is not touched"
    );
    assert!(
        bot.ask(open, "lockkeeper apply")
            .await
            .contains(": applied\n"),
        "the plan still counts"
    );
    bot.end(&["acme/infra/dns/default by #2"]).await;
}

async fn what_happens_is_counted(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    let second = bot
        .open_pull("more", &[("network/main.tf", "# more\n")])
        .await;
    bot.answer(second);
    assert!(
        bot.ask(pull, "lockkeeper apply")
            .await
            .contains(": applied\n")
    );
    let pages = bot.pages_of(&bot.replica).await;
    get(&pages, "/operations").await;
    let metrics = metrics(&bot, &pages).await;
    for (series, expected) in [
        (
            "lockkeeper_commands_total{kind=\"autoplan\",outcome=\"success\"}",
            1.0,
        ),
        (
            "lockkeeper_commands_total{kind=\"apply\",outcome=\"success\"}",
            1.0,
        ),
        (
            "lockkeeper_runs_total{kind=\"plan\",outcome=\"planned\"}",
            1.0,
        ),
        (
            "lockkeeper_runs_total{kind=\"apply\",outcome=\"applied\"}",
            1.0,
        ),
        ("lockkeeper_run_duration_seconds_count{kind=\"apply\"}", 1.0),
        ("lockkeeper_lock_takes_total{outcome=\"held\"}", 1.0),
        ("lockkeeper_lock_takes_total{outcome=\"in_line\"}", 1.0),
        ("lockkeeper_locks", 1.0),
        ("lockkeeper_lock_waiters", 1.0),
        ("lockkeeper_apply_locks", 0.0),
        ("lockkeeper_database_up", 1.0),
        (
            "lockkeeper_http_requests_total{route=\"/operations\",method=\"GET\",status=\"2xx\"}",
            1.0,
        ),
    ] {
        assert_eq!(
            value(&metrics, series),
            Some(expected),
            "{series}: {metrics}"
        );
    }
    for series in [
        "lockkeeper_deliveries_total{outcome=\"handled\"}",
        "lockkeeper_forge_requests_total{status=\"2xx\"}",
        "lockkeeper_http_requests_total{route=\"/events\",method=\"POST\",status=\"2xx\"}",
    ] {
        assert!(value(&metrics, series) > Some(0.0), "{series}: {metrics}");
    }
    assert!(
        !metrics.contains("acme") && !metrics.contains("ghp_"),
        "no names and no secrets: {metrics}"
    );
    bot.end(&[LOCK]).await;
}
