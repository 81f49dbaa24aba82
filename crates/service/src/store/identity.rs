//! The table `sandbox_service`: one row with the id of the service whose database this is.

use stockade_core::{Code, Problem};
use stockade_durable::{Statement, Store};

use crate::failure::store_problem;

/// The id of the service, which the first call creates.
pub(crate) async fn find_or_create(store: &dyn Store) -> Result<String, Problem> {
    let new_id = uuid::Uuid::now_v7().simple().to_string();
    let first = "INSERT INTO sandbox_service (id) SELECT ?1 \
        WHERE NOT EXISTS (SELECT 1 FROM sandbox_service)";
    store.execute(vec![Statement::new(first, vec![new_id.into()])]).await.map_err(store_problem)?;
    let select = Statement::new("SELECT id FROM sandbox_service ORDER BY id LIMIT 1", vec![]);
    let rows = store.query(select).await.map_err(store_problem)?;
    let row = rows.first().ok_or_else(|| {
        Problem::new(Code::DatabaseInvalid, "the database does not record its owner")
    })?;
    row.text(0).map(str::to_owned).map_err(store_problem)
}
