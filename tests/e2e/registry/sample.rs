//! Images that the tests make: OCI layouts with the host's shell in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::harness::World;

/// The hexadecimal SHA-256 digest of a content.
pub(crate) fn hex(content: &[u8]) -> String {
    sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An OCI layout that is being made.
pub(crate) struct Layout {
    pub(crate) path: PathBuf,
}

impl Layout {
    pub(crate) fn new(world: &World, name: &str) -> Self {
        let path = world.path(name);
        fs::create_dir_all(path.join("blobs/sha256")).unwrap();
        fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { path }
    }

    /// Adds a blob; its descriptor.
    pub(crate) fn add(&self, content: &[u8], media_type: &str) -> Value {
        let hex = hex(content);
        fs::write(self.path.join("blobs/sha256").join(&hex), content).unwrap();
        json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": content.len() })
    }

    /// Adds an image with these layers, which are tar archives; the descriptor of its manifest.
    pub(crate) fn image(&self, architecture: &str, layers: &[Vec<u8>]) -> Value {
        let diff_ids: Vec<_> = layers.iter().map(|tar| format!("sha256:{}", hex(tar))).collect();
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": { "Env": ["OF_THE_IMAGE=yes"], "Cmd": ["/bin/cat", "/etc/name"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string();
        let layer = |tar: &Vec<u8>| self.add(tar, "application/vnd.oci.image.layer.v1.tar");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.add(config.as_bytes(), "application/vnd.oci.image.config.v1+json"),
            "layers": layers.iter().map(layer).collect::<Vec<_>>(),
        });
        let mut descriptor =
            self.add(manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json");
        descriptor["platform"] = json!({ "os": "linux", "architecture": architecture });
        descriptor
    }

    /// Adds an index of images; its descriptor.
    pub(crate) fn index(&self, images: &[Value]) -> Value {
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": images });
        self.add(index.to_string().as_bytes(), media_type)
    }

    /// Completes the layout: what its only tag `1` names.
    pub(crate) fn finish(&self, mut descriptor: Value) {
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": "1" });
        let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
        fs::write(self.path.join("index.json"), index.to_string()).unwrap();
    }
}

/// The architecture of this machine, in OCI's words.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A layer with a shell, what it needs, and a file with this text.
pub(crate) fn shell_layer(world: &World, text: &str) -> Vec<u8> {
    let root = world.path(&format!("root-{}", hex(text.as_bytes())));
    let script = "set -e; mkdir -p \"$0/bin\" \"$0/etc\" \"$0/tmp\" \"$0/proc\" \"$0/dev\"; \
        cp /bin/sh /bin/cat \"$0/bin\"; \
        for f in $(ldd /bin/sh /bin/cat | grep -o '/[^ ]*so[^ ]*' | sort -u); do \
        mkdir -p \"$0$(dirname $f)\"; cp -L $f \"$0$f\"; done; printf %s \"$1\" > \"$0/etc/name\"; \
        echo ID=sample > \"$0/etc/os-release\"";
    let made = Command::new("/bin/sh").args(["-c", script]).arg(&root).arg(text).status();
    assert!(made.unwrap().success());
    tar(&root)
}

/// A tar archive of a directory.
pub(crate) fn tar(root: &Path) -> Vec<u8> {
    let mut command = Command::new("tar");
    command
        .args(["--owner=0", "--group=0", "--numeric-owner", "-C"])
        .arg(root)
        .args(["-cf", "-", "."]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// A layout with one image for this machine, whose `/etc/name` has this text.
pub(crate) fn image(world: &World, name: &str, text: &str) -> Layout {
    let layout = Layout::new(world, name);
    layout.finish(layout.image(architecture(), &[shell_layer(world, text)]));
    layout
}
