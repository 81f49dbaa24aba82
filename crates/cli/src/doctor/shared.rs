//! What sandboxes share with the host and with other owners: the inodes of files, and with them the
//! pages of memory that hold their content.

use serde_json::{Value, json};
use stockade_plan::private_base;

use crate::data_dir::find_data_dir;

/// One part of what a sandbox sees, and who else uses the same files.
#[derive(Debug)]
pub(crate) struct SharedPart {
    /// The part.
    pub(crate) what: &'static str,
    /// Who shares it: `host`, `owner` (all sandboxes of this data directory) or `nobody`.
    pub(crate) with: &'static str,
    /// How, and what changes that.
    pub(crate) detail: String,
}

impl SharedPart {
    /// The part as JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "name": self.what, "with": self.with, "detail": self.detail })
    }
}

/// All parts.
pub(crate) fn parts(data: &std::path::Path) -> Vec<SharedPart> {
    let part = |what, with, detail: &str| SharedPart { what, with, detail: detail.to_owned() };
    vec![
        part(
            "system",
            "host",
            "/usr, /bin, /lib and /nix/store are the host's own files, read-only; with \
             `--private-base`, or with an image, they are not",
        ),
        part("private-base", "owner", &base(data)),
        part("etc", "owner", "a copy of what every user of the host may read"),
        part("images", "owner", "the layers of an image in the store, read-only"),
        part("project", "host", "the unchanged files of the project or workspace, read-only"),
        part("mounts", "host", "what `--mount` and `--tools` name"),
        part(
            "init",
            "host",
            "the first process of a sandbox runs the file of `stockade` itself, which nothing inside \
             can open",
        ),
        part("changes", "none", "what a sandbox writes"),
    ]
}

/// The state of the copy. Nothing is made.
fn base(path: &std::path::Path) -> String {
    let Ok(Some(data)) = find_data_dir(path) else {
        return "there is no copy yet: `stockade base` makes it".to_owned();
    };
    match private_base::current(&data) {
        Ok(base) => {
            let content = base.content();
            format!(
                "a copy of {} files, {} MiB, made {}",
                content.entries,
                content.bytes >> 20,
                base.made()
            )
        }
        Err(private_base::Error::Missing) => {
            "there is no copy of the present state of the host: `stockade base` makes it".to_owned()
        }
        Err(error) => error.to_string(),
    }
}
