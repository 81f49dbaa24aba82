//! `/directories`: creating, removing and listing directories.

use std::collections::BTreeMap;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use stockade_api::{FileKind, ListDirectory, MakeDirectory, RemoveFile, SetPermissions};

use super::super::request::{JsonBody, Query};
use super::super::target::{Identity, PortState, Target};
use super::files::{FileBody, Permissions, is_visible, names, path};
use super::identity::{Right, check};
use crate::failure::{Failure, invalid};
use crate::inside::directories::create_as;
use crate::inside::stat;

/// `POST /directories`.
pub(super) async fn create(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<BTreeMap<String, Permissions>>,
) -> Result<(), Failure> {
    for (name, permissions) in &request {
        let (uid, gid) = permissions.numbers(&state, &target).await?;
        check(&state, &target, Right::Write, name).await?;
        target.refuse_other_owner(uid, gid)?;
        if let Some(Identity { uid, gid }) = target.identity {
            create_as(&state.sandboxes, &target, (uid, gid), name, permissions.bits()?).await?;
            continue;
        }
        let (sandbox_id, mode) = (target.sandbox.id.clone(), permissions.bits()?);
        let make = MakeDirectory {
            sandbox_id: sandbox_id.clone(),
            path: path(name),
            mode,
            uid: None,
            gid: None,
        };
        state.sandboxes.make_directory(&target.caller, make).await?;
        // A new directory can be entered by who may read it; a client gets the mode that it asks for.
        if mode.is_some() || uid.is_some() || gid.is_some() {
            let set = SetPermissions { sandbox_id, path: path(name), mode, uid, gid };
            state.sandboxes.set_permissions(&target.caller, set).await?;
        }
    }
    Ok(())
}

/// `DELETE /directories?path=…`: removes directories with their content.
pub(super) async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<(), Failure> {
    let query = Query::parse(query.as_deref(), &["path"])?;
    for name in query.all("path") {
        if stat(&state.sandboxes, &target, name, false).await?.kind != FileKind::Directory {
            return Err(invalid(format!("{name} is not a directory")));
        }
        check(&state, &target, Right::Entry, name).await?;
        let remove = RemoveFile { sandbox_id: target.sandbox.id.clone(), path: path(name) };
        state.sandboxes.remove_file(&target.caller, remove).await?;
    }
    Ok(())
}

/// `GET /directories/list?path=…&depth=…`. Symbolic links are not followed.
pub(super) async fn list(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<FileBody>>, Failure> {
    let query = Query::parse(query.as_deref(), &["path", "depth"])?;
    let name = query.required("path")?;
    if stat(&state.sandboxes, &target, name, false).await?.kind != FileKind::Directory {
        return Err(invalid(format!("{name} is not a directory")));
    }
    check(&state, &target, Right::List, name).await?;
    let depth = query.number("depth")?.unwrap_or(1);
    let depth = u32::try_from(depth).map_err(|_| invalid("`depth` is too large"))?;
    let request = ListDirectory {
        sandbox_id: target.sandbox.id.clone(),
        path: path(name),
        depth: Some(depth.max(1)),
    };
    let listing = state.sandboxes.list_directory(&target.caller, request).await?;
    let names = names(&state, &target).await;
    let all = &listing.entries;
    let visible = all.iter().filter(|entry| is_visible(&target, all, &entry.path.0));
    Ok(Json(visible.map(|entry| FileBody::new(entry, &names)).collect()))
}
