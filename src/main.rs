//! The entry point of the program. All other code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A supervisor must have one thread and no runtime, so this comes first.
    lockkeeper::cli::supervise::main(std::env::args_os().skip(1))
        .unwrap_or_else(|| lockkeeper::cli::run(std::env::args_os()))
}
