//! The program `stockade-init`: process 1 of a sandbox whose container another engine has made. It is
//! linked statically, so that it runs with any image. Everything that it does is in the crate `jail`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [socket] = arguments.as_slice() else { return ExitCode::from(2) };
    ExitCode::from(stockade_jail::container::run(std::path::Path::new(socket)))
}
