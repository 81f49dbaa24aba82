//! What a signature is for, read from the bytes that are to be signed. Only two forms are known, and
//! neither can be taken for the other: a login (RFC 4252, section 7, and OpenSSH's host-bound form),
//! whose host is known from the connection, and a message (OpenSSH, PROTOCOL.sshsig).

use crate::wire::Reader;

/// The number of the message of ssh that a login signs.
const USERAUTH_REQUEST: u8 = 50;
/// The beginning of what is signed for a message.
const SSHSIG: &[u8] = b"SSHSIG";

/// What a signature is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A login.
    Login {
        /// The fingerprint of the key of the host.
        host_key: String,
        /// As whom.
        user: String,
    },
    /// A message.
    Message {
        /// Its namespace.
        namespace: String,
    },
}

impl Purpose {
    /// One line for a record.
    pub fn line(&self) -> String {
        match self {
            Self::Login { host_key, user } => {
                format!("log in as {} at the host {host_key}", visible(user))
            }
            Self::Message { namespace } => {
                format!("sign a message of the namespace {}", visible(namespace))
            }
        }
    }
}

/// A word from inside, shortened, without control characters.
fn visible(word: &str) -> String {
    word.chars().take(64).flat_map(char::escape_debug).collect()
}

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Login(Login<'a>),
    Message { namespace: &'a str },
}

/// A request to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login<'a> {
    pub(crate) session: &'a [u8],
    pub(crate) user: &'a str,
    pub(crate) key: &'a [u8],
    /// The key of the host, in the form that has it.
    pub(crate) host_key: Option<&'a [u8]>,
}

/// Reads what is to be signed.
///
/// # Errors
/// That it has neither form.
pub(crate) fn read(data: &[u8]) -> Result<Content<'_>, &'static str> {
    match data.strip_prefix(SSHSIG) {
        Some(rest) => message(rest).ok_or("it is a malformed message"),
        None => login(data).ok_or("it is neither a login nor a message"),
    }
}

fn message(rest: &[u8]) -> Option<Content<'_>> {
    let mut reader = Reader(rest);
    let namespace = reader.text()?;
    let (reserved, algorithm, hash) = (reader.string()?, reader.string()?, reader.string()?);
    reader.end()?;
    let length = match algorithm {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    let is_plain = !namespace.is_empty() && reserved.is_empty() && hash.len() == length;
    is_plain.then_some(Content::Message { namespace })
}

fn login(data: &[u8]) -> Option<Content<'_>> {
    let mut reader = Reader(data);
    let session = reader.string()?;
    if reader.byte()? != USERAUTH_REQUEST {
        return None;
    }
    let user = reader.text()?;
    if reader.text()? != "ssh-connection" {
        return None;
    }
    let has_host = match reader.text()? {
        "publickey" => false,
        "publickey-hostbound-v00@openssh.com" => true,
        _ => return None,
    };
    if !reader.boolean()? {
        return None;
    }
    let _algorithm = reader.text()?;
    let key = reader.string()?;
    let host_key = if has_host { Some(reader.string()?) } else { None };
    reader.end()?;
    // No hash that ssh uses is shorter.
    (session.len() >= 20).then_some(Content::Login(Login { session, user, key, host_key }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put;

    fn sshsig(namespace: &[u8], reserved: &[u8], algorithm: &[u8], hash: usize) -> Vec<u8> {
        let mut data = SSHSIG.to_vec();
        for part in [namespace, reserved, algorithm, &vec![7; hash]] {
            put(&mut data, part);
        }
        data
    }

    #[test]
    fn a_message_has_a_namespace() {
        let good = sshsig(b"git", b"", b"sha512", 64);
        assert_eq!(read(&good), Ok(Content::Message { namespace: "git" }));
        let mut longer = good.clone();
        longer.push(0);
        for bad in [
            longer,
            good[..good.len() - 1].to_vec(),
            sshsig(b"", b"", b"sha512", 64),
            sshsig(b"git", b"x", b"sha512", 64),
            sshsig(b"git", b"", b"sha1", 20),
            sshsig(b"git", b"", b"sha256", 64),
            sshsig(b"\xff", b"", b"sha256", 32),
            SSHSIG.to_vec(),
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_login_is_one_request_of_ssh() {
        let data = |session: &[u8], number: u8, service: &[u8], method: &[u8], flag: u8| {
            let mut data = Vec::new();
            put(&mut data, session);
            data.push(number);
            put(&mut data, b"git");
            put(&mut data, service);
            put(&mut data, method);
            data.push(flag);
            put(&mut data, b"ssh-ed25519");
            put(&mut data, b"key");
            data
        };
        let session = [7; 32];
        let good = data(&session, 50, b"ssh-connection", b"publickey", 1);
        let read_login = Login { session: &session, user: "git", key: b"key", host_key: None };
        assert_eq!(read(&good), Ok(Content::Login(read_login)));
        let bound = b"publickey-hostbound-v00@openssh.com";
        let mut with_host = data(&session, 50, b"ssh-connection", bound, 1);
        assert!(read(&with_host).is_err());
        put(&mut with_host, b"host");
        assert!(matches!(
            read(&with_host),
            Ok(Content::Login(Login { host_key: Some(b"host"), .. }))
        ));
        for bad in [
            data(&[7; 4], 50, b"ssh-connection", b"publickey", 1),
            data(&session, 51, b"ssh-connection", b"publickey", 1),
            data(&session, 50, b"ssh-userauth", b"publickey", 1),
            data(&session, 50, b"ssh-connection", b"hostbased", 1),
            data(&session, 50, b"ssh-connection", b"publickey", 0),
            data(&session, 50, b"ssh-connection", b"publickey", 2),
            [good.as_slice(), b"x"].concat(),
            b"any text".to_vec(),
            Vec::new(),
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }
}
