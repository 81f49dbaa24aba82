//! Rows of the application that say themselves what was done: for workflows whose steps have no
//! fixed order.

use super::Context;
use crate::{Failure, Records, Result, Statement};

impl Context {
    /// Changes rows under the right of this run, behind all that it wrote before: both or neither
    /// are on disk. This is no step: a later run makes the same change again unless it looks at the
    /// rows first.
    pub async fn write(&self, statements: Vec<Statement>) -> Result<(), Failure> {
        self.check()?;
        self.commit(Records::default(), statements, None).await?;
        Ok(())
    }
}
