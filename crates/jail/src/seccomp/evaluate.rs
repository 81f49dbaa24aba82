//! Runs a filter program as the kernel does. A program that asks the supervisor about a call says
//! nothing about its errno, so the supervisor runs the program that does.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_W, sock_filter,
};

const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
const MASK: u32 = BPF_ALU | BPF_AND | BPF_K;
const JUMP: u32 = BPF_JMP | BPF_JA;
const EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const AT_LEAST: u32 = BPF_JMP | BPF_JGE | BPF_K;
const ANY_BIT: u32 = BPF_JMP | BPF_JSET | BPF_K;
const ANSWER: u32 = BPF_RET | BPF_K;

/// One system call as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) architecture: u32,
    pub(crate) number: u32,
    pub(crate) arguments: [u64; 6],
}

impl Call {
    /// The word at this offset of `struct seccomp_data`.
    fn word(&self, offset: u32) -> Option<u32> {
        match offset {
            0 => Some(self.number),
            4 => Some(self.architecture),
            16..64 if offset.is_multiple_of(4) => {
                let argument = self.arguments.get((offset as usize - 16) / 8)?;
                let shift = if offset.is_multiple_of(8) { 0 } else { 32 };
                u32::try_from((argument >> shift) & 0xffff_ffff).ok()
            }
            _ => None,
        }
    }
}

/// The result of `program` and the number of executed instructions; `None` for a program that the
/// kernel would not install. Jumps lead forward only, so this ends.
pub(super) fn evaluate(program: &[sock_filter], call: &Call) -> Option<(u32, usize)> {
    let mut accumulator = 0;
    let mut at = 0;
    let mut steps = 0;
    loop {
        let sock_filter { code, jt, jf, k } = *program.get(at)?;
        at += 1;
        steps += 1;
        let branch = |taken: bool| usize::from(if taken { jt } else { jf });
        match u32::from(code) {
            LOAD => accumulator = call.word(k)?,
            MASK => accumulator &= k,
            JUMP => at += k as usize,
            EQUAL => at += branch(accumulator == k),
            AT_LEAST => at += branch(accumulator >= k),
            ANY_BIT => at += branch(accumulator & k != 0),
            ANSWER => return Some((k, steps)),
            _ => return None,
        }
    }
}
