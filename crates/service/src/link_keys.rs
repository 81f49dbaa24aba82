//! The keys that sign links to ports: in a file of the data directory that only its owner can read. A
//! key signs new links for a week; it stays until the last of these links has expired.

use std::io::{Read as _, Write as _};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stockade_api::{LINK_SECONDS, LinkKey, Result};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use tokio::sync::Mutex;

use crate::clock::now_ms;
use crate::options::Home;
use crate::random::{hex, random};

/// The file. Each line is a key: its id, the time of its creation in milliseconds, and the secret.
const FILE: &str = "link-keys";
/// The file that becomes the next one.
const NEW_FILE: &str = "link-keys.new";
/// How long a key signs new links.
pub(crate) const SIGNS_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// How long a link may be valid.
pub(crate) const LINK_MS: i64 = LINK_SECONDS * 1000;
/// The longest file that is read.
const FILE_BYTES: u64 = 64 << 10;

/// The keys.
#[derive(Debug, Default)]
pub(crate) struct LinkKeys(Mutex<Option<Vec<Key>>>);

#[derive(Debug, Clone)]
struct Key {
    created_at: i64,
    key: LinkKey,
}

impl LinkKeys {
    /// The key for new links. The first call, and one after a week, creates it.
    pub(crate) async fn newest(&self, home: Option<&Home>) -> Result<LinkKey> {
        let home = home.ok_or_else(no_home)?;
        let mut known = self.0.lock().await;
        let mut keys = load(&mut known, home).await?;
        let now = now_ms();
        if let Some(newest) = keys.iter().max_by_key(|key| key.created_at)
            && (0..SIGNS_MS).contains(&(now - newest.created_at))
        {
            return Ok(newest.key.clone());
        }
        keys.retain(|key| key.created_at > now - SIGNS_MS - LINK_MS);
        let id = hex(&random::<4>()?);
        let key = LinkKey { id, secret: random::<32>()? };
        keys.push(Key { created_at: now, key: key.clone() });
        store(home, &keys).await?;
        *known = Some(keys);
        Ok(key)
    }

    /// The key with this id.
    pub(crate) async fn find(&self, home: Option<&Home>, id: &str) -> Result<Option<LinkKey>> {
        let Some(home) = home else { return Ok(None) };
        let mut known = self.0.lock().await;
        let keys = load(&mut known, home).await?;
        let now = now_ms();
        let valid = |key: &&Key| key.key.id == id && key.created_at > now - SIGNS_MS - LINK_MS;
        Ok(keys.iter().find(valid).map(|key| key.key.clone()))
    }
}

async fn load(known: &mut Option<Vec<Key>>, home: &Home) -> Result<Vec<Key>> {
    if let Some(keys) = known {
        return Ok(keys.clone());
    }
    let path = home.path.clone();
    let keys = blocking(move || read(&open(&path)?)).await?;
    *known = Some(keys.clone());
    Ok(keys)
}

async fn store(home: &Home, keys: &[Key]) -> Result<()> {
    let (path, keys) = (home.path.clone(), keys.to_vec());
    blocking(move || write(&open(&path)?, &keys)).await
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(|error| Problem::caused(Code::Io, &error))?
}

fn open(path: &std::path::Path) -> Result<DataDir> {
    DataDir::open(path).map_err(|error| Problem::caused(Code::Io, &error))
}

fn io(errno: Errno) -> Problem {
    Problem::new(Code::Io, "the keys of links cannot be used").because(errno.to_string())
}

/// Reads the file. One that others can read or that cannot be parsed is refused: links that were
/// signed with another key would be valid.
fn read(directory: &DataDir) -> Result<Vec<Key>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(directory, FILE, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(io(errno)),
    };
    let stat = rustix::fs::fstat(&file).map_err(io)?;
    let is_private =
        stat.st_mode & 0o177_777 == 0o100_600 && stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_private {
        let path = directory.path().join(FILE);
        let message = format!("{} is not a file that only you can read", path.display());
        return Err(Problem::new(Code::Io, message).remedied_by(format!("rm {}", path.display())));
    }
    let mut text = String::new();
    let read = std::fs::File::from(file).take(FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| Problem::caused(Code::Io, &error))?;
    let keys: Option<Vec<_>> = text.lines().map(parse).collect();
    keys.ok_or_else(|| {
        let path = directory.path().join(FILE);
        let message = format!("{} cannot be read", path.display());
        Problem::new(Code::Io, message).remedied_by(format!("rm {}", path.display()))
    })
}

fn parse(line: &str) -> Option<Key> {
    let mut words = line.split(' ');
    let (id, created_at, secret) = (words.next()?, words.next()?, words.next()?);
    let digits = |byte: &u8| byte.is_ascii_hexdigit();
    if words.next().is_some() || secret.len() != 64 || !secret.as_bytes().iter().all(digits) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(secret.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    let key = LinkKey { id: id.to_owned(), secret: bytes };
    Some(Key { created_at: created_at.parse().ok()?, key })
}

/// Writes a new file in place of the old one.
fn write(directory: &DataDir, keys: &[Key]) -> Result<()> {
    let line =
        |Key { created_at, key }: &Key| format!("{} {created_at} {}\n", key.id, hex(&key.secret));
    let text: String = keys.iter().map(line).collect();
    match rustix::fs::unlinkat(directory, NEW_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(io(errno)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, NEW_FILE, flags, Mode::RUSR | Mode::WUSR);
    let mut file = std::fs::File::from(file.map_err(io)?);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| Problem::caused(Code::Io, &error))?;
    rustix::fs::renameat(directory, NEW_FILE, directory, FILE).map_err(io)?;
    rustix::fs::fsync(directory).map_err(io)
}

fn no_home() -> Problem {
    Problem::new(Code::Unsupported, "a server without a data directory signs no links")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use stockade_core::OwnerId;

    use super::*;

    #[tokio::test]
    async fn keys_are_private_and_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let home = Home { path: path.clone(), owner: OwnerId::from_uid(0) };
        let first = LinkKeys::default().newest(Some(&home)).await.unwrap();
        let file = path.join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let keys = LinkKeys::default();
        assert_eq!(keys.newest(Some(&home)).await.unwrap().id, first.id);
        let found = keys.find(Some(&home), &first.id).await.unwrap().unwrap();
        assert_eq!(found.secret, first.secret);
        assert!(keys.find(Some(&home), "other").await.unwrap().is_none());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(LinkKeys::default().newest(Some(&home)).await.is_err());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert!(LinkKeys::default().newest(Some(&home)).await.is_err());
    }

    #[tokio::test]
    async fn a_key_signs_for_a_week_and_is_known_for_two() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home { path: directory.path().join("data"), owner: OwnerId::from_uid(0) };
        let old = |id: &str, age: i64| Key {
            created_at: now_ms() - age,
            key: LinkKey { id: id.to_owned(), secret: [7; 32] },
        };
        let day = 24 * 60 * 60 * 1000;
        let stored = [old("gone", 15 * day), old("old", 8 * day)];
        store(&home, &stored).await.unwrap();
        let keys = LinkKeys::default();
        let newest = keys.newest(Some(&home)).await.unwrap();
        assert!(newest.id != "old" && newest.id != "gone", "{newest:?}");
        assert!(keys.find(Some(&home), "old").await.unwrap().is_some());
        assert!(keys.find(Some(&home), "gone").await.unwrap().is_none());
    }
}
