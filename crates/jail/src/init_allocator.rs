//! The allocator of a program that creates persistent sandboxes. It is the system's allocator in
//! each process, until the init of a persistent sandbox switches to fresh memory.
//!
//! Init starts with a copy of its keeper's memory, of which it needs almost nothing. The kernel
//! keeps each page that the keeper has changed since for that init alone. So init continues in
//! fresh memory and unmaps the heap that it inherited: that saves 70 to 250 KiB per sandbox, and
//! leaves no data of the keeper readable in init. From then on init calls no function of the C
//! library that allocates: no `opendir(3)`, no `realpath(3)`, no new thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

const PAGE: usize = 4096;
/// Blocks have sizes of 16 bytes, 32 and so on; a larger allocation than the last size gets its own
/// mapping.
const SMALLEST: usize = 16;
const SIZES: usize = 13;
const LARGEST: usize = SMALLEST << (SIZES - 1);
/// How much is mapped for blocks at a time. Untouched pages cost nothing.
const ARENA_BYTES: usize = 16 << 20;

/// The allocator. A program declares it, such as the one that the local server starts as its
/// keeper:
///
/// ```ignore
/// #[global_allocator]
/// static ALLOCATOR: stockade_jail::InitAllocator = stockade_jail::InitAllocator;
/// ```
///
/// Without it, or where the C library does not extend its heap by `sbrk(2)` (musl), an init keeps
/// the heap that it inherited; everything else is the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct InitAllocator;

/// The allocator of the tests.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: InitAllocator = InitAllocator;

/// Whether this process allocates from fresh memory.
static IS_FRESH: AtomicBool = AtomicBool::new(false);
/// The first block of the inherited heap that was ever allocated; null where the program has
/// another allocator.
static FIRST: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static FRESH: Fresh =
    Fresh(UnsafeCell::new(Blocks { start: 0, next: 0, end: 0, free: [None; SIZES] }));

/// Blocks of a process with a single thread.
struct Fresh(UnsafeCell<Blocks>);

// SAFETY: it is only used in a process that has switched to fresh memory, which has a single
// thread; processes that share its memory allocate nothing.
unsafe impl Sync for Fresh {}

struct Blocks {
    start: usize,
    /// The start of the part that has not been split into blocks yet.
    next: usize,
    end: usize,
    /// For each size the first free block, which contains the address of the next one.
    free: [Option<NonNull<Free>>; SIZES],
}

struct Free(Option<NonNull<Self>>);

/// Allocates from fresh memory from now on. Earlier allocations can be used until
/// [`release_inherited_heap`]; dropping them has no effect.
///
/// Does nothing where the program has not declared [`InitAllocator`].
///
/// # Errors
/// The error of mmap(2).
///
/// # Safety
/// This process must have a single thread.
pub(crate) unsafe fn switch_to_fresh_memory() -> io::Result<()> {
    if FIRST.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let arena = map(ARENA_BYTES).ok_or_else(io::Error::last_os_error)?.as_ptr() as usize;
    let blocks =
        Blocks { start: arena, next: arena, end: arena + ARENA_BYTES, free: [None; SIZES] };
    // SAFETY: nothing uses the blocks yet.
    unsafe { *FRESH.0.get() = blocks };
    IS_FRESH.store(true, Ordering::Relaxed);
    Ok(())
}

/// Unmaps the heap that this process inherited, which starts at `heap_start`, and releases the
/// unused part of its stack. Does nothing in a process that has not switched to fresh memory.
///
/// # Safety
/// No allocation made before the switch may be used or dropped any more.
pub(crate) unsafe fn release_inherited_heap(heap_start: usize) {
    /// How deep calls that have returned may have used the stack.
    const STACK_BYTES: usize = 1 << 20;
    if !IS_FRESH.load(Ordering::Relaxed) {
        return;
    }
    let first = FIRST.load(Ordering::Relaxed) as usize;
    // SAFETY: queries the end of the heap.
    let end = unsafe { libc::sbrk(0) } as usize;
    // Data of the C library itself lies before the first block, or in its page.
    let start = first.next_multiple_of(PAGE);
    // A C library may have mapped its first block elsewhere, and use this heap for other data.
    if (heap_start..end).contains(&first) && start < end {
        // SAFETY: the range is within the heap; the caller promises that its blocks are no longer
        // used.
        unsafe { libc::munmap(start as *mut libc::c_void, end - start) };
    }
    let here = 0_u8;
    let top = ((&raw const here) as usize & !(PAGE - 1)) - PAGE;
    // SAFETY: this is below the used part of the stack, which grows down. Where the stack was never
    // so deep, nothing is mapped there.
    unsafe { libc::madvise((top - STACK_BYTES) as *mut _, STACK_BYTES, libc::MADV_DONTNEED) };
}

// SAFETY: each block is allocated once until it is freed, has the layout's size and alignment, and
// lies in memory that stays mapped.
unsafe impl GlobalAlloc for InitAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_FRESH.load(Ordering::Relaxed) {
            // SAFETY: this process has switched to fresh memory.
            return unsafe { (*FRESH.0.get()).allocate(layout) };
        }
        // SAFETY: as for this call.
        let block = unsafe { System.alloc(layout) };
        if FIRST.load(Ordering::Relaxed).is_null() {
            FIRST.store(block, Ordering::Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_FRESH.load(Ordering::Relaxed) {
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
        if IS_FRESH.load(Ordering::Relaxed) {
            // SAFETY: this process has switched to fresh memory.
            unsafe { (*FRESH.0.get()).deallocate(block, layout) };
        } else {
            // SAFETY: as for this call.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !IS_FRESH.load(Ordering::Relaxed) {
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
    /// A block for this layout; null when out of memory.
    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        let Some((index, size)) = block_size(layout) else {
            return map(layout.size())
                .filter(|_| layout.align() <= PAGE)
                .map_or(null_mut(), NonNull::as_ptr);
        };
        if let Some(free) = self.free.get(index).copied().flatten() {
            // SAFETY: a free block contains the next one, and nothing uses it.
            self.free[index] = unsafe { free.read().0 };
            return free.as_ptr().cast();
        }
        // Blocks of at least a page start at a page boundary, so each has every alignment that its
        // layout may require.
        let start = self.next.next_multiple_of(size.min(PAGE));
        if start + size > self.end {
            return null_mut();
        }
        self.next = start + size;
        start as *mut u8
    }

    fn deallocate(&mut self, block: *mut u8, layout: Layout) {
        let is_own = (self.start..self.end).contains(&(block as usize));
        match block_size(layout) {
            Some((index, _)) if is_own => {
                let free = NonNull::new(block.cast::<Free>());
                if let Some(free) = free {
                    // SAFETY: the block is ours, large enough, and no longer used.
                    unsafe { free.write(Free(self.free[index])) };
                }
                self.free[index] = free;
            }
            // SAFETY: a block at a page boundary was mapped alone, and is no longer used.
            None if (block as usize).is_multiple_of(PAGE) => unsafe {
                libc::munmap(block.cast(), layout.size());
            },
            // It belongs to the inherited heap, which is released as a whole.
            _ => {}
        }
    }
}

/// The index and size of the blocks for a layout; `None` for an allocation with its own mapping.
fn block_size(layout: Layout) -> Option<(usize, usize)> {
    let size = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    (size <= LARGEST).then(|| ((size / SMALLEST).trailing_zeros() as usize, size))
}

fn map(length: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: requests new memory at any address.
    let start = unsafe { libc::mmap(null_mut(), length, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{ChildExit, in_child};

    #[test]
    fn fresh_blocks_have_their_size_and_alignment_and_are_used_again() {
        let ended = in_child(|| {
            let old = vec![vec![7_u8; 100]; 100];
            // SAFETY: the process that `in_child` makes has a single thread.
            unsafe { switch_to_fresh_memory() }.unwrap();
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
            let layout = Layout::from_size_align(64, 4096).unwrap();
            // SAFETY: the layout is valid, and the block is freed with it.
            unsafe {
                let block = std::alloc::alloc(layout);
                assert!(!block.is_null() && (block as usize).is_multiple_of(4096));
                std::alloc::dealloc(block, layout);
            }
            drop((old, map));
            // SAFETY: no other thread or process uses this memory.
            let blocks = unsafe { &*FRESH.0.get() };
            assert!(blocks.next - blocks.start < 4 << 20, "{}", blocks.next - blocks.start);
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
