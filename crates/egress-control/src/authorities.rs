//! The certificate authorities that a caller trusts: those of this system, and those that the
//! caller's variables name. The egress process verifies hosts with them when it speaks TLS itself,
//! and programs inside have to trust them, beside the process's own authority.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use stockade_core::network::AUTHORITIES;

/// The longest file of authorities that is read, in bytes, and the most of all files together.
const FILE_BYTES: u64 = 4 << 20;
const TOTAL_BYTES: usize = 8 << 20;
/// The most files of a directory.
const MAX_FILES: usize = 2048;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The variables by which programs are given authorities. Each names a file or a directory, or
/// several, separated by colons.
const VARIABLES: [&str; 18] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
    "npm_config_cafile",
    "NPM_CONFIG_CAFILE",
    "HEX_CACERTS_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "BUNDLE_SSL_CA_CERT",
    "PERL_LWP_SSL_CA_FILE",
];

/// The authorities of one caller, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities {
    /// The certificates (PEM), and nothing else that the files contain.
    pub text: String,
    /// Whether the caller's variables name one that this system does not have.
    pub has_own: bool,
    /// The variables whose certificates cannot be read, and why.
    pub unreadable: Vec<String>,
}

impl Authorities {
    /// Those of this system and of this process's environment.
    pub fn of_caller() -> Self {
        Self::gather(AUTHORITIES, |name| std::env::var_os(name))
    }

    /// Whether this process's environment names any, so that reading them may add some.
    pub fn has_variables() -> bool {
        VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    }

    fn gather(system: &[&str], variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut all = Self::default();
        let mut known = BTreeSet::new();
        for path in system {
            // One file is the list of the system.
            if let Ok(text) = read_file(Path::new(path)) {
                all.add(&text, &mut known);
                break;
            }
        }
        for name in VARIABLES {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
            let before = known.len();
            for path in std::env::split_paths(&value) {
                match read(&path) {
                    Ok(texts) => texts.iter().for_each(|text| all.add(text, &mut known)),
                    Err(error) => {
                        let path = path.display();
                        all.unreadable.push(format!(
                            "the certificates in {path} (variable {name}) are not used: {error}"
                        ));
                    }
                }
            }
            all.has_own |= known.len() > before;
        }
        all
    }

    /// Adds the certificates of a text that are not known.
    fn add(&mut self, text: &str, known: &mut BTreeSet<String>) {
        for part in text.split(BEGIN).skip(1) {
            let Some((body, _)) = part.split_once(END) else { continue };
            let body: String = body.split_ascii_whitespace().collect();
            let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            if body.is_empty()
                || !body.bytes().all(is_base64)
                || self.text.len() + body.len() > TOTAL_BYTES
                || known.contains(&body)
            {
                continue;
            }
            self.text.push_str(BEGIN);
            self.text.push('\n');
            let mut rest = body.as_str();
            while !rest.is_empty() {
                let (line, after) = rest.split_at(rest.len().min(64));
                self.text.push_str(line);
                self.text.push('\n');
                rest = after;
            }
            self.text.push_str(END);
            self.text.push('\n');
            known.insert(body);
        }
    }

    /// A file with the text, at its beginning, for another process.
    pub(crate) fn file(&self) -> io::Result<File> {
        if self.text.is_empty() {
            return Err(io::Error::other(
                "this system has no CA certificates (package ca-certificates)",
            ));
        }
        let mut file = File::from(memfd_create("authorities", MemfdFlags::CLOEXEC)?);
        file.write_all(self.text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    }
}

/// The texts of a file, or of the files of a directory.
fn read(path: &Path) -> io::Result<Vec<String>> {
    if !std::fs::metadata(path)?.is_dir() {
        return read_file(path).map(|text| vec![text]);
    }
    let entries = std::fs::read_dir(path)?.take(MAX_FILES).collect::<Result<Vec<_>, _>>()?;
    let files = entries.iter().map(std::fs::DirEntry::path).filter(|path| path.is_file());
    // A file of a directory that cannot be read is left out by programs too.
    Ok(files.filter_map(|path| read_file(&path).ok()).collect())
}

fn read_file(path: &Path) -> io::Result<String> {
    // A pipe would not end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES).read_to_end(&mut text)?;
    // Between the certificates there may be comments in any encoding.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The certificates of a caller, with one more.
pub(crate) fn append(mut text: String, authority: &str) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text + authority
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(body: &str) -> String {
        format!("{BEGIN}\n{body}\n{END}\n")
    }

    #[test]
    fn one_more_certificate_begins_on_its_own_line() {
        for text in ["one", "one\n"] {
            assert_eq!(append(text.to_owned(), "two\n"), "one\ntwo\n");
        }
    }

    #[test]
    fn all_lists_are_merged_and_nothing_but_certificates_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let system = format!("# comment\n{}{}", pem("AAAA"), pem("BBBB"));
        std::fs::write(path("system"), system).unwrap();
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        std::fs::write(path("own"), format!("{key}{}{}", pem("CC\r\nCC"), pem("AAAA"))).unwrap();
        std::fs::create_dir(path("more")).unwrap();
        std::fs::write(path("more/one"), pem("DDDD")).unwrap();
        std::fs::write(path("more/two"), "no certificate").unwrap();
        let missing = path("missing");
        let gather = |set: &[(&str, OsString)]| {
            let system = path("system");
            Authorities::gather(&["/missing", system.to_str().unwrap()], |name| {
                set.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone())
            })
        };
        let of_system = gather(&[]);
        assert_eq!(
            (of_system.text.as_str(), of_system.has_own),
            (&*(pem("AAAA") + &pem("BBBB")), false)
        );
        // What the system has is nothing of the caller's own.
        assert!(!gather(&[("SSL_CERT_FILE", path("system").into())]).has_own);
        let several = std::env::join_paths([path("more"), missing]).unwrap();
        let merged = gather(&[("SSL_CERT_FILE", path("own").into()), ("SSL_CERT_DIR", several)]);
        let expected: String = ["AAAA", "BBBB", "CCCC", "DDDD"].map(pem).concat();
        assert_eq!((merged.text, merged.has_own), (expected, true));
        let [unreadable] = &merged.unreadable[..] else { panic!("{:?}", merged.unreadable) };
        assert!(
            unreadable.contains("SSL_CERT_DIR") && unreadable.contains("missing"),
            "{unreadable}"
        );
    }
}
