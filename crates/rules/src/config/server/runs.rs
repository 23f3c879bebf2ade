//! Settings for runs: their time limits, their number, and their variables.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::environment::{PassEnvironment, read_pass_environment};
use super::reader::{ReadResult, SettingReader};
use super::section::{nonzero, section};

/// Number of parallel runs for `--parallel-pool-size 0`, the default of the setting (reference 10).
const PARALLEL: NonZeroUsize = NonZeroUsize::new(15).expect("15 is not 0");

section! {
    /// Limits of runs, and their variables.
    pub struct RunConfig in Terraform {
        /// Time after which a run is stopped.
        pub timeout: Duration = time("run-timeout").or("2h"),

        /// Time that a stopping server waits for runs before it interrupts them; an interrupted run has the same
        /// time to end.
        pub shutdown_grace: Duration = time("shutdown-grace").or("5m"),

        /// Maximum number of concurrent runs; 0 means the default.
        pub parallel: NonZeroUsize = number("parallel-pool-size", "NUMBER", 0, 1000).or("15") => read_parallel,

        /// Maximum number of concurrent runs of one repository; 0 means the value of --parallel-pool-size.
        pub parallel_per_repo: Option<NonZeroUsize> =
            number("parallel-repo-size", "NUMBER", 0, 1000).or("0") => nonzero,

        /// Variables of the server that child processes get.
        pub environment: PassEnvironment = read_pass_environment from {
            /// Additional variables of the server to pass to Terraform and steps, `*` allowed. Always passed: PATH,
            /// HOME, locale, proxy and certificate variables, TF_*, TERRAGRUNT_*, AWS_*, ARM_*, AZURE_*, GOOGLE_*,
            /// GCLOUD_*, CLOUDSDK_*, KUBE_*, DEFAULT_CONFTEST_VERSION. Never passed: LOCKKEEPER_*, ATLANTIS_*, DATABASE_URL and PGPASSWORD,
            /// which contain the server's own secrets.
            list("pass-environment", "LIST"),

            /// Variables to pass to plans but not to applies, `*` allowed, such as those of a read-only role.
            list("pass-environment-plan", "LIST"),

            /// Variables to pass to applies, imports and `state rm` but not to plans, `*` allowed.
            list("pass-environment-apply", "LIST"),
        },
    }
}

fn read_parallel(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<NonZeroUsize> {
    Ok(nonzero(reader, flag)?.unwrap_or(PARALLEL))
}
