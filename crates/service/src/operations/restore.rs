//! `restore`: creates a sandbox from a snapshot.

use stockade_api::{Caller, CreateSandbox, Restore, Result, Sandbox};

use super::create;
use crate::failure::invalid;
use crate::service::Service;
use crate::spec;

/// Creates a sandbox from a snapshot.
pub(crate) async fn restore(
    service: &Service,
    caller: &Caller,
    request: Restore,
) -> Result<Sandbox> {
    if request.sandbox.image.is_some() {
        return Err(invalid("a restored sandbox cannot have an image: its snapshot is its image"));
    }
    let image = Some(spec::snapshot_image(&request.snapshot_id));
    create::create(service, caller, CreateSandbox { image, ..request.sandbox }).await
}
