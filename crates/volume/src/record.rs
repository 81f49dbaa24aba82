//! The record of a volume on disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_core::{OwnerId, Time, VolumeName};

/// The properties of a volume that are stored beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) name: VolumeName,
    pub(crate) owner: OwnerId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_at: Time,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_anonymous: bool,
}
