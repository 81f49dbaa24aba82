//! One connection: its deadlines, its prepared statements, and the meaning of its errors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage, Statement};
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::value;
use crate::sync::lock;
use crate::{Channel, Error, Result, Row, Value};

/// The longest time that one statement takes, with its way to the server and back.
const STATEMENT_DEADLINE: Duration = Duration::from_secs(90);

/// How long work is repeated that lost its connection, or lost against another process.
pub(super) const OUTAGE: Duration = Duration::from_secs(20);

/// The pause before it is repeated.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// How many statements one connection keeps prepared.
const PREPARED: usize = 512;

/// Receives what the server sends without being asked.
pub(super) type Receiver = Box<dyn FnMut(AsyncMessage) + Send>;

/// A connection to the server. Dropping it ends it.
pub(super) struct Connection {
    client: Client,
    prepared: Mutex<HashMap<(String, Vec<u32>), Statement>>,
    /// Ends the task that reads and writes the socket.
    _driver: tokio_util::sync::DropGuard,
    /// Is cancelled when the connection has ended.
    pub(super) ended: CancellationToken,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, within the time of the address.
    pub(super) async fn open(address: &Address, receiver: Receiver) -> Result<Self> {
        let limit = address.config.get_connect_timeout().copied().unwrap_or(STATEMENT_DEADLINE);
        // The driver's own limit is for each address of a name, and not for the handshake.
        let connecting = async {
            match &address.tls {
                Some(tls) => {
                    let (client, socket) = address.config.connect(tls.clone()).await?;
                    Ok(Self::drive(client, socket, receiver))
                }
                None => {
                    let (client, socket) = address.config.connect(NoTls).await?;
                    Ok(Self::drive(client, socket, receiver))
                }
            }
        };
        let late =
            || Error::Storage { message: format!("{} does not answer", address.place().display()) };
        let connected = tokio::time::timeout(limit, connecting).await.map_err(|_| late())?;
        connected.map_err(|error: tokio_postgres::Error| connect_error(address, &error))
    }

    fn drive<S, T>(
        client: Client,
        mut socket: tokio_postgres::Connection<S, T>,
        mut receiver: Receiver,
    ) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let stop = CancellationToken::new();
        let ended = CancellationToken::new();
        let driver = stop.clone().drop_guard();
        let has_ended = ended.clone();
        tokio::spawn(async move {
            let _ended = has_ended.drop_guard();
            loop {
                let message = std::future::poll_fn(|cx| socket.poll_message(cx));
                let message = tokio::select! {
                    () = stop.cancelled() => return,
                    message = message => message,
                };
                match message {
                    Some(Ok(message)) => receiver(message),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the connection to the database ended");
                        return;
                    }
                    None => return,
                }
            }
        });
        Self { client, prepared: Mutex::default(), _driver: driver, ended }
    }

    /// Whether the connection has ended, or answered too late to be used again.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.ended.is_cancelled()
    }

    /// Runs a query.
    pub(super) async fn query(&self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>> {
        let rows = self.in_time(async {
            let statement = self.prepare(sql, parameters).await?;
            self.client.query(&statement, &erased(parameters)).await
        });
        rows.await?.iter().map(value::row).collect()
    }

    /// Runs a statement; returns how many rows it changed.
    pub(super) async fn execute(&self, sql: &str, parameters: &[Value]) -> Result<u64> {
        self.in_time(async {
            let statement = self.prepare(sql, parameters).await?;
            self.client.execute(&statement, &erased(parameters)).await
        })
        .await
    }

    /// Runs statements without parameters; returns the first column of the last row.
    pub(super) async fn batch(&self, sql: &str) -> Result<Option<String>> {
        let messages = self.in_time(self.client.simple_query(sql)).await?;
        let column = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(messages.iter().rev().find_map(column))
    }

    async fn prepare(
        &self,
        sql: &str,
        parameters: &[Value],
    ) -> Result<Statement, tokio_postgres::Error> {
        let types: Vec<Type> = parameters.iter().map(Value::postgres_type).collect();
        let key = (sql.to_owned(), types.iter().map(Type::oid).collect::<Vec<_>>());
        if let Some(statement) = lock(&self.prepared).get(&key) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare_typed(&value::numbered(sql), &types).await?;
        let mut prepared = lock(&self.prepared);
        if prepared.len() >= PREPARED {
            prepared.clear();
        }
        prepared.insert(key, statement.clone());
        Ok(statement)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let limited = tokio::time::timeout(STATEMENT_DEADLINE, work).await;
        let late = |_| {
            // What the server does with the statement is unknown: the connection is not used again.
            self.ended.cancel();
            Error::Storage { message: "the database server does not answer".to_owned() }
        };
        limited.map_err(late)?.map_err(|error| {
            // The server says that it ends the connection before it does.
            if error.code().is_some_and(|code| code.code().starts_with("57P0")) {
                self.ended.cancel();
            }
            storage_error(&error)
        })
    }
}

fn erased(parameters: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// A transaction of the writer, in which one write runs.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    connection: Arc<Connection>,
    wakes: Arc<Mutex<Vec<Wake>>>,
}

/// A channel to wake once a transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) channel: Channel,
    /// Whether the other processes are notified, too. The costs of a notification grow with their number,
    /// so that what few of them wait for is read from time to time instead.
    pub(super) is_notified: bool,
}

impl Transaction {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, wakes: Arc::default() }
    }

    /// Prepares a statement, unless it is prepared: the next use of it is sent without a wait.
    pub(super) async fn prepare(&self, sql: &str, parameters: &[Value]) -> Result<()> {
        let connection = &self.connection;
        connection.in_time(connection.prepare(sql, parameters)).await.map(drop)
    }

    pub(super) async fn query(&self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>> {
        self.connection.query(sql, parameters).await
    }

    /// The first row of a query.
    pub(super) async fn first(&self, sql: &str, parameters: &[Value]) -> Result<Option<Row>> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    pub(super) async fn execute(&self, sql: &str, parameters: &[Value]) -> Result<u64> {
        self.connection.execute(sql, parameters).await
    }

    pub(super) async fn batch(&self, sql: &str) -> Result<()> {
        self.connection.batch(sql).await.map(drop)
    }

    /// Wakes the waiters of this process once the transaction is committed. Those of other processes read
    /// the store from time to time.
    pub(super) fn wake(&self, channel: Channel) {
        lock(&self.wakes).push(Wake { channel, is_notified: false });
    }

    /// Wakes the waiters of all processes once the transaction is committed.
    pub(super) fn notify(&self, channel: Channel) {
        lock(&self.wakes).push(Wake { channel, is_notified: true });
    }

    /// The channels to wake, which are forgotten here.
    pub(super) fn take_wakes(&self) -> Vec<Wake> {
        std::mem::take(&mut lock(&self.wakes))
    }
}

/// Converts an error of the server or of the connection.
fn storage_error(error: &tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else {
        if error.is_closed() {
            return Error::Storage { message: "the connection to the database ended".to_owned() };
        }
        let message = full_message(error);
        let is_input = message.contains("error serializing parameter")
            || message.contains("error deserializing column");
        return if is_input { Error::invalid(message) } else { Error::Storage { message } };
    };
    let message = refusal.message().to_owned();
    let code = refusal.code();
    match code.code().get(..2) {
        Some("53") if *code == SqlState::DISK_FULL => Error::StorageFull,
        Some("23") => Error::Conflict { what: message },
        Some("22" | "42" | "21" | "0A") => Error::invalid(message),
        _ => Error::Storage { message: format!("{message} ({})", code.code()) },
    }
}

/// Whether a statement failed only because an earlier one of its transaction had failed.
pub(super) fn is_consequence(error: &Error) -> bool {
    has_state(error, &SqlState::IN_FAILED_SQL_TRANSACTION)
}

fn has_state(error: &Error, state: &SqlState) -> bool {
    matches!(error, Error::Storage { message }
        if message.ends_with(&format!("({})", state.code())))
}

/// Whether the transaction may succeed when it runs again: it lost against another one.
pub(super) fn is_transient(error: &Error) -> bool {
    let lost = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    lost.iter().any(|state| has_state(error, state))
}

fn connect_error(address: &Address, error: &tokio_postgres::Error) -> Error {
    let place = address.place();
    let message =
        error.as_db_error().map_or_else(|| full_message(error), |e| e.message().to_owned());
    Error::Storage { message: format!("cannot connect to {}: {message}", place.display()) }
}

/// An error with its causes.
fn full_message(error: &tokio_postgres::Error) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    message
}
