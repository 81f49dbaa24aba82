//! Tests of result bundles: the example of Smithers, each limit by name, each way to escape, and
//! arbitrary bytes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    fn new(manifest: &Value) -> Self {
        Self::with_bytes(manifest.to_string().as_bytes())
    }

    fn with_bytes(manifest: &[u8]) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("README.md"), manifest).unwrap();
        Self { root }
    }

    fn finished() -> Self {
        Self::new(&json!({"status": "finished", "outputs": {}}))
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn file(self, name: &str, content: &str) -> Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn read(&self) -> Result<SandboxBundle, Error> {
        read(&Dir::open(self.path()).unwrap())
    }

    fn refused(&self, code: &str) -> Error {
        let error = self.read().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        error
    }

    fn exceeds(&self, limit: Limit) {
        let error = self.refused("INVALID_INPUT");
        assert_eq!(error.limit(), Some(limit), "{error}");
        assert!(error.to_string().contains("profile sandbox"), "{error}");
    }
}

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn the_seeds_example_is_read() {
    let bundle = Fixture::new(&json!({
        "status": "finished",
        "runId": "run_abc123",
        "outputs": {"summary": "Done"},
        "patches": ["patches/change.patch"],
        "diffBundle": {"seq": 1, "baseRef": "HEAD", "patches": [
            {"path": "src/app.ts", "operation": "modify", "diff": "diff --git", "binaryContent": "AAE="}
        ]},
        "unknown": true
    }))
    .file("patches/change.patch", "diff")
    .file("artifacts/deep/report.txt", "report")
    .file("logs/stream.ndjson", "{}\n")
    .read()
    .unwrap();
    assert_eq!(bundle.manifest.status, Status::Finished);
    assert_eq!(bundle.manifest.run_id.as_deref(), Some("run_abc123"));
    assert_eq!(bundle.manifest.outputs, json!({"summary": "Done"}));
    assert_eq!(bundle.manifest.patches, [path("patches/change.patch")]);
    assert_eq!(bundle.patches, bundle.manifest.patches);
    assert_eq!(bundle.artifacts, [path("artifacts/deep/report.txt")]);
    assert_eq!(bundle.stream_log, Some(path("logs/stream.ndjson")));
    let diff = bundle.manifest.diff_bundle.unwrap();
    assert_eq!((diff.seq, diff.base_ref.as_str()), (1, "HEAD"));
    assert_eq!(
        diff.patches,
        [DiffPatch {
            path: path("src/app.ts"),
            operation: Operation::Modify,
            diff: "diff --git".to_owned(),
            binary_content: Some(vec![0, 1]),
        }]
    );
}

#[test]
fn what_is_no_manifest_is_refused() {
    for manifest in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\u{feff}{\"status\":\"finished\"}",
        r#"{"status":"pending"}"#,
        r#"{"status":["finished"]}"#,
        r#"{"status":"finished","runId":1}"#,
        r#"{"status":"finished","patches":"patches/a"}"#,
        r#"{"status":"finished","patches":[1]}"#,
        r#"{"status":"finished","patches":["patches/missing"]}"#,
        r#"{"status":"finished","diffBundle":[]}"#,
        r#"{"status":"finished","diffBundle":{"seq":1,"baseRef":"x","patches":[],"base":"x"}}"#,
        r#"{"status":"finished","diffBundle":{"seq":1,"baseRef":"x","patches":[{"path":"a","operation":"delete","diff":"","mode":1}]}}"#,
        r#"{"status":"finished","diffBundle":{"seq":-1,"baseRef":"x","patches":[]}}"#,
        r#"{"status":"finished","diffBundle":{"seq":1,"baseRef":"x","patches":[{"path":"a","operation":"chmod","diff":""}]}}"#,
        r#"{"status":"finished","diffBundle":{"seq":1,"baseRef":"x","patches":[{"path":"a","operation":"add","diff":"","binaryContent":"?"}]}}"#,
    ] {
        Fixture::with_bytes(manifest.as_bytes()).refused("INVALID_INPUT");
    }
    let empty = Fixture::finished();
    fs::remove_file(empty.path().join("README.md")).unwrap();
    assert!(matches!(empty.refused("INVALID_INPUT"), Error::NoManifest));
}

#[test]
fn paths_that_leave_are_refused() {
    for listed in ["../x", "/etc/passwd", "patches", "patches/", "patches/../../x", "other/x", ""] {
        Fixture::new(&json!({"status": "finished", "patches": [listed]}))
            .refused("TOOL_PATH_ESCAPE");
    }
    for patched in ["../x", "/x", "a/../b", "", "a//b"] {
        let patch = json!({"path": patched, "operation": "add", "diff": ""});
        Fixture::new(&json!({
            "status": "finished",
            "diffBundle": {"seq": 1, "baseRef": "HEAD", "patches": [patch]}
        }))
        .refused("TOOL_PATH_ESCAPE");
    }
}

#[test]
fn links_and_special_files_are_refused_wherever_they_are() {
    for dir in ["link", "patches/link", "artifacts/a/b/link", "logs/stream.ndjson"] {
        let fixture = Fixture::finished().file(&format!("{dir}.d/x"), "");
        symlink("/etc/passwd", fixture.path().join(dir)).unwrap();
        assert!(matches!(fixture.refused("TOOL_PATH_ESCAPE"), Error::Symlink { .. }));
    }
    let to_directory = Fixture::finished();
    symlink("/etc", to_directory.path().join("patches")).unwrap();
    to_directory.refused("TOOL_PATH_ESCAPE");

    for dir in ["README.md", "artifacts/pipe"] {
        let fixture = Fixture::finished().file("artifacts/x", "");
        let at = fixture.path().join(dir);
        drop(fs::remove_file(&at));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &at,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_bits_truncate(0o644),
            0,
        )
        .unwrap();
        assert!(matches!(fixture.refused("TOOL_PATH_ESCAPE"), Error::Special { .. }), "{dir}");
    }
    let readme = Fixture::finished();
    fs::remove_file(readme.path().join("README.md")).unwrap();
    symlink("/etc/passwd", readme.path().join("README.md")).unwrap();
    readme.refused("TOOL_PATH_ESCAPE");
    fs::remove_file(readme.path().join("README.md")).unwrap();
    fs::create_dir(readme.path().join("README.md")).unwrap();
    readme.refused("TOOL_PATH_ESCAPE");
}

#[test]
fn each_limit_is_held_and_named() {
    let outputs = |value: Value| Fixture::new(&json!({"status": "failed", "outputs": value}));
    outputs(nested(16)).read().unwrap();
    outputs(nested(17)).exceeds(Limit::OutputDepth);
    outputs(json!(vec![0; 512])).read().unwrap();
    outputs(json!({"a": vec![0; 513]})).exceeds(Limit::OutputArrayItems);
    outputs(json!(["x".repeat(64 << 10)])).read().unwrap();
    outputs(json!(["x".repeat((64 << 10) + 1)])).exceeds(Limit::OutputStringBytes);

    let run = |id: String| Fixture::new(&json!({"status": "cancelled", "runId": id}));
    run("ü".repeat(256)).read().unwrap();
    run("ü".repeat(257)).exceeds(Limit::RunIdCharacters);

    let padded = |size: usize| {
        let mut manifest = br#"{"status":"finished"}"#.to_vec();
        manifest.resize(size, b' ');
        Fixture::with_bytes(&manifest)
    };
    padded(5 << 20).read().unwrap();
    padded((5 << 20) + 1).exceeds(Limit::ManifestBytes);

    let sized = Fixture::finished().file("artifacts/large", "");
    let large = fs::File::options().write(true).open(sized.path().join("artifacts/large")).unwrap();
    let readme = fs::metadata(sized.path().join("README.md")).unwrap().len();
    large.set_len((100 << 20) - readme).unwrap();
    assert_eq!(sized.read().unwrap().total_bytes, 100 << 20);
    large.set_len((100 << 20) - readme + 1).unwrap();
    sized.exceeds(Limit::TotalBytes);

    for (part, limit) in [("patches", Limit::Patches), ("artifacts", Limit::Artifacts)] {
        let many = (0..1000).fold(Fixture::finished(), |fixture, number| {
            fixture.file(&format!("{part}/{number}"), "")
        });
        many.read().unwrap();
        many.file(&format!("{part}/one-more"), "").exceeds(limit);
    }
    let listed: Vec<String> = (0..1001).map(|number| format!("patches/{number}")).collect();
    Fixture::new(&json!({"status": "finished", "patches": listed})).exceeds(Limit::Patches);
    let patch = json!({"path": "a", "operation": "add", "diff": ""});
    Fixture::new(&json!({
        "status": "finished",
        "diffBundle": {"seq": 1, "baseRef": "HEAD", "patches": vec![patch; 1001]}
    }))
    .exceeds(Limit::Patches);
    let strewn = (0..10_000)
        .fold(Fixture::finished(), |fixture, number| fixture.file(&format!("other/{number}"), ""));
    strewn.exceeds(Limit::Entries);

    let long = |bytes: usize| {
        let mut name = format!("artifacts/{}", "d".repeat(200));
        while name.len() + 202 < bytes {
            name = format!("{name}/{}", "d".repeat(200));
        }
        name = format!("{name}/{}", "f".repeat(bytes - name.len() - 1));
        assert_eq!(name.len(), bytes);
        name
    };
    Fixture::finished().file(&long(1024), "").read().unwrap();
    Fixture::finished().file(&long(1025), "").exceeds(Limit::PathBytes);
    let name = format!("patches/{}", "x".repeat(1017));
    Fixture::new(&json!({"status": "finished", "patches": [name]})).exceeds(Limit::PathBytes);
}

/// Parsing mutated bytes must always end, and never with a panic; an accepted manifest must be
/// valid.
#[test]
fn arbitrary_manifests_are_read_or_refused() {
    let original = json!({
        "status": "finished",
        "runId": "run_abc123",
        "outputs": {"a": [1, -2.5e3, "x\u{1F600}", null, true, {"b": []}]},
        "patches": ["patches/change.patch"],
        "diffBundle": {"seq": 1, "baseRef": "HEAD", "patches": [
            {"path": "src/app.ts", "operation": "modify", "diff": "@@ -1 +1 @@", "binaryContent": "AAE="}
        ]}
    })
    .to_string()
    .into_bytes();
    let mut state = 1_u64;
    let mut random = |limit: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = original.clone();
        for _ in 0..=random(4) {
            if bytes.is_empty() {
                break;
            }
            let at = random(bytes.len());
            match random(5) {
                0 => bytes[at] = b"{}[]\",:\\0-.eun/"[random(15)],
                1 => bytes[at] = u8::try_from(random(256)).unwrap(),
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, b"{[\"\\\xff.9/"[random(8)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        match SandboxManifest::parse(&bytes, &BundleLimits::SANDBOX) {
            Ok(manifest) => {
                accepted += 1;
                assert!(manifest.patches.iter().all(|patch| patch.is_within(&path("patches"))));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(accepted > 100 && refused > 1000, "{accepted} accepted, {refused} refused");
    let deep = [b"{\"status\":\"finished\",\"outputs\":".to_vec(), vec![b'['; 1 << 20]].concat();
    assert!(SandboxManifest::parse(&deep, &BundleLimits::SANDBOX).is_err());
}
