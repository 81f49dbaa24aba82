//! The messages between a worker and its caller: frames of a length, a kind and fields, over one
//! stream. A worker may write any bytes: unless they are valid messages, each in its only encoding
//! and within the limit, the call ends.

use crate::realm_host::{FetchResult, Redirect, Request, Response};

/// The longest frame, without its length field.
pub const FRAME_BYTES: usize = 8 << 20;
/// The most headers of a request or response.
const MAX_HEADERS: usize = 100;

/// A message of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromWorker {
    /// It starts to parse the files; until its next message, deep nesting may crash it.
    ReadingStarted,
    /// It has parsed them.
    ReadingFinished,
    /// A line of output.
    Line(String),
    /// A request for a fetch.
    Fetch(u32, Request),
    /// It cancels a fetch.
    Abort(u32),
    /// Its response, the last message.
    Response(Vec<u8>),
}

/// A message to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToWorker {
    /// The request, the first message.
    Request(Vec<u8>),
    /// The result of a fetch.
    FetchResult(FetchResult),
}

/// A frame that is not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame is longer than {FRAME_BYTES} bytes or invalid")]
pub struct Malformed;

/// A message that is sent over the stream.
pub trait Message: Sized {
    /// The complete frame.
    fn encode(&self) -> Vec<u8>;

    /// The message in a frame without its length field.
    ///
    /// # Errors
    /// [`Malformed`] unless the frame is exactly the encoding of a message by [`Message::encode`].
    fn decode(frame: &[u8]) -> Result<Self, Malformed>;
}

/// A buffer of received bytes, from which frames are taken.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Incoming {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if it is complete.
    ///
    /// # Errors
    /// [`Malformed`] as soon as its length or content is invalid; the rest of the stream is then
    /// meaningless.
    pub fn take<W: Message>(&mut self) -> Result<Option<W>, Malformed> {
        let rest = self.bytes.get(self.consumed..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES {
            return Err(Malformed);
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let message = W::decode(frame)?;
        self.consumed += 4 + length;
        Ok(Some(message))
    }
}

impl Message for FromWorker {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::ReadingStarted => Frame::new(b'r').finish(),
            Self::ReadingFinished => Frame::new(b'R').finish(),
            Self::Line(text) => Frame::new(b'L').bytes(text.as_bytes()).finish(),
            Self::Fetch(id, request) => {
                let Request { method, url, headers, body, redirect } = request;
                let frame = Frame::new(b'F').number(*id).byte(match redirect {
                    Redirect::Follow => 0,
                    Redirect::Error => 1,
                    Redirect::Manual => 2,
                });
                let frame = frame.bytes(method.as_bytes()).bytes(url.as_bytes()).headers(headers);
                match body {
                    None => frame.byte(0).finish(),
                    Some(body) => frame.byte(1).bytes(body).finish(),
                }
            }
            Self::Abort(id) => Frame::new(b'X').number(*id).finish(),
            Self::Response(bytes) => Frame::new(b'A').bytes(bytes).finish(),
        }
    }

    fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(frame);
        let message = match fields.byte()? {
            b'r' => Self::ReadingStarted,
            b'R' => Self::ReadingFinished,
            b'L' => Self::Line(fields.text()?),
            b'F' => {
                let id = fields.number()?;
                let redirect = match fields.byte()? {
                    0 => Redirect::Follow,
                    1 => Redirect::Error,
                    2 => Redirect::Manual,
                    _ => return Err(Malformed),
                };
                let (method, url, headers) = (fields.text()?, fields.text()?, fields.headers()?);
                let body = if fields.flag()? { Some(fields.bytes()?.to_vec()) } else { None };
                Self::Fetch(id, Request { method, url, headers, body, redirect })
            }
            b'X' => Self::Abort(fields.number()?),
            b'A' => Self::Response(fields.bytes()?.to_vec()),
            _ => return Err(Malformed),
        };
        fields.end(message)
    }
}

impl Message for ToWorker {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Request(bytes) => Frame::new(b'Q').bytes(bytes).finish(),
            Self::FetchResult(FetchResult { id, result: Err(why) }) => {
                Frame::new(b'E').number(*id).bytes(why.as_bytes()).finish()
            }
            Self::FetchResult(FetchResult { id, result: Ok(response) }) => {
                let Response { status, status_text, url, redirected, headers, body } = response;
                Frame::new(b'S')
                    .number(*id)
                    .number((*status).into())
                    .byte((*redirected).into())
                    .bytes(status_text.as_bytes())
                    .bytes(url.as_bytes())
                    .headers(headers)
                    .bytes(body)
                    .finish()
            }
        }
    }

    fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(frame);
        let message = match fields.byte()? {
            b'Q' => Self::Request(fields.bytes()?.to_vec()),
            b'E' => {
                let id = fields.number()?;
                Self::FetchResult(FetchResult { id, result: Err(fields.text()?) })
            }
            b'S' => {
                let id = fields.number()?;
                let response = Response {
                    status: u16::try_from(fields.number()?).map_err(|_| Malformed)?,
                    redirected: fields.flag()?,
                    status_text: fields.text()?,
                    url: fields.text()?,
                    headers: fields.headers()?,
                    body: fields.bytes()?.to_vec(),
                };
                Self::FetchResult(FetchResult { id, result: Ok(response) })
            }
            _ => return Err(Malformed),
        };
        fields.end(message)
    }
}

/// A frame that is being written.
struct Frame(Vec<u8>);

impl Frame {
    fn new(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut frame = self.number(length(bytes.len()));
        frame.0.extend_from_slice(bytes);
        frame
    }

    fn headers(self, headers: &[(String, String)]) -> Self {
        let frame = self.number(length(headers.len()));
        headers.iter().fold(frame, |frame, (name, value)| {
            frame.bytes(name.as_bytes()).bytes(value.as_bytes())
        })
    }

    fn finish(mut self) -> Vec<u8> {
        let bytes = length(self.0.len().saturating_sub(4)).to_le_bytes();
        self.0.splice(..4, bytes);
        self.0
    }
}

/// A length that does not fit is rejected by the reader.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The remaining fields of a frame.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    fn headers(&mut self) -> Result<Vec<(String, String)>, Malformed> {
        let count = self.number()? as usize;
        if count > MAX_HEADERS {
            return Err(Malformed);
        }
        (0..count).map(|_| Ok((self.text()?, self.text()?))).collect()
    }

    fn end<W>(self, message: W) -> Result<W, Malformed> {
        if self.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> Vec<(String, String)> {
        vec![("accept".to_owned(), "é".to_owned()), (String::new(), String::new())]
    }

    #[test]
    fn words_survive_the_way_in_any_pieces() {
        let request = Request {
            method: "POST".to_owned(),
            url: "https://example.com/".to_owned(),
            headers: headers(),
            body: Some(vec![0, 255]),
            redirect: Redirect::Manual,
        };
        let words = [
            FromWorker::ReadingStarted,
            FromWorker::ReadingFinished,
            FromWorker::Line("[log] é".to_owned()),
            FromWorker::Fetch(7, request),
            FromWorker::Fetch(8, Request::default()),
            FromWorker::Abort(7),
            FromWorker::Response(vec![1, 2, 3]),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(Message::encode).collect();
        for piece in [1, 3, 7, bytes.len()] {
            let mut incoming = Incoming::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                incoming.push(piece);
                while let Some(message) = incoming.take::<FromWorker>().unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, words);
        }
        let response = Response { status: 404, headers: headers(), ..Response::default() };
        for message in [
            ToWorker::Request(vec![9]),
            ToWorker::FetchResult(FetchResult { id: 1, result: Err("no".to_owned()) }),
            ToWorker::FetchResult(FetchResult { id: 2, result: Ok(response) }),
        ] {
            assert_eq!(ToWorker::decode(&message.encode()[4..]), Ok(message));
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        let read = |bytes: &[u8]| {
            let mut incoming = Incoming::default();
            incoming.push(bytes);
            incoming.take::<FromWorker>()
        };
        let too_long = u32::try_from(FRAME_BYTES + 1).unwrap().to_le_bytes();
        assert_eq!(read(&too_long), Err(Malformed));
        assert_eq!(read(&[0, 0, 0, 0]), Err(Malformed));
        assert_eq!(read(&[2, 0, 0, 0, b'r', 0]), Err(Malformed));
        assert_eq!(read(&[6, 0, 0, 0, b'L', 1, 0, 0, 0, 0xff]), Err(Malformed));
        assert_eq!(read(&[5, 0, 0, 0, b'L', 1, 0, 0, 0]), Err(Malformed));
        assert_eq!(read(&[9, 0, 0, 0, b'L']), Ok(None));
    }
}
