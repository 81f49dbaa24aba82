//! Directories of the project are renamed as on the host, whoever mounted the overlay: for root the
//! kernel does it, for an ordinary user Stockade. Both have the same results, in a run and in a held
//! sandbox.

mod held;

use std::fs;

use crate::call::Outcome;
use crate::harness::{Identity, World};

/// The held sandbox.
const ID: &str = "renames";

/// Names with an errno instead of an exception.
const PRELUDE: &str = "
import ctypes, errno, os, sys, threading
def result(call, *arguments, **options):
    try:
        call(*arguments, **options)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]
";

/// Where a program renames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Run,
    Held,
}

const PLACES: [Place; 2] = [Place::Run, Place::Held];

impl Place {
    /// Runs a script with these limits and discards what it has changed.
    fn python(self, world: &World, limits: &[&str], script: &str) -> Outcome {
        let script = format!("{PRELUDE}{script}");
        let outcome = match self {
            Self::Run => world.run(&[&["--discard"], limits].concat(), &["python3", "-c", &script]),
            Self::Held => {
                create(world, limits);
                let outcome = exec(world, &["python3", "-c", &script]);
                world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
                outcome
            }
        };
        outcome.succeeds();
        outcome
    }

    /// Runs a script, and returns the bundle of what it has changed too.
    fn changing(self, world: &World, script: &str) -> (Outcome, String) {
        let script = format!("{PRELUDE}{script}");
        let (outcome, bundle) = match self {
            Self::Run => (world.run(&[], &["python3", "-c", &script]), "latest".to_owned()),
            Self::Held => {
                create(world, &[]);
                let outcome = exec(world, &["python3", "-c", &script]);
                let collected = world.stockade(&["collect", ID]).finish();
                world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
                (outcome, collected.stdout.trim().to_owned())
            }
        };
        outcome.succeeds();
        (outcome, bundle)
    }
}

/// Creates the sandbox that holds the project.
fn create(world: &World, limits: &[&str]) {
    let project = world.project.to_str().unwrap();
    let words = [&["create", "--id", ID, "--workspace", project], limits].concat();
    world.stockade(&words).finish().succeeds();
}

/// Executes a command in it, in the project.
fn exec(world: &World, command: &[&str]) -> Outcome {
    world.stockade(&[&["exec", ID, "--"], command].concat()).finish()
}

/// Every way to name a directory, and every way in which it can fail.
fn every_form_of_the_call(world: &World) {
    for name in ["a/x/deep", "b/y", "c", "d", "e", "full", "f", "g", "h/i"] {
        world.write(&format!("{name}/file"), name);
    }
    let script = "
here = os.getcwd()
print(result(os.rename, 'a', 'a2'), open('a2/x/deep/file').read(), os.path.lexists('a'))
print(result(os.rename, here + '/b/', here + '/b2/'), os.listdir('b2'), os.listdir('b2/y'))
os.chdir('a2'); print(result(os.rename, '../c', '../a2/c')); os.chdir(here)
print(os.listdir('a2/c'))
top = os.open('.', os.O_RDONLY)
inner = os.open('a2', os.O_PATH)
print(result(os.rename, 'd', 'd2', src_dir_fd=top, dst_dir_fd=inner), os.listdir('a2/d2'))
os.mkdir('empty')
print(result(os.rename, 'e', 'empty'), os.listdir('empty'))
print(result(os.rename, 'f', 'full'), os.listdir('f'), os.listdir('full'))
print(result(os.rename, 'f', 'f/inside'), result(os.rename, 'f', 'a.txt'), result(os.rename, 'f', 'no/where'))
print(result(os.rename, 'missing', 'm'), result(os.rename, 'f', ''), result(os.rename, 'f', '/proc/f'))
libc = ctypes.CDLL(None, use_errno=True)
def renameat2(old, new, flags):
    if libc.renameat2(-100, old, -100, new, flags) < 0: raise OSError(ctypes.get_errno(), '')
print(result(renameat2, b'f', b'full', 1), result(renameat2, b'f', b'f2', 1), os.listdir('f2'))
print(libc.rename(ctypes.c_void_p(1), b'x'), errno.errorcode[ctypes.get_errno()])
thread = threading.Thread(target=lambda: print(result(os.rename, 'g', 'g' * 255)))
thread.start(); thread.join()
print(result(os.rename, 'h', 'h' * 256), os.listdir('h/i'))
os.symlink('h', 'link'); print(result(os.rename, 'link', 'link2'), os.readlink('link2'), os.listdir('h'))
print(result(os.rename, 'h', '/tmp/h'), os.listdir('h'))
";
    let long = "done deep False done ['y'] ['file'] done ['file'] done ['file'] done ['file'] \
                ENOTEMPTY ['file'] ['file'] EINVAL ENOTDIR ENOENT ENOENT ENOENT EXDEV \
                EEXIST done ['file'] -1 EFAULT done ENAMETOOLONG ['file'] done h ['i'] EXDEV ['i']";
    for place in PLACES {
        let outcome = place.python(world, &[], script);
        let words = outcome.stdout.replace("a/x/deep", "deep");
        let words: Vec<_> = words.split_whitespace().collect();
        let long: Vec<_> = long.split_whitespace().collect();
        assert_eq!(words.join(" "), long.join(" "), "{place:?}: {outcome}");
        assert!(!outcome.stderr.contains("--view copy"), "{outcome}");
    }
}

/// What a directory and its content have stays with them, and the bundle has it as git shows it.
fn nothing_of_it_changes(world: &World) {
    let script = "
for name in ['src/tool', 'src/tool/run.sh']:
    os.utime(name, ns=(10**18, 10**18 + 7))
    os.setxattr(name, 'user.note', b'kept')
os.symlink('../main.rs', 'src/tool/link'); os.mkdir('src/tool/closed', 0o500); os.mkfifo('src/tool/pipe')
os.chmod('src/tool/run.sh', 0o751); os.chmod('src/tool', 0o750); os.chmod('src', 0o2775)
before = {p: (os.lstat(p).st_mode, os.lstat(p).st_mtime_ns) for p in ['src/tool', 'src/tool/run.sh', 'src/tool/closed']}
os.utime('src', ns=(5, 5))
os.rename('src', 'lib')
for old, (mode, time) in before.items():
    new = os.lstat(old.replace('src', 'lib'))
    print(new.st_mode == mode, new.st_mtime_ns == time)
print(oct(os.stat('lib').st_mode), os.stat('lib').st_mtime_ns, os.readlink('lib/tool/link'))
print(os.getxattr('lib/tool', 'user.note'), os.getxattr('lib/tool/run.sh', 'user.note'))
os.remove('lib/tool/pipe'); os.rmdir('lib/tool/closed')
os.rename('lib', 'src'); os.rename('src', 'last')
";
    let kept = "True True\nTrue True\nTrue True\n0o42775 5 ../main.rs\nb'kept' b'kept'\n";
    for place in PLACES {
        world.write("src/tool/run.sh", "#!/bin/sh\n");
        world.write("src/tool/empty", "");
        let (outcome, bundle) = place.changing(world, script);
        assert_eq!(outcome.stdout, kept, "{place:?}: {outcome}");
        let stat = world.stockade(&["diff", &bundle]).finish();
        assert!(stat.stdout.contains("rename to last/main.rs"), "{place:?}: {stat}");
        world.stockade(&["apply", &bundle]).finish().succeeds();
        assert!(world.has("last/deep/er/file.txt") && !world.has("src"));
        fs::rename(world.project.join("last"), world.project.join("src")).unwrap();
        fs::remove_dir_all(world.project.join("src/tool")).unwrap();
    }
}

/// Many processes at once, with names that others change while they are read.
fn many_at_once(world: &World) {
    for number in 0..60 {
        world.write(&format!("many/{number}/in/file"), number.to_string());
    }
    let script = "
for number in range(60):
    if os.fork() == 0:
        os._exit(0 if result(os.rename, f'many/{number}', f'moved{number}') == 'done' else 1)
codes = {os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(60)}
print(codes, sorted(int(open(f'moved{number}/in/file').read()) for number in range(60)) == list(range(60)), os.listdir('many'))
# Two names in turn in the same memory.
buffer = ctypes.create_string_buffer(b'a.txt\\0', 64)
libc = ctypes.CDLL(None)
def flip():
    while not over:
        buffer.raw = b'src\\0'.ljust(64, b'\\0'); buffer.raw = b'a.txt\\0'.ljust(64, b'\\0')
over = False
thread = threading.Thread(target=flip); thread.start()
for _ in range(200):
    if libc.rename(buffer, b'other') == 0:
        os.rename('other', 'src' if os.path.isdir('other') else 'a.txt')
over = True; thread.join()
print(os.path.isfile('a.txt'), os.path.isfile('src/deep/er/file.txt'), os.path.lexists('other'))
";
    for place in PLACES {
        let outcome = place.python(world, &[], script);
        assert_eq!(outcome.stdout, "{0} True []\nTrue True False\n", "{place:?}: {outcome}");
    }
}

/// A process that has given up rights by Landlock gets nothing renamed that it may not rename.
fn a_process_with_fewer_rights_gets_no_help(world: &World) {
    world.write("open/inside/file", "1");
    world.write("closed/inside/file", "2");
    let script = "
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
version = libc.syscall(444, None, 0, 1)
handled = (1 << 14) - 1 if version > 1 else (1 << 13) - 1
attribute = ctypes.c_uint64(handled)
rules = libc.syscall(444, ctypes.byref(attribute), 8, 0)
class Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [('access', ctypes.c_uint64), ('parent', ctypes.c_int32)]
for path, access in [('open', handled), ('/', 0b1101)]:
    beneath = Beneath(access, os.open(path, os.O_PATH))
    assert libc.syscall(445, rules, 1, ctypes.byref(beneath), 0) == 0
if os.fork() == 0:
    assert libc.syscall(446, rules, 0) == 0
    print(result(os.rename, 'closed', 'open/closed') != 'done', result(os.rename, 'closed', 'away') != 'done')
    print(result(open, 'closed/new', 'w'), flush=True)
    os._exit(0)
os.wait()
print(os.listdir('closed'), os.listdir('open'))
";
    for place in PLACES {
        let outcome = place.python(world, &[], script);
        let expected = "True True\nEACCES\n['inside'] ['inside']\n";
        assert_eq!(outcome.stdout, expected, "{place:?}: {outcome}");
    }
}

/// There is no room for the content: the directory is where it was, with all that it had.
fn without_room_nothing_has_moved(world: &World) {
    if world.identity == Identity::Root {
        return;
    }
    for name in ["big/1", "big/in/2", "big/in/3"] {
        world.write(name, vec![b'x'; 700 * 1024]);
    }
    let script = "
before = {p: [d, sorted(f)] for p, d, f in os.walk('big')}
time = os.stat('big').st_mtime_ns
print(result(os.rename, 'big', 'huge'), {p: [d, sorted(f)] for p, d, f in os.walk('big')} == before)
print(os.path.lexists('huge'), os.stat('big').st_mtime_ns == time, {len(open(f'big/{n}').read()) for n in ['1', 'in/2', 'in/3']})
";
    let outcome = Place::Run.python(world, &["--disk", "1500K"], script);
    assert_eq!(outcome.stdout, "ENOSPC True\nFalse True {716800}\n", "{outcome}");
}

/// A rename that is under way when its process is killed, or when the run ends, loses nothing.
fn a_killed_rename_loses_nothing(world: &World) {
    for number in 0..300 {
        world.write(&format!("wide/{number}/file"), number.to_string());
    }
    let script = "
import signal, time
child = os.fork()
if child == 0:
    os.rename('wide', 'moved'); os._exit(0)
time.sleep(0.01); os.kill(child, signal.SIGKILL); os.wait()
deadline = time.monotonic() + 20
count = lambda: sum(len(f) for top in ['wide', 'moved'] for _, _, f in os.walk(top))
while os.path.lexists('wide') and os.path.lexists('moved') and time.monotonic() < deadline: time.sleep(0.01)
print(count())
";
    for place in PLACES {
        let (outcome, bundle) = place.changing(world, script);
        assert_eq!(outcome.stdout, "300\n", "{place:?}: {outcome}");
        world.stockade(&["apply", &bundle]).finish();
        let all = |top: &str| fs::read_dir(world.project.join(top)).map_or(0, Iterator::count);
        assert_eq!(all("wide") + all("moved"), 300, "{place:?}");
    }
}

as_root_and_as_user! {
    every_form_of_the_call,
    nothing_of_it_changes,
    many_at_once,
    a_process_with_fewer_rights_gets_no_help,
    without_room_nothing_has_moved,
    a_killed_rename_loses_nothing,
}
