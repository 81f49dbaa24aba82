//! The boot id of a jail: a random one instead of the host's, which would identify the host. It stays the same as long
//! as the jail's init runs, so programs see by it whether their machine was started again.
//!
//! Runs in a process that shares the memory of another one ([`crate::vm_helper`]): it allocates nothing and makes
//! bare system calls only.

use std::ffi::CStr;

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};

use crate::dev_proc::{make_read_only, new_tmpfs};
use crate::raw;

/// Where programs read it (`random(4)`).
const FILE: &CStr = c"/proc/sys/kernel/random/boot_id";
const DIRECTORY: &CStr = c"/proc/sys/kernel/random";
/// The length of a UUID as text, with the end of its line.
const LENGTH: usize = 37;

/// Mounts a file with a new id over the host's. A `/proc` without one stays as it is.
pub(crate) fn mount() -> rustix::io::Result<()> {
    let target = match open(FILE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    // The only place where nothing else is mounted now. What is mounted over a file below it stays when it goes.
    let memory = new_tmpfs(c"755", c"4096", c"2")?;
    move_mount(&memory, c"", CWD, DIRECTORY, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(FILE, flags, Mode::from_raw_mode(0o444))?;
    rustix::io::write(&file, &text(random()?))?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = open_tree(CWD, FILE, clone)?;
    make_read_only(&copy)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&copy, c"", &target, c"", flags)?;
    unmount(DIRECTORY, UnmountFlags::DETACH)
}

fn random() -> rustix::io::Result<[u8; 16]> {
    let mut bytes = [0_u8; 16];
    let arguments = [bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most the given number of bytes.
    let written = raw::check(unsafe { raw::syscall(libc::SYS_getrandom, arguments) });
    match written {
        Ok(16) => Ok(bytes),
        _ => Err(Errno::IO),
    }
}

/// A random UUID (version 4) as the kernel writes it.
fn text(mut random: [u8; 16]) -> [u8; LENGTH] {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let mut text = [b'-'; LENGTH];
    let mut at = 0;
    for (index, byte) in random.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        for digit in [byte >> 4, byte & 0x0f] {
            if let (Some(place), Some(digit)) = (text.get_mut(at), DIGITS.get(usize::from(digit))) {
                *place = *digit;
            }
            at += 1;
        }
    }
    text[LENGTH - 1] = b'\n';
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_form_of_the_kernels() {
        let text = text(std::array::from_fn(|index| u8::try_from(index).unwrap()));
        assert_eq!(text, *b"00010203-0405-4607-8809-0a0b0c0d0e0f\n");
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
