//! The certificate authorities that this host trusts. The egress process verifies hosts with them
//! when it speaks TLS itself, and programs inside have to trust them beside the process's own
//! authority.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use stockade_core::network::AUTHORITIES;

/// The longest file of authorities that is read, in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// The authorities of this host.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// The file, at its beginning.
    pub(crate) file: File,
    /// Its text.
    pub(crate) text: String,
}

impl Authorities {
    /// Reads the first file that this system has.
    pub(crate) fn read() -> io::Result<Self> {
        let mut files = AUTHORITIES.iter().filter_map(|path| File::open(path).ok());
        let mut file = files.next().ok_or_else(|| {
            io::Error::other("this system has no CA certificates (package ca-certificates)")
        })?;
        let mut text = Vec::new();
        (&mut file).take(FILE_BYTES).read_to_end(&mut text)?;
        file.rewind()?;
        // Between the certificates there may be comments in any encoding.
        Ok(Self { file, text: String::from_utf8_lossy(&text).into_owned() })
    }
}

/// The certificates of a host, with one more.
pub(crate) fn append(mut text: String, authority: &str) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text + authority
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_certificate_begins_on_its_own_line() {
        for text in ["one", "one\n"] {
            assert_eq!(append(text.to_owned(), "two\n"), "one\ntwo\n");
        }
    }
}
