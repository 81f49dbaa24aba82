//! The certificates that programs in a run trust, where they look for those of the system. Programs
//! with a variable for that find them by it; all others, and a program whose environment was
//! cleared, read the system's own files.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use stockade_core::network::AUTHORITIES;
use stockade_jail::{Access, HostTree, Mount, Owners, Source};

use crate::error::Error;

/// The files in which Java looks, as Debian and Red Hat have them.
const JAVA: [&str; 2] = ["/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts"];
/// The files below directories that are not mounted as a whole.
const OWN: [&str; 2] = ["/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"];
/// The names of the files in the directory.
const PEM: &str = "authorities.pem";
const KEYSTORE: &str = "authorities.jks";

/// The certificates, and a directory of the host in which files for mounts can be made.
#[derive(Debug, Clone, Copy)]
pub struct AuthorityFiles<'a> {
    /// The certificates (PEM).
    pub text: &'a str,
    /// The directory. The files are needed until the jail was launched.
    pub directory: &'a Path,
}

impl AuthorityFiles<'_> {
    /// Removes the files from the directory. The jail keeps its mounts.
    pub fn remove(&self) {
        for name in [PEM, KEYSTORE] {
            // Where none was made there is nothing to remove.
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }

    /// The mounts over the files of this system. A file that is a link leads to another one of them.
    pub(crate) fn over_the_system(&self) -> Result<Vec<(PathBuf, Mount)>, Error> {
        let mut mounts = Vec::new();
        let (mut pem, mut keystore) = (false, false);
        for path in AUTHORITIES {
            if is_file(path) {
                let file = self.file(&mut pem, PEM, || self.text.as_bytes().to_vec())?;
                mounts.push((path.into(), file));
            } else if OWN.contains(path)
                && std::fs::symlink_metadata(path).is_err()
                && !is_behind_link(path)
            {
                mounts.push((path.into(), Mount::File(self.text.as_bytes().to_vec())));
            }
        }
        for path in JAVA.into_iter().filter(|path| is_file(path)) {
            mounts.push((path.into(), self.file(&mut keystore, KEYSTORE, || java(self.text))?));
        }
        Ok(mounts)
    }

    /// A mount of a file of the directory, which is made for the first one.
    fn file(
        &self,
        made: &mut bool,
        name: &str,
        content: impl FnOnce() -> Vec<u8>,
    ) -> Result<Mount, Error> {
        let path = self.directory.join(name);
        let failed = |source| Error::HostPath { path: path.clone(), source };
        if !std::mem::replace(made, true) {
            // A run that was killed may have left one.
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, content()).map_err(failed)?;
            // The process's umask may let only its own user read it.
            let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(&path, everyone).map_err(failed)?;
        }
        let tree = HostTree::open(&path).map_err(failed)?;
        // Only the caller may search the directory.
        Ok(Mount::Tree(Source::Host { tree, access: Access::Read, owners: Owners::Range }))
    }
}

fn is_file(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
        && !is_behind_link(path)
}

/// Whether a directory on the way is a link: the path is then another name of a file.
fn is_behind_link(path: &str) -> bool {
    let parents = Path::new(path).ancestors().skip(1);
    parents.into_iter().any(|parent| parent.is_symlink())
}

/// The certificates in the format JKS, which all versions of Java read.
fn java(text: &str) -> Vec<u8> {
    let certificates: Vec<Vec<u8>> = text
        .split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|part| {
            let (body, _) = part.split_once("-----END CERTIFICATE-----")?;
            let body: String = body.split_ascii_whitespace().collect();
            STANDARD.decode(body).ok()
        })
        .collect();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    // The magic number, and version 2.
    let mut bytes = vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2];
    bytes.extend_from_slice(&number(certificates.len()));
    for (index, certificate) in certificates.iter().enumerate() {
        // A trusted certificate, its alias, the time of its entry, its type and content.
        bytes.extend_from_slice(&2_u32.to_be_bytes());
        text(&mut bytes, &format!("authority-{index}"));
        bytes.extend_from_slice(&0_u64.to_be_bytes());
        text(&mut bytes, "X.509");
        bytes.extend_from_slice(&number(certificate.len()));
        bytes.extend_from_slice(certificate);
    }
    // The checksum with the password that everybody uses for the authorities.
    let mut digest = Sha1::new();
    for unit in "changeit".encode_utf16() {
        digest.update(unit.to_be_bytes());
    }
    digest.update(b"Mighty Aphrodite");
    digest.update(&bytes);
    bytes.extend_from_slice(&digest.finalize());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keystore_has_every_certificate_and_a_checksum() {
        let pem = |body: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        let bytes = java(&(pem("AAEC") + &pem("not base64!") + &pem("Aw==")));
        assert_eq!(bytes[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        let entry = |index: u8, certificate: &[u8]| {
            let name = [b"\0\0\0\x02\0\x0bauthority-", &[b'0' + index][..]].concat();
            let length = u32::try_from(certificate.len()).unwrap().to_be_bytes();
            [&name[..], &[0; 8], b"\0\x05X.509", &length, certificate].concat()
        };
        let entries = [entry(0, &[0, 1, 2]), entry(1, &[3])].concat();
        assert_eq!(bytes[12..bytes.len() - 20], entries);
    }

    #[test]
    fn the_files_are_made_once_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let files = AuthorityFiles { text: "text", directory: directory.path() };
        let mounts = files.over_the_system().unwrap();
        let paths: Vec<_> = mounts.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert!(OWN.iter().all(|own| paths.contains(own) || Path::new(own).exists()), "{paths:?}");
        files.remove();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
