//! The archive: the same bytes for the same content, whoever packs it, when and where.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, Builder, EntryType, Header};

use super::layout;

/// Packs a directory with its name. Names are sorted, every file has the same time and belongs to
/// root, and of its permissions only those to execute it are kept.
pub(super) fn write(directory: &Path, archive: &Path, time: u64) -> anyhow::Result<()> {
    let name = directory.file_name().and_then(|name| name.to_str()).context("a name")?;
    let create = || format!("write {}", archive.display());
    let file = BufWriter::new(File::create(archive).with_context(create)?);
    let mut builder = Builder::new(GzBuilder::new().mtime(0).write(file, Compression::best()));
    for file in layout::files(directory)? {
        let path = directory.join(&file);
        let content = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if layout::is_executable(&path)? { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        header.set_size(content.len().try_into()?);
        let entry = format!("{name}/{file}");
        builder.append_data(&mut header, entry, content.as_slice()).with_context(create)?;
    }
    builder
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .with_context(create)?
        .flush()?;
    Ok(())
}

/// Unpacks an archive into a directory.
pub(super) fn unpack(archive: &Path, directory: &Path) -> anyhow::Result<()> {
    let context = || format!("unpack {}", archive.display());
    let file = BufReader::new(File::open(archive).with_context(context)?);
    Archive::new(GzDecoder::new(file)).unpack(directory).with_context(context)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Files with their permissions, made in this order in a directory that is packed.
    fn packed(files: &[(&str, u32)]) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("stockade");
        for (name, mode) in files {
            layout::write(&directory, name, name.as_bytes()).unwrap();
            fs::set_permissions(directory.join(name), Permissions::from_mode(*mode)).unwrap();
        }
        let archive = place.path().join("archive.tar.gz");
        write(&directory, &archive, 1_700_000_000).unwrap();
        fs::read(archive).unwrap()
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let first = packed(&[("README", 0o644), ("bin/b", 0o755), ("bin/a", 0o755)]);
        let second = packed(&[("bin/a", 0o700), ("bin/b", 0o775), ("README", 0o600)]);
        assert_eq!(first, second);
        assert_ne!(first, packed(&[("README", 0o644), ("bin/b", 0o755), ("bin/a", 0o644)]));
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let place = tempfile::tempdir().unwrap();
        let archive = place.path().join("archive");
        fs::write(&archive, packed(&[("sub/run", 0o755), ("text", 0o644)])).unwrap();
        unpack(&archive, place.path()).unwrap();
        let directory = place.path().join("stockade");
        assert_eq!(layout::files(&directory).unwrap(), ["sub/run", "text"]);
        assert_eq!(fs::read(directory.join("text")).unwrap(), b"text");
        assert!(layout::is_executable(&directory.join("sub/run")).unwrap());
        assert!(!layout::is_executable(&directory.join("text")).unwrap());
        let mut entries = Archive::new(GzDecoder::new(File::open(&archive).unwrap()));
        for entry in entries.entries().unwrap() {
            let header = entry.unwrap().header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        }
    }
}
