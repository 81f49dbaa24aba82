//! Builds classic BPF for seccomp: a decision tree in which every path ends in an answer.
//!
//! All of it is computed at compile time: the programs are constants of the binary.
//!
//! Blocks are position-independent sequences of instructions that never fall off their end, so any
//! block can be put behind any branch. A search tree over number ranges costs about eight
//! comparisons for a call, whereas a linear chain costs one for each rule. The kernel runs the
//! program for every number when it is installed, so this also determines the cost of installing.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_W, SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF,
    sock_filter,
};

/// The offset of the system call's number in `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
/// The offset of the architecture.
pub(super) const ARCHITECTURE: u32 = 4;

/// The offset of the low half of an argument. For every argument that is checked here the kernel
/// itself ignores the high half (they are 32-bit types, or masked): a filter that compared all 64
/// bits could be bypassed with a set high bit (CVE-2019-10063).
pub(super) const fn low_half_of_argument(index: u32) -> u32 {
    16 + 8 * index
}

/// The offset of the high half of an argument, where the kernel itself ignores that.
pub(super) const fn high_half_of_argument(index: u32) -> u32 {
    low_half_of_argument(index) + 4
}

/// The length of the longest program before its answers are shared; one more instruction would not
/// compile.
const CAPACITY: usize = 640;

/// A position-independent sequence of instructions.
#[derive(Clone, Copy)]
pub(super) struct Block {
    instructions: [sock_filter; CAPACITY],
    length: usize,
}

/// How the loaded value is compared.
#[derive(Clone, Copy)]
pub(super) enum Comparison {
    Equal,
    AtLeast,
    AnyBitOf,
}

impl Block {
    const EMPTY: Self =
        Self { instructions: [sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; CAPACITY], length: 0 };

    /// One instruction.
    const fn of(code: u32, jt: u8, jf: u8, k: u32) -> Self {
        // All operation codes of classic BPF fit in a byte.
        #[expect(clippy::cast_possible_truncation, reason = "the constants are below 256")]
        let code = code as u16;
        let mut block = Self::EMPTY;
        block.instructions[0] = sock_filter { code, jt, jf, k };
        block.length = 1;
        block
    }

    /// This block followed by another one.
    pub(super) const fn append(mut self, next: &Self) -> Self {
        let mut index = 0;
        while index < next.length {
            self.instructions[self.length] = next.instructions[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    const fn is_answer(&self, index: usize) -> bool {
        self.instructions[index].code as u32 == BPF_RET | BPF_K
    }

    const fn is_jump(&self, index: usize) -> bool {
        self.instructions[index].code as u32 == BPF_JMP | BPF_JA
    }

    const fn is_comparison(&self, index: usize) -> bool {
        self.instructions[index].code as u32 & 7 == BPF_JMP && !self.is_jump(index)
    }

    /// This block, with a report in the place of every errno.
    const fn reporting(mut self) -> Self {
        let mut index = 0;
        while index < self.length {
            let action = self.instructions[index].k & SECCOMP_RET_ACTION_FULL;
            if self.is_answer(index) && action == SECCOMP_RET_ERRNO {
                self.instructions[index].k = SECCOMP_RET_USER_NOTIF;
            }
            index += 1;
        }
        self
    }

    /// The final target of a jump to `index`.
    const fn follow(&self, mut index: usize) -> usize {
        while self.is_jump(index) {
            index += 1 + self.instructions[index].k as usize;
        }
        index
    }

    /// The instructions.
    pub(super) const fn program(&self) -> &[sock_filter] {
        self.instructions.split_at(self.length).0
    }
}

/// Loads the 32-bit word at `offset` of `struct seccomp_data`.
pub(super) const fn load(offset: u32) -> Block {
    Block::of(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

/// Keeps only the bits of `mask` of the loaded value.
pub(super) const fn mask(mask: u32) -> Block {
    Block::of(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask)
}

/// Ends the program with a `SECCOMP_RET_*` value.
pub(super) const fn answer(action: u32) -> Block {
    Block::of(BPF_RET | BPF_K, 0, 0, action)
}

/// Allows the call.
pub(super) const fn allow() -> Block {
    answer(SECCOMP_RET_ALLOW)
}

/// Fails the call with `errno`.
pub(super) const fn refuse(errno: i32) -> Block {
    answer(SECCOMP_RET_ERRNO | errno.unsigned_abs())
}

/// Runs `then` when the loaded value passes the comparison with `k`, else `otherwise`.
pub(super) const fn when(is: Comparison, k: u32, then: &Block, otherwise: &Block) -> Block {
    let comparison = BPF_JMP
        | BPF_K
        | match is {
            Comparison::Equal => BPF_JEQ,
            Comparison::AtLeast => BPF_JGE,
            Comparison::AnyBitOf => BPF_JSET,
        };
    #[expect(clippy::cast_possible_truncation, reason = "compared with the limit, or by CAPACITY")]
    let block = if otherwise.length <= u8::MAX as usize {
        Block::of(comparison, otherwise.length as u8, 0, k)
    } else {
        // Conditional jumps reach 255 instructions; for longer distances an unconditional one is
        // inserted.
        Block::of(comparison, 0, 1, k).append(&Block::of(
            BPF_JMP | BPF_JA,
            0,
            0,
            otherwise.length as u32,
        ))
    };
    block.append(otherwise).append(then)
}

/// Allows the call when the loaded value is one of `values`, else fails it with `errno`.
pub(super) const fn allow_only(values: &[u32], errno: i32) -> Block {
    choose(values, &allow(), &refuse(errno))
}

/// Fails the call with `errno` when the loaded value is one of `values`, else allows it.
pub(super) const fn refuse_only(values: &[u32], errno: i32) -> Block {
    choose(values, &refuse(errno), &allow())
}

const fn choose(values: &[u32], then: &Block, otherwise: &Block) -> Block {
    let mut block = *otherwise;
    let mut index = 0;
    while index < values.len() {
        block = when(Comparison::Equal, values[index], then, &block);
        index += 1;
    }
    block
}

/// The decision about a system call.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    /// It is allowed.
    Allowed,
    /// It fails with this errno.
    Refused(i32),
    /// This block decides.
    Filtered(&'static Block),
    /// It fails with the errno that the supervisor answers.
    Reported,
    /// This block decides; what it refuses fails with the errno that the supervisor answers.
    FilteredReported(&'static Block),
}

impl Verdict {
    const fn block(self) -> Block {
        match self {
            Self::Allowed => allow(),
            Self::Refused(errno) => refuse(errno),
            Self::Filtered(block) => *block,
            Self::Reported => answer(SECCOMP_RET_USER_NOTIF),
            Self::FilteredReported(block) => block.reporting(),
        }
    }

    /// Whether both are certainly the same.
    const fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Allowed, Self::Allowed) | (Self::Reported, Self::Reported) => true,
            (Self::Refused(one), Self::Refused(other)) => one == other,
            _ => false,
        }
    }
}

/// Finds the verdict on the loaded number and executes it. `verdicts` covers the numbers from 0 up;
/// higher numbers fail with ENOSYS.
pub(super) const fn search(verdicts: &[Verdict]) -> Block {
    // The first numbers of the ranges with a common verdict.
    let mut ranges = [0; CAPACITY];
    let mut count = 1;
    let mut number = 1;
    while number < verdicts.len() {
        if !verdicts[number].is(verdicts[number - 1]) {
            ranges[count] = number;
            count += 1;
        }
        number += 1;
    }
    let below = halve(verdicts, ranges.split_at(count).0);
    #[expect(clippy::cast_possible_truncation, reason = "there are some hundred calls")]
    when(Comparison::AtLeast, verdicts.len() as u32, &refuse(libc::ENOSYS), &below)
}

/// The search in these ranges.
const fn halve(verdicts: &[Verdict], ranges: &[usize]) -> Block {
    if ranges.len() == 1 {
        return verdicts[ranges[0]].block();
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    #[expect(clippy::cast_possible_truncation, reason = "there are some hundred calls")]
    when(Comparison::AtLeast, high[0] as u32, &halve(verdicts, high), &halve(verdicts, low))
}

/// The same decisions, laid out from the end to the start, with few copies of each answer: the
/// kernel translates each instruction when a program is installed. Conditional jumps reach 255
/// instructions, so an answer that is too far away is repeated, and a decision that is too far away
/// gets an unconditional jump.
pub(super) const fn lay_out(block: &Block) -> Block {
    let mut layout = Layout { end: Block::EMPTY.instructions, start: CAPACITY };
    // The position of each decision of `block`, or of a jump to it.
    let mut positions = [CAPACITY; CAPACITY];
    let mut index = block.length;
    while index > 0 {
        index -= 1;
        if block.is_answer(index) || block.is_jump(index) {
            continue;
        }
        let mut instruction = block.instructions[index];
        if block.is_comparison(index) {
            let when_true = block.follow(index + 1 + instruction.jt as usize);
            let when_false = block.follow(index + 1 + instruction.jf as usize);
            layout = layout.bring_near(block, when_true, &mut positions);
            layout = layout.bring_near(block, when_false, &mut positions);
            instruction.jt = layout.distance(block, when_true, &positions);
            instruction.jf = layout.distance(block, when_false, &positions);
        } else {
            layout = layout.put_next(block, block.follow(index + 1), &mut positions);
        }
        layout = layout.put(instruction);
        positions[index] = layout.start;
    }
    layout.block()
}

/// A program that is written from its end.
#[derive(Clone, Copy)]
struct Layout {
    /// The instructions, from `start` to the end of the array.
    end: [sock_filter; CAPACITY],
    start: usize,
}

/// How far a target may be, so that it can be reached even after one more instruction was put
/// before it.
const NEAR: usize = u8::MAX as usize - 1;

impl Layout {
    /// Puts an instruction before all others.
    const fn put(mut self, instruction: sock_filter) -> Self {
        self.start -= 1;
        self.end[self.start] = instruction;
        self
    }

    /// The position of a target; `CAPACITY` where there is none.
    const fn position(&self, block: &Block, target: usize, positions: &[usize; CAPACITY]) -> usize {
        if !block.is_answer(target) {
            return positions[target];
        }
        let answer = block.instructions[target];
        let mut position = self.start;
        while position < CAPACITY {
            let other = self.end[position];
            if other.code == answer.code && other.k == answer.k {
                return position;
            }
            position += 1;
        }
        CAPACITY
    }

    /// Ensures that a comparison that is put next reaches the target.
    const fn bring_near(
        self,
        block: &Block,
        target: usize,
        positions: &mut [usize; CAPACITY],
    ) -> Self {
        let position = self.position(block, target, positions);
        if position < CAPACITY && position - self.start <= NEAR {
            return self;
        }
        self.put_way(block, target, position, positions)
    }

    /// Ensures that the target follows the instruction that is put next.
    const fn put_next(
        self,
        block: &Block,
        target: usize,
        positions: &mut [usize; CAPACITY],
    ) -> Self {
        let position = self.position(block, target, positions);
        if position == self.start && position < CAPACITY {
            return self;
        }
        self.put_way(block, target, position, positions)
    }

    /// Puts the target itself, if it is an answer, else a jump to it.
    const fn put_way(
        self,
        block: &Block,
        target: usize,
        position: usize,
        positions: &mut [usize; CAPACITY],
    ) -> Self {
        if block.is_answer(target) {
            return self.put(block.instructions[target]);
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is less than CAPACITY")]
        let jump = Block::of(BPF_JMP | BPF_JA, 0, 0, (position - self.start) as u32);
        let layout = self.put(jump.instructions[0]);
        positions[target] = layout.start;
        layout
    }

    /// The distance from a comparison that is put next. A target that is too far away does not
    /// compile.
    const fn distance(&self, block: &Block, target: usize, positions: &[usize; CAPACITY]) -> u8 {
        let distance = self.position(block, target, positions) - self.start;
        assert!(distance <= u8::MAX as usize);
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        (distance as u8)
    }

    /// The program from its start.
    const fn block(&self) -> Block {
        let mut block = Block::EMPTY;
        let mut position = self.start;
        while position < CAPACITY {
            block.instructions[block.length] = self.end[position];
            block.length += 1;
            position += 1;
        }
        block
    }
}
