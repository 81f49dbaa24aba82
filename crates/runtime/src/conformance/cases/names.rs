//! Names may be any bytes except NUL and the slash.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use tokio::io::AsyncReadExt as _;

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{Sandbox, content, script};
use crate::files::{FileKind, ReadRange, SandboxPath, WriteOptions};

const ODD: [&[u8]; 13] = [
    b" ",
    b"two words",
    b" around ",
    b"new\nline",
    b"-n",
    b"--help",
    b"...",
    b"*",
    b"$(id)`id`",
    b"back\\slash\"quote'",
    b"\xff\xfe",
    "größe-大".as_bytes(),
    b"\x1b[31m\r\x07",
];

fn odd(name: &[u8]) -> SandboxPath {
    path(OsStr::from_bytes(&[b"/data/", name].concat()))
}

async fn read(sandbox: &Sandbox<'_>, file: &SandboxPath) -> Vec<u8> {
    let mut bytes = Vec::new();
    within("reading", async {
        let runtime = sandbox.runtime();
        let mut content =
            runtime.read_file(sandbox.id(), file, ReadRange::default()).await.unwrap();
        content.read_to_end(&mut bytes).await.unwrap();
    })
    .await;
    bytes
}

fn sorted() -> Vec<Vec<u8>> {
    let mut names: Vec<_> = ODD.iter().map(|name| name.to_vec()).collect();
    names.push(vec![b'l'; 255]);
    names.sort();
    names
}

async fn write_all(sandbox: &Sandbox<'_>) {
    for name in sorted() {
        let runtime = sandbox.runtime();
        let (file, options) = (odd(&name), WriteOptions::default());
        let written = runtime.write_file(sandbox.id(), &file, content(name.clone()), options);
        within("writing", written).await.unwrap_or_else(|error| panic!("{name:?}: {error:?}"));
    }
}

pub(crate) async fn odd_ones_are_names(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let runtime = sandbox.runtime();
    write_all(&sandbox).await;
    assert_eq!(sandbox.names("/data").await, sorted());
    for name in sorted() {
        let file = odd(&name);
        assert_eq!(read(&sandbox, &file).await, name);
        let info = within("looking", runtime.stat(sandbox.id(), &file)).await.unwrap();
        assert_eq!((info.name, info.kind), (name.clone(), FileKind::File));
        let moved = path("/data/moved");
        within("another name", runtime.rename(sandbox.id(), &file, &moved)).await.unwrap();
        within("its name", runtime.rename(sandbox.id(), &moved, &file)).await.unwrap();
        assert_eq!(read(&sandbox, &file).await, name);
        within("a removal", runtime.remove(sandbox.id(), &file)).await.unwrap();
    }
    assert!(sandbox.names("/data").await.is_empty());
}

pub(crate) async fn odd_ones_name_directories(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let runtime = sandbox.runtime();
    for name in ODD {
        let file = odd(&[name, b"/", name].concat());
        let written =
            runtime.write_file(sandbox.id(), &file, content(name), WriteOptions::default());
        within("writing", written).await.unwrap();
        let listed = within("a list", runtime.read_directory(sandbox.id(), &odd(name))).await;
        let names: Vec<_> = listed.unwrap().into_iter().map(|info| info.name).collect();
        assert_eq!(names, [name.to_vec()]);
    }
}

/// Inside and outside they are the same bytes.
pub(crate) async fn commands_see_the_same_names(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    write_all(&sandbox).await;
    let text = r#"cd /data; for name in * ...; do printf '%s\0' "$name"; done"#;
    let finished = sandbox.start(&script(text)).await.finish().await;
    let mut names: Vec<_> = finished.output.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    assert_eq!(names, sorted());
}

pub(crate) async fn one_that_is_too_long_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let file = odd(&[b'l'; 256]);
    let options = WriteOptions::default();
    let written = sandbox.runtime().write_file(sandbox.id(), &file, content("x"), options).await;
    assert!(written.is_err());
    assert!(sandbox.names("/data").await.is_empty());
}
