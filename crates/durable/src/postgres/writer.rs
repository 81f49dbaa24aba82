//! The one writing connection. It takes all commands that wait, runs each in a savepoint of one
//! transaction, commits once, and only then returns the results: many workflows share one sync of
//! the server's disk, and the order of the calls is the order of the commits.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::address::Address;
use super::connection::{Connection, OUTAGE, PAUSE, Transaction, Wake, is_transient};
use super::{migrations, notifications};
use crate::sync::lock;
use crate::{BoxFuture, Channel, Error, Result, Value, Wakes};

/// The most commands in one transaction.
const MAX_BATCH: usize = 256;

/// Access to the connection.
#[derive(Debug)]
pub(super) struct Writer {
    commands: std::sync::Mutex<Option<mpsc::UnboundedSender<Box<dyn Command>>>>,
    finished: watch::Receiver<bool>,
}

impl Writer {
    /// Starts the task with the connection.
    pub(super) fn start(task: Task) -> Self {
        let (commands, waiting) = mpsc::unbounded_channel();
        let (has_finished, finished) = watch::channel(false);
        tokio::spawn(async move {
            task.run(waiting).await;
            has_finished.send_replace(true);
        });
        Self { commands: std::sync::Mutex::new(Some(commands)), finished }
    }

    pub(super) fn submit<T, F>(
        &self,
        work: impl FnMut(Transaction) -> F + Send + 'static,
    ) -> BoxFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let write = Write { work, result: Err(Error::Closed), wakes: Vec::new(), reply };
        // A closed store drops the reply, which is the answer.
        if let Some(commands) = lock(&self.commands).as_ref() {
            commands.send(Box::new(write)).ok();
        }
        Box::pin(async move { answer.await.map_err(|_| Error::Closed)? })
    }

    /// Accepts no more commands, and waits until the submitted ones are done.
    pub(super) async fn close(&self) {
        lock(&self.commands).take();
        // An error means that the task is gone.
        self.finished.clone().wait_for(|finished| *finished).await.ok();
    }
}

/// One write that waits for the connection.
trait Command: Send {
    /// Does the work, and stores its result. An error means that the transaction failed.
    fn run(&mut self, connection: Arc<Connection>) -> Running<'_>;
    /// Whether the work succeeded.
    fn succeeded(&self) -> bool;
    /// The channels that the work has changed.
    fn wakes(&self) -> &[Wake];
    /// Sends the result, after the transaction was committed or failed.
    fn answer(self: Box<Self>, committed: Result<()>, wakes: &Wakes);
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

struct Write<T, W> {
    work: W,
    result: Result<T>,
    wakes: Vec<Wake>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, W, F> Command for Write<T, W>
where
    T: Send,
    W: FnMut(Transaction) -> F + Send,
    F: Future<Output = Result<T>> + Send,
{
    fn run(&mut self, connection: Arc<Connection>) -> Running<'_> {
        Box::pin(async move {
            let transaction = Transaction::new(Arc::clone(&connection));
            self.result = (self.work)(transaction.clone()).await;
            self.wakes = transaction.take_wakes();
            match &self.result {
                Err(error) if is_transient(error) || connection.is_closed() => Err(error.clone()),
                _ => Ok(()),
            }
        })
    }

    fn succeeded(&self) -> bool {
        self.result.is_ok()
    }

    fn wakes(&self) -> &[Wake] {
        &self.wakes
    }

    fn answer(self: Box<Self>, committed: Result<()>, wakes: &Wakes) {
        let result = committed.and(self.result);
        if result.is_ok() {
            for Wake { channel, .. } in &self.wakes {
                wakes.wake(channel);
            }
        }
        // The caller may have stopped waiting; the write is still committed.
        self.reply.send(result).ok();
    }
}

/// Undoes a command that has failed; the next one begins at the same place.
const UNDO: &str = "ROLLBACK TO SAVEPOINT command";

/// Leaves the last command of a transaction, and enters the next one.
async fn enter(connection: &Connection, sql: Option<&str>) -> Result<()> {
    match sql {
        Some(sql) => connection.batch(sql).await.map(drop),
        None => Ok(()),
    }
}

/// The task with the connection.
#[derive(Debug)]
pub(super) struct Task {
    address: Arc<Address>,
    exclusive: bool,
    connection: Arc<Connection>,
    sender: String,
    wakes: Arc<Wakes>,
}

impl Task {
    pub(super) fn new(
        address: Arc<Address>,
        exclusive: bool,
        connection: Connection,
        sender: String,
        wakes: Arc<Wakes>,
    ) -> Self {
        Self { address, exclusive, connection: Arc::new(connection), sender, wakes }
    }

    async fn run(mut self, mut waiting: mpsc::UnboundedReceiver<Box<dyn Command>>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while waiting.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.work(std::mem::take(&mut batch)).await;
        }
    }

    async fn work(&mut self, mut batch: Vec<Box<dyn Command>>) {
        let outcome = self.transact(&mut batch).await;
        if outcome.is_ok() || batch.len() == 1 {
            for command in batch {
                command.answer(outcome.clone(), &self.wakes);
            }
            return;
        }
        // One by one, so that only the command that cannot be written fails.
        for command in batch {
            let mut alone = [command];
            let outcome = self.transact(&mut alone).await;
            let [command] = alone;
            command.answer(outcome, &self.wakes);
        }
    }

    /// Runs the commands in one transaction, and again when it was lost.
    async fn transact(&mut self, batch: &mut [Box<dyn Command>]) -> Result<()> {
        let deadline = Instant::now() + OUTAGE;
        loop {
            let error = match self.attempt(batch).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_lost = self.connection.is_closed() || is_transient(&error);
            if !is_lost || Instant::now() >= deadline {
                return Err(error);
            }
            tracing::warn!(%error, "a transaction of the database is repeated");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Runs the commands in one transaction. Fails only if nothing of it was committed, or if that
    /// cannot be found out.
    async fn attempt(&mut self, batch: &mut [Box<dyn Command>]) -> Result<()> {
        self.reconnect().await?;
        let connection = Arc::clone(&self.connection);
        // Nothing is sent before it has begun: a statement after a `BEGIN` that was cancelled would be a
        // transaction of its own.
        let transaction = connection.batch("BEGIN; SELECT pg_current_xact_id()").await?;
        if let Err(error) = self.run_all(&connection, batch).await {
            if !connection.is_closed() {
                connection.batch("ROLLBACK").await.ok();
            }
            return Err(error);
        }
        if batch.iter().all(|command| !command.succeeded()) {
            return connection.batch("ROLLBACK").await.map(drop);
        }
        match connection.batch("COMMIT").await {
            Ok(_) => Ok(()),
            Err(error) if connection.is_closed() => {
                self.outcome(transaction.as_deref(), error).await
            }
            Err(error) => Err(error),
        }
    }

    async fn run_all(
        &self,
        connection: &Arc<Connection>,
        batch: &mut [Box<dyn Command>],
    ) -> Result<()> {
        // Without a savepoint the end of the transaction undoes the only command.
        let shares = batch.len() > 1;
        let mut before = shares.then_some("SAVEPOINT command");
        let mut changed: Vec<Channel> = Vec::new();
        for command in batch {
            // Sent together with the first statement of the command, which fails if this fails.
            let (entered, ran) = tokio::join!(
                biased;
                enter(connection, before),
                command.run(Arc::clone(connection))
            );
            entered?;
            ran?;
            if command.succeeded() {
                for Wake { channel, is_notified } in command.wakes() {
                    if *is_notified && !changed.contains(channel) {
                        changed.push(channel.clone());
                    }
                }
                before = shares.then_some("RELEASE SAVEPOINT command; SAVEPOINT command");
            } else if shares {
                before = Some(UNDO);
            } else {
                return Ok(());
            }
        }
        if before == Some(UNDO) {
            enter(connection, before).await?;
        }
        let transaction = Transaction::new(Arc::clone(connection));
        notifications::notify(&transaction, &self.address.schema, &self.sender, &changed).await
    }

    /// Whether a transaction was committed whose answer was lost, asked over a new connection. When
    /// it was not, the error is that of the lost connection, and it can run again.
    async fn outcome(&mut self, transaction: Option<&str>, lost: Error) -> Result<()> {
        let Some(transaction) = transaction else { return Err(lost) };
        let deadline = Instant::now() + OUTAGE;
        let parameters = [Value::Text(transaction.to_owned())];
        while Instant::now() < deadline {
            let status = async {
                let connection = Connection::open(&self.address, Box::new(|_| {})).await?;
                let sql = "SELECT pg_xact_status(?1::text::xid8)";
                connection.query(sql, &parameters).await
            };
            match status.await.ok().as_deref() {
                Some([row, ..]) if row.optional_text(0)? == Some("committed") => return Ok(()),
                Some([row, ..]) if row.optional_text(0)? == Some("aborted") => return Err(lost),
                // In progress: the server has not noticed yet that its client is gone.
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
        Err(lost)
    }

    async fn reconnect(&mut self) -> Result<()> {
        if self.connection.is_closed() {
            let connection = migrations::connect(&self.address, self.exclusive).await?;
            self.connection = Arc::new(connection);
        }
        Ok(())
    }
}
