//! Collects numbers for monitoring (`GET /metrics`), in the text format of Prometheus.
//!
//! One table, [`Metric`], lists every metric with its name, meaning and labels. The table in `docs/operations.md` is
//! generated from it. Label values are fixed words of Lockkeeper and never text of others. So no pull request can
//! create an unlimited number of series (P12), and no label contains a secret.
//!
//! Each server has its own [`Metrics`] instead of the global recorder of the process, because tests run many servers
//! in one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Upper bounds of the histogram for runs, in seconds: from an empty plan to the usual `--run-timeout`.
const BUCKETS: [f64; 12] = [
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 900.0, 2700.0, 7200.0,
];

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A number that only grows, and starts at zero when the server restarts.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A distribution of durations, in seconds.
    Histogram,
}

impl Sort {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($($(#[$meta:meta])* $variant:ident = $sort:ident $name:literal [$($label:literal)*] $help:literal;)+) => {
        /// Metric that the server exports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric {
            $(#[doc = $help] $variant,)+
        }

        impl Metric {
            /// All metrics, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name in Prometheus.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => concat!("lockkeeper_", $name),)+ }
            }

            /// Returns the type of the metric.
            pub const fn sort(self) -> Sort {
                match self { $(Self::$variant => Sort::$sort,)+ }
            }

            /// Returns the names of the labels.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($label),*],)+ }
            }

            /// Returns a sentence that explains the metric.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)+ }
            }
        }
    };
}

metrics! {
    Info = Gauge "info" ["version"] "Always 1. The label has the version of the server.";
    DatabaseUp = Gauge "database_up" [] "1 if the database answered this request. If 0, values from it are missing or old.";
    Deliveries = Counter "deliveries_total" ["outcome"]
        "Webhook deliveries by outcome: `handled`, `ignored`, `refused`, `duplicate`, `bad_signature`, `unreadable`, `too_large`, `too_slow`, `no_room`, `broken_off`, `not_kept`.";
    DeliveryBodyBytes = Gauge "delivery_body_bytes" [] "Memory reserved for bodies of webhook deliveries that are being received or stored, in bytes.";
    Commands = Counter "commands_total" ["kind" "outcome"] "Commands that ended, by kind (`plan`, `apply` …) and outcome.";
    Runs = Counter "runs_total" ["kind" "outcome"] "Projects of a command that ended, by kind (`plan`, `apply`) and outcome.";
    RunDuration = Histogram "run_duration_seconds" ["kind"] "Duration of runs from their first step to their end.";
    LockTakes = Counter "lock_takes_total" ["outcome"]
        "Locks that plans requested: `held` by their pull request, `in_line` (queued), `refused`, or the pull request \
         was `closed`.";
    LeaseRefusals = Counter "lease_refusals_total" ["kind"]
        "Exclusive leases that this server could not obtain because another holder has them, by kind (`repository_sync`, `reconciler`).";
    LeasesLost = Counter "leases_lost_total" ["kind"]
        "Exclusive leases that this server lost during its work.";
    Locks = Gauge "locks" [] "Locks that are held.";
    LockWaiters = Gauge "lock_waiters" [] "Pull requests queued for locks.";
    ApplyLocks = Gauge "apply_locks" [] "Apply locks in effect.";
    QueueJobs = Gauge "queue_jobs" ["kind" "state"]
        "Jobs in the queue: `waiting` for a worker or for their lane, `delayed` until a retry, `running`.";
    QueueOldest = Gauge "queue_oldest_seconds" ["kind"] "Age of the oldest job of a kind that has not ended.";
    JobErrors = Counter "job_errors_total" ["kind"]
        "Failed attempts at jobs that are retried: for `post_comment`, `set_status` and `add_reaction` the retries of the outbox.";
    JobsGivenUp = Counter "jobs_given_up_total" ["kind"] "Jobs that were given up.";
    Replicas = Gauge "replicas" ["state"] "Servers on the database: `alive`, `stopping`, `ended`, or `gone` (stopped \
        responding).";
    ReconcilerTicks = Counter "reconciler_ticks_total" ["reconciler" "outcome"]
        "Checks of this server by a reconciler, by outcome (`success`, `failure`).";
    ReconcilerRepaired = Counter "reconciler_repaired_total" ["reconciler"] "Differences that this server fixed.";
    ReconcilerDuration = Gauge "reconciler_duration_seconds" ["reconciler"] "Duration of the last check.";
    ReconcilerFailures = Gauge "reconciler_failures" ["reconciler"] "Consecutive failed checks.";
    ReconcilerLastSuccess = Gauge "reconciler_last_success_timestamp_seconds" ["reconciler"]
        "Time of the last completed check on any server, in Unix time.";
    RepositorySyncs = Counter "repository_syncs_total" ["outcome"]
        "Attempts of this server to sync a mirror, by outcome: `synced`, `failed`, `busy` (another holder has the lease), `lost` (the lease was lost).";
    RepositorySyncFailures = Counter "repository_sync_failures_total" ["kind"]
        "Failed attempts, by kind of the failure: `authentication`, `not_found`, `unreachable`, `timed_out`, `corrupt`, `verification`, `interrupted`, `other`.";
    RepositorySyncDuration = Histogram "repository_sync_duration_seconds" [] "Duration of attempts, from the lease to the last check.";
    RepositoryMirrors = Gauge "repository_mirrors" ["state"]
        "Mirrors of this server's data directory by state: `pending`, `started`, `synced`, `failed`.";
    AuditEvents = Gauge "audit_events" [] "Events in the audit log of locks.";
    AuditVerified = Gauge "audit_verified_seq" [] "Number of the event up to which the audit log is verified.";
    AuditBroken = Gauge "audit_broken" [] "1 if the audit log is broken (somebody altered it). Investigate at once.";
    RepoConfigLoads = Counter "repo_config_loads_total" ["outcome"]
        "Changes of the file of `--repo-config` that this server found, by outcome (`taken`: in effect, `refused`).";
    RepoConfigRefused = Gauge "repo_config_refused" []
        "1 if the file of `--repo-config` is refused and its previous content stays in effect. Fix the file.";
    RepoConfigDigest = Gauge "repo_config_digest" []
        "Digest of the `--repo-config` text in effect. Servers with the same text show the same number.";
    WebAccountsLoads = Counter "web_accounts_loads_total" ["outcome"]
        "Changes of the file of `--web-accounts-file` that this server found, by outcome (`taken`: in effect, `refused`).";
    WebAccountsRefused = Gauge "web_accounts_refused" []
        "1 if the file of `--web-accounts-file` is refused and its previous content stays in effect. Fix the file.";
    RegistryPeers = Gauge "registry_peers" ["state"]
        "Other deployments of the registry by state: `proposed`, `approved`, `joined`, `suspended`, `braked` (too many takedowns), `diverged` (its log was changed), `removed`.";
    RegistryPeersFailing = Gauge "registry_peers_failing" [] "Joined deployments whose log could not be read at the last attempt.";
    RegistryPeersLimited = Gauge "registry_peers_limited" []
        "Other deployments whose records were passed over because they reached `--max-versions` or `--max-bytes`, or because others fill half of `--registry-cache-quota` or `--registry-cache-versions`.";
    RegistryLagRecords = Gauge "registry_lag_records" []
        "Records of all joined deployments together that are known and not merged yet. `/registry/peers` shows those of each.";
    RegistryLagSeconds = Gauge "registry_lag_seconds" []
        "Longest time since everything of a joined deployment was merged. `/registry/peers` shows the time of each.";
    RegistryDownloads = Gauge "registry_downloads" [] "Versions whose packages are still at another deployment.";
    RegistryWrongPackages = Gauge "registry_wrong_packages" []
        "Packages of other deployments that were not the recorded ones, so far.";
    RegistryPushesGivenUp = Gauge "registry_pushes_given_up" []
        "Records that were pushed to other deployments without success until they were given up, so far. They come with the next reading of the log.";
    RegistryConflicts = Gauge "registry_conflicts" [] "Versions with two contents. Take them down.";
    RegistryStoreFailures = Counter "registry_store_failures_total" ["kind"]
        "Failures of the object store of packages, as this server saw them: `away`, `slow`, `refused` (such as wrong credentials), `wrong` (other bytes than those of the version), `missing` (a package is lost), `disk` (of this server).";
    RegistryFills = Counter "registry_fills_total" ["outcome"]
        "Versions that the registry did not have and that this server looked for elsewhere, by outcome: `filled`, `not_found`, \
         `refused` (it breaks a rule), `failed` (the network, a server, or a limit of everything that was fetched), `internal`, `busy` (too many at once), \
         `over_budget` (of the token).";
    RegistryFillsRunning = Gauge "registry_fills_running" [] "Versions that this server fetches for the registry now.";
    RegistryCacheBytes = Gauge "registry_cache_bytes" []
        "Bytes of the packages and `go.mod` files that the registry has fetched from repositories (`--registry-cache-quota`).";
    RegistryCacheVersions = Gauge "registry_cache_versions" []
        "Versions that the registry has ever fetched from repositories (`--registry-cache-versions`).";
    ForgeRequests = Counter "forge_requests_total" ["status"]
        "Requests to the forge's API by class of the answer: `2xx` to `5xx`, `none` if there was none, `held` if it was not sent because the forge had asked to wait.";
    ForgeRateLimit = Gauge "forge_rate_limit_remaining" [] "Requests that the forge allows until the limit is reset, as of its last answer.";
    RegistryTags = Counter "registry_tags_total" ["outcome"]
        "Tags of repositories by what became of their versions: `published`, `conflict` (other files were published before), `taken_down`, `refused` (by a rule), `off_branch`; `failed` (will be retried); `moved` and `removed` (the published version stays).";
    HttpConnections = Gauge "http_connections" [] "Open connections to this server.";
    HttpConnectionsClosed = Counter "http_connections_closed_total" ["reason"]
        "Connections that this server closed to stay available: `full` and `address` (over the total limit or that of \
         one address), `made_room` (for a new one), `too_slow`, `run` (a run requested a page).";
    HttpRequests = Counter "http_requests_total" ["route" "method" "status"]
        "Requests to this server by route (such as `/jobs/{id}`), method and class of the answer.";
}

/// Metrics of one server. Clones share their values.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsInner>);

struct MetricsInner {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// Label values that [`Metrics::set_all`] has set, by metric.
    shown: Mutex<BTreeMap<Metric, BTreeSet<Vec<String>>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .expect("there are buckets");
        let recorder = builder.build_recorder();
        for metric in Metric::ALL {
            let (name, help) = (KeyName::from_const_str(metric.name()), metric.help().into());
            match metric.sort() {
                Sort::Counter => recorder.describe_counter(name, None, help),
                Sort::Gauge => recorder.describe_gauge(name, None, help),
                Sort::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        Self(Arc::new(MetricsInner {
            handle: recorder.handle(),
            recorder,
            shown: Mutex::default(),
        }))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Builds the key of a series. `values` are the values of the metric's labels, in their order.
fn key(metric: Metric, values: &[&str]) -> Key {
    debug_assert_eq!(metric.labels().len(), values.len(), "{metric:?}");
    let labels = metric
        .labels()
        .iter()
        .zip(values)
        .map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(metric.name(), labels.collect::<Vec<_>>())
}

impl Metrics {
    /// Adds to a counter. Zero makes the series appear.
    pub fn add(&self, metric: Metric, labels: &[&str], by: u64) {
        self.0
            .recorder
            .register_counter(&key(metric, labels), &META)
            .increment(by);
    }

    /// Adds one to a counter.
    pub fn count(&self, metric: Metric, labels: &[&str]) {
        self.add(metric, labels, 1);
    }

    pub fn set(&self, metric: Metric, labels: &[&str], value: f64) {
        self.0
            .recorder
            .register_gauge(&key(metric, labels), &META)
            .set(value);
    }

    /// Adds to a gauge, or subtracts from it.
    pub fn change(&self, metric: Metric, labels: &[&str], by: f64) {
        self.0
            .recorder
            .register_gauge(&key(metric, labels), &META)
            .increment(by);
    }

    /// Sets every series of a gauge. Series that had a value before and are not in `rows` become 0.
    pub fn set_all(&self, metric: Metric, rows: &[(Vec<String>, f64)]) {
        let mut shown = self.0.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = shown.entry(metric).or_default();
        let mut values: BTreeMap<&[String], f64> = shown
            .iter()
            .map(|labels| (labels.as_slice(), 0.0))
            .collect();
        values.extend(
            rows.iter()
                .map(|(labels, value)| (labels.as_slice(), *value)),
        );
        for (labels, value) in values {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            self.set(metric, &labels, value);
        }
        shown.extend(rows.iter().map(|(labels, _)| labels.clone()));
    }

    /// Records a duration in a histogram.
    pub fn observe(&self, metric: Metric, labels: &[&str], took: Duration) {
        self.0
            .recorder
            .register_histogram(&key(metric, labels), &META)
            .record(took.as_secs_f64());
    }

    /// Formats all metrics for Prometheus.
    pub fn render(&self) -> String {
        self.0.handle.render()
    }

    /// Aggregates the values that were recorded since the last call. If no monitor requests the metrics, this must be
    /// called from time to time: until then the recorded values take memory.
    pub fn tidy(&self) {
        self.0.handle.run_upkeep();
    }
}

/// Returns the class of an HTTP status, as a label.
pub fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "none",
    }
}

/// Returns the lines between `<!-- metrics:begin -->` and `<!-- metrics:end -->` in `docs/operations.md`.
pub fn metric_table() -> String {
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric
            .labels()
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, sort, help) = (metric.name(), metric.sort().name(), metric.help());
        format!("| `{name}` | {sort} | {} | {help} |\n", labels.join(", "))
    };
    let rows: String = Metric::ALL.iter().map(row).collect();
    format!("| Metric | Sort | Labels | Meaning |\n|--|--|--|--|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_what_the_program_describes() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md"))
                .unwrap();
        let (_, rest) = text
            .split_once("<!-- metrics:begin -->\n")
            .expect("the mark metrics:begin");
        let (block, _) = rest
            .split_once("<!-- metrics:end -->")
            .expect("the mark metrics:end");
        let expected = metric_table();
        assert!(
            block.trim() == expected.trim(),
            "put this between the marks in docs/operations.md:\n{expected}"
        );
    }

    #[test]
    fn names_follow_the_habits_of_prometheus() {
        for metric in Metric::ALL {
            let name = metric.name();
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'),
                "{name}"
            );
            assert_eq!(
                name.ends_with("_total"),
                metric.sort() == Sort::Counter,
                "{name}"
            );
            assert!(
                metric.help().ends_with('.') && metric.help().len() > 15,
                "{name}"
            );
        }
    }

    #[test]
    fn numbers_are_rendered_with_their_help_and_labels() {
        let metrics = Metrics::default();
        metrics.count(Metric::Deliveries, &["handled"]);
        metrics.clone().add(Metric::Deliveries, &["handled"], 2);
        metrics.observe(Metric::RunDuration, &["plan"], Duration::from_secs(3));
        let text = metrics.render();
        assert!(
            text.contains("# TYPE lockkeeper_deliveries_total counter\n"),
            "{text}"
        );
        assert!(
            text.contains("lockkeeper_deliveries_total{outcome=\"handled\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("lockkeeper_run_duration_seconds_bucket{kind=\"plan\",le=\"5\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("# HELP lockkeeper_run_duration_seconds Duration of runs"),
            "{text}"
        );
    }

    #[test]
    fn a_gauge_that_is_not_named_any_more_falls_to_zero() {
        let metrics = Metrics::default();
        let labels = |kind: &str| vec![kind.to_owned()];
        metrics.set_all(
            Metric::QueueOldest,
            &[(labels("a"), 5.0), (labels("b"), 6.0)],
        );
        metrics.set_all(Metric::QueueOldest, &[(labels("b"), 7.0)]);
        let text = metrics.render();
        assert!(
            text.contains("lockkeeper_queue_oldest_seconds{kind=\"a\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("lockkeeper_queue_oldest_seconds{kind=\"b\"} 7\n"),
            "{text}"
        );
    }

    #[test]
    fn servers_in_one_process_count_apart() {
        let (one, other) = (Metrics::default(), Metrics::default());
        one.count(Metric::Deliveries, &["handled"]);
        assert!(!other.render().contains("handled"));
    }
}
