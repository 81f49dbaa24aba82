//! What of the host's own programs sandboxes see. To look all of it up takes longer than the rest
//! of what is done for a jail from outside, so in a burst that is done once.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use stockade_jail::system::Account;
use stockade_jail::{HostTree, Mount, Source};

use super::moment::Moment;
use crate::native::skeleton;

/// How long what was found is taken for what is there. When something was replaced meanwhile, a
/// launch that finds another thing in its place fails.
const FRESH: Duration = Duration::from_secs(1);

/// The host's programs, as they were when they were looked up last.
#[derive(Debug)]
pub(super) struct Programs {
    /// Where skeletons are made.
    place: PathBuf,
    found: Option<Found>,
    /// The last that was found is another than the one before.
    changed: bool,
}

#[derive(Debug)]
struct Found {
    at: Moment,
    skeleton: PathBuf,
    mounts: Vec<(PathBuf, Mount)>,
}

impl Programs {
    pub(super) const fn new(place: PathBuf) -> Self {
        Self { place, found: None, changed: false }
    }

    /// The lower layer of a root, and what is mounted above it.
    pub(super) fn find(
        &mut self,
        account: &Account,
        hostname: &str,
    ) -> io::Result<(PathBuf, Vec<(PathBuf, Mount)>)> {
        let now = Moment::now();
        let last = self.found.take();
        let before = last.as_ref().map(|last| last.skeleton.clone());
        let found = match last.filter(|found| now.since(found.at) < FRESH) {
            Some(found) => found,
            None => {
                let skeleton = skeleton::ensure(&self.place, account, hostname)?;
                let path = skeleton.path().to_owned();
                Found { at: now, skeleton: path, mounts: skeleton.mounts() }
            }
        };
        self.changed |= before.as_ref() != Some(&found.skeleton);
        let found = self.found.insert(found);
        let mounts = found.mounts.iter().map(|(path, mount)| Ok((path.clone(), copy(mount)?)));
        Ok((found.skeleton.clone(), mounts.collect::<io::Result<_>>()?))
    }

    /// Whether another skeleton was found since this was asked last.
    pub(super) const fn have_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// The skeleton that was found last, by its name.
    pub(super) fn skeleton(&self) -> Option<&str> {
        self.found.as_ref()?.skeleton.file_name()?.to_str()
    }
}

/// The same mount, with a descriptor of its own.
fn copy(mount: &Mount) -> io::Result<Mount> {
    Ok(match mount {
        Mount::Tree(Source::Host { tree, access, owners }) => {
            let file = tree.file.try_clone()?;
            let tree = HostTree { path: tree.path.clone(), file };
            Mount::Tree(Source::Host { tree, access: *access, owners: *owners })
        }
        Mount::File(content) => Mount::File(content.clone()),
        Mount::Link(target) => Mount::Link(target.clone()),
        Mount::Scratch(scratch) => Mount::Scratch(*scratch),
        Mount::Directory => Mount::Directory,
        // A skeleton has none.
        Mount::Tree(Source::Empty | Source::Overlay(_)) => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    })
}
