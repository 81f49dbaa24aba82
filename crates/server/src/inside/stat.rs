//! The properties of one file of a sandbox.

use std::sync::Arc;

use stockade_api::{FileEntry, Sandboxes, StatFile};

use super::Target;
use crate::failure::Failure;

/// The properties of a file.
pub(crate) async fn stat(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    name: &str,
    follow: bool,
) -> Result<FileEntry, Failure> {
    let request = StatFile {
        sandbox_id: target.sandbox.id.clone(),
        path: name.as_bytes().to_vec().into(),
        follow,
    };
    Ok(sandboxes.stat_file(&target.caller, request).await?)
}
