//! The entry point of the program. All other code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A supervisor must have one thread and no runtime, and passes its descriptors on, so this comes first.
    if let Some(code) = lockkeeper::cli::supervise::main(std::env::args_os().skip(1)) {
        return code;
    }
    // It needs neither a runtime nor settings, and limits itself.
    if let Some(code) = lockkeeper::cli::policy_engine::main(std::env::args_os().skip(1)) {
        return code;
    }
    // Before anything opens a file. A server logs if it failed.
    lockkeeper::process::reserve_secret_fd();
    lockkeeper::cli::run(std::env::args_os())
}
