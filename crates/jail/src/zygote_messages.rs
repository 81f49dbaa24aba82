//! The messages between a zygote and its client.

use crate::channel::FromInit;

/// The longest text in a message of a zygote.
const TEXT_BYTES: usize = 4 << 10;

/// The isolation of a zygote and its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// Whether it has its own namespaces. Without, only the filter and Landlock isolate it.
    pub namespaces: bool,
    /// Landlock's version.
    pub landlock: u32,
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerExit {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

/// A message of the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToZygote {
    /// Prepare the content of this file descriptor.
    Prepare,
    /// Fork a worker with these two file descriptors, a wire and a leash.
    Fork,
}

/// A message of the zygote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FromZygote {
    /// It serves from now on.
    Ready(Confinement),
    /// The preparation failed.
    PrepareFailed(String),
    /// Its walls could not be enabled.
    WallFailed(Box<FromInit>),
    /// There is no jail, for a reason other than a wall.
    LaunchFailed(String),
}

/// Decodes all that was read from a leash: only these bytes, then the end. `None` when the worker
/// was lost, with its zygote or before it started.
pub fn decode_exit(bytes: &[u8]) -> Option<WorkerExit> {
    match bytes {
        [b'E', code] => Some(WorkerExit::Exited(*code)),
        [b'S', signal] => Some(WorkerExit::Signaled(*signal)),
        _ => None,
    }
}

pub(crate) const fn encode_exit(exit: WorkerExit) -> [u8; 2] {
    match exit {
        WorkerExit::Exited(code) => [b'E', code],
        WorkerExit::Signaled(signal) => [b'S', signal],
    }
}

impl ToZygote {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Prepare => vec![b'P'],
            Self::Fork => vec![b'F'],
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'P'] => Some(Self::Prepare),
            [b'F'] => Some(Self::Fork),
            _ => None,
        }
    }
}

impl FromZygote {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = |kind: u8, text: &str| [&[kind], bounded(text).as_bytes()].concat();
        match self {
            Self::Ready(Confinement { namespaces, landlock }) => {
                [&[b'R', u8::from(*namespaces)][..], &landlock.to_le_bytes()].concat()
            }
            Self::PrepareFailed(why) => text(b'U', why),
            Self::WallFailed(failed) => [&b"W"[..], &failed.encode()].concat(),
            Self::LaunchFailed(why) => text(b'J', why),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match bytes.split_first()? {
            (b'R', [namespaces @ 0..=1, version @ ..]) => {
                let landlock = u32::from_le_bytes(version.try_into().ok()?);
                Some(Self::Ready(Confinement { namespaces: *namespaces == 1, landlock }))
            }
            (b'U', why) => Some(Self::PrepareFailed(text(why))),
            (b'W', failed) => Some(Self::WallFailed(Box::new(FromInit::decode(failed)?))),
            (b'J', why) => Some(Self::LaunchFailed(text(why))),
            _ => None,
        }
    }
}

fn bounded(text: &str) -> &str {
    let end = (0..=TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walls::Wall;

    #[test]
    fn each_message_survives_the_way() {
        let failed = FromInit::Failed { wall: Wall::Landlock, errno: 1, step: "x".to_owned() };
        for message in [
            FromZygote::Ready(Confinement { namespaces: true, landlock: 7 }),
            FromZygote::PrepareFailed("why".to_owned()),
            FromZygote::WallFailed(Box::new(failed)),
            FromZygote::LaunchFailed("why".to_owned()),
        ] {
            assert_eq!(FromZygote::decode(&message.encode()), Some(message));
        }
        for message in [ToZygote::Prepare, ToZygote::Fork] {
            assert_eq!(ToZygote::decode(&message.encode()), Some(message));
        }
        assert_eq!(bounded(&"é".repeat(TEXT_BYTES)).len(), TEXT_BYTES);
        for worker in [WorkerExit::Exited(9), WorkerExit::Signaled(9)] {
            assert_eq!(decode_exit(&encode_exit(worker)), Some(worker));
        }
        assert_eq!(decode_exit(b"E"), None);
    }
}
