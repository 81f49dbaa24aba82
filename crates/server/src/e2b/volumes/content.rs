//! `/volumecontent/{volume}`: files (`file`), directories (`dir`), and what is at a path (`path`). A new file belongs to the
//! ordinary user of sandboxes, unless the request names another one.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use stockade_api::body::{BodyReader, FileBody};
use stockade_api::{
    FileContent, FileEntry, FileKind, ListDirectory, ReadFile, RemoveFile, SetPermissions,
};
use stockade_core::{Code, Problem};

use super::super::App;
use super::super::failure::Refused;
use super::super::request::{JsonBody, Query};
use super::super::user::{User, normalized};
use super::access::Admitted;
use super::entry::Entry;
use super::sandbox::{VolumeSandbox, absent, of_path};
use crate::failure::invalid;
use crate::inside::directories::{create_as, sort_as_walked};
use crate::inside::write::{NewFile, write};
use crate::inside::{Identity, Target, attachment};
use crate::openapi::{Api, Security, get};

/// The deepest listing.
const DEPTH: u32 = 64;
/// The parameters of a request that creates.
const CREATE: [&str; 5] = ["path!", "uid", "gid", "mode", "force"];

/// The routes.
pub(in super::super) fn routes() -> Api<App> {
    let of = |name: &str| format!("/volumecontent/{{volume}}/{name}");
    Api::new(Security::Volume)
        .route(
            &of("file"),
            get(read).query(&["path!"]).put(put).query(&CREATE).layer(DefaultBodyLimit::disable()),
        )
        .route(&of("dir"), get(list).query(&["path!", "depth"]).post(make).query(&CREATE))
        .route(
            &of("path"),
            get(show)
                .query(&["path!"])
                .delete(remove)
                .query(&["path!"])
                .patch(change)
                .query(&["path!"])
                .body::<Change>(&json!({ "mode": 0o600 })),
        )
}

/// What a request wants to create.
struct New {
    path: String,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    /// Whether what is there already is accepted.
    force: bool,
}

impl New {
    fn of(query: &Query) -> Result<Self, Refused> {
        let force = match query.one("force")? {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(invalid(format!("`force` is not {other:?}")).into()),
        };
        Ok(Self {
            path: path(query)?,
            uid: number(query, "uid")?,
            gid: number(query, "gid")?,
            mode: number(query, "mode")?,
            force,
        })
    }
}

/// The path of a request, absolute below the volume.
fn path(query: &Query) -> Result<String, Refused> {
    let text = query.one("path")?.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| invalid("the parameter `path` is missing"))?;
    Ok(normalized(&format!("/{text}")))
}

fn number(query: &Query, name: &str) -> Result<Option<u32>, Refused> {
    let number = query.number(name)?.map(u32::try_from).transpose();
    number.map_err(|_| invalid(format!("the parameter `{name}` is too large")).into())
}

fn exists(path: &str) -> Problem {
    Problem::new(Code::Conflict, format!("path '{path}' exists already"))
}

/// The ordinary user of the sandbox.
async fn user(app: &App, sandbox: &VolumeSandbox) -> Result<User, Problem> {
    User::find(&*app.sandboxes, &sandbox.target, None).await
}

/// What is at a place, if anything is.
async fn existing(sandbox: &VolumeSandbox, place: &str) -> Result<Option<FileEntry>, Problem> {
    match sandbox.stat(place, false).await {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.code == Code::FileNotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

async fn entry(sandbox: &VolumeSandbox, place: &str, path: &str) -> Result<Json<Entry>, Refused> {
    let found = sandbox.stat(place, false).await.map_err(|problem| of_path(problem, path))?;
    Ok(Json(Entry::new(&found, path)))
}

/// `GET …/file`.
async fn read(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let path = path(&Query::parse(query.as_deref()))?;
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let place = sandbox.place(&path).await?;
    let found = sandbox.stat(&place, true).await.map_err(|problem| of_path(problem, &path))?;
    if found.kind != FileKind::File {
        return Err(absent(&path).into());
    }
    let read = ReadFile {
        sandbox_id: sandbox.target.sandbox.id.clone(),
        path: found.path,
        offset: 0,
        length: None,
    };
    let content = app.sandboxes.read_file(&sandbox.target.caller, read).await?;
    // The sandbox lasts as long as the content is sent.
    let body = FileBody(content).map_frame(move |frame| {
        let _ = &sandbox;
        frame
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let name = [(header::CONTENT_DISPOSITION, attachment(&path))];
    Ok((headers, name, Body::new(body)).into_response())
}

/// `PUT …/file`: completely or not at all.
async fn put(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<(StatusCode, Json<Entry>), Refused> {
    let New { path, uid, gid, mode, force } = New::of(&Query::parse(query.as_deref()))?;
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let mut place = sandbox.place(&path).await?;
    if let Some(old) = existing(&sandbox, &place).await? {
        if old.kind == FileKind::Directory || !force {
            return Err(exists(&path).into());
        }
        // What a link leads to is written.
        let real = sandbox.stat(&place, true).await.map_err(|problem| of_path(problem, &path))?;
        if real.kind == FileKind::Directory {
            return Err(exists(&path).into());
        }
        place = real.path.lossy().into_owned();
    }
    let target = &sandbox.target;
    let user = user(&app, &sandbox).await?;
    let parent = place.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let may_write = user.may_write(&sandbox.stat(parent, true).await?);
    let content = FileContent(Box::pin(BodyReader::new(body)));
    let file = NewFile { path: &place, mode, uid, gid };
    if may_write {
        write(&app.sandboxes, target, file, content).await?;
    } else {
        let root = Target { identity: Some(Identity { uid: 0, gid: 0 }), ..target.clone() };
        write(&app.sandboxes, &root, file, content).await?;
        let owner = (Some(uid.unwrap_or(user.uid)), Some(gid.unwrap_or(user.gid)));
        set(&app, target, &place, owner, mode).await?;
    }
    Ok((StatusCode::CREATED, entry(&sandbox, &place, &path).await?))
}

/// `GET …/dir`.
async fn list(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Entry>>, Refused> {
    let query = Query::parse(query.as_deref());
    let path = path(&query)?;
    let depth = number(&query, "depth")?.unwrap_or(1);
    if !(1..=DEPTH).contains(&depth) {
        return Err(invalid(format!("`depth` is 1 to {DEPTH}")).into());
    }
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let place = sandbox.place(&path).await?;
    let found = sandbox.stat(&place, true).await.map_err(|problem| of_path(problem, &path))?;
    if found.kind != FileKind::Directory {
        return Err(absent(&path).into());
    }
    let real = found.path.lossy().into_owned();
    let request = ListDirectory {
        sandbox_id: sandbox.target.sandbox.id.clone(),
        path: found.path,
        depth: Some(depth),
    };
    let mut listing = app.sandboxes.list_directory(&sandbox.target.caller, request).await?;
    sort_as_walked(&mut listing.entries);
    let entries = listing.entries.iter().map(|entry| {
        let inside = entry.path.lossy();
        let inner = inside.strip_prefix(&real).unwrap_or(&inside).trim_start_matches('/');
        Entry::new(entry, &format!("{}/{inner}", path.trim_end_matches('/')))
    });
    Ok(Json(entries.collect()))
}

/// `POST …/dir`: with `force` also the directories above it.
async fn make(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
) -> Result<(StatusCode, Json<Entry>), Refused> {
    let New { path, uid, gid, mode, force } = New::of(&Query::parse(query.as_deref()))?;
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let user = user(&app, &sandbox).await?;
    let owner = (uid.unwrap_or(user.uid), gid.unwrap_or(user.gid));
    if force {
        let above = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
        for directory in above {
            let place = sandbox.place(directory).await?;
            if existing(&sandbox, &place).await?.is_none() {
                create_as(&app.sandboxes, &sandbox.target, owner, &place, mode).await?;
            }
        }
    }
    let place = sandbox.place(&path).await?;
    match existing(&sandbox, &place).await? {
        None => create_as(&app.sandboxes, &sandbox.target, owner, &place, mode).await?,
        Some(found) if force && found.kind == FileKind::Directory => {}
        Some(_) => return Err(exists(&path).into()),
    }
    Ok((StatusCode::CREATED, entry(&sandbox, &place, &path).await?))
}

/// `GET …/path`: of a link, not of what it leads to.
async fn show(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
) -> Result<Json<Entry>, Refused> {
    let path = path(&Query::parse(query.as_deref()))?;
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let place = sandbox.place(&path).await?;
    entry(&sandbox, &place, &path).await
}

/// What a request changes.
#[derive(Deserialize, JsonSchema)]
struct Change {
    #[serde(default)]
    uid: Option<u32>,
    #[serde(default)]
    gid: Option<u32>,
    #[serde(default)]
    mode: Option<u32>,
}

/// `PATCH …/path`.
async fn change(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
    JsonBody(Change { uid, gid, mode }): JsonBody<Change>,
) -> Result<Json<Entry>, Refused> {
    let path = path(&Query::parse(query.as_deref()))?;
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let place = sandbox.place(&path).await?;
    sandbox.stat(&place, true).await.map_err(|problem| of_path(problem, &path))?;
    set(&app, &sandbox.target, &place, (uid, gid), mode).await?;
    entry(&sandbox, &place, &path).await
}

async fn set(
    app: &App,
    target: &Target,
    place: &str,
    (uid, gid): (Option<u32>, Option<u32>),
    mode: Option<u32>,
) -> Result<(), Refused> {
    let sandbox_id = target.sandbox.id.clone();
    let set = SetPermissions { sandbox_id, path: place.into(), mode, uid, gid };
    app.sandboxes.set_permissions(&target.caller, set).await?;
    Ok(())
}

/// `DELETE …/path`: a file, or a directory with its content.
async fn remove(
    State(app): State<App>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Refused> {
    let path = path(&Query::parse(query.as_deref()))?;
    if path == "/" {
        return Err(invalid("the root of a volume cannot be removed").into());
    }
    let sandbox = VolumeSandbox::start(&app, admitted).await?;
    let place = sandbox.place(&path).await?;
    sandbox.stat(&place, false).await.map_err(|problem| of_path(problem, &path))?;
    let sandbox_id = sandbox.target.sandbox.id.clone();
    let request = RemoveFile { sandbox_id, path: place.as_str().into() };
    app.sandboxes.remove_file(&sandbox.target.caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
