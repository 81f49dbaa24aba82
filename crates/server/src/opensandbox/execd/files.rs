//! `/files`: properties, permissions, moving, searching and editing of files.

use std::collections::BTreeMap;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::{
    Bytes, EditFile, FileEntry, FileKind, MoveFile, RemoveFile, ReplaceText, SearchFiles,
    SetPermissions,
};
use stockade_core::Time;

use super::super::request::{JsonBody, Query};
use super::super::target::{Identity, PortState, Target};
use super::identity::{Right, check};
use crate::failure::{Failure, invalid};
use crate::inside::Names;
use crate::inside::stat;
use crate::inside::write;

/// A file in a response.
#[derive(Debug, Serialize)]
pub(super) struct FileBody {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    modified_at: Time,
    created_at: Time,
    owner: String,
    group: String,
    /// The permission bits in octal digits, as a decimal number: 755.
    mode: u32,
}

impl FileBody {
    pub(super) fn new(entry: &FileEntry, names: &Names) -> Self {
        Self {
            path: String::from_utf8_lossy(&entry.path.0).into_owned(),
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Link => "symlink",
                FileKind::Other => "other",
            },
            size: entry.size_bytes,
            modified_at: entry.modified_at,
            // Not every file system records it.
            created_at: entry.modified_at,
            owner: names.user(entry.uid),
            group: names.group(entry.gid),
            mode: octal_digits(entry.mode),
        }
    }
}

/// The lowest twelve bits in octal digits, as a decimal number.
fn octal_digits(mode: u32) -> u32 {
    [1, 10, 100, 1000].iter().enumerate().map(|(at, ten)| ((mode >> (3 * at)) & 7) * ten).sum()
}

/// The bits of such a number. Clients also send the bits themselves: 420 for 0644. A number is taken as
/// bits if its digits would give the group or others a right that the owner does not have.
pub(super) fn mode_bits(digits: u32) -> Result<u32, Failure> {
    let is_mode = |bits: &u32| *bits <= 0o7777;
    let is_usual = |bits: &u32| {
        let (owner, group, others) = ((bits >> 6) & 7, (bits >> 3) & 7, bits & 7);
        group & !owner == 0 && others & !owner == 0
    };
    let octal = u32::from_str_radix(&digits.to_string(), 8).ok().filter(is_mode);
    let plain = Some(digits).filter(is_mode).filter(is_usual);
    octal
        .filter(is_usual)
        .or(plain)
        .or(octal)
        .ok_or_else(|| invalid(format!("{digits} is not a file mode")))
}

/// Permissions in a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Permissions {
    #[serde(default)]
    pub(super) owner: Option<String>,
    #[serde(default)]
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) mode: Option<u32>,
}

impl Permissions {
    /// The user and group as numbers.
    pub(super) async fn numbers(
        &self,
        state: &PortState,
        target: &Target,
    ) -> Result<(Option<u32>, Option<u32>), Failure> {
        let name = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let (owner, group) = (name(&self.owner), name(&self.group));
        if owner.is_none() && group.is_none() {
            return Ok((None, None));
        }
        let names = names(state, target).await;
        let uid = owner.map(|owner| names.uid(&owner)).transpose()?;
        Ok((uid, group.map(|group| names.gid(&group)).transpose()?))
    }

    pub(super) fn bits(&self) -> Result<Option<u32>, Failure> {
        // Clients send 0 for no mode.
        self.mode.filter(|mode| *mode > 0).map(mode_bits).transpose()
    }
}

/// The names of the sandbox.
pub(super) async fn names(state: &PortState, target: &Target) -> Names {
    Names::read(&*state.sandboxes, &target.caller, &target.sandbox.id).await
}

pub(super) fn path(text: &str) -> Bytes {
    text.as_bytes().to_vec().into()
}

/// `GET /files/info?path=…&path=…`.
pub(super) async fn info(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<Json<BTreeMap<String, FileBody>>, Failure> {
    let query = Query::parse(query.as_deref(), &["path"])?;
    query.all("path").next().ok_or_else(|| invalid("the parameter `path` is missing"))?;
    let names = names(&state, &target).await;
    let mut found = BTreeMap::new();
    for name in query.all("path") {
        let entry = stat(&state.sandboxes, &target, name, false).await?;
        check(&state, &target, Right::See, name).await?;
        found.insert(name.to_owned(), FileBody::new(&entry, &names));
    }
    Ok(Json(found))
}

/// `DELETE /files?path=…`.
pub(super) async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<(), Failure> {
    let query = Query::parse(query.as_deref(), &["path"])?;
    for name in query.all("path") {
        if stat(&state.sandboxes, &target, name, false).await?.kind == FileKind::Directory {
            return Err(invalid(format!("{name} is a directory")));
        }
        check(&state, &target, Right::Entry, name).await?;
        let request = RemoveFile { sandbox_id: target.sandbox.id.clone(), path: path(name) };
        state.sandboxes.remove_file(&target.caller, request).await?;
    }
    Ok(())
}

/// `POST /files/permissions`.
pub(super) async fn set_permissions(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<BTreeMap<String, Permissions>>,
) -> Result<(), Failure> {
    for (name, permissions) in &request {
        let (uid, gid) = permissions.numbers(&state, &target).await?;
        check(&state, &target, Right::Own, name).await?;
        target.refuse_other_owner(uid, gid)?;
        let request = SetPermissions {
            sandbox_id: target.sandbox.id.clone(),
            path: path(name),
            mode: permissions.bits()?,
            uid,
            gid,
        };
        state.sandboxes.set_permissions(&target.caller, request).await?;
    }
    Ok(())
}

/// A file to move.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rename {
    src: String,
    dest: String,
}

/// `POST /files/mv`.
pub(super) async fn rename(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Vec<Rename>>,
) -> Result<(), Failure> {
    for Rename { src, dest } in &request {
        check(&state, &target, Right::Entry, src).await?;
        check(&state, &target, Right::Entry, dest).await?;
        let sandbox_id = target.sandbox.id.clone();
        let request = MoveFile { sandbox_id, from: path(src), to: path(dest) };
        state.sandboxes.move_file(&target.caller, request).await?;
    }
    Ok(())
}

/// `GET /files/search?path=…&pattern=…`: the pattern is for the name of a file.
pub(super) async fn search(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<FileBody>>, Failure> {
    let query = Query::parse(query.as_deref(), &["path", "pattern"])?;
    let pattern = query.one("pattern")?.filter(|pattern| !pattern.is_empty()).unwrap_or("*");
    let pattern = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    check(&state, &target, Right::List, query.required("path")?).await?;
    let path = path(query.required("path")?);
    let request = SearchFiles { sandbox_id: target.sandbox.id.clone(), path, pattern };
    let found = state.sandboxes.search_files(&target.caller, request).await?;
    let names = names(&state, &target).await;
    let files = found.entries.iter().filter(|entry| entry.kind != FileKind::Directory);
    let files = files.filter(|entry| is_visible(&target, &found.entries, &entry.path.0));
    Ok(Json(files.map(|entry| FileBody::new(entry, &names)).collect()))
}

/// Whether an identity may read every directory of a listing above a path.
pub(super) fn is_visible(target: &Target, listing: &[FileEntry], path: &[u8]) -> bool {
    let Some(Identity { uid, gid }) = target.identity else { return true };
    let readable = |entry: &FileEntry| {
        let bits = match entry {
            _ if entry.uid == uid => entry.mode >> 6,
            _ if entry.gid == gid => entry.mode >> 3,
            _ => entry.mode,
        };
        bits & 5 == 5
    };
    let is_above = |entry: &FileEntry| {
        path.strip_prefix(entry.path.0.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
    };
    let mut directories = listing.iter().filter(|entry| entry.kind == FileKind::Directory);
    directories.all(|entry| !is_above(entry) || readable(entry))
}

/// A text to replace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    old: String,
    new: String,
}

/// `POST /files/replace?verbose=`.
pub(super) async fn replace(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<BTreeMap<String, Replacement>>,
) -> Result<Json<Value>, Failure> {
    let verbose = Query::parse(query.as_deref(), &["verbose"])?.flag("verbose")?;
    for name in request.keys() {
        check(&state, &target, Right::Read, name).await?;
        check(&state, &target, Right::Write, name).await?;
    }
    let mut counts = serde_json::Map::new();
    for (name, Replacement { old, new }) in &request {
        let count =
            match write::edit(&state.sandboxes, &target, name, (old.as_bytes(), new.as_bytes()))
                .await?
            {
                Some(count) => count,
                None => {
                    let (old, new) = (old.as_str().into(), new.as_str().into());
                    let edits = vec![EditFile { path: path(name), old, new }];
                    let edits = ReplaceText { sandbox_id: target.sandbox.id.clone(), edits };
                    let replaced = state.sandboxes.replace_text(&target.caller, edits).await?;
                    replaced.counts.into_iter().sum()
                }
            };
        counts.insert(name.clone(), json!({ "replacedCount": count }));
    }
    if !verbose {
        return Ok(Json(json!({})));
    }
    Ok(Json(Value::Object(counts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        for (bits, digits) in [(0o755, 755), (0o644, 644), (0o4755, 4755), (0, 0), (0o100_600, 600)]
        {
            assert_eq!(octal_digits(bits), digits);
        }
        for (number, bits) in [
            (755, 0o755),
            (644, 0o644),
            (600, 0o600),
            (400, 0o400),
            (1777, 0o1777),
            (420, 0o644),
            (493, 0o755),
            (384, 0o600),
            (436, 0o664),
            // Neither is usual.
            (77, 0o077),
        ] {
            assert_eq!(mode_bits(number).unwrap(), bits, "{number}");
        }
        assert!(mode_bits(789).is_err());
        assert!(mode_bits(10000).is_err());
    }
}
