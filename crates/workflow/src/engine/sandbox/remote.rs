//! The ids of the remote objects that executed an attempt.

/// The ids of the remote objects that executed an attempt, as far as there are any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RemoteIds {
    pub(super) run_id: Option<String>,
    pub(super) workspace_id: Option<String>,
    pub(super) container_id: Option<String>,
}
