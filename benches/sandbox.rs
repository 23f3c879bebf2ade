//! Measures the cost of the sandbox and the limits for each program of a run, and for each call of git.

use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper::process::{Cmd, LeaseHeartbeat, Mechanism, RunLimits, Sandbox, Supervisor};
use lockkeeper::workflow::{ChildEnvironment, RunSandbox};
use tokio_util::sync::CancellationToken;

use crate::report::{Section, Table};
use crate::stats::Samples;

/// Number of starts of each kind. The kinds take turns, so that other load on the machine affects all of them alike.
const ROUNDS: usize = 300;

/// Measures the sandbox and returns the section of the report.
pub async fn measure(work: &Path) -> anyhow::Result<Section> {
    let environment =
        ChildEnvironment::from_iter([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let limits = RunLimits {
        memory: Some(8 << 30),
        processes: Some(100_000),
        file_size: Some(1 << 40),
        disk: Some(1 << 40),
        cpu: Some(Duration::from_hours(1)),
    };
    let held_by = |mechanism| {
        RunSandbox::new(Some(mechanism), &environment, limits)
            .writes([work.to_owned()])
            .common()
    };
    let sandbox = held_by(Mechanism::Landlock);
    let namespaces = held_by(Mechanism::Bubblewrap("/usr/bin/bwrap".into()));
    let kinds: [(&str, Option<Sandbox>, RunLimits); 4] = [
        ("without", None, RunLimits::default()),
        ("in the sandbox", sandbox.clone(), RunLimits::default()),
        ("in the sandbox, with limits", sandbox.clone(), limits),
        (
            "in namespaces of bubblewrap, with limits",
            namespaces,
            limits,
        ),
    ];
    let mut runs: Vec<Samples> = kinds.iter().map(|_| Samples::default()).collect();
    let mut calls: Vec<Samples> = kinds[..2].iter().map(|_| Samples::default()).collect();
    for _ in 0..ROUNDS {
        for ((_, sandbox, limits), samples) in kinds.iter().zip(&mut runs) {
            samples.push(run(sandbox.clone(), *limits).await?);
        }
        for ((_, sandbox, _), samples) in kinds.iter().zip(&mut calls) {
            let begun = Instant::now();
            program().sandbox(sandbox.clone()).output().await?;
            samples.push(begun.elapsed());
        }
    }
    let mut table = Table::new(&["ms", "p50", "p90", "p99", "max", "samples"]);
    for ((name, ..), samples) in kinds.iter().zip(&runs) {
        table.row(
            format!("`true` under the supervisor, {name}"),
            samples.cells(),
        );
    }
    for ((name, ..), samples) in kinds.iter().zip(&calls) {
        table.row(format!("`true` as a short call, {name}"), samples.cells());
    }
    let mut section = Section::new("Sandbox");
    section.note(format!("Kinds take turns, {ROUNDS} rounds. A run may cost at most 5 ms more in the sandbox, which is Landlock unless told otherwise."));
    Ok(section.with_table(table))
}

fn program() -> Cmd {
    Cmd::new("true").env("PATH", "/usr/bin:/bin")
}

async fn run(sandbox: Option<Sandbox>, limits: RunLimits) -> anyhow::Result<Duration> {
    let supervisor = Supervisor {
        exe: env!("CARGO_BIN_EXE_lockkeeper").into(),
        grace: Duration::from_secs(1),
        heartbeat: LeaseHeartbeat::unneeded(),
    };
    let (lines, _nobody) = tokio::sync::mpsc::channel(1);
    let begun = Instant::now();
    program()
        .sandbox(sandbox)
        .limits(limits)
        .supervised(&supervisor)
        .run(lines, &CancellationToken::new())
        .await?;
    Ok(begun.elapsed())
}
