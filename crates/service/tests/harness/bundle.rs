//! A waiting bundle, as a one-shot run would leave it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use stockade_bundle::baseline::Baseline;
use stockade_bundle::beneath::Timestamp;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ViewKind;
use stockade_bundle::project::Project;
use stockade_bundle::view::View;
use stockade_review as review;

/// Makes a bundle in a data directory: new files for a project, each with its name as its content.
/// Returns its id.
pub(crate) fn bundle(data: &Path, project: &Path, files: &[&str]) -> String {
    let home = DataDir::open(data).unwrap();
    let project = Project::open(project, None).unwrap();
    let now = jiff::Timestamp::now();
    let started = Timestamp { seconds: now.as_second(), nanoseconds: 0 };
    let command = ["make".to_owned()];
    let view = View::create(&home, &project, ViewKind::Copy, None, &command, started).unwrap();
    let copy_path = data.join("views").join(view.id()).join("copy");
    for name in files {
        std::fs::write(copy_path.join(name), format!("{name}\n")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(copy_path.join(name), mode).unwrap();
    }
    let limits = review::limits(None, None);
    let new_bundle = review::bundle_view(
        &home,
        &project,
        &view,
        0,
        &limits,
        (&Baseline::default(), &mut |_| None),
        &mut Vec::new(),
    )
    .unwrap();
    view.remove().unwrap();
    new_bundle.unwrap().id().to_owned()
}
