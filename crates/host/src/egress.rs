//! The confined egress process: its standard input is the socket of its owner, a one-shot run or a
//! server.

use std::ffi::OsString;
use std::os::fd::AsFd as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_cli::programs::check_build;
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{confined, seccomp};

/// Serves the owner until it closes its socket. Returns the exit code of the process.
pub(crate) fn process(arguments: &[OsString]) -> u8 {
    let serve = || -> Result<(), Box<dyn std::error::Error>> {
        let [] = check_build(arguments).map_err(|problem| problem.message)? else {
            return Err("it has no arguments".into());
        };
        let owner = std::io::stdin().as_fd().try_clone_to_owned()?;
        // Created before the walls, which prevent starting threads and opening files.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Each connection needs two file descriptors, and the soft limit of many systems is 1024.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
        confined::confine(&ResourceLimits::default())?;
        seccomp::install(seccomp::traffic_program())?;
        Ok(runtime.block_on(stockade_egress::serve(owner))?)
    };
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // The owner reads this.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            1
        }
    }
}
