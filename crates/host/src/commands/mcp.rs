//! `stockade mcp`: tools for agents, over the standard streams. Only the protocol is written to the
//! standard output.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::{Code, Problem};
use stockade_server::mcp::{
    PlaygroundLink, RunInSandbox, Snippets, Tools, serve, use_playground_of,
};
use stockade_snippet::{Input, Runner, Transcript};

use super::snippet::runner::{no_worker, runner};
use stockade_bundle::data::DataDir;
use stockade_cli::args::snippet::Mcp;
use stockade_cli::data_dir::data_path;
use stockade_cli::problem::{Failure, caused};
use stockade_client::ServerDirectory;

/// Serves until the end of the input.
pub(crate) fn run(arguments: &Mcp) -> Result<u8, Failure> {
    let runner = runner(&arguments.libraries)?;
    if let Some(origin) = running_server() {
        use_playground_of(origin);
    }
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let served = tokio.block_on(answer(runner));
    // A thread may still be blocked reading input.
    tokio.shutdown_background();
    served.map(|()| 0).map_err(Failure::from)
}

/// The origin of the server of the data directory, if it listens for browsers. Tools work without one,
/// and without a data directory.
fn running_server() -> Option<String> {
    let path = data_path().ok()?;
    let data = DataDir::find(&path).ok()??;
    ServerDirectory::find(data.as_fd(), &path).ok()??.read_address()
}

async fn answer(runner: Arc<Runner>) -> Result<(), Problem> {
    // If the tool is unavailable, the agent gets the error immediately, not at its first call.
    runner.warm().await.map_err(|error| no_worker(&error))?;
    let tools = Tools::default().with(RunInSandbox(Workers(runner))).with(PlaygroundLink);
    let served = serve(tools, env!("CARGO_PKG_VERSION"), tokio::io::stdin(), tokio::io::stdout());
    served.await.map_err(|error| caused(Code::InvalidInput, &error))
}

struct Workers(Arc<Runner>);

#[async_trait]
impl Snippets for Workers {
    async fn run(&self, input: Input) -> Result<Transcript, Problem> {
        // A cancelled call is dropped, which ends the worker.
        let ran = self.0.run(input, std::future::pending()).await;
        ran.map_err(|error| no_worker(&error))
    }
}
