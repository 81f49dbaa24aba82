//! The frames in which requests, replies, contents and events travel through the standard streams of a call.
//! The other side may be hostile: a frame has a largest length.

use std::io;

use serde::Serialize;
use stockade_runtime::Stream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The largest frame: a list of the largest directory fits in it, and so do the arguments of a command.
const LARGEST: u32 = 64 << 20;
/// The size of the pieces in which contents travel.
pub(crate) const PIECE: usize = 64 << 10;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A request, a reply or an event, in JSON.
    Message(Vec<u8>),
    /// A piece of a content.
    Data(Vec<u8>),
    /// The end of a content.
    End,
    /// The rest of a content cannot be read.
    Broken,
    /// A piece of input was written to the command.
    Accepted,
    /// What a command wrote.
    Output {
        /// The stream.
        stream: Stream,
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// Reads a frame; `None` at the end of the stream.
///
/// # Errors
/// Those of the stream; `InvalidData` for what is no frame.
pub async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; 5];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    let [tag, a, b, c, d] = head;
    let length = u32::from_be_bytes([a, b, c, d]);
    if length > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    // It grows with what arrives, not with what is promised.
    let mut bytes = Vec::new();
    let read = from.take(u64::from(length)).read_to_end(&mut bytes).await?;
    if read as u64 != u64::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a frame is invalid");
    Ok(Some(match tag {
        b'M' => Frame::Message(bytes),
        b'D' => Frame::Data(bytes),
        b'E' if bytes.is_empty() => Frame::End,
        b'B' if bytes.is_empty() => Frame::Broken,
        b'A' if bytes.is_empty() => Frame::Accepted,
        b'1' | b'2' => {
            let (offset, rest) = bytes.split_first_chunk().ok_or_else(invalid)?;
            let stream = if tag == b'1' { Stream::Output } else { Stream::Error };
            Frame::Output { stream, offset: u64::from_be_bytes(*offset), bytes: rest.to_vec() }
        }
        _ => return Err(invalid()),
    }))
}

/// Writes a frame, and flushes.
///
/// # Errors
/// Those of the stream; `InvalidData` for a frame that is too long.
pub async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let (tag, offset, bytes): (u8, Option<u64>, &[u8]) = match frame {
        Frame::Message(bytes) => (b'M', None, bytes),
        Frame::Data(bytes) => (b'D', None, bytes),
        Frame::End => (b'E', None, &[]),
        Frame::Broken => (b'B', None, &[]),
        Frame::Accepted => (b'A', None, &[]),
        Frame::Output { stream, offset, bytes } => {
            let tag = if *stream == Stream::Output { b'1' } else { b'2' };
            (tag, Some(*offset), bytes)
        }
    };
    let length = bytes.len() + offset.map_or(0, |_| size_of::<u64>());
    let length = u32::try_from(length).ok().filter(|length| *length <= LARGEST);
    let length = length
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
    let mut whole = Vec::with_capacity(13 + bytes.len());
    whole.push(tag);
    whole.extend(length.to_be_bytes());
    whole.extend(offset.into_iter().flat_map(u64::to_be_bytes));
    whole.extend(bytes);
    to.write_all(&whole).await?;
    to.flush().await
}

/// The frame of a message.
pub(crate) fn message(value: &impl Serialize) -> io::Result<Frame> {
    Ok(Frame::Message(serde_json::to_vec(value)?))
}

/// The error of a frame that cannot come at this point.
pub(crate) fn protocol() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame that cannot come here")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn frames_come_as_they_are_sent() {
        let frames = [
            Frame::Message(b"{}".to_vec()),
            Frame::Data(vec![7; PIECE]),
            Frame::Output { stream: Stream::Error, offset: 1 << 40, bytes: b"x".to_vec() },
            Frame::Output { stream: Stream::Output, offset: 0, bytes: Vec::new() },
            Frame::Accepted,
            Frame::Broken,
            Frame::End,
        ];
        wait(async {
            let mut bytes = Vec::new();
            for frame in &frames {
                write_frame(&mut bytes, frame).await.unwrap();
            }
            let mut from = bytes.as_slice();
            for frame in &frames {
                assert_eq!(read_frame(&mut from).await.unwrap().as_ref(), Some(frame));
            }
            assert_eq!(read_frame(&mut from).await.unwrap(), None);
            for end in [1, 4, 6] {
                assert!(read_frame(&mut &bytes[..end]).await.is_err(), "{end}");
            }
        });
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [
            &b"X\0\0\0\0"[..],
            b"E\0\0\0\x01x",
            b"1\0\0\0\x01x",
            b"D\xff\xff\xff\xff",
            b"D\0\0\0\x05abc",
        ] {
            wait(async { read_frame(&mut &bytes[..]).await.unwrap_err() });
        }
    }
}
