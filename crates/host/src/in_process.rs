//! The operations within this process, without a server: for `--in-process`, and for the child of a
//! `<Sandbox>`.

use stockade_cli::data_dir::{configured_data_path, data_path};
use stockade_cli::problem::Failure;
use stockade_cli::remote::{LocalFuture, LocalServices, Remote, block_on};
use stockade_core::{Code, Problem};

use crate::confined::Child;
use crate::host::Host;
use crate::options::Options;
use crate::programs;

/// Starts the operations for `--in-process`.
pub(crate) fn launch() -> LocalFuture<Result<LocalServices, Failure>> {
    Box::pin(async {
        let programs = programs::programs()?;
        let named = configured_data_path()?;
        let host = open(Options::for_command(data_path, named, programs, variable)?).await?;
        let (sandboxes, workflows) = (host.sandboxes(), host.workflows());
        Ok(LocalServices { sandboxes, workflows, end: Box::pin(host.end()) })
    })
}

/// Runs `act` with the operations of a child, which has no sandboxes.
pub(crate) fn run<T, F, Fut>(child: Child<'_>, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let options = Options::for_child(child, programs::programs()?, variable)?;
    block_on(async {
        let host = open(options).await?;
        let answer = act(Remote::new(host.sandboxes(), host.workflows())).await;
        host.end().await;
        answer
    })
}

async fn open(options: Options) -> Result<Host, Problem> {
    let data = options.data.clone();
    Host::launch(options).await?.ok_or_else(|| {
        Problem::new(Code::Conflict, "another process uses the data directory")
            .because(format!(
                "a server, or another command with `--in-process`, uses {}",
                data.display()
            ))
            .remedied_by("run the command without `--in-process`: the server does the work")
    })
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
