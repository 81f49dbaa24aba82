//! The properties of one file of a sandbox.

use stockade_api::{FileEntry, StatFile};

use super::super::target::{PortState, Target};
use crate::failure::Failure;

/// The properties of a file.
pub(super) async fn stat(
    state: &PortState,
    target: &Target,
    name: &str,
    follow: bool,
) -> Result<FileEntry, Failure> {
    let request = StatFile {
        sandbox_id: target.sandbox.id.clone(),
        path: name.as_bytes().to_vec().into(),
        follow,
    };
    Ok(state.sandboxes.stat_file(&target.caller, request).await?)
}
