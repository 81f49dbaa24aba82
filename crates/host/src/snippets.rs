//! Snippets for the playground: a runner whose first process starts with the first snippet.

use std::sync::Arc;

use async_trait::async_trait;
use stockade_cli::args::snippet::Libraries;
use stockade_core::Problem;
use stockade_server::mcp::Snippets;
use stockade_snippet::{Input, Runner, Transcript};
use tokio::sync::OnceCell;

use crate::commands::snippet_runner::{no_worker, runner};

/// Runs snippets with the library set that the environment names, else with the built-in one.
#[derive(Debug, Default)]
pub(crate) struct Workers(OnceCell<Arc<Runner>>);

#[async_trait]
impl Snippets for Workers {
    async fn run(&self, input: Input) -> Result<Transcript, Problem> {
        let libraries = Libraries { directory: None, packages: Vec::new(), fetch: None };
        let runner = self.0.get_or_try_init(async || runner(&libraries)).await?;
        // A request whose client has disconnected is dropped, which ends the worker.
        let ran = runner.run(input, std::future::pending()).await;
        ran.map_err(|error| no_worker(&error))
    }
}
