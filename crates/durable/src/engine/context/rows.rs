//! Rows of the application that record by themselves what was done: for workflows whose steps have
//! no fixed order.

use super::Context;
use crate::{Failure, Records, Result, Statement};

impl Context {
    /// Changes rows under the claim of this run, together with all earlier records of it: both or
    /// neither are on disk. This is not a step: a later run makes the same change again unless it
    /// reads the rows first.
    pub async fn write(&self, statements: Vec<Statement>) -> Result<(), Failure> {
        self.check()?;
        self.commit(Records::default(), statements, None).await?;
        Ok(())
    }
}
