//! Parses the server name in the first message of a TLS handshake (RFC 8446, section 4.1.2; RFC
//! 6066, section 3), from records of any size.

/// The first message of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server name, if there is one: bytes that are not UTF-8 are replaced.
    pub server_name: Option<String>,
}

const RECORD_HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// The longest record: plaintext has at most 2^14 bytes (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 1 << 14;
/// The longest first message that is parsed.
const HELLO_BYTES: usize = 32 << 10;

/// Whether bytes look like the start of a handshake, as far as they go. Some servers ignore the
/// version of its record.
pub fn is_handshake(bytes: &[u8]) -> bool {
    bytes.first() == Some(&RECORD_HANDSHAKE)
}

/// Whether bytes start a connection of TLS without a handshake in which a name could be: with
/// another record, after which some servers accept a handshake, or with a ClientHello of SSL 2,
/// which has no names. `None` if more bytes are needed.
pub fn is_nameless(bytes: &[u8]) -> Option<bool> {
    let is_ssl2 = |first: u8| first & 0x80 != 0;
    match bytes {
        [20 | 21 | 23 | 24] => None,
        // The version of an alert is not checked by Go.
        [21, major, ..] => Some(*major < 0x10),
        [20 | 23 | 24, major, ..] => Some(*major == 3),
        [first] | [first, _] | [first, _, CLIENT_HELLO] if is_ssl2(*first) => None,
        [first, _, CLIENT_HELLO, 0 | 3, ..] => Some(is_ssl2(*first)),
        _ => Some(false),
    }
}

/// The server name of a handshake; `None` while its first message is incomplete.
///
/// # Errors
/// Why it is invalid. Two server names are invalid: implementations differ in which one they use.
pub fn server_name(bytes: &[u8]) -> Result<Option<Hello>, &'static str> {
    let Some(message) = first_message(bytes)? else { return Ok(None) };
    let mut reader = Reader(&message);
    // Version and random; session; cipher suites; compression.
    reader.take(2 + 32).ok_or(SHORT)?;
    reader.vector8().ok_or(SHORT)?;
    reader.vector16().ok_or(SHORT)?;
    reader.vector8().ok_or(SHORT)?;
    if reader.0.is_empty() {
        return Ok(Some(Hello { server_name: None }));
    }
    let mut extensions = Reader(reader.vector16().ok_or(SHORT)?);
    if !reader.0.is_empty() {
        return Err("the TLS handshake is longer than its length field");
    }
    let mut server_name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number16().ok_or(SHORT)?;
        let content = extensions.vector16().ok_or(SHORT)?;
        if kind != SERVER_NAME {
            continue;
        }
        if server_name.is_some() {
            return Err("the TLS handshake has two server names");
        }
        server_name = Some(host_name(content)?);
    }
    Ok(Some(Hello { server_name }))
}

const SHORT: &str = "the TLS handshake is shorter than its length field";

fn host_name(content: &[u8]) -> Result<String, &'static str> {
    let mut content = Reader(content);
    let mut list = Reader(content.vector16().ok_or(SHORT)?);
    let kind = list.take(1).ok_or(SHORT)?;
    let name = list.vector16().ok_or(SHORT)?;
    // In ASCII only (RFC 6066, section 3): a host may read other bytes as another name, or leave them out.
    let is_one = kind == [HOST_NAME] && list.0.is_empty() && content.0.is_empty();
    if !is_one || !name.is_ascii() {
        return Err("the TLS handshake has an invalid server name");
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The part of the first message that the records contain, without its header.
fn first_message(bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut records = Reader(bytes);
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, rest @ ..] = message.as_slice() {
            if *kind != CLIENT_HELLO {
                return Err("the TLS handshake does not start with a ClientHello");
            }
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if length > HELLO_BYTES {
                return Err("the TLS handshake is too long");
            }
            if let Some(message) = rest.get(..length) {
                return Ok(Some(message.to_vec()));
            }
        }
        let Some(header) = records.take(3) else { return Ok(None) };
        if header.first() != Some(&RECORD_HANDSHAKE) || header.get(1) != Some(&3) {
            return Err("the TLS handshake is incomplete");
        }
        let mut whole = Reader(records.0);
        match whole.number16().map(usize::from) {
            None => return Ok(None),
            Some(0) => return Err("the TLS handshake has an empty record"),
            Some(length) if length > RECORD_BYTES => return Err("the TLS record is too long"),
            Some(_) => {}
        }
        let Some(content) = records.vector16() else { return Ok(None) };
        message.extend_from_slice(content);
    }
}

/// Takes bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        let [a, b] = self.take(2)? else { return None };
        Some(u16::from_be_bytes([*a, *b]))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let [length] = self.take(1)? else { return None };
        self.take(usize::from(*length))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.take(usize::from(length))
    }
}
