//! The way from a command to the operations: the local server of the data directory, started where
//! there is none; or with `--in-process` the service in this very process.

mod standing;
mod start;
mod successive;

use std::fmt::Debug;
use std::sync::Arc;

use stockade_api::{Caller, Problem, Sandboxes, Workflows};
use stockade_core::{Code, OwnerId};
use stockade_host::{Child, Host, Options};

use crate::args::held::Way;
use crate::problem::{Failure, caused};
use crate::run::{data_path, named_data_path};
use crate::server::processes;

pub(crate) use self::standing::Standing;
use self::successive::Successive;

/// Operations, and in whose name.
#[derive(Debug)]
pub(crate) struct Remote {
    /// What operations are asked of.
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    /// The same for runs of workflows.
    pub(crate) workflows: Arc<dyn Workflows>,
    caller: Caller,
}

impl Remote {
    fn new(sandboxes: Arc<dyn Sandboxes>, workflows: Arc<dyn Workflows>) -> Self {
        let owner = OwnerId::of_user(rustix::process::geteuid().as_raw());
        Self { sandboxes, workflows, caller: Caller::new(owner) }
    }

    /// The one who asks, for an operation that only looks.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The one who asks, with a fresh name for an operation that changes something: however often
    /// it is sent, it is done once.
    pub(crate) fn once(&self) -> Caller {
        self.caller.clone().once(uuid::Uuid::now_v7().simple().to_string())
    }

    /// The one who asks, for an operation that was perhaps asked for before in this place, under the
    /// same name.
    pub(crate) fn as_before(&self, name: &str) -> Caller {
        self.caller.clone().once(name.to_owned())
    }
}

/// Does something with the operations on the data directory's sandboxes.
pub(crate) fn with<T, F, Fut>(way: Way, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    if way.in_process {
        return in_process(None, act);
    }
    block_on(async {
        let data = data_path()?;
        let server = stockade_api::Remote(Successive::find_or_start(data).await?);
        let server = Arc::new(server);
        act(Remote::new(Arc::clone(&server) as _, server)).await
    })
}

/// The same in this process; without sandboxes where a data directory is named.
pub(crate) fn in_process<T, F, Fut>(child: Option<Child<'_>>, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let variable = |name: &str| std::env::var_os(name);
    let programs = processes::programs();
    let options = match child {
        Some(child) => Options::for_child(child, programs, variable)?,
        None => Options::for_command(data_path, named_data_path()?, programs, variable)?,
    };
    block_on(async {
        let data = options.data.clone();
        let host = Host::launch(options).await?.ok_or_else(|| {
            Problem::new(Code::Conflict, "another process has the data directory")
                .because(format!("a server, or a command like this one, uses {}", data.display()))
                .remedied_by("leave `--in-process` out: the server does it")
        })?;
        let answer = act(Remote::new(host.sandboxes(), host.workflows())).await;
        host.end().await;
        answer
    })
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let answer = tokio.block_on(work);
    // A thread may wait for standard input for ever.
    tokio.shutdown_background();
    answer
}
