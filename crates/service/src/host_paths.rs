//! The paths of the host that a client with an API key may name: none but those below the directories
//! of a setting. The one rule for images, workspaces, mounts and all that a dialect translates to them.

use std::path::{Path, PathBuf};

use stockade_api::{Caller, CreateSandbox, Result};
use stockade_core::{Code, Problem};

use crate::options::Options;

/// Refuses a path of the host that the caller must not name, and what would share files of the host
/// against the setting of the server. Links are followed first: the request then has the paths that
/// they lead to, and no other ones are opened later, whatever was replaced by a link meanwhile.
pub(crate) fn check(caller: &Caller, request: &mut CreateSandbox, options: &Options) -> Result<()> {
    if !caller.remote {
        return Ok(());
    }
    if let Some(image) = request.image.as_deref().filter(|image| image.starts_with('/')) {
        return Err(refused(Path::new(image)).remedied_by("use the name of an image"));
    }
    let workspace = request.workspace.as_mut().map(|workspace| &mut workspace.host);
    let mounts = request.mounts.iter_mut().map(|mount| &mut mount.host);
    for path in workspace.into_iter().chain(mounts) {
        // Whether a path that is not allowed exists is not said.
        *path = allowed(path, &options.host_paths).ok_or_else(|| {
            refused(path)
                .because("an API key may name only paths below the directories of a setting")
                .remedied_by(
                    "use the name of a volume, or on the server: export \
                     STOCKADE_HOST_PATHS=/srv/data before stockade serve",
                )
        })?;
        request.exact_paths = true;
    }
    if options.private_base && request.private_base == Some(false) {
        let message = "this server shares no system directories of its host";
        return Err(Problem::new(Code::Forbidden, message).remedied_by("omit `privateBase`"));
    }
    Ok(())
}

fn refused(path: &Path) -> Problem {
    let message = format!("the path {} of the host is not allowed here", path.display());
    Problem::new(Code::PathRefused, message)
}

/// Where a path leads to, if that lies in one of these directories, whatever its text says.
pub fn allowed(path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let real = path.canonicalize().ok().filter(|_| path.is_absolute())?;
    let directories = directories.iter().filter_map(|directory| directory.canonicalize().ok());
    directories.into_iter().any(|directory| real.starts_with(directory)).then_some(real)
}

#[cfg(test)]
mod tests {
    use stockade_core::OwnerId;
    use stockade_core::sandbox::{HostMount, Workspace};

    use super::*;

    #[test]
    fn an_api_key_names_only_paths_of_the_setting() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for directory in ["shared/below", "other"] {
            std::fs::create_dir_all(path(directory)).unwrap();
        }
        std::os::unix::fs::symlink(path("other"), path("shared/link")).unwrap();
        std::os::unix::fs::symlink(path("shared/below"), path("inner")).unwrap();
        let options = Options { host_paths: vec![path("shared")], ..Options::default() };
        let local = Caller::new(OwnerId::new("o").unwrap());
        let remote = local.clone().over_network();
        let requests = |name: &str| {
            let (host, inside) = (path(name), PathBuf::from("/m"));
            let mount = HostMount { host: host.clone(), inside: inside.clone(), writable: false };
            let workspace = Some(Workspace { host, inside });
            [
                CreateSandbox { mounts: vec![mount], ..CreateSandbox::default() },
                CreateSandbox { workspace, ..CreateSandbox::default() },
            ]
        };
        for (name, is_good) in [
            ("shared", true),
            ("shared/below", true),
            ("shared/below/..", true),
            ("inner", true),
            ("other", false),
            ("shared/link", false),
            ("shared/../other", false),
            ("missing", false),
            ("", false),
        ] {
            for request in requests(name) {
                let mut own = request.clone();
                assert!(check(&local, &mut own, &options).is_ok(), "{name}");
                assert_eq!(own, request);
                let mut theirs = request.clone();
                assert_eq!(check(&remote, &mut theirs, &options).is_ok(), is_good, "{name}");
                assert!(!is_good || theirs.exact_paths, "{name}");
                let none = check(&remote, &mut request.clone(), &Options::default());
                assert_eq!(none.unwrap_err().code, Code::PathRefused, "{name}");
            }
        }
        let image = |image: &str| {
            let image = Some(image.to_owned());
            check(&remote, &mut CreateSandbox { image, ..CreateSandbox::default() }, &options)
        };
        assert!(image("debian:12").is_ok());
        assert!(image(path("shared").to_str().unwrap()).is_err());
    }

    #[test]
    fn an_api_key_cannot_give_up_the_private_base_of_the_server() {
        let remote = Caller::new(OwnerId::new("o").unwrap()).over_network();
        let mut without = CreateSandbox { private_base: Some(false), ..CreateSandbox::default() };
        let exposed = Options::default().for_exposed_server();
        assert!(check(&remote, &mut without.clone(), &exposed).is_err());
        assert!(check(&remote, &mut without, &Options::default()).is_ok());
        assert!(check(&remote, &mut CreateSandbox::default(), &exposed).is_ok());
    }
}
