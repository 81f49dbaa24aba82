//! The contender of this project.

use std::sync::Arc;
use std::time::Duration;

use stockade_durable::postgres::{Options, Postgres};
use stockade_durable::{Context, Engine, Queue, StartOptions, Store};

use crate::Failure;

/// How long the engine may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The queue, with the limits that the product gives its own.
pub(crate) const QUEUE: &str = "bench";

/// An engine on a schema of the server.
pub(crate) struct Stockade {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
}

impl Stockade {
    pub(crate) async fn launch(url: &str, name: &str) -> Result<Self, Failure> {
        let options = Options {
            url: url.to_owned(),
            schema: "stockade".to_owned(),
            certificate_authorities: Vec::new(),
            migrations: &[],
            exclusive: false,
        };
        let store: Arc<dyn Store> = Arc::new(Postgres::open(options).await?);
        let builder = Engine::builder(Arc::clone(&store))
            .executor_id(name.to_owned())
            .queue(Queue {
                name: QUEUE,
                concurrency: Some(30),
                worker_concurrency: Some(3),
                rate_limit: None,
            })
            .workflow("steps", |context: Context, count: u64| async move {
                let mut sum = 0;
                for number in 0..count {
                    sum += context.step("step", |_| async move { Ok(number) }).await?;
                }
                Ok(sum)
            });
        Ok(Self { engine: builder.launch().await?, store })
    }

    /// Runs workflows side by side to their ends.
    pub(crate) async fn steps(&self, workflows: u64, each: u64) -> Result<(), Failure> {
        let mut running = Vec::new();
        for _ in 0..workflows {
            let engine = self.engine.clone();
            running.push(tokio::spawn(async move {
                let handle = engine.start("steps", &each, StartOptions::default()).await?;
                handle.get_result::<u64>().await
            }));
        }
        for one in running {
            one.await??;
        }
        Ok(())
    }

    pub(crate) async fn end(self) -> Result<(), Failure> {
        Ok(self.engine.shutdown(PATIENCE).await?)
    }
}
