//! The program `stockade-server`.

use std::alloc::System;
use std::process::ExitCode;

use zeroizing_alloc::ZeroAlloc;

/// Memory is erased when it is freed: the values of secrets pass through the server on their way to
/// the egress process, also in buffers of libraries.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    ExitCode::from(stockade_host::run(&words))
}
