//! Builds classic BPF for seccomp: a decision tree in which every path ends in an answer.
//!
//! Blocks are position-independent runs of instructions that never fall off their end, so any
//! block can be put behind any branch. A search tree over number ranges costs about eight
//! comparisons for a call where a linear chain costs one for each rule; the kernel runs the
//! program for every number when it is installed, so that is also what installing costs.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter,
};

/// Where `struct seccomp_data` holds the system call's number.
pub(super) const NUMBER: u32 = 0;
/// Where it holds the architecture.
pub(super) const ARCHITECTURE: u32 = 4;

/// Where it holds the low half of an argument. The kernel itself looks no further for every
/// argument that is judged here (they are 32-bit types, or masked): a filter that compared all
/// 64 bits could be passed with a set high bit (CVE-2019-10063).
pub(super) const fn low_half_of_argument(index: u32) -> u32 {
    16 + 8 * index
}

/// A position-independent run of instructions.
pub(super) type Block = Vec<sock_filter>;

/// How the loaded value is compared.
#[derive(Clone, Copy)]
pub(super) enum Is {
    Equal,
    AtLeast,
    AnyBitOf,
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    // All operation codes of classic BPF fit in a byte.
    #[expect(clippy::cast_possible_truncation, reason = "the constants are below 256")]
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

/// Loads the 32-bit word at `offset` of `struct seccomp_data`.
pub(super) fn load(offset: u32) -> Block {
    vec![instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)]
}

/// Keeps only the bits of `mask` of the loaded value.
pub(super) fn keep(mask: u32) -> Block {
    vec![instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask)]
}

/// Ends the program with a `SECCOMP_RET_*` value.
pub(super) fn answer(action: u32) -> Block {
    vec![instruction(BPF_RET | BPF_K, 0, 0, action)]
}

/// Lets the call through.
pub(super) fn allow() -> Block {
    answer(SECCOMP_RET_ALLOW)
}

/// Fails the call with `errno`.
pub(super) fn refuse(errno: i32) -> Block {
    answer(SECCOMP_RET_ERRNO | errno.unsigned_abs())
}

/// Runs `then` when the loaded value passes the comparison with `k`, else `otherwise`.
pub(super) fn when(is: Is, k: u32, then: Block, otherwise: Block) -> Block {
    let comparison = BPF_JMP
        | BPF_K
        | match is {
            Is::Equal => BPF_JEQ,
            Is::AtLeast => BPF_JGE,
            Is::AnyBitOf => BPF_JSET,
        };
    // Conditional jumps reach 255 instructions; beyond that an unconditional one is put between.
    let mut block = match u8::try_from(otherwise.len()) {
        Ok(distance) => vec![instruction(comparison, distance, 0, k)],
        Err(_) => {
            // A program holds at most 4096 instructions; a distance that does not even fit here
            // becomes a jump that the kernel refuses to load.
            let distance = u32::try_from(otherwise.len()).unwrap_or(u32::MAX);
            vec![instruction(comparison, 0, 1, k), instruction(BPF_JMP | BPF_JA, 0, 0, distance)]
        }
    };
    block.extend(otherwise);
    block.extend(then);
    block
}

/// Lets the call through when the loaded value is one of `values`, else fails it with `errno`.
pub(super) fn allow_only(values: &[u32], errno: i32) -> Block {
    values.iter().fold(refuse(errno), |rest, value| when(Is::Equal, *value, allow(), rest))
}

/// Fails the call with `errno` when the loaded value is one of `values`, else lets it through.
pub(super) fn refuse_only(values: &[u32], errno: i32) -> Block {
    values.iter().fold(allow(), |rest, value| when(Is::Equal, *value, refuse(errno), rest))
}

/// The numbers from `first` up to the next range's first, and what happens to them.
#[derive(Clone)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) block: Block,
}

/// Finds the range of the loaded value and runs its block. The ranges are sorted and the first
/// starts at 0; of no ranges nothing is let through.
pub(super) fn search(ranges: &[Range]) -> Block {
    match ranges {
        [] => answer(libc::SECCOMP_RET_KILL_PROCESS),
        [range] => range.block.clone(),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            when(Is::AtLeast, high[0].first, search(high), search(low))
        }
    }
}
