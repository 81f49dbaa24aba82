//! Where the records of synchronizations are: what both sides last had in common.

use stockade_bundle::RelativePath;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ContentHash;

use crate::options::Options;

/// Their directory, below that of all synchronizations.
pub(crate) const BASES: &str = "bases";

/// How many characters of a name's hash are the name of a file.
const NAME_LENGTH: usize = 40;

/// The name of a file for any text.
pub(crate) fn hashed(text: &str) -> String {
    ContentHash::of(text.as_bytes()).to_hex()[..NAME_LENGTH].to_owned()
}

/// Removes what is known about a sandbox whose files are removed.
pub(crate) fn forget(options: &Options, sandbox: &str) {
    let Some(home) = &options.home else { return };
    let Ok(data) = DataDir::open(&home.path) else { return };
    // What cannot be removed now is only a file that is not needed.
    if let Ok(sync) = data.sync()
        && let Ok(path) = RelativePath::new(format!("{BASES}/{}", hashed(sandbox)))
    {
        let _ = sync.remove_tree(&path);
    }
}
