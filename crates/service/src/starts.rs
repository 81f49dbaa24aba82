//! The audit records of operations that have started, and of what the server does by itself, for the part
//! that stores audit records.

use stockade_api::{Result, StartRecord};

use crate::failure::store_problem;
use crate::service::Service;
use crate::store::audit;

impl Service {
    /// The records of operations that have started, after that number, the oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start_records(&self, after: i64, limit: i64) -> Result<Vec<(i64, StartRecord)>> {
        audit::list(&*self.inner.store, after, limit).await
    }

    /// Removes those records up to that number.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn remove_start_records(&self, up_to: i64) -> Result<()> {
        self.inner.store.execute(vec![audit::remove(up_to)]).await.map_err(store_problem)
    }
}
