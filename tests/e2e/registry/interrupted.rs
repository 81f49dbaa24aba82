//! Pulls that are interrupted: by `kill -9`, and by a registry that ends.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::sample::{self, Layout, architecture, hex};
use crate::harness::World;

/// A registry that serves a layout, and stops in the middle of large blobs until it may go on.
pub(crate) struct SlowRegistry {
    pub(crate) host: String,
    may_finish: Arc<AtomicBool>,
    /// The values of `Range` in requests for large blobs.
    ranges: Arc<Mutex<Vec<Option<String>>>>,
}

/// Larger blobs are stopped after this size.
const STOP: usize = 1 << 20;

impl SlowRegistry {
    pub(crate) fn start(layout: &Layout) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let mut blobs = BTreeMap::new();
        for entry in std::fs::read_dir(layout.path.join("blobs/sha256")).unwrap() {
            let content = std::fs::read(entry.unwrap().path()).unwrap();
            blobs.insert(hex(&content), content);
        }
        let index = std::fs::read(layout.path.join("index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let blobs = Arc::new(blobs);
        let may_finish = Arc::new(AtomicBool::new(false));
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (flag, log) = (Arc::clone(&may_finish), Arc::clone(&ranges));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (blobs, flag, log) = (Arc::clone(&blobs), Arc::clone(&flag), Arc::clone(&log));
                let digest = digest.clone();
                std::thread::spawn(move || drop(serve(stream, &blobs, &digest, &flag, &log)));
            }
        });
        Self { host, may_finish, ranges }
    }

    /// Lets it serve large blobs to their end.
    pub(crate) fn release(&self) {
        self.may_finish.store(true, Ordering::SeqCst);
    }
}

fn serve(
    mut stream: TcpStream,
    blobs: &BTreeMap<String, Vec<u8>>,
    tagged: &str,
    may_finish: &AtomicBool,
    ranges: &Mutex<Vec<Option<String>>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    // This registry does not speak TLS.
    if reader.fill_buf()?.first() == Some(&0x16) {
        return stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
    }
    let (mut path, mut range) = (String::new(), None);
    for (index, line) in reader.lines().enumerate() {
        let line = line?;
        if index == 0 {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some((_, value)) = line.to_lowercase().split_once("range: ") {
            range = Some(value.to_owned());
        }
        if line.is_empty() {
            break;
        }
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let digest = if path.contains("/manifests/") && !name.contains(':') { tagged } else { name };
    let Some(content) = blobs.get(digest.trim_start_matches("sha256:")) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let is_large = content.len() > STOP;
    if is_large {
        ranges.lock().unwrap().push(range.clone());
    }
    let from = range.as_deref().and_then(|range| range.strip_prefix("bytes="));
    let from: usize = from.and_then(|text| text.trim_end_matches('-').parse().ok()).unwrap_or(0);
    let rest = &content[from..];
    let status = match range {
        Some(_) => format!(
            "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
            content.len() - 1,
            content.len()
        ),
        None => "200 OK".to_owned(),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", rest.len())?;
    if !is_large || may_finish.load(Ordering::SeqCst) {
        return stream.write_all(rest);
    }
    stream.write_all(&rest[..STOP])?;
    while !may_finish.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A layout whose image has a layer of several MiB.
pub(crate) fn large(world: &World) -> Layout {
    let layout = Layout::new(world, "large");
    let root = world.path("large-root");
    std::fs::create_dir(&root).unwrap();
    let content: Vec<u8> = (0_u32..1_000_000).flat_map(u32::to_le_bytes).collect();
    std::fs::write(root.join("content"), content).unwrap();
    layout.finish(layout.image(architecture(), &[sample::tar(&root)]));
    layout
}

fn kill_9_leaves_nothing_half_and_the_next_pull_goes_on(world: &World) {
    let registry = SlowRegistry::start(&large(world));
    let name = format!("{}/team/large:1", registry.host);
    let pull = world.stockade(&["image", "pull", &name]).start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let downloaded = || {
        let files = crate::host::Tree::of(&world.data().join("downloads")).entries;
        let sizes = files.keys().filter_map(|path| Some(path.metadata().ok()?.len()));
        sizes.max().unwrap_or(0)
    };
    while downloaded() < STOP as u64 {
        assert!(Instant::now() < deadline, "nothing is downloaded");
        std::thread::sleep(Duration::from_millis(20));
    }
    pull.signal(Signal::KILL);
    pull.finish();
    let listed = world.stockade(&["image", "ls", "--json"]).finish();
    assert_eq!(listed.json()["images"].as_array().unwrap().len(), 0, "{listed}");
    let blobs = world.data().join("images/blobs");
    assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0);

    registry.may_finish.store(true, Ordering::SeqCst);
    world.stockade(&["image", "pull", &name]).finish().succeeds();
    let ranges = registry.ranges.lock().unwrap().clone();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert_eq!(ranges[0], None);
    assert!(ranges[1].is_some(), "{ranges:?}");
    let downloads = world.data().join("downloads");
    assert_eq!(std::fs::read_dir(downloads).unwrap().count(), 0);
    let listed = world.stockade(&["image", "ls", "--json"]).finish();
    assert_eq!(listed.json()["images"].as_array().unwrap().len(), 1, "{listed}");
}

fn two_pulls_of_one_image_download_it_once(world: &World) {
    let registry = SlowRegistry::start(&large(world));
    let name = format!("{}/team/large:1", registry.host);
    let pulls = [0, 1].map(|_| world.stockade(&["image", "pull", &name]).start());
    registry.may_finish.store(true, Ordering::SeqCst);
    for pull in pulls {
        pull.finish().succeeds();
    }
    let listed = world.stockade(&["image", "ls", "--json"]).finish();
    assert_eq!(listed.json()["images"].as_array().unwrap().len(), 1, "{listed}");
}

as_root_and_as_user! {
    kill_9_leaves_nothing_half_and_the_next_pull_goes_on,
    two_pulls_of_one_image_download_it_once,
}
