//! The way from a command to the operations: the local server of the data directory, started where
//! there is none; or with `--in-process` the service in this very process.

mod start;

use std::fmt::Debug;
use std::sync::Arc;

use stockade_api::{Caller, Problem, Sandboxes};
use stockade_core::Code;

use crate::problem::{Failure, caused};
use crate::server;

/// Operations, and in whose name.
#[derive(Debug)]
pub(crate) struct Remote {
    /// What operations are asked of.
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    /// The place of the server's socket, kept for as long as it is used.
    _place: Option<server::Place>,
    caller: Caller,
}

impl Remote {
    /// The one who asks, for an operation that only looks.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The one who asks, with a fresh name for an operation that changes something: however often
    /// it is sent, it is done once.
    pub(crate) fn once(&self) -> Caller {
        self.caller.clone().once(uuid::Uuid::now_v7().simple().to_string())
    }
}

/// Does something with the server of the data directory.
pub(crate) fn with<T, F, Fut>(act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let answer = tokio.block_on(async { act(connect().await?).await });
    // A thread may wait for standard input for ever.
    tokio.shutdown_background();
    answer
}

async fn connect() -> Result<Remote, Problem> {
    let data = crate::run::data_path()?;
    let owner = server::owner()?;
    let (place, client) = start::find_or_start(&data).await?;
    let sandboxes = Arc::new(stockade_api::Remote(client));
    Ok(Remote { sandboxes, _place: Some(place), caller: Caller::new(owner.id) })
}
