//! Renames in a held sandbox, whose init receives the calls: the keeper may be killed, the sandbox paused, and
//! processes inside hostile, and the others are served as before.

use std::thread;
use std::time::{Duration, Instant};

use super::{ID, PRELUDE, create, exec};
use crate::call::Outcome;
use crate::daemons::{keepers, wait_until};
use crate::harness::{Identity, World};

fn python(world: &World, script: &str) -> Outcome {
    exec(world, &["python3", "-c", &format!("{PRELUDE}{script}")])
}

/// Starts a script that runs in the background, and returns its address.
fn start(world: &World, script: &str) -> String {
    let script = format!("{PRELUDE}{script}");
    let words = ["exec", "--detach", ID, "--", "python3", "-c", &script];
    let started = world.stockade(&words).finish();
    started.succeeds();
    started.stdout.trim().to_owned()
}

fn discard(world: &World) {
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

/// Tools that rename, in a project whose directories are in the lower layer.
fn tools_rename(world: &World) {
    world.write("node_modules/.tool-x1/lib/index.js", "1");
    create(world, &[]);
    let script = "git mv src lib && git status --short | grep '^R  src/main.rs -> lib/main.rs' \
        && mv node_modules/.tool-x1 node_modules/tool && cat node_modules/tool/lib/index.js && ls lib";
    let outcome = exec(world, &["sh", "-c", script]);
    outcome.succeeds();
    assert!(outcome.stdout.contains("lib/main.rs\n1"), "{outcome}");
    discard(world);
}

/// While the keeper is dead, and after it, renames and refused calls work; the next keeper names the calls.
fn the_keeper_may_be_killed(world: &World) {
    for number in 0..60 {
        world.write(&format!("many/{number}/in/file"), "");
    }
    create(world, &[]);
    let script = "
import time
libc = ctypes.CDLL(None, use_errno=True)
found = set()
for number in range(60):
    found.add(result(os.rename, f'many/{number}', f'moved{number}'))
    libc.syscall(250, 0, -3, 0, 0, 0); found.add(errno.errorcode[ctypes.get_errno()])
    time.sleep(0.02)
with open('/tmp/found', 'w') as file: print(sorted(found), len(os.listdir('many')), file=file)
os.rename('/tmp/found', '/tmp/over')
sys.exit(3)
";
    let command = start(world, script);
    wait_until("it has begun", || exec(world, &["test", "-d", "moved3"]).code() == 0);
    let killed = keepers(&world.data());
    assert!(!killed.is_empty());
    for keeper in &killed {
        rustix::process::kill_process(*keeper, rustix::process::Signal::KILL).unwrap();
    }
    let over = || exec(world, &["cat", "/tmp/over"]);
    wait_until("it is over", || over().code() == 0);
    let outcome = over();
    match world.identity {
        // The kernel renames for root, and the keeper hears of refused calls as long as it lives.
        Identity::Root => assert_eq!(outcome.stdout, "['ENOSYS', 'EPERM', 'done'] 0\n"),
        Identity::User => assert_eq!(outcome.stdout, "['EPERM', 'done'] 0\n", "{outcome}"),
    }
    let ended = world.stockade(&["attach", &command]).finish();
    ended.ends_with(3);
    assert_eq!(ended.stderr.contains("keyctl"), world.identity == Identity::User, "{ended}");
    discard(world);
}

/// A sandbox is paused, and a snapshot made, while directories are renamed all the time: it takes no
/// timeout, and nothing is lost.
fn pauses_wait_for_renames(world: &World) {
    for number in 0..200 {
        world.write(&format!("wide/{number}/file"), "");
    }
    create(world, &[]);
    let script = "
while not os.path.exists('/tmp/stop'):
    os.rename('wide', 'moved'); os.rename('moved', 'wide')
count = lambda: sum(len(f) for top in ['wide', 'moved'] for _, _, f in os.walk(top))
print(count())
";
    let command = start(world, script);
    let began = Instant::now();
    for _ in 0..3 {
        world.stockade(&["pause", ID]).finish().succeeds();
        world.stockade(&["resume", ID]).finish().succeeds();
        thread::sleep(Duration::from_millis(30));
    }
    world.stockade(&["snapshot", ID, "--as", "wide"]).finish().succeeds();
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    exec(world, &["touch", "/tmp/stop"]).succeeds();
    let ended = world.stockade(&["attach", &command]).finish();
    ended.succeeds();
    assert_eq!(ended.stdout, "200\n", "{ended}");
    discard(world);
    // The snapshot has every file at one of both places.
    world.stockade(&["restore", "wide", "--id", ID]).finish().succeeds();
    let count = exec(
        world,
        &["sh", "-c", "find . -path './wide/*' -name file -o -path './moved/*' -name file | wc -l"],
    );
    assert_eq!(count.stdout.trim(), "200", "{count}");
    discard(world);
}

/// Floods of refused calls and of renames, with threads that die while they wait: other commands start, end
/// and rename as before.
fn floods_stop_no_other_command(world: &World) {
    world.write("wanted/file", "");
    create(world, &[]);
    let script = "
import signal, time
libc = ctypes.CDLL(None, use_errno=True)
def refused():
    while True: libc.syscall(250, 0, -3, 0, 0, 0)
def files():
    name = f'/tmp/{os.getpid()}'
    open(name, 'w').close()
    while True: os.rename(name, name + 'x'); os.rename(name + 'x', name)
def directories():
    name = f'{os.getpid()}'
    os.mkdir(name)
    while True: os.rename(name, name + 'x'); os.rename(name + 'x', name)
def invalid():
    while True: libc.rename(ctypes.c_void_p(1), ctypes.c_void_p(2))
def dying():
    while True:
        child = os.fork()
        if child == 0:
            for _ in range(99): libc.rename(b'src', b'src2'); libc.rename(b'src2', b'src')
            os._exit(0)
        time.sleep(0.002); os.kill(child, signal.SIGKILL); os.wait()
for work in [refused, files, directories, invalid, dying] * 4:
    if os.fork() == 0: work()
open('/tmp/begun', 'w').close()
time.sleep(1000)
";
    let command = start(world, script);
    wait_until("it has begun", || exec(world, &["test", "-e", "/tmp/begun"]).code() == 0);
    for _ in 0..3 {
        exec(world, &["true"]).succeeds();
    }
    let renamed = python(world, "print(result(os.rename, 'wanted', 'had'), os.listdir('had'))");
    assert_eq!(renamed.stdout, "done ['file']\n", "{renamed}");
    world.stockade(&["kill", &command]).finish().succeeds();
    exec(world, &["true"]).succeeds();
    discard(world);
}

/// Processes that make it difficult to read what they rename: no process waits longer than they do, and nothing else
/// is renamed than what they could rename.
fn processes_that_hide(world: &World) {
    for name in ["hidden", "traced", "stopped", "mapped"] {
        world.write(&format!("{name}/file"), name);
    }
    create(world, &[]);
    let script = "
import mmap, signal, time
libc = ctypes.CDLL(None, use_errno=True)
# Whose memory may not be read: files are renamed, directories as the kernel does.
if os.fork() == 0:
    libc.prctl(4, 0, 0, 0, 0)
    open('plain', 'w').close()
    print(result(os.rename, 'plain', 'plain2'), result(os.rename, 'hidden', 'h2') in ['EXDEV', 'done'], flush=True)
    os._exit(0)
os.wait()
# One that is traced.
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    print(result(os.rename, 'traced', 't2'), flush=True)
    os._exit(0)
os.waitpid(child, 0); libc.ptrace(7, child, 0, 0); os.waitpid(child, 0)
# One that is stopped and continued all the time.
child = os.fork()
if child == 0:
    for _ in range(20): os.rename('stopped', 's2'); os.rename('s2', 'stopped')
    print(os.listdir('stopped'), flush=True)
    os._exit(0)
while os.waitpid(child, os.WNOHANG) == (0, 0):
    os.kill(child, signal.SIGSTOP); os.kill(child, signal.SIGCONT)
# A path at the end of a mapping, one without an end, and one in a file that gets shorter.
page = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc.mprotect(ctypes.c_void_p(address + 4096), 4096, 0)
page[4096 - 7:4096] = b'mapped\\0'
print(libc.rename(ctypes.c_void_p(address + 4096 - 7), b'm2'), os.listdir('m2'))
page[4096 - 7:4096] = b'mapped2'
print(libc.rename(ctypes.c_void_p(address + 4096 - 7), b'm3'), errno.errorcode[ctypes.get_errno()])
file = open('/tmp/short', 'w+b'); file.truncate(4096)
short = mmap.mmap(file.fileno(), 4096); short[:3] = b'm2\\0'
at = ctypes.addressof(ctypes.c_char.from_buffer(short))
file.truncate(0)
print(libc.rename(ctypes.c_void_p(at), b'm3'), errno.errorcode[ctypes.get_errno()], os.listdir('m2'))
";
    let outcome = python(world, script);
    outcome.succeeds();
    let expected = "done True\ndone\n['file']\n0 ['file']\n-1 EFAULT\n-1 EFAULT ['file']\n";
    assert_eq!(outcome.stdout, expected, "{outcome}");
    discard(world);
}

/// A process that has restricted itself by Landlock ends the help for its command, and for no other one.
fn landlock_counts_for_its_command(world: &World) {
    world.write("first/file", "");
    world.write("second/file", "");
    create(world, &[]);
    let script = "
import time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
# It handles device files only, so it gives up no right that a rename needs.
attribute = ctypes.c_uint64(1 << 11)
rules = libc.syscall(444, ctypes.byref(attribute), 8, 0)
if os.fork() == 0:
    assert libc.syscall(446, rules, 0) == 0
    os._exit(0)
os.wait()
with open('/tmp/found', 'w') as file: print(result(os.rename, 'first', 'one'), file=file)
os.rename('/tmp/found', '/tmp/over')
time.sleep(1000)
";
    let command = start(world, script);
    wait_until("it has renamed", || exec(world, &["test", "-e", "/tmp/over"]).code() == 0);
    let expected = match world.identity {
        Identity::Root => "done\n",
        Identity::User => "EXDEV\n",
    };
    assert_eq!(exec(world, &["cat", "/tmp/over"]).stdout, expected);
    let other = python(world, "print(result(os.rename, 'second', 'two'))");
    assert_eq!(other.stdout, "done\n", "{other}");
    world.stockade(&["kill", &command]).finish().succeeds();
    discard(world);
}

/// Who has the listener could allow refused calls: neither init nor its children give it away.
fn the_listener_stays_with_init(world: &World) {
    for number in 0..100 {
        world.write(&format!("wide/{number}/file"), "");
    }
    create(world, &[]);
    let script = "
import signal
libc = ctypes.CDLL(None, use_errno=True)
def attack(process):
    got = []
    if libc.ptrace(16, process, 0, 0) == 0: got.append('attached'); libc.ptrace(17, process, 0, 0)
    if libc.ptrace(0x4206, process, 0, 0) == 0: got.append('seized'); libc.ptrace(17, process, 0, 0)
    descriptor = libc.syscall(434, process, 0)
    for number in range(64):
        if descriptor >= 0 and libc.syscall(438, descriptor, number, 0) >= 0: got.append(f'taken {number}')
        try: os.open(f'/proc/{process}/fd/{number}', os.O_RDWR); got.append(f'opened {number}')
        except OSError: pass
    for name in ['mem', 'maps', 'environ']:
        try: open(f'/proc/{process}/{name}', 'rb').read(1); got.append(name)
        except OSError: pass
    if descriptor >= 0: os.close(descriptor)
    return got
renaming = os.fork()
if renaming == 0:
    for _ in range(10): os.rename('wide', 'moved'); os.rename('moved', 'wide')
    os._exit(0)
found, seen = attack(1), set()
while os.waitpid(renaming, os.WNOHANG) == (0, 0):
    for name in os.listdir('/proc'):
        try: is_init = name.isdigit() and open(f'/proc/{name}/comm').read() == 'stockade-init\\n'
        except OSError: continue
        if is_init and name != '1': seen.add(name); found += attack(int(name))
print(found, len(seen) > 1, len(os.listdir('wide')))
";
    let outcome = python(world, script);
    outcome.succeeds();
    // Beside the command's own subreaper, only an ordinary user's init has children that rename.
    let has_children = if world.identity == Identity::User { "True" } else { "False" };
    assert_eq!(outcome.stdout, format!("[] {has_children} 100\n"), "{outcome}");
    discard(world);
}

as_root_and_as_user! {
    tools_rename,
    the_keeper_may_be_killed,
    pauses_wait_for_renames,
    floods_stop_no_other_command,
    processes_that_hide,
    landlock_counts_for_its_command,
    the_listener_stays_with_init,
}
