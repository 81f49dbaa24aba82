//! The audit records of operations that have started, and of what the server does by itself, for the part
//! that stores audit records.

use stockade_api::{Result, StartRecord};

use crate::failure::store_problem;
use crate::service::Service;
use crate::store::audit;

impl Service {
    /// The records of operations that have started on this server, after that number, the oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start_records(&self, after: i64, limit: i64) -> Result<Vec<(i64, StartRecord)>> {
        audit::list(&*self.inner.store, self.inner.host(), after, limit).await
    }

    /// Removes those records up to that number.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn remove_start_records(&self, up_to: i64) -> Result<()> {
        let remove = audit::remove(self.inner.host(), up_to);
        self.inner.store.execute(vec![remove]).await.map_err(store_problem)
    }
}
