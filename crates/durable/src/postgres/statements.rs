//! The application's own statements.

use super::connection::Transaction;
use crate::{Channel, Result, Statement};

/// Runs statements in the current transaction.
pub(super) async fn execute(transaction: &Transaction, statements: &[Statement]) -> Result<()> {
    for statement in statements {
        let (sql, parameters) = (statement.postgres_sql(), statement.parameters());
        let changed = transaction.execute(sql, parameters).await?;
        if statement.expected_rows().is_some_and(|expected| expected != changed) {
            return Err(statement.conflict(changed));
        }
        for topic in statement.topics() {
            transaction.wake(Channel::Topic(topic));
        }
    }
    Ok(())
}
