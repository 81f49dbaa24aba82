//! The memory of an init that is held. It began as a copy of its keeper's, of which it needs next to
//! nothing; each page that the keeper has changed since is kept for that init alone. So init goes on
//! in fresh memory and gives the heap back. From then on it calls nothing of the C library that
//! allocates: no `opendir(3)`, no `realpath(3)`, no new thread.
//!
//! Until then, and in every other process, memory is the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

const PAGE: usize = 4096;
/// Blocks have sizes of 16 bytes, 32 and so on; what is larger than the last size is mapped alone.
const SMALLEST: usize = 16;
const SIZES: usize = 13;
const LARGEST: usize = SMALLEST << (SIZES - 1);
/// How much is mapped for blocks at once. Costs nothing until it is touched.
const PLACE_BYTES: usize = 16 << 20;

/// The program's memory.
#[derive(Debug)]
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

/// Whether this process has begun anew.
static IS_ANEW: AtomicBool = AtomicBool::new(false);
/// The first block of the heap that was ever handed out.
static FIRST: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static FRESH: Fresh =
    Fresh(UnsafeCell::new(Blocks { start: 0, next: 0, end: 0, free: [None; SIZES] }));

/// Blocks of a process with a single thread.
struct Fresh(UnsafeCell<Blocks>);

// SAFETY: used by a process that has begun anew alone, which has a single thread; what shares its
// memory allocates nothing.
unsafe impl Sync for Fresh {}

struct Blocks {
    start: usize,
    /// Where the part begins that no block was made of yet.
    next: usize,
    end: usize,
    /// For each size the first block that is free, which holds the address of the next one.
    free: [Option<NonNull<Free>>; SIZES],
}

struct Free(Option<NonNull<Self>>);

/// Has all that is allocated from now on come from fresh memory. What was allocated before can be
/// used until [`give_back_heap`] was called; that it is dropped has no effect.
///
/// # Safety
/// This process must have a single thread.
pub(crate) unsafe fn begin_anew() -> io::Result<()> {
    let place = map(PLACE_BYTES).ok_or_else(io::Error::last_os_error)?.as_ptr() as usize;
    let blocks =
        Blocks { start: place, next: place, end: place + PLACE_BYTES, free: [None; SIZES] };
    // SAFETY: nobody uses the blocks yet.
    unsafe { *FRESH.0.get() = blocks };
    IS_ANEW.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives back the heap of a process that has begun anew, and the part of its stack that is not in
/// use.
///
/// # Safety
/// Nothing that was allocated before this process began anew may be used or dropped any more.
pub(crate) unsafe fn give_back_heap() {
    /// How deep the calls may have been that have returned.
    const STACK_BYTES: usize = 1 << 20;
    let first = FIRST.load(Ordering::Relaxed) as usize;
    // SAFETY: asks where the heap ends.
    let end = unsafe { libc::sbrk(0) } as usize;
    // What the C library has put there for itself lies before the first block, or in its page.
    let start = first.next_multiple_of(PAGE);
    if first != 0 && start < end {
        // SAFETY: the caller's to answer for.
        unsafe { libc::munmap(start as *mut libc::c_void, end - start) };
    }
    let here = 0_u8;
    let top = ((&raw const here) as usize & !(PAGE - 1)) - PAGE;
    // SAFETY: this is below everything that is in use of the stack, which grows down. Where it has
    // never been so deep there is nothing.
    unsafe { libc::madvise((top - STACK_BYTES) as *mut _, STACK_BYTES, libc::MADV_DONTNEED) };
}

// SAFETY: each block is handed out once until it is given back, has the layout's size and alignment,
// and lies in memory that stays mapped.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_ANEW.load(Ordering::Relaxed) {
            // SAFETY: this process has begun anew.
            return unsafe { (*FRESH.0.get()).take(layout) };
        }
        // SAFETY: as for this call.
        let block = unsafe { System.alloc(layout) };
        if FIRST.load(Ordering::Relaxed).is_null() {
            FIRST.store(block, Ordering::Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_ANEW.load(Ordering::Relaxed) {
            // SAFETY: as for this call.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as for this call; a block has the layout's size.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if IS_ANEW.load(Ordering::Relaxed) {
            // SAFETY: this process has begun anew.
            unsafe { (*FRESH.0.get()).put_back(block, layout) };
        } else {
            // SAFETY: as for this call.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !IS_ANEW.load(Ordering::Relaxed) {
            // SAFETY: as for this call.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: as for this call: the new size is valid with the old alignment, and the smaller of
        // both blocks is copied.
        unsafe {
            let larger = Layout::from_size_align_unchecked(size, layout.align());
            let other = self.alloc(larger);
            if !other.is_null() {
                block.copy_to_nonoverlapping(other, layout.size().min(size));
                self.dealloc(block, layout);
            }
            other
        }
    }
}

impl Blocks {
    /// A block for this layout; null where there is no memory.
    fn take(&mut self, layout: Layout) -> *mut u8 {
        let Some((index, size)) = block_size(layout) else {
            return map(layout.size())
                .filter(|_| layout.align() <= PAGE)
                .map_or(null_mut(), NonNull::as_ptr);
        };
        if let Some(free) = self.free.get(index).copied().flatten() {
            // SAFETY: a block that is free holds the next one, and is used by nobody.
            self.free[index] = unsafe { free.read().0 };
            return free.as_ptr().cast();
        }
        // Blocks of a page and more begin with one, so each is aligned to all that it may be for.
        let start = self.next.next_multiple_of(size.min(PAGE));
        if start + size > self.end {
            return null_mut();
        }
        self.next = start + size;
        start as *mut u8
    }

    fn put_back(&mut self, block: *mut u8, layout: Layout) {
        let is_own = (self.start..self.end).contains(&(block as usize));
        match block_size(layout) {
            Some((index, _)) if is_own => {
                let free = NonNull::new(block.cast::<Free>());
                if let Some(free) = free {
                    // SAFETY: the block is ours, large enough, and used by nobody any more.
                    unsafe { free.write(Free(self.free[index])) };
                }
                self.free[index] = free;
            }
            // SAFETY: what begins with a page was mapped alone, and is used by nobody any more.
            None if (block as usize).is_multiple_of(PAGE) => unsafe {
                libc::munmap(block.cast(), layout.size());
            },
            // It is of the heap that goes as a whole.
            _ => {}
        }
    }
}

/// Which size of blocks a layout has, and that size; `None` for what is mapped alone.
fn block_size(layout: Layout) -> Option<(usize, usize)> {
    let size = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    (size <= LARGEST).then(|| ((size / SMALLEST).trailing_zeros() as usize, size))
}

fn map(length: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for new memory anywhere.
    let start = unsafe { libc::mmap(null_mut(), length, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{Ended, in_child};

    #[test]
    fn what_is_allocated_anew_has_its_size_and_alignment_and_is_used_again() {
        let ended = in_child(|| {
            let old = vec![vec![7_u8; 100]; 100];
            // SAFETY: the process that `in_child` makes has a single thread.
            unsafe { begin_anew() }.unwrap();
            assert_eq!(old.iter().flatten().filter(|byte| **byte == 7).count(), 10_000);
            let mut map = BTreeMap::new();
            for round in 0..50_usize {
                for length in [0, 1, 15, 16, 17, 100, 4095, 4096, 65_536, 65_537, 300_000] {
                    let mut bytes = vec![u8::try_from(round).unwrap(); length];
                    bytes.extend_from_slice(&[1; 33]);
                    assert!(bytes[..length].iter().all(|byte| usize::from(*byte) == round));
                    assert!(vec![0_u8; length].iter().all(|byte| *byte == 0));
                    map.insert((round % 3, length), bytes);
                }
            }
            let place = Layout::from_size_align(64, 4096).unwrap();
            // SAFETY: the layout is valid, and the block is given back with it.
            unsafe {
                let block = std::alloc::alloc(place);
                assert!(!block.is_null() && (block as usize).is_multiple_of(4096));
                std::alloc::dealloc(block, place);
            }
            drop((old, map));
            // SAFETY: nobody else is in this memory.
            let blocks = unsafe { &*FRESH.0.get() };
            assert!(blocks.next - blocks.start < 4 << 20, "{}", blocks.next - blocks.start);
            0
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
