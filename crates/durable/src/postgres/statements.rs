//! The application's own statements.

use super::connection::Transaction;
use crate::{Channel, Result, Statement};

/// Waits until no other process runs statements, and keeps it so until the end of the transaction. What
/// a statement counts or checks is then still true when it is committed, as in SQLite.
const ONE_AT_A_TIME: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('stockade statements ' || current_schema(), 0))";

/// Runs statements in the current transaction.
pub(super) async fn execute(transaction: &Transaction, statements: &[Statement]) -> Result<()> {
    if statements.is_empty() {
        return Ok(());
    }
    transaction.execute(ONE_AT_A_TIME, &[]).await?;
    for statement in statements {
        let (sql, parameters) = (statement.postgres_sql(), statement.parameters());
        let changed = transaction.execute(sql, parameters).await?;
        if statement.expected_rows().is_some_and(|expected| expected != changed) {
            return Err(statement.conflict(changed));
        }
        for topic in statement.topics() {
            match statement.is_notified() {
                true => transaction.notify(Channel::Topic(topic)),
                false => transaction.wake(Channel::Topic(topic)),
            }
        }
    }
    Ok(())
}
