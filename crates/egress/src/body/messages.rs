//! Messages of WebSocket from a host (RFC 6455, section 5). A message is redacted as a whole, also
//! if it has several frames; nothing of it waits longer than for its last frame. Bytes that are no
//! frames are forwarded as those of any other protocol.

use std::collections::VecDeque;

use crate::redaction::BodyRedaction;

/// The most bytes of a control frame's content.
const CONTROL_BYTES: u64 = 125;
/// The most frames that wait for content before them.
const MAX_FRAMES: usize = 1024;

/// The state between two pieces.
#[derive(Debug, Default)]
pub(super) struct Messages {
    state: State,
    /// Heads of frames, and whole control frames, that are forwarded when so many bytes of content
    /// are.
    frames: VecDeque<(u64, Vec<u8>)>,
    /// The bytes of content that have arrived, and those that were forwarded.
    arrived: u64,
    forwarded: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The head of a frame, of which these bytes have arrived.
    Head(Vec<u8>),
    Data {
        missing: u64,
        is_last: bool,
    },
    /// A control frame, of which these bytes have arrived after its head.
    Control {
        head: Vec<u8>,
        content: Vec<u8>,
        length: usize,
    },
    /// There are no frames.
    Other,
}

impl Default for State {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Incomplete,
    Data { length: u64, is_last: bool },
    Control { length: usize },
    Invalid,
}

impl Head {
    fn parse(bytes: &[u8]) -> Self {
        let [first, second, rest @ ..] = bytes else {
            // Extensions, which were not negotiated, and opcodes that do not exist.
            let is_valid = |first: &u8| first & 0x70 == 0 && matches!(first & 0x0f, 0..=2 | 8..=10);
            return if bytes.iter().all(is_valid) { Self::Incomplete } else { Self::Invalid };
        };
        let (is_last, is_control) = (first & 0x80 != 0, first & 0x08 != 0);
        let length = match (second & 0x7f, rest.len()) {
            // A host must not mask.
            _ if second & 0x80 != 0 => return Self::Invalid,
            (126, 0..2) | (127, 0..8) => return Self::Incomplete,
            (126 | 127, _) => {
                rest.iter().fold(0, |length: u64, byte| length.wrapping_shl(8) | u64::from(*byte))
            }
            (length, _) => u64::from(length),
        };
        match usize::try_from(length) {
            Ok(length) if is_control && is_last && length as u64 <= CONTROL_BYTES => {
                Self::Control { length }
            }
            Ok(_) if !is_control && length >> 63 == 0 => Self::Data { length, is_last },
            _ => Self::Invalid,
        }
    }
}

impl Messages {
    /// Whether the last frame that has arrived is complete.
    pub(super) fn is_between(&self) -> bool {
        match &self.state {
            State::Head(bytes) => bytes.is_empty(),
            State::Other => true,
            State::Data { .. } | State::Control { .. } => false,
        }
    }

    /// Adds bytes from the host.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        redaction: &mut BodyRedaction,
        output: &mut Vec<u8>,
    ) {
        while let Some((first, others)) = bytes.split_first() {
            match &mut self.state {
                State::Head(head) => {
                    head.push(*first);
                    bytes = others;
                    let head = head.clone();
                    self.start(head, redaction, output);
                }
                State::Data { missing, is_last } => {
                    let count = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                    let (own, rest) = bytes.split_at(count);
                    bytes = rest;
                    *missing -= count as u64;
                    let (is_complete, is_last) = (*missing == 0, *is_last);
                    self.content(own, redaction, output);
                    if is_complete {
                        self.end(is_last, redaction, output);
                    }
                }
                State::Control { head, content, length } => {
                    let count = (*length - content.len()).min(bytes.len());
                    let (own, rest) = bytes.split_at(count);
                    content.extend_from_slice(own);
                    bytes = rest;
                    if content.len() == *length {
                        let frame = [head.as_slice(), &redaction.values().whole(content)].concat();
                        self.state = State::default();
                        self.frame(frame, output);
                    }
                }
                State::Other => {
                    self.content(bytes, redaction, output);
                    return;
                }
            }
            // A host may send empty frames without end.
            if self.frames.len() > MAX_FRAMES {
                let mut content = Vec::new();
                redaction.release(&mut content);
                self.forward(&content, output);
            }
        }
    }

    /// Starts a frame if its head is complete.
    fn start(&mut self, head: Vec<u8>, redaction: &mut BodyRedaction, output: &mut Vec<u8>) {
        match Head::parse(&head) {
            Head::Incomplete => {}
            Head::Data { length, is_last } => {
                self.frame(head, output);
                self.state = State::Data { missing: length, is_last };
                if length == 0 {
                    self.end(is_last, redaction, output);
                }
            }
            Head::Control { length: 0 } => {
                self.state = State::default();
                self.frame(head, output);
            }
            Head::Control { length } => {
                self.state = State::Control { head, content: Vec::new(), length };
            }
            Head::Invalid => {
                self.state = State::Other;
                self.content(&head, redaction, output);
            }
        }
    }

    /// Ends a frame. The end of a message is the end of its content.
    fn end(&mut self, is_last: bool, redaction: &mut BodyRedaction, output: &mut Vec<u8>) {
        self.state = State::default();
        if is_last {
            let mut content = Vec::new();
            redaction.release(&mut content);
            self.forward(&content, output);
        }
    }

    fn content(&mut self, bytes: &[u8], redaction: &mut BodyRedaction, output: &mut Vec<u8>) {
        let mut content = Vec::new();
        redaction.push(bytes, &mut content);
        self.arrived += bytes.len() as u64;
        self.forward(&content, output);
    }

    /// Adds what is forwarded after all content that has arrived so far.
    fn frame(&mut self, frame: Vec<u8>, output: &mut Vec<u8>) {
        self.frames.push_back((self.arrived, frame));
        self.forward(&[], output);
    }

    /// Forwards content, and the heads in it.
    pub(super) fn forward(&mut self, mut content: &[u8], output: &mut Vec<u8>) {
        let end = self.forwarded + content.len() as u64;
        while self.frames.front().is_some_and(|(at, _)| *at <= end) {
            let Some((at, frame)) = self.frames.pop_front() else { break };
            let before = usize::try_from(at - self.forwarded).unwrap_or(usize::MAX);
            let (own, rest) = content.split_at(before.min(content.len()));
            output.extend_from_slice(own);
            output.extend(frame);
            content = rest;
            self.forwarded = at;
        }
        output.extend_from_slice(content);
        self.forwarded = end;
    }

    /// Forwards what has arrived of a head or a control frame.
    pub(super) fn finish(&mut self, redaction: &BodyRedaction, output: &mut Vec<u8>) {
        match std::mem::replace(&mut self.state, State::Other) {
            State::Head(head) => output.extend(head),
            State::Control { head, content, .. } => {
                output.extend(head);
                output.extend(redaction.values().whole(&content));
            }
            State::Data { .. } | State::Other => {}
        }
    }
}
