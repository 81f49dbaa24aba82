//! The program `stockade`: everything that needs no engine and no database. For everything else it
//! executes `stockade-server`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: stockade_jail::InitAllocator = stockade_jail::InitAllocator;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    ExitCode::from(stockade_cli::run(&words, None))
}
