//! Temporary.
#![expect(unsafe_code, reason = "tmp")]
use std::ffi::CString;
use std::path::{Path, PathBuf};
use stockade_jail::*;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let identity = Identity::of_caller().unwrap();
    let range = identity.range().is_some();
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        _ => (0, 0),
    };
    let project = std::env::current_dir().unwrap();
    let view = PathBuf::from(std::env::var("VIEW").unwrap());
    for n in ["upper", "work"] {
        std::fs::create_dir_all(view.join(n)).unwrap();
        if let Some(r) = identity.range() {
            std::os::unix::fs::chown(view.join(n), Some(r.start), Some(r.start)).unwrap();
        }
    }
    let _ = range;
    let account = system::Account { name: "user".into(), user, group, home: "/home/user".into() };
    let mut mounts = system::programs().unwrap();
    mounts.extend(system::configuration(&account, "stockade").unwrap());
    mounts.push((
        "/tmp".into(),
        Mount::Scratch(Scratch { mode: 0o1777, size_bytes: 1 << 30, user, group }),
    ));
    mounts.push((
        "/home/user".into(),
        Mount::Scratch(Scratch { mode: 0o700, size_bytes: 1 << 30, user, group }),
    ));
    mounts.push((
        project.clone(),
        Mount::Tree(Source::Overlay(Overlay {
            lower: HostTree::open(&project).unwrap(),
            view: Some(HostTree::open(&view).unwrap()),
            size_bytes: 0,
        })),
    ));
    let spec = JailSpec {
        identity,
        root: Source::Empty,
        mounts,
        hostname: "stockade".into(),
        command: Command {
            payload: Payload::Program(
                args.iter().map(|a| CString::new(a.as_str()).unwrap()).collect(),
            ),
            environment: vec![c"PATH=/usr/bin:/bin".into(), c"HOME=/home/user".into()],
            working_directory: CString::new(project.to_str().unwrap()).unwrap(),
            user,
            group,
            not_before: None,
        },
        streams: Streams::Pipes,
        rlimits: Default::default(),
        landlock_optional: false,
    };
    let jail = launch(spec).unwrap();
    let dup = |fd: i32| {
        use std::os::fd::BorrowedFd;
        unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().unwrap()
    };
    let out = supervise(
        jail,
        Supervision {
            input: Some(dup(0)),
            output: Sink::Descriptor(dup(1)),
            error: Sink::Descriptor(dup(2)),
            timeout: None,
            output_limit_bytes: None,
            grace: std::time::Duration::from_secs(5),
            terminal: None,
            watches: vec![],
        },
    )
    .unwrap();
    eprintln!("{:?}", out.ending);
    let _ = Path::new("/");
}
