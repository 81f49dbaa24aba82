//! The floor: transactions of one insertion, without anything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio_postgres::{Client, NoTls, Statement};

use crate::Failure;

/// Connections that insert into one table.
pub(crate) struct Floor {
    connections: Vec<Arc<(Client, Statement)>>,
    next: AtomicI64,
}

impl Floor {
    pub(crate) async fn open(url: &str, connections: u32) -> Result<Self, Failure> {
        let mut opened = Vec::new();
        for _ in 0..connections {
            let (client, socket) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(socket);
            client
                .batch_execute(
                    "CREATE TABLE IF NOT EXISTS floor (workflow BIGINT, step BIGINT, name TEXT, \
                     output TEXT, PRIMARY KEY (workflow, step))",
                )
                .await?;
            let sql = "INSERT INTO floor VALUES ($1, $2, 'step', '1') RETURNING step";
            let statement = client.prepare(sql).await?;
            opened.push(Arc::new((client, statement)));
        }
        Ok(Self { connections: opened, next: AtomicI64::new(0) })
    }

    /// Commits as many insertions as workflows with so many steps record, which share the connections.
    pub(crate) async fn inserts(&self, workflows: u64, each: u64) -> Result<(), Failure> {
        let mut running = Vec::new();
        for workflow in (0..workflows).zip(self.connections.iter().cycle()) {
            let (id, connection) =
                (self.next.fetch_add(1, Ordering::Relaxed), Arc::clone(workflow.1));
            running.push(tokio::spawn(async move {
                let (client, insert) = &*connection;
                for step in 0..i64::try_from(each).unwrap_or(i64::MAX) {
                    client.query_one(insert, &[&id, &step]).await?;
                }
                Ok::<_, tokio_postgres::Error>(())
            }));
        }
        for one in running {
            one.await??;
        }
        Ok(())
    }
}
