//! A client of HTTP on one connection, with as little work of its own as possible.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::Failure;

/// A connection to a server.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    key: Option<String>,
}

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        if self.status >= 400 {
            return Err(format!("{}: {}", self.status, String::from_utf8_lossy(&self.body)).into());
        }
        Ok(serde_json::from_slice(&self.body)?)
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), key: None })
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Sends a request with JSON, unless that is null, and receives the whole response.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Response, Failure> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = self.head(method, path, headers, body.len());
        if !body.is_empty() {
            request.push_str("content-type: application/json\r\n");
        }
        request.push_str("\r\n");
        request.push_str(&body);
        self.stream.write_all(request.as_bytes()).await?;
        self.receive().await
    }

    /// Uploads a file of zeros.
    pub(crate) async fn upload(
        &mut self,
        path: &str,
        token: &str,
        size: usize,
    ) -> Result<Response, Failure> {
        let part = |name: &str| {
            format!(
                "--b\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n"
            )
        };
        let before = format!("{}{{\"path\":\"/tmp/large\"}}\r\n{}", part("metadata"), part("file"));
        let after = "\r\n--b--\r\n";
        let length = before.len() + size + after.len();
        let mut head = self.head("POST", path, &[("x-execd-access-token", token)], length);
        head.push_str("content-type: multipart/form-data; boundary=b\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(before.as_bytes()).await?;
        let zeros = vec![0; 1 << 20];
        let mut left = size;
        while left > 0 {
            let next = left.min(zeros.len());
            self.stream.write_all(&zeros[..next]).await?;
            left -= next;
        }
        self.stream.write_all(after.as_bytes()).await?;
        self.receive().await
    }

    fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> String {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
        if let Some(key) = &self.key {
            head.push_str(&format!("open-sandbox-api-key: {key}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    async fn receive(&mut self) -> Result<Response, Failure> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("not HTTP: {line:?}"))?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse()?;
            }
            is_chunked |= header == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if !is_chunked {
            body.resize(length, 0);
            self.stream.read_exact(&mut body).await?;
            return Ok(Response { status, body });
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            let size = usize::from_str_radix(line.trim_end(), 16)?;
            let start = body.len();
            body.resize(start + size + 2, 0);
            self.stream.read_exact(&mut body[start..]).await?;
            body.truncate(start + size);
            if size == 0 {
                return Ok(Response { status, body });
            }
        }
    }
}
