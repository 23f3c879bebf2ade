//! Measures the promises about speed and size, and prints them (`make bench`). Writes nothing into the repository.
//!
//! Tests never read the wall clock, because a busy machine would fail them although the code is right. Speed is shown
//! here instead, by the release build of the real program, beside the time that the disk alone needs in the same run.
//! `docs/benchmarks.md` explains each figure.

#![expect(clippy::print_stdout, reason = "a program that prints a report")]

mod accounts;
mod arguments;
mod beside;
mod checkouts;
mod claims;
mod comment;
mod deliveries;
mod discovery;
mod disk;
mod door;
mod large;
mod line;
mod load;
mod locks;
mod machine;
mod memory;
mod mirrors;
mod pages;
mod policies;
mod queue;
mod recovery;
mod registry;
mod report;
mod sandbox;
mod server;
mod stats;
mod stub;
mod support;
mod whole;

use std::process::ExitCode;

use anyhow::Context as _;

use arguments::{Arguments, Part};
use report::Section;

fn main() -> ExitCode {
    if let Some(tools) = stub::called_as_terraform() {
        return stub::main(&tools);
    }
    if registry::is_constant_server() {
        return registry::answer_constantly();
    }
    let measured =
        Arguments::parse(std::env::args().skip(1)).and_then(|arguments| measure(&arguments));
    match measured {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            println!("These figures do not count:\n- {}", failures.join("\n- "));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints every section as soon as it is measured, and returns the failures in them.
fn measure(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    tempfile::env::override_temp_dir(&arguments.dir)
        .map_err(|dir| anyhow::anyhow!("{} is used", dir.display()))?;
    let work = tempfile::Builder::new()
        .prefix("lockkeeper-bench-")
        .tempdir();
    let work =
        work.with_context(|| format!("cannot make a directory in {}", arguments.dir.display()))?;
    let runtime =
        tokio::runtime::Runtime::new().context("cannot start the threads of the program")?;
    let mut failures = Vec::new();
    let mut print = |section: Section| {
        println!("{section}");
        failures.extend(section.failures);
    };
    print(runtime.block_on(machine::facts(work.path()))?);
    if arguments.wants(Part::Door) {
        print(
            runtime
                .block_on(door::measure(work.path()))
                .context("webhook acknowledgement")?,
        );
    }
    if arguments.wants(Part::Locks) {
        print(
            runtime
                .block_on(locks::measure(work.path()))
                .context("locks")?,
        );
    }
    if arguments.wants(Part::Line) {
        print(
            runtime
                .block_on(line::measure(work.path()))
                .context("locks in demand")?,
        );
    }
    if arguments.wants(Part::Claims) {
        print(
            runtime
                .block_on(claims::measure(work.path()))
                .context("claims")?,
        );
    }
    if arguments.wants(Part::Queue) {
        print(
            runtime
                .block_on(queue::measure(work.path()))
                .context("jobs")?,
        );
    }
    if arguments.wants(Part::Recovery) {
        print(
            runtime
                .block_on(recovery::measure(work.path()))
                .context("recovery")?,
        );
    }
    if arguments.wants(Part::Comment) {
        print(
            runtime
                .block_on(comment::measure(work.path()))
                .context("webhook to comment")?,
        );
    }
    if arguments.wants(Part::Whole) {
        print(
            runtime
                .block_on(whole::measure(work.path()))
                .context("whole commands")?,
        );
    }
    if arguments.wants(Part::Beside) {
        print(
            runtime
                .block_on(beside::measure(work.path()))
                .context("a small plan beside a large one")?,
        );
    }
    if arguments.wants(Part::Pages) {
        print(
            runtime
                .block_on(pages::measure(work.path()))
                .context("pages")?,
        );
    }
    if arguments.wants(Part::Discovery) {
        print(discovery::measure(work.path()).context("discovery")?);
    }
    if arguments.wants(Part::Policies) {
        print(
            runtime
                .block_on(policies::measure(work.path()))
                .context("policies")?,
        );
    }
    if arguments.wants(Part::Registry) {
        let sizes = registry::Sizes::new(arguments.is_full);
        runtime
            .block_on(registry::measure(work.path(), sizes, &mut print))
            .context("the registry")?;
    }
    // From here on, each statement is counted, which takes some time.
    if arguments.wants(Part::Mirrors) {
        print(
            runtime
                .block_on(mirrors::measure(work.path()))
                .context("the scheduler of mirrors")?,
        );
    }
    if arguments.wants(Part::Checkouts) {
        print(
            runtime
                .block_on(checkouts::measure(work.path()))
                .context("checkouts")?,
        );
    }
    if arguments.wants(Part::Large) {
        print(
            runtime
                .block_on(large::measure(work.path()))
                .context("a large repository")?,
        );
    }
    if arguments.wants(Part::Accounts) {
        runtime
            .block_on(accounts::measure(work.path(), &mut print))
            .context("accounts")?;
    }
    if arguments.wants(Part::Sandbox) {
        print(
            runtime
                .block_on(sandbox::measure(work.path()))
                .context("the sandbox")?,
        );
    }
    print(machine::afterwards());
    Ok(failures)
}
