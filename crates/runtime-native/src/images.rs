//! Which images of the store the sandboxes and snapshots of a data directory are made of, from
//! their records: no keeper and no server needs to run.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use stockade_core::sandbox::Root;
use stockade_image::Digest;

/// The directory of the persistent sandboxes, below the data directory.
const RUNTIME: &str = "runtime";
/// The directories in it whose entries have a record of their root, and what precedes their names.
const KINDS: [(&str, &str); 3] = [("sandboxes", ""), ("snapshots", SNAPSHOT), ("staging", "")];
/// What precedes the name of a snapshot among what uses an image.
const SNAPSHOT: &str = "snapshot ";
/// The file of the record.
const RECORD: &str = "record.json";
/// How often a record is read that is just being written.
const ATTEMPTS: u32 = 5;
/// The time between two of them.
const INTERVAL: Duration = Duration::from_millis(10);

/// The part of a record that counts here.
#[derive(Debug, Deserialize)]
struct Record {
    root: Root,
}

/// The manifests that sandboxes and snapshots use, each with the name of one of them. Those that
/// have not been started yet have no record here.
///
/// # Errors
/// A record cannot be read: then nothing may be removed.
pub fn images_in_use(data: &Path) -> io::Result<BTreeMap<Digest, String>> {
    let mut used = BTreeMap::new();
    // One directory for each version of their format.
    for version in entries(&data.join(RUNTIME))? {
        for (kind, what) in KINDS {
            for place in entries(&version.join(kind))? {
                let Some(Record { root: Root::Image(name) }) = record(&place.join(RECORD))? else {
                    continue;
                };
                if let Ok(digest) = name.parse::<Digest>() {
                    let name = place.file_name().unwrap_or_default().to_string_lossy();
                    used.entry(digest).or_insert_with(|| format!("{what}{name}"));
                }
            }
        }
    }
    Ok(used)
}

/// The paths in a directory; none where there is no directory.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// A record; `None` where there is none.
fn record(path: &Path) -> io::Result<Option<Record>> {
    let mut attempts = ATTEMPTS;
    loop {
        let text = match fs::read(path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            text => text?,
        };
        match serde_json::from_slice(&text) {
            Ok(record) => return Ok(Some(record)),
            Err(_) if attempts > 0 => {
                attempts -= 1;
                thread::sleep(INTERVAL);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_and_snapshots_name_their_images() {
        let data = tempfile::tempdir().unwrap();
        assert!(images_in_use(data.path()).unwrap().is_empty());
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        for (place, text) in [
            ("sandboxes/box", format!(r#"{{"root":{{"image":"{one}"}},"stage":"starting"}}    "#)),
            ("sandboxes/other", r#"{"root":"host"}"#.to_owned()),
            ("snapshots/snap", format!(r#"{{"root":{{"image":"{two}"}}}}"#)),
        ] {
            let directory = data.path().join("runtime/1").join(place);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(RECORD), text).unwrap();
        }
        fs::create_dir(data.path().join("runtime/1/sandboxes/empty")).unwrap();
        let used = images_in_use(data.path()).unwrap();
        assert_eq!(used[&one], "box");
        assert_eq!(used[&two], "snapshot snap");
        fs::write(data.path().join("runtime/1/sandboxes/box").join(RECORD), "{").unwrap();
        assert!(images_in_use(data.path()).is_err());
    }
}
