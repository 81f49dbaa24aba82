//! Applying some of the hunks of a file: the entry becomes one whose new content has only these.

use stockade_api::{Bytes, ChosenHunks, Result};
use stockade_bundle::manifest::{Change, Manifest, Node};
use stockade_bundle::store::Bundle;
use stockade_bundle::{Entry, RelativePath, patch, propose};
use stockade_core::{Code, Problem};

use crate::bundles::READ_LIMITS;
use crate::inspect::project_dir;
use crate::problem::{short_id, store_problem};

/// Replaces the new content of each path in `chosen`. Returns the paths with the node that results.
///
/// # Errors
/// [`Code::InvalidInput`] if the hunks are not those of a text that the bundle modifies.
pub(crate) fn choose(
    bundle: &Bundle,
    manifest: &mut Manifest,
    chosen: &[ChosenHunks],
) -> Result<Vec<(RelativePath, Node)>> {
    let mut partial = Vec::new();
    for ChosenHunks { path: Bytes(path), diff } in chosen {
        let shown = String::from_utf8_lossy(path).into_owned();
        let invalid = |why: &str| {
            Problem::new(Code::InvalidInput, format!("the chosen hunks of {shown} do not fit"))
                .because(why.to_owned())
                .remedied_by(format!("stockade diff {}", short_id(bundle.id())))
        };
        let found = manifest.entries.binary_search_by(|entry| entry.path.as_bytes().cmp(path));
        let entry = found.ok().and_then(|at| manifest.entries.get_mut(at));
        let entry = entry.ok_or_else(|| invalid("the bundle does not change this path"))?;
        let Change::Modify { old: Node::File { hash, .. }, new: Node::File { mode, .. } } =
            &entry.change
        else {
            return Err(invalid("the bundle does not modify a file here"));
        };
        let (old_hash, mode) = (*hash, *mode);
        let base = base(bundle, entry).ok_or_else(|| invalid("the old content is not stored"))?;
        let files =
            patch::parse(&diff.0, &READ_LIMITS).map_err(|error| invalid(&error.to_string()))?;
        let [file] = files.as_slice() else { return Err(invalid("they are not of one file")) };
        if file.new_path.as_ref() != Some(&entry.path) || file.old_path != file.new_path {
            return Err(invalid("they are of another path"));
        }
        let content = propose::apply_hunks(&base, &file.hunks).map_err(invalid)?;
        let size = content.len() as u64;
        let hash = bundle.add_blob(&content).map_err(|error| store_problem(&error))?;
        if hash == old_hash {
            return Err(invalid("they change nothing"));
        }
        let node = Node::File { hash, size, mode };
        if entry.change.new_node() == Some(&node) {
            continue;
        }
        if let Change::Modify { new, .. } = &mut entry.change {
            new.clone_from(&node);
        }
        partial.push((entry.path.clone(), node));
    }
    Ok(partial)
}

/// The old content of an entry: from the bundle, or from the project if it still has it.
fn base(bundle: &Bundle, entry: &Entry) -> Option<Vec<u8>> {
    let Some(Node::File { hash, .. }) = entry.change.old() else { return None };
    if let Some(base) = bundle.base(*hash).ok().flatten() {
        return Some(base);
    }
    let file = project_dir(bundle)?.open_file(&entry.path).ok()?;
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut { file }, &mut content).ok()?;
    (stockade_bundle::manifest::ContentHash::of(&content) == *hash).then_some(content)
}
