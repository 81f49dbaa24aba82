//! A client of WebSockets, as small as the tests need.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::{Address, PATIENCE};

/// A connection.
pub(crate) struct WebSocket(TcpStream);

/// A message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Text(Value),
    Binary(Vec<u8>),
    Close(u16),
}

impl WebSocket {
    /// Connects to a path with more headers; the status if that is refused.
    pub(crate) fn connect(
        address: Address,
        path: &str,
        headers: &[&str],
    ) -> Result<Self, (u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
            address.host()
        );
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        if status == 101 { Ok(Self(stream)) } else { Err((status, answer)) }
    }

    fn send(&mut self, kind: u8, data: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match u8::try_from(data.len()).ok().filter(|length| *length < 126) {
            Some(length) => frame.push(0x80 | length),
            None => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(data);
        self.0.write_all(&frame).unwrap();
    }

    pub(crate) fn send_text(&mut self, value: &Value) {
        self.send(1, value.to_string().as_bytes());
    }

    pub(crate) fn send_binary(&mut self, data: &[u8]) {
        self.send(2, data);
    }

    /// The next message; pings are skipped.
    pub(crate) fn receive(&mut self) -> Message {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            let length = match head[1] & 127 {
                126 => {
                    let mut length = [0; 2];
                    self.0.read_exact(&mut length).unwrap();
                    u64::from(u16::from_be_bytes(length))
                }
                127 => {
                    let mut length = [0; 8];
                    self.0.read_exact(&mut length).unwrap();
                    u64::from_be_bytes(length)
                }
                length => u64::from(length),
            };
            let mut data = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut data).unwrap();
            match head[0] & 15 {
                1 => return Message::Text(serde_json::from_slice(&data).unwrap()),
                2 => return Message::Binary(data),
                8 => return Message::Close(u16::from_be_bytes([data[0], data[1]])),
                _ => {}
            }
        }
    }

    /// Waits until the server has closed the connection.
    pub(crate) fn wait_for_end(&mut self) {
        // A connection that is cut may be reset.
        if let Err(error) = self.0.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it does not end");
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
