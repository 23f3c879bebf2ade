//! The `lockkeeper` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A supervisor must have one thread and no runtime, so this comes first.
    if let Some(code) = lockkeeper::cli::supervise::main(std::env::args_os().skip(1)) {
        return code;
    }
    ExitCode::SUCCESS
}
