//! Volumes: named directories of an owner that outlive sandboxes. Caches are volumes with a label.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{Time, VolumeName, cache};

/// Creates a volume, unless the caller has one of that name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name; generated when absent.
    pub name: Option<VolumeName>,
    /// Its labels. Those that start with `stockade.` are reserved.
    pub labels: BTreeMap<String, String>,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeByName {
    /// Its name.
    pub name: VolumeName,
}

/// A volume and its users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its name.
    pub name: VolumeName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Time,
    /// Whether its name was generated.
    pub anonymous: bool,
    /// The directory of its content on the host; absent for callers on another machine.
    pub mountpoint: Option<String>,
    /// What its content takes on the disk.
    pub size_bytes: u64,
    /// The sandboxes and runs that use it, in words.
    pub used_by: Vec<String>,
}

impl Volume {
    /// The name of the cache that it is, if it is one.
    #[must_use]
    pub fn cache(&self) -> Option<&str> {
        self.labels.get(cache::LABEL).map(String::as_str)
    }
}

/// What a volume is, without its size and its users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    /// Its name.
    pub name: VolumeName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Time,
    /// Whether its name was generated.
    pub anonymous: bool,
}

impl VolumeRecord {
    /// The name of the cache that it is, if it is one.
    #[must_use]
    pub fn cache(&self) -> Option<&str> {
        self.labels.get(cache::LABEL).map(String::as_str)
    }
}

impl From<Volume> for VolumeRecord {
    fn from(Volume { name, labels, created_at, anonymous, .. }: Volume) -> Self {
        Self { name, labels, created_at, anonymous }
    }
}

/// The volumes of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeList {
    /// By their names.
    pub volumes: Vec<Volume>,
    /// The servers that have more of them, and do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable_servers: Vec<String>,
}

/// A volume was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedVolume {
    /// What its content took on the disk.
    pub freed_bytes: u64,
}
