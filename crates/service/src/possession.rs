//! [`Kind`]: what an owner has among the files of a server's data directory, and the state of this process about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use stockade_core::OwnerId;

use crate::locks::Locks;

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A volume that is no cache.
    Volume,
    /// A workspace with a history.
    Workspace,
    /// A bundle that waits for a decision.
    Bundle,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Volume, Self::Workspace, Self::Bundle];

    /// The word in the database and in messages.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Workspace => "workspace",
            Self::Bundle => "bundle",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Something of an owner, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Possession {
    pub(crate) owner: OwnerId,
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// The state of this process about what it has.
#[derive(Debug, Default)]
pub(crate) struct Possessions {
    /// One change at a time of what this server has of an owner.
    pub(crate) locks: Locks<OwnerId>,
    /// What was last recorded of the owner of the data directory.
    pub(crate) recorded: Mutex<BTreeMap<Kind, BTreeSet<String>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_word() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(Kind::parse("image"), None);
    }
}
