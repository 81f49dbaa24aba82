//! Taking over a data directory from a server that a command has started on demand: `stockade serve`
//! replaces it, because no user has started it. Its sandboxes and operations continue in the next one.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stockade_cli::data_dir::open_data_dir;
use stockade_client::{Client, ServerDirectory};
use stockade_core::Problem;
use tokio::net::UnixStream;

/// How long the other server may take to end.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How often it is checked whether it has ended.
const INTERVAL: Duration = Duration::from_millis(20);

/// Ends the server of a data directory if it was started on demand, and waits until it has ended.
/// Returns whether it has.
///
/// # Errors
/// If the directory cannot be used.
pub(crate) async fn end_server_on_demand(data: &Path) -> Result<bool, Problem> {
    let directory = ServerDirectory::open(open_data_dir(data)?.as_fd(), data)?;
    let deadline = Instant::now() + TIMEOUT;
    let mut is_asked = false;
    while Instant::now() < deadline {
        if directory.lock()?.is_some() {
            return Ok(true);
        }
        if !is_asked && let Ok(health) = Client::new(directory.socket()).health().await {
            if !health.on_demand {
                return Ok(false);
            }
            let Some(pid) = peer(&directory).await else { continue };
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
            is_asked = true;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(false)
}

/// The process that listens at the socket, as the kernel reports it.
async fn peer(directory: &ServerDirectory) -> Option<Pid> {
    let stream = UnixStream::connect(directory.socket()).await.ok()?;
    Pid::from_raw(stream.peer_cred().ok()?.pid()?)
}
