//! The volumes of a request: named volumes of the caller, and directories of the host, of which the
//! service refuses those that an API key must not name.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use stockade_api::{CreateSandbox, VolumeMount};
use stockade_core::VolumeName;
use stockade_core::sandbox::HostMount;

use crate::failure::{Failure, invalid, unsupported};

/// A volume in a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Volume {
    /// Its name in messages.
    name: String,
    mount_path: String,
    #[serde(default)]
    host: Option<Host>,
    #[serde(default)]
    pvc: Option<Claim>,
    #[serde(default)]
    ossfs: Option<Value>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    sub_path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Host {
    path: String,
}

/// A named volume.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Claim {
    claim_name: String,
    #[serde(default)]
    create_if_not_exists: Option<bool>,
    #[serde(default)]
    delete_on_sandbox_termination: Option<bool>,
    #[serde(default)]
    storage_class: Option<String>,
    #[serde(default)]
    storage: Option<String>,
    #[serde(default)]
    access_modes: Option<Vec<String>>,
}

/// Adds the volumes of a request to a sandbox.
pub(super) fn add(volumes: Vec<Volume>, sandbox: &mut CreateSandbox) -> Result<(), Failure> {
    for volume in volumes {
        let inside = PathBuf::from(&volume.mount_path);
        if !inside.is_absolute() {
            return Err(invalid(format!("the mount path {:?} is not absolute", volume.mount_path)));
        }
        let sub_path = volume.sub_path.filter(|path| !path.is_empty()).map(PathBuf::from);
        if sub_path.as_deref().is_some_and(|path| !is_plain(path)) {
            return Err(invalid("a `subPath` is relative, and has no part `..`"));
        }
        match (volume.host, volume.pvc, volume.ossfs) {
            (Some(host), None, None) => sandbox.mounts.push(HostMount {
                host: host_directory(&host.path, sub_path.as_deref())?,
                inside,
                writable: !volume.read_only,
            }),
            (None, Some(claim), None) => sandbox.volumes.push(VolumeMount {
                name: claim.name()?,
                inside,
                read_only: volume.read_only,
                sub_path,
            }),
            (None, None, Some(_)) => return Err(unsupported("a volume of the kind `ossfs`")),
            _ => {
                let message = format!("the volume {:?} needs one of `host` and `pvc`", volume.name);
                return Err(invalid(message));
            }
        }
    }
    Ok(())
}

/// Whether a path only descends.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

impl Claim {
    fn name(self) -> Result<VolumeName, Failure> {
        let requested = [
            (self.create_if_not_exists == Some(false), "`createIfNotExists: false`"),
            (self.delete_on_sandbox_termination == Some(true), "`deleteOnSandboxTermination`"),
            (self.storage_class.is_some(), "`storageClass`"),
            (self.storage.is_some(), "`storage`"),
            (self.access_modes.is_some_and(|modes| !modes.is_empty()), "`accessModes`"),
        ];
        if let Some((_, what)) = requested.iter().find(|(requested, _)| *requested) {
            return Err(unsupported(format_args!("{what} of a volume")));
        }
        VolumeName::new(self.claim_name).map_err(|error| invalid(error.to_string()))
    }
}

/// A directory of the host.
fn host_directory(path: &str, sub_path: Option<&Path>) -> Result<PathBuf, Failure> {
    if !Path::new(path).is_absolute() {
        return Err(invalid(format!("the host path {path:?} is not absolute")));
    }
    Ok(sub_path.map_or_else(|| PathBuf::from(path), |sub| Path::new(path).join(sub)))
}

#[cfg(test)]
mod tests {
    use stockade_core::Code;

    use super::*;

    fn read(text: &str) -> Result<CreateSandbox, Code> {
        let volumes: Vec<Volume> = serde_json::from_str(text).unwrap();
        let mut sandbox = CreateSandbox::default();
        add(volumes, &mut sandbox).map_err(|Failure(problem)| problem.code)?;
        Ok(sandbox)
    }

    #[test]
    fn a_named_volume_is_one_of_the_caller() {
        let text = r#"[{"name": "a", "mountPath": "/data", "readOnly": true, "subPath": "x/y",
            "pvc": {"claimName": "vol", "createIfNotExists": true, "storage": null}}]"#;
        let sandbox = read(text).unwrap();
        let volume = &sandbox.volumes[0];
        assert_eq!((volume.name.as_str(), volume.read_only), ("vol", true));
        assert_eq!(volume.sub_path.as_deref(), Some(Path::new("x/y")));
        for (text, code) in [
            (r#"[{"name": "a", "mountPath": "data", "pvc": {"claimName": "v"}}]"#, "INVALID_INPUT"),
            (r#"[{"name": "a", "mountPath": "/d"}]"#, "INVALID_INPUT"),
            (
                r#"[{"name": "a", "mountPath": "/d", "subPath": "../x", "pvc": {"claimName": "v"}}]"#,
                "INVALID_INPUT",
            ),
            (
                r#"[{"name": "a", "mountPath": "/d", "pvc": {"claimName": "v", "storage": "1Gi"}}]"#,
                "UNSUPPORTED",
            ),
            (r#"[{"name": "a", "mountPath": "/d", "ossfs": {}}]"#, "UNSUPPORTED"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), code, "{text}");
        }
    }

    #[test]
    fn a_host_path_is_a_mount() {
        let text = |path: &str, more: &str| {
            format!(r#"[{{"name": "a", "mountPath": "/d", "host": {{"path": {path:?}}}{more}}}]"#)
        };
        let sandbox = read(&text("/usr", r#", "subPath": "bin""#)).unwrap();
        assert_eq!(sandbox.mounts[0].host, Path::new("/usr/bin"));
        assert!(sandbox.mounts[0].writable);
        assert_eq!(read(&text("usr", "")).unwrap_err(), Code::InvalidInput);
    }
}
