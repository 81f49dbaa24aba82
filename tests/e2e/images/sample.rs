//! Images with the layouts of popular ones, made from entries by hand.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::harness::{World, skip};

/// A program that needs no library.
const BUSYBOX: &str = "/bin/busybox";
/// Its names.
const APPLETS: [&str; 15] = [
    "true", "sh", "cat", "echo", "id", "ls", "pwd", "env", "touch", "sleep", "rm", "mkdir", "test",
    "grep", "stat",
];

/// A layer that is being made.
#[derive(Default)]
pub(super) struct Layer {
    bytes: Vec<u8>,
    owner: u32,
}

impl Layer {
    /// The owner of the entries that follow.
    pub(super) fn owner(mut self, id: u32) -> Self {
        self.owner = id;
        self
    }

    pub(super) fn directory(self, name: &str) -> Self {
        self.entry(b'5', name, "", 0o755, b"")
    }

    pub(super) fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(b'0', name, "", 0o644, content)
    }

    pub(super) fn program(self, name: &str, content: &[u8]) -> Self {
        self.entry(b'0', name, "", 0o755, content)
    }

    pub(super) fn link(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, 0o777, b"")
    }

    fn entry(mut self, kind: u8, name: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, format!("{:07o}", self.owner).as_bytes());
        put(116, format!("{:07o}", self.owner).as_bytes());
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(136, b"00000000000");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len().div_ceil(512) * 512, 0);
        self
    }

    fn done(mut self) -> Vec<u8> {
        self.bytes.extend([0; 1024]);
        self.bytes
    }
}

/// The program without libraries; without it the test is recorded as skipped.
pub(super) fn busybox(test: &str) -> Option<Vec<u8>> {
    let program = fs::read(BUSYBOX).ok();
    // A program that needs a loader names it in its head.
    let is_static = |program: &Vec<u8>| {
        let head = &program[..program.len().min(4096)];
        !head.windows(9).any(|text| text == b"ld-linux-" || text == b"/ld-musl-")
    };
    let found = program.filter(is_static);
    if found.is_none() {
        skip(test, "a static busybox is not installed (package busybox-static)");
    }
    found
}

/// A layer with a shell in a directory, and users.
pub(super) fn base(busybox: &[u8], directory: &str) -> Layer {
    let layer = Layer::default().directory("etc").file(
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n",
    );
    let layer = layer.file("etc/group", b"root:x:0:\nnode:x:1000:\nextra:x:2000:\n");
    let layer = layer.file("etc/hosts", b"of the image\n").directory("root").directory("tmp");
    let layer = layer.directory(directory).program(&format!("{directory}/busybox"), busybox);
    APPLETS.iter().fold(layer, |layer, name| layer.link(&format!("{directory}/{name}"), "busybox"))
}

/// Imports an image under a name. `config` is how a process of it is started.
pub(super) fn import(world: &World, name: &str, layers: Vec<Layer>, config: Value) {
    let layout = world.path(&format!("layout-{}", hex(name.as_bytes())));
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let put = |content: &[u8], kind: &str| put(&layout, content, kind);
    let layers: Vec<_> = layers.into_iter().map(Layer::done).collect();
    let diff_ids: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", hex(layer))).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "os": "linux",
        "architecture": architecture,
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = put(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json");
    let layer = |layer: &Vec<u8>| put(layer, "application/vnd.oci.image.layer.v1.tar");
    let manifest = json!({
        "schemaVersion": 2,
        "config": config,
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
    });
    let manifest =
        put(manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json");
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let source = format!("oci:{}", layout.display());
    world.stockade(&["image", "import", &source, name]).finish().succeeds();
}

fn put(layout: &Path, content: &[u8], kind: &str) -> Value {
    let hex = hex(content);
    fs::write(layout.join("blobs/sha256").join(&hex), content).unwrap();
    json!({ "mediaType": kind, "digest": format!("sha256:{hex}"), "size": content.len() })
}

fn hex(content: &[u8]) -> String {
    sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
