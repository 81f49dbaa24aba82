//! Reading a manifest that may come from an untrusted source: every rule that this crate
//! follows when it creates a manifest is checked again.

use std::collections::HashSet;

use stockade_core::BundleLimits;

use crate::manifest::{Change, Entry, Manifest, Node, Refusal, VERSION};
use crate::path::RelativePath;
use crate::policy;

/// A limit that a bundle exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bundle exceeds the limit `{limit}` of the profile `{profile}`: {value}")]
pub struct LimitExceeded {
    /// The limit's name: `entries`, `total_bytes`, `manifest_bytes` or `path_bytes`.
    pub limit: &'static str,
    /// The profile that sets it.
    pub profile: &'static str,
    /// Its value.
    pub value: u64,
}

/// Why a manifest is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not JSON, or not in the format that this build supports.
    #[error("the manifest cannot be read")]
    Form(#[source] serde_json::Error),
    /// It has another version.
    #[error("the manifest has version {0}; this build reads version {VERSION}")]
    Version(u32),
    /// It exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The project's path is not absolute.
    #[error("the manifest's project is not an absolute path")]
    Project,
    /// Its paths are not sorted, or contain a duplicate.
    #[error("the manifest's paths are not sorted and distinct at {0}")]
    Order(RelativePath),
    /// An entry contradicts itself or another one.
    #[error("the manifest's entry {path} is invalid: {reason}")]
    Entry {
        /// Its path.
        path: RelativePath,
        /// What is wrong.
        reason: &'static str,
    },
}

/// The longest link target that Linux allows.
const MAX_TARGET_BYTES: usize = 4095;

impl Manifest {
    /// Reads a manifest and checks it against every rule and against `limits`.
    ///
    /// Marks are only added, never removed: an entry that this build refuses, or knows to be
    /// executed by host tools, is marked so even if the manifest does not mark it.
    pub fn parse(bytes: &[u8], limits: &BundleLimits) -> Result<Self, Error> {
        let size = bytes.len() as u64;
        check_limit(size, "manifest_bytes", limits.manifest_bytes, limits)?;
        let mut manifest: Self = serde_json::from_slice(bytes).map_err(Error::Form)?;
        manifest.validate(limits)?;
        for entry in &mut manifest.entries {
            policy::classify(entry, &manifest.project);
        }
        Ok(manifest)
    }

    /// Serialises the manifest. The same content always gives the same bytes.
    pub fn to_bytes(&self, limits: &BundleLimits) -> Result<Vec<u8>, Error> {
        self.validate(limits)?;
        let bytes = serde_json::to_vec(self).map_err(Error::Form)?;
        check_limit(bytes.len() as u64, "manifest_bytes", limits.manifest_bytes, limits)?;
        Ok(bytes)
    }

    fn validate(&self, limits: &BundleLimits) -> Result<(), Error> {
        if self.version != VERSION {
            return Err(Error::Version(self.version));
        }
        if self.project.first() != Some(&b'/') || self.project.contains(&0) {
            return Err(Error::Project);
        }
        check_limit(self.entries.len() as u64, "entries", limits.entries, limits)?;
        for pair in self.entries.windows(2) {
            if pair[0].path >= pair[1].path {
                return Err(Error::Order(pair[1].path.clone()));
            }
        }
        let mut bytes = 0_u64;
        let mut sources = HashSet::new();
        for entry in &self.entries {
            if entry.refused != Some(Refusal::PathTooLong) {
                let length = entry.path.as_bytes().len() as u64;
                check_limit(length, "path_bytes", limits.path_bytes, limits)?;
            }
            let fault = |reason| Error::Entry { path: entry.path.clone(), reason };
            self.validate_entry(entry, &mut sources).map_err(fault)?;
            if let Some(Node::File { size, .. }) = entry.change.new_node() {
                bytes = bytes.saturating_add(*size);
            }
            if let Some(tree) = &entry.tree {
                bytes = bytes.saturating_add(tree.bytes);
            }
        }
        check_limit(bytes, "total_bytes", limits.total_bytes, limits)?;
        Ok(())
    }

    fn validate_entry<'a>(
        &'a self,
        entry: &'a Entry,
        sources: &mut HashSet<&'a RelativePath>,
    ) -> Result<(), &'static str> {
        for node in [entry.change.old(), entry.change.new_node()].into_iter().flatten() {
            match node {
                Node::File { mode, .. } | Node::Directory { mode } if *mode > 0o777 => {
                    return Err("its mode has more than permission bits");
                }
                Node::Symlink { target }
                    if target.is_empty()
                        || target.len() > MAX_TARGET_BYTES
                        || target.contains(&0) =>
                {
                    return Err("its link target is invalid");
                }
                _ => {}
            }
        }
        let nodes = [entry.change.old(), entry.change.new_node()];
        let is_directory = nodes.iter().flatten().any(|it| matches!(it, Node::Directory { .. }));
        if entry.tree.is_some() && !(entry.ignored && is_directory) {
            return Err("only an ignored directory has changes of its own");
        }
        if entry.tree.is_none()
            && matches!(&entry.change, Change::Modify { old, new } if old == new)
        {
            return Err("it changes nothing");
        }
        let Some(from) = &entry.renamed_from else { return Ok(()) };
        if !matches!(entry.change, Change::Add { .. }) {
            return Err("only an added path can be a rename");
        }
        let source = self.entries.binary_search_by(|other| other.path.cmp(from));
        let is_deleted =
            source.is_ok_and(|at| matches!(self.entries[at].change, Change::Delete { .. }));
        if !is_deleted || !sources.insert(from) {
            return Err("its source path is not deleted, or is the source of another rename too");
        }
        Ok(())
    }
}

/// Checks one limit.
pub(crate) fn check_limit(
    found: u64,
    limit: &'static str,
    value: u64,
    limits: &BundleLimits,
) -> Result<(), LimitExceeded> {
    if found <= value {
        Ok(())
    } else {
        Err(LimitExceeded { limit, profile: limits.profile, value })
    }
}

#[cfg(test)]
mod tests;
