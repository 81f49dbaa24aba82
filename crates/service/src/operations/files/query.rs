//! `stat_file`, `list_directory`, `search_files`, `read_file`.

use globset::{GlobBuilder, GlobMatcher};
use stockade_api::{
    Bytes, Caller, FileContent, FileEntry, ListDirectory, Listing, ReadFile, Result, SearchFiles,
    StatFile,
};
use stockade_core::access::Level;
use stockade_core::{Code, Problem};
use stockade_runtime::{FileKind, ReadRange, Runtime, SandboxPath};

use super::tree::{RecordedContent, SizeSource};
use super::{entry, join, refuse_secret_files, resolve_allowed, use_sandbox};
use crate::failure::{invalid, runtime_problem};
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::{as_bytes, as_path, resolve};
use crate::service::Service;

/// How many entries a listing or a search may have.
const ENTRIES: usize = 100_000;

/// The maximal depth of a listing or a search.
const DEPTH: u32 = 64;

/// The metadata of a file.
pub(crate) async fn stat(
    service: &Service,
    caller: &Caller,
    request: StatFile,
) -> Result<FileEntry> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    let path = resolve_allowed(runtime, &owned, Level::Read, &request.path, request.follow).await?;
    let (path, shown_path) = if request.follow {
        let path = resolve(runtime, &owned.id, &path, true).await?;
        let shown_path = as_bytes(&path).to_vec();
        (path, shown_path)
    } else {
        (path, request.path.0)
    };
    let info = runtime.stat(&owned.id, &path).await;
    Ok(entry(&shown_path, &info.map_err(|error| runtime_problem(&error))?))
}

/// The content of a file.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadFile,
) -> Result<FileContent> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    let path = resolve_allowed(runtime, &owned, Level::Read, &request.path, true).await?;
    refuse_secret_files(runtime, &owned.id, &path).await?;
    let range = ReadRange { offset: request.offset, length: request.length };
    let content = runtime.read_file(&owned.id, &path, range).await;
    let content = content.map_err(|error| runtime_problem(&error))?;
    Ok(RecordedContent::wrap(service, owned, request.path, content, SizeSource::File))
}

/// The entries of a directory.
pub(crate) async fn list(
    service: &Service,
    caller: &Caller,
    request: ListDirectory,
) -> Result<Listing> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    let root = resolve_allowed(runtime, &owned, Level::Read, &request.path, true).await?;
    let depth = request.depth.unwrap_or(1).clamp(1, DEPTH);
    walk(runtime, &owned, &root, depth, |_| true).await
}

/// The files that a pattern matches.
pub(crate) async fn search(
    service: &Service,
    caller: &Caller,
    request: SearchFiles,
) -> Result<Listing> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    let root = resolve_allowed(runtime, &owned, Level::Read, &request.path, true).await?;
    let glob = GlobBuilder::new(&request.pattern).literal_separator(true).build();
    let glob = glob.map_err(|error| invalid(error.to_string()))?.compile_matcher();
    let found = |path: &[u8]| matches(&glob, as_bytes(&root), path);
    walk(runtime, &owned, &root, DEPTH, found).await
}

fn matches(glob: &GlobMatcher, base: &[u8], path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let below = path.strip_prefix(base).unwrap_or(path);
    let below = below.strip_prefix(b"/").unwrap_or(below);
    glob.is_match(std::ffi::OsStr::from_bytes(below))
}

/// Walks a tree, each directory before its contents, without following symbolic links.
async fn walk(
    runtime: &dyn Runtime,
    owned: &OwnedSandbox,
    root: &SandboxPath,
    depth: u32,
    is_selected: impl Fn(&[u8]) -> bool,
) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut waiting = vec![(as_bytes(root).to_vec(), depth)];
    let mut seen = 0;
    while let Some((directory, depth)) = waiting.pop() {
        let path = as_path(&Bytes(directory.clone()))?;
        let names = match runtime.read_directory(&owned.id, &path).await {
            Ok(names) => names,
            // It was removed during the walk.
            Err(_) if directory != as_bytes(root) => continue,
            Err(error) => return Err(runtime_problem(&error)),
        };
        let mut below = Vec::new();
        for info in names {
            seen += 1;
            if seen > ENTRIES {
                let message = format!("there are more than {ENTRIES} files below {root}");
                return Err(Problem::new(Code::InvalidInput, message));
            }
            let path = join(&directory, &info.name);
            if owned.allows(Level::Read, &path).is_err() {
                listing.hidden += 1;
                continue;
            }
            if is_selected(&path) {
                listing.entries.push(entry(&path, &info));
            }
            if info.kind == FileKind::Directory && depth > 1 {
                below.push((path, depth - 1));
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    Ok(listing)
}
