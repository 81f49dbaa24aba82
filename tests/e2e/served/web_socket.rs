//! A client of WebSockets, as small as the tests need.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::{Address, PATIENCE};

/// A connection, as frames.
pub(crate) struct Frames(pub(crate) TcpStream);

/// A connection, as messages.
pub(crate) struct WebSocket(Frames);

/// A message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Text(Value),
    Binary(Vec<u8>),
    Close(u16),
}

impl Frames {
    /// Connects to a path of a host name with more headers; the status and the response if that is
    /// refused.
    pub(crate) fn connect(
        address: &Address,
        path: &str,
        host: &str,
        headers: &[&str],
    ) -> Result<Self, (u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE / 2)).unwrap();
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let is_accepted = answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        if status == 101 && is_accepted { Ok(Self(stream)) } else { Err((status, answer)) }
    }

    /// Sends a message; its mask is zero, which changes nothing.
    pub(crate) fn send(&mut self, opcode: u8, data: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        if let Some(length) = u8::try_from(data.len()).ok().filter(|length| *length < 126) {
            frame.push(0x80 | length);
        } else if let Ok(length) = u16::try_from(data.len()) {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        } else {
            frame.push(0x80 | 127);
            frame.extend((data.len() as u64).to_be_bytes());
        }
        frame.extend([0; 4]);
        frame.extend(data);
        self.0.write_all(&frame).unwrap();
    }

    /// The next frame: its opcode and data.
    pub(crate) fn receive(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut read = |length: usize| {
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes).map(|()| bytes).map_err(|error| error.to_string())
        };
        let head = read(2)?;
        let length = match head[1] & 127 {
            126 => u64::from(u16::from_be_bytes(read(2)?.try_into().unwrap())),
            127 => u64::from_be_bytes(read(8)?.try_into().unwrap()),
            short => u64::from(short),
        };
        Ok((head[0] & 15, read(usize::try_from(length).unwrap())?))
    }

    /// Whether the other end closes the connection.
    pub(crate) fn is_cut(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

impl WebSocket {
    /// Connects to a path with more headers; the status if that is refused.
    pub(crate) fn connect(
        address: Address,
        path: &str,
        headers: &[&str],
    ) -> Result<Self, (u16, String)> {
        Frames::connect(&address, path, &address.host(), headers).map(Self)
    }

    pub(crate) fn send_text(&mut self, value: &Value) {
        self.0.send(1, value.to_string().as_bytes());
    }

    pub(crate) fn send_binary(&mut self, data: &[u8]) {
        self.0.send(2, data);
    }

    /// The next message; pings are skipped.
    pub(crate) fn receive(&mut self) -> Message {
        loop {
            let (opcode, data) = self.0.receive().unwrap();
            match opcode {
                1 => return Message::Text(serde_json::from_slice(&data).unwrap()),
                2 => return Message::Binary(data),
                8 => return Message::Close(u16::from_be_bytes([data[0], data[1]])),
                _ => {}
            }
        }
    }

    /// Receives output until it contains a text; all of it.
    pub(crate) fn output_until(&mut self, text: &str) -> String {
        let mut output = Vec::new();
        while !String::from_utf8_lossy(&output).contains(text) {
            match self.receive() {
                Message::Binary(data) => output.extend(&data[1..]),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&output)),
            }
        }
        String::from_utf8_lossy(&output).into_owned()
    }
}
