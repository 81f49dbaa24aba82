//! The owners in a copy: the same ids, or the corresponding ids of another sandbox's range.

/// The most ids in a range (`jail::Range`).
const COUNT: u32 = 65_536;
/// The version of access control lists in extended attributes (`linux/posix_acl_xattr.h`).
const ACCESS_LIST_VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// The tags of entries that contain an id: `ACL_USER` and `ACL_GROUP`.
const TAGS_WITH_ID: [u16; 2] = [0x02, 0x08];

/// How the owners of a layer are mapped when it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// They stay the same.
    Same,
    /// The ids of one range are mapped to those of another: `from + n` becomes `to + n`, for
    /// all `n` below 65536. Files of any other owner are refused.
    Shifted {
        /// The first id of the range that the layer was written in.
        from: u32,
        /// The first id of the range that the copy is for.
        to: u32,
    },
}

impl Owners {
    /// The range to which the owners of snapshots are mapped: the last range below 2^31, which
    /// belongs to no user of any host. Systemd reserves it for files of foreign users (its page
    /// "Users, Groups, UIDs and GIDs"), and no sandbox ever gets it. If ids were mapped to 0 and
    /// up, they would be ids of the host itself, and a set-user-id file of a sandbox could be one
    /// of the host's root.
    pub const STORED: u32 = 0x7ffe_0000;

    pub(super) fn map(self, id: u32) -> Option<u32> {
        match self {
            Self::Same => Some(id),
            Self::Shifted { from, to } => {
                let offset = id.checked_sub(from).filter(|offset| *offset < COUNT)?;
                to.checked_add(offset)
            }
        }
    }

    /// Maps an access control list (`acl(5)`) whose entries contain ids: a version, then 16 bits
    /// of tag, 16 bits of permissions and 32 bits of id for each entry.
    pub(super) fn access_list(self, mut list: Vec<u8>) -> Option<Vec<u8>> {
        let (version, entries) = list.split_first_chunk_mut()?;
        let (entries, rest) = entries.as_chunks_mut::<8>();
        if *version != ACCESS_LIST_VERSION || !rest.is_empty() {
            return None;
        }
        for [tag_low, tag_high, _, _, id @ ..] in entries {
            if TAGS_WITH_ID.contains(&u16::from_le_bytes([*tag_low, *tag_high])) {
                *id = self.map(u32::from_le_bytes(*id))?.to_le_bytes();
            }
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED: Owners = Owners::Shifted { from: 1_000_000, to: 5 };

    #[test]
    fn only_ids_of_the_range_are_moved() {
        assert_eq!(Owners::Same.map(7), Some(7));
        assert_eq!(MOVED.map(1_000_000), Some(5));
        assert_eq!(MOVED.map(1_065_535), Some(65_540));
        for foreign in [0, 999_999, 1_065_536, u32::MAX] {
            assert_eq!(MOVED.map(foreign), None);
        }
        assert_eq!(Owners::Shifted { from: 0, to: u32::MAX }.map(1), None);
    }

    #[test]
    fn the_ids_of_an_access_list_move_along() {
        let entry =
            |tag: u16, id: u32| [&tag.to_le_bytes()[..], &[6, 0], &id.to_le_bytes()[..]].concat();
        let list = |user: u32, group: u32| {
            let owner = entry(0x01, u32::MAX);
            [&ACCESS_LIST_VERSION[..], &owner, &entry(0x02, user), &entry(0x08, group)].concat()
        };
        assert_eq!(MOVED.access_list(list(1_000_001, 1_000_002)), Some(list(6, 7)));
        assert_eq!(Owners::Same.access_list(list(1, 2)), Some(list(1, 2)));
        assert_eq!(MOVED.access_list(list(0, 1_000_000)), None);
        for bad in [&[][..], &[2, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0, 1]] {
            assert_eq!(MOVED.access_list(bad.to_vec()), None);
        }
    }
}
