//! The program `stockade-server`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    ExitCode::from(stockade_host::run(&words))
}
