//! Git in a jail, which reads hostile object files and prints the objects. It sees the programs of
//! the host, these files, and the objects of the project, all of them read-only; no network, no
//! configuration, and no other file of the repository.

use std::ffi::CString;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use stockade_bundle::beneath::Stat;
use stockade_bundle::commits::{MAX_BYTES, MAX_COMMITS, ObjectId};
use stockade_core::printable::escaped_lines;
use stockade_core::{Code, Problem};
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::system::{self, Account};
use stockade_jail::{
    self as jail, Access, Command, Ending, HostTree, Identity, JailSpec, Mount, Network, Owners,
    Payload, Scratch, Signals, Sink, Source, Streams, Supervision, Task,
};
use stockade_plan::environment::PATH;
use stockade_review::StoredCommits;

use crate::problem::caused;

/// How long git may take.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How much of git's messages is kept.
const MESSAGE_BYTES: usize = 16 << 10;
/// The most processes.
const PROCESSES: u64 = 64;
/// The size of the file system in which git works.
const SCRATCH_BYTES: u64 = 1 << 30;
/// The largest old content that is printed for a diff.
const OLD_CONTENT_BYTES: u64 = 1 << 20;
/// The exit code if there is no git.
const NO_GIT: u8 = 90;

/// Makes a repository `all` of all objects, and `strict` of those of the project.
const PRELUDE: &str = r#"
set -e
command -v git > /dev/null || exit 90
cd /tmp
git init -q --bare --object-format="$FORMAT" all 2> /dev/null || git init -q --bare all
git init -q --bare --object-format="$FORMAT" strict 2> /dev/null || git init -q --bare strict
for n in $BASES; do echo "/base/$n"; done > strict/objects/info/alternates
{ echo /in; cat strict/objects/info/alternates; } > all/objects/info/alternates
cd all
"#;

/// Prints every new object, and the trees that differences need. A pack of the new objects must pass
/// `index-pack --strict` first. Git compares no trees here: a small tree may have any number of
/// paths.
const NEW: &str = r#"
if [ -n "$BASE" ]; then not="^$BASE"; else not=; fi
git rev-list --max-count="$COUNT" "$TIP" $not > ../new
git rev-list --boundary "$TIP" $not | sed -n 's/^-//p' > ../old
if [ -n "$BASE" ]; then echo "$BASE" >> ../old; fi
printf '%s\n' "$TIP" $not | git pack-objects -q --revs --stdout > ../new.pack
git -C ../strict index-pack --strict --stdin < ../new.pack > /dev/null
rm ../new.pack
{
  git rev-list --objects "$TIP" $not
  cat ../new ../old
  cat ../new ../old | git rev-list --objects --no-walk --filter=blob:none --stdin
  while read -r commit; do
    if [ "$commit" != "$BASE" ]; then git rev-list --ancestry-path "$commit..$BASE"; fi
  done < ../old
} | cut -d' ' -f1 | sort -u | git cat-file --batch --buffer
"#;

/// Prints the named objects, except for large ones.
const OLD: &str = r#"
git cat-file --batch-check='%(objectname) %(objecttype) %(objectsize)' |
  while read -r name kind size; do
    if [ "$kind" = blob ] && [ "$size" -le "$OLD" ]; then echo "$name"; fi
  done | git cat-file --batch --buffer
"#;

/// The new objects, as git prints them in the jail, with what belongs to them.
pub(super) fn print_new(stored: &StoredCommits) -> Result<File, Problem> {
    print(stored, NEW, None)
}

/// These objects, except for large ones.
pub(super) fn print_old(stored: &StoredCommits, ids: &[ObjectId]) -> Result<File, Problem> {
    let io = |error: &dyn std::error::Error| caused(Code::Io, error);
    let list = rustix::fs::memfd_create("wanted", MemfdFlags::CLOEXEC).map_err(|e| io(&e))?;
    let mut list = File::from(list);
    let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
    list.write_all(text.as_bytes()).and_then(|()| list.rewind()).map_err(|e| io(&e))?;
    print(stored, OLD, Some(list.into()))
}

fn print(stored: &StoredCommits, script: &str, input: Option<OwnedFd>) -> Result<File, Problem> {
    let io = |error: &dyn std::error::Error| caused(Code::Io, error);
    let output = rustix::fs::memfd_create("objects", MemfdFlags::CLOEXEC).map_err(|e| io(&e))?;
    let signals = Signals::block().map_err(|e| caused(Code::LaunchFailed, &e))?;
    let spec = spec(stored, script)?;
    let jail = jail::launch(spec).map_err(|error| launch_problem(&error))?;
    let supervision = Supervision {
        input,
        output: Sink::Descriptor(output.as_fd().try_clone_to_owned().map_err(|e| io(&e))?),
        error: Sink::Capture(MESSAGE_BYTES),
        timeout: Some(TIMEOUT),
        output_limit_bytes: Some(2 * MAX_BYTES),
        grace: Duration::ZERO,
        terminal: None,
        watches: Vec::new(),
        after_input: None,
        first_request: None,
    };
    let outcome = jail::supervise(jail, supervision, signals).map_err(|e| launch_problem(&e))?;
    let invalid = |cause: String| {
        Problem::new(Code::BundleInvalid, "git cannot read the commits of the command")
            .because(cause)
    };
    match outcome.ending {
        Ending::Exited(0) => {
            let mut file = File::from(output);
            file.rewind().map_err(|e| io(&e))?;
            Ok(file)
        }
        Ending::Exited(NO_GIT) => Err(Problem::new(Code::Unsupported, "there is no git in /usr")
            .because("commits are read by git in a sandbox")
            .remedied_by("install git")),
        Ending::Exited(_) => {
            let text = String::from_utf8_lossy(&outcome.error.bytes);
            Err(invalid(escaped_lines(text.trim_end()).into_owned()))
        }
        other => Err(invalid(format!("it ended as {other:?}"))),
    }
}

fn launch_problem(error: &jail::Error) -> Problem {
    match error {
        jail::Error::Wall { wall, step, source } => crate::run::wall_problem(*wall, step, source),
        _ => caused(Code::LaunchFailed, error),
    }
}

fn spec(stored: &StoredCommits, script: &str) -> Result<JailSpec, Problem> {
    let io = |error: std::io::Error| caused(Code::Io, &error);
    let identity = crate::run::identity()?;
    let bases = stored.project.object_directories();
    // The objects may be readable by their owner alone.
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        Identity::Range(range) => match bases.first().and_then(|path| Stat::of_host(path).ok()) {
            Some(stat) if stat.uid < range.count - 1 && stat.gid < range.count - 1 => {
                (stat.uid, stat.gid)
            }
            _ => (0, 0),
        },
    };
    let account = Account { name: "git".to_owned(), user, group, home: "/tmp".into() };
    let mut mounts = system::programs().map_err(io)?;
    mounts.extend(system::identity_files(&account, "git"));
    let scratch = Scratch { mode: 0o700, size_bytes: SCRATCH_BYTES, user, group };
    mounts.push(("/tmp".into(), Mount::Scratch(scratch)));
    let file = stored.harvest.objects.as_fd().try_clone_to_owned().map_err(io)?;
    mounts.push(tree("/in".into(), HostTree { path: stored.path.clone(), file }, Owners::Range));
    for (number, path) in bases.iter().enumerate() {
        let host = HostTree::open(path).map_err(io)?;
        mounts.push(tree(format!("/base/{number}").into(), host, Owners::OnDisk));
    }
    let numbers: Vec<_> = (0..bases.len()).map(|number| number.to_string()).collect();
    let tip = &stored.harvest.tip;
    let base = stored.base.as_ref().map(ToString::to_string).unwrap_or_default();
    let variables = [
        ("PATH", PATH.to_owned()),
        ("HOME", "/tmp".to_owned()),
        ("LC_ALL", "C".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_CONFIG_SYSTEM", "/dev/null".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_ATTR_NOSYSTEM", "1".to_owned()),
        ("GIT_NO_REPLACE_OBJECTS", "1".to_owned()),
        ("GIT_NO_LAZY_FETCH", "1".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ("GIT_TEMPLATE_DIR", "/nonexistent".to_owned()),
        ("BASES", numbers.join(" ")),
        ("FORMAT", tip.format().as_str().to_owned()),
        ("TIP", tip.to_string()),
        ("BASE", base),
        ("COUNT", (MAX_COMMITS + 1).to_string()),
        ("OLD", OLD_CONTENT_BYTES.to_string()),
    ];
    let text = |text: String| {
        CString::new(text).map_err(|_| Problem::new(Code::Io, "a variable contains a NUL byte"))
    };
    let environment = variables.into_iter().map(|(name, value)| text(format!("{name}={value}")));
    let script = format!("{PRELUDE}{script}");
    let words = ["sh", "-c", &script].map(|word| text(word.to_owned()));
    let command = Command {
        payload: Payload::Program(words.into_iter().collect::<Result<_, _>>()?),
        environment: environment.collect::<Result<_, _>>()?,
        working_directory: CString::from(c"/"),
        user,
        group,
        groups: Vec::new(),
        umask: 0o077,
        processors: None,
        not_before: None,
    };
    Ok(JailSpec {
        identity,
        root: Source::Empty,
        root_writable: false,
        root_is_own: true,
        mounts,
        hostname: "git".to_owned(),
        network: Network::Off,
        task: Task::Once { command, streams: Streams::Pipes },
        rlimits: ResourceLimits { processes: Some(PROCESSES), ..ResourceLimits::default() },
        cgroup: None,
        locks: Vec::<OwnedFd>::new(),
        access_mounts: None,
        landlock_optional: false,
        reports_refused_calls: false,
    })
}

fn tree(inside: PathBuf, tree: HostTree, owners: Owners) -> (PathBuf, Mount) {
    (inside, Mount::Tree(Source::Host { tree, access: Access::Read, owners }))
}
