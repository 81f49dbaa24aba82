//! The grammar of the head of a request (RFC 9112, sections 2 to 5), exactly. A head that two
//! servers could read differently is invalid: a line end without CR or LF, a folded line, a blank
//! before a colon, a control character. Nothing is decided about hosts here.

/// The most headers of a request.
const MAX_HEADERS: usize = 128;

/// Why the first line is invalid.
pub(super) const FIRST_LINE: &str = "its first line is not that of an HTTP/1.0 or HTTP/1.1 request";
const LINE_END: &str = "a line of its head does not end with CR LF";
const CONTROL: &str = "its head contains a control character";
const FIELD: &str = "a header line is not `Name: value`";

/// The first line of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) method: String,
    pub(super) target: String,
    /// 0 or 1, after `HTTP/1.`.
    pub(super) minor: u8,
}

/// A header: its name, and its value without the blanks around it.
pub(super) type Field = (String, Vec<u8>);

/// A byte of a token (RFC 9110, section 5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A line without its end, and the bytes after it.
type Line<'a> = (&'a [u8], &'a [u8]);

/// The parts of a head, and its length in bytes.
type HeadParts = (RequestLine, Vec<Field>, usize);

/// The first line; `None` while it is incomplete.
pub(super) fn line(bytes: &[u8]) -> Result<Option<Line<'_>>, &'static str> {
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' => return Err(LINE_END),
            b'\r' => match bytes.get(at + 1) {
                None => return Ok(None),
                Some(b'\n') => {
                    let line = bytes.get(..at).unwrap_or_default();
                    return Ok(Some((line, bytes.get(at + 2..).unwrap_or_default())));
                }
                Some(_) => return Err(LINE_END),
            },
            b'\t' => {}
            byte if byte.is_ascii_control() => return Err(CONTROL),
            _ => {}
        }
    }
    Ok(None)
}

/// The first line of a request: three words with one space between them.
pub(super) fn request_line(line: &[u8]) -> Option<RequestLine> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let minor = match version {
        b"HTTP/1.0" => 0,
        b"HTTP/1.1" => 1,
        _ => return None,
    };
    let is_method = !method.is_empty() && method.iter().copied().all(is_token);
    // Visible ASCII; a fragment is never sent (RFC 9112, section 3.2).
    let is_target =
        !target.is_empty() && target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#');
    if words.next().is_some() || !is_method || !is_target {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(RequestLine { method: text(method)?, target: text(target)?, minor })
}

/// A header line.
pub(super) fn field(line: &[u8]) -> Result<Field, &'static str> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err("a header line is folded");
    }
    let end = line.iter().position(|byte| *byte == b':').ok_or(FIELD)?;
    let (name, value) = line.split_at(end);
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(FIELD);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = value.get(1..).unwrap_or_default();
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    let value = value.get(start..end).unwrap_or_default();
    let name = String::from_utf8(name.to_vec()).map_err(|_| FIELD)?;
    Ok((name, value.to_vec()))
}

/// A whole head; `None` while it is incomplete.
pub(super) fn head(bytes: &[u8]) -> Result<Option<HeadParts>, &'static str> {
    let Some((first, mut rest)) = line(bytes)? else { return Ok(None) };
    let first = request_line(first).ok_or(FIRST_LINE)?;
    let mut fields = Vec::new();
    while let Some((line, after)) = line(rest)? {
        rest = after;
        if line.is_empty() {
            return Ok(Some((first, fields, bytes.len() - rest.len())));
        }
        if fields.len() >= MAX_HEADERS {
            return Err("the request has too many headers");
        }
        fields.push(field(line)?);
    }
    Ok(None)
}
