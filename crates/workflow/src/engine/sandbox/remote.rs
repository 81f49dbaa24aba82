//! The ids of what executed a try elsewhere.

/// The ids of what executed a try, as far as it has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RemoteIds {
    pub(super) run_id: Option<String>,
    pub(super) workspace_id: Option<String>,
    pub(super) container_id: Option<String>,
}
