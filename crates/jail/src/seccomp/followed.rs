//! Which allowed calls the supervisor follows ([`super::following_program`]): the renames, because an
//! overlay of an ordinary user cannot rename a directory of its lower layer, and the call by which a
//! process gives up rights of its own, because nobody may then rename for it.
//!
//! The supervisor lets these calls continue, which is safe because the filter allows them anyway.

use libc::{SECCOMP_RET_USER_NOTIF, c_long};

use super::SetIdBits;
use super::reported::reporting;
use super::rules::{KNOWN, set_filters};
use super::tree::{Block, Comparison, allow, answer, high_half_of_argument, load, when};

/// In the high half of an argument that the kernel ignores, this number marks a call of Stockade's own
/// code, of which the supervisor need not hear. A command that uses it only does without help.
pub(crate) const OWN_CALL: u32 = 0x5354_4b44;
/// The flags of `renameat2(2)`, of which the kernel uses 32 bits.
const RENAME_FLAGS: u32 = 4;
/// An argument that `landlock_restrict_self(2)` does not have.
const LANDLOCK_UNUSED: u32 = 5;

/// The calls that are followed.
const FOLLOWED: &[(c_long, Block)] = &[
    (libc::SYS_rename, answer(SECCOMP_RET_USER_NOTIF)),
    (libc::SYS_renameat, answer(SECCOMP_RET_USER_NOTIF)),
    (libc::SYS_renameat2, unless_own(RENAME_FLAGS)),
    (libc::SYS_landlock_restrict_self, unless_own(LANDLOCK_UNUSED)),
];

const fn unless_own(argument: u32) -> Block {
    let followed = answer(SECCOMP_RET_USER_NOTIF);
    load(high_half_of_argument(argument)).append(&when(
        Comparison::Equal,
        OWN_CALL,
        &allow(),
        &followed,
    ))
}

/// Whether the filter allows this call, and may ask the supervisor nevertheless.
pub(crate) fn is_followed(number: u32) -> bool {
    FOLLOWED.iter().any(|(followed, _)| *followed == c_long::from(number))
}

/// The verdicts on every known number, where what is refused is reported, and renames are followed.
pub(super) const fn following(set_id_bits: SetIdBits) -> [super::Verdict; KNOWN] {
    let mut verdicts = reporting(set_id_bits);
    set_filters(&mut verdicts, FOLLOWED);
    verdicts
}
