//! The program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper::cli::run(std::env::args_os())
}
