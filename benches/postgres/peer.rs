//! The official library of DBOS.

use dbos::{Config, DBOS, WorkflowRef};

use crate::Failure;

/// An instance on a schema of the server.
pub(crate) struct Peer {
    dbos: DBOS,
    steps: WorkflowRef<u64, u64>,
}

impl Peer {
    pub(crate) async fn launch(url: &str, connections: u32) -> Result<Self, Failure> {
        let dbos = DBOS::new(Config {
            app_version: Some("1".to_owned()),
            max_connections: connections,
            ..Config::new("bench", url)
        });
        let steps = dbos.register_workflow("steps", |count: u64| async move {
            let mut sum = 0;
            for number in 0..count {
                sum += dbos::step("step", move || async move { dbos::Result::Ok(number) }).await?;
            }
            dbos::Result::Ok(sum)
        })?;
        dbos.launch().await?;
        Ok(Self { dbos, steps })
    }

    /// Runs workflows side by side to their ends.
    pub(crate) async fn steps(&self, workflows: u64, each: u64) -> Result<(), Failure> {
        let mut running = Vec::new();
        for _ in 0..workflows {
            let steps = self.steps.clone();
            running.push(tokio::spawn(async move { steps.run(each).await }));
        }
        for one in running {
            one.await??;
        }
        Ok(())
    }

    pub(crate) async fn end(self) {
        self.dbos.shutdown().await;
    }
}
