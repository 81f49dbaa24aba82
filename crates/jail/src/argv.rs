//! The memory of this process's arguments and environment.
//!
//! `/proc/1/cmdline` is readable by every process of a jail, and init is a copy
//! of the supervisor: what the supervisor was told must not be read there.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(not(target_env = "gnu"))]
compile_error!(
    "where the arguments lie is told by glibc alone: find them, or every jail can read them"
);

static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Notes where the arguments and the environment lie; glibc calls it before `main` with them.
extern "C" fn note(
    _count: libc::c_int,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) {
    // SAFETY: both arrays are the kernel's own, end in null, and point into one block of memory
    // (`elf(5)`), which is writable and lives as long as the process.
    unsafe {
        if arguments.is_null() || (*arguments).is_null() {
            return;
        }
        let start = (*arguments).cast::<u8>().cast_mut();
        let mut last = *arguments;
        for list in [arguments, environment] {
            let mut entry = list;
            while !entry.is_null() && !(*entry).is_null() {
                last = last.max(*entry);
                entry = entry.add(1);
            }
        }
        let end = last.cast::<u8>().add(libc::strlen(last));
        START.store(start, Ordering::Relaxed);
        LENGTH.store(end.offset_from_unsigned(start), Ordering::Relaxed);
    }
}

#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn(libc::c_int, *const *const libc::c_char, *const *const libc::c_char) =
    note;

/// Erases the arguments and the environment of this process. Nothing may read them afterwards.
pub(crate) fn forget() {
    let start = START.load(Ordering::Relaxed);
    if !start.is_null() {
        // SAFETY: the block is the process's own and writable; this process has one thread and
        // reads neither arguments nor environment any more.
        unsafe { std::ptr::write_bytes(start, 0, LENGTH.load(Ordering::Relaxed)) };
    }
    // The name in `ps` on the host.
    let name = c"stockade-init";
    // SAFETY: the name is terminated and shorter than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
