"""Uses a server through the client library e2b of PyPI, and prints as JSON what it observed.

The addresses and the key are in the environment, as for every user of the library. What an older version of
the library does not have is reported as null.
"""

import inspect
import json
import threading
import time
import urllib.request

import e2b
from e2b import CommandExitException, Sandbox


def raised(call):
    """The name of the exception of a call."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def commands(sandbox, report):
    ran = sandbox.commands.run("printf 'hello\\n'; echo oops >&2")
    report["echo"] = [ran.stdout, ran.stderr, ran.exit_code]
    try:
        sandbox.commands.run("echo out; exit 3")
    except CommandExitException as error:
        report["failed"] = [error.exit_code, error.stdout]
    variables = sandbox.commands.run("echo $A $SHARED $E2B_SANDBOX", envs={"A": "call"})
    report["environment"] = variables.stdout.split()
    report["user"] = sandbox.commands.run("whoami; pwd").stdout.split()
    report["root"] = sandbox.commands.run("id -u; echo ~", user="root").stdout.split()
    report["cwd"] = sandbox.commands.run("pwd", cwd="/tmp").stdout.strip()
    report["wrong_cwd"] = raised(lambda: sandbox.commands.run("pwd", cwd="/absent"))
    report["wrong_user"] = raised(lambda: sandbox.commands.run("true", user="nobody-here"))
    report["timeout"] = raised(lambda: sandbox.commands.run("sleep 30", timeout=1))
    script = f"x={'y' * 300_000}; printf %s \"$x\" | wc -c"
    report["long"] = sandbox.commands.run(script).stdout.strip()
    large = sandbox.commands.run("head -c 1000000 /dev/zero | tr '\\0' x")
    report["large"] = len(large.stdout)

    started = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    # The command whose time is over ends a moment later.
    deadline = time.monotonic() + 30
    listed = [process.pid for process in sandbox.commands.list()]
    while len(listed) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
        listed = [process.pid for process in sandbox.commands.list()]
    report["listed"] = listed == [started.pid]
    sandbox.commands.send_stdin(started.pid, "to cat\n")
    sandbox.commands.close_stdin(started.pid)
    sandbox.commands.close_stdin(started.pid)
    report["stdin"] = started.wait().stdout
    sleeping = sandbox.commands.run("sleep 300", background=True)
    joined = sandbox.commands.connect(sleeping.pid)
    report["killed"] = [sandbox.commands.kill(sleeping.pid), sandbox.commands.kill(1234)]
    report["joined"] = raised(joined.wait)
    report["ended"] = len(sandbox.commands.list())
    parts = []
    sandbox.commands.run("echo 1; sleep 0.1; echo 2", on_stdout=parts.append)
    report["streamed"] = "".join(parts)


def terminal(sandbox, report):
    seen = []
    pty = sandbox.pty.create(e2b.PtySize(rows=24, cols=80), cwd="/tmp")
    sandbox.pty.resize(pty.pid, e2b.PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(pty.pid, b"stty size; pwd; tty; exit\n")
    pty.wait(on_pty=lambda data: seen.append(bytes(data)))
    text = b"".join(seen).decode()
    report["terminal"] = ["30 100" in text, "/tmp" in text, "/dev/pts/" in text]


def files(sandbox, report):
    written = sandbox.files.write("a/b.txt", "content")
    report["written"] = [written.name, written.path]
    report["read"] = sandbox.files.read("a/b.txt")
    data = bytes(range(256)) * 4096
    sandbox.files.write("/tmp/binary", data)
    report["binary"] = bytes(sandbox.files.read("/tmp/binary", format="bytes")) == data
    stream = sandbox.files.read("/tmp/binary", format="stream")
    report["stream"] = b"".join(stream) == data
    report["made"] = [sandbox.files.make_dir("made/deep"), sandbox.files.make_dir("made/deep")]
    report["root_dir"] = sandbox.files.make_dir("/workspace")
    owner = sandbox.commands.run("stat -c %U /workspace made a/b.txt").stdout.split()
    report["owners"] = owner
    names = [(entry.name, entry.type.value) for entry in sandbox.files.list(".")]
    report["list"] = sorted(name for name in names if not name[0].startswith("."))
    deep = sandbox.files.list("/home/user", depth=2)
    report["deep"] = sorted(entry.path for entry in deep if "made" in entry.path or "a/" in entry.path)
    sandbox.files.write("walk/a/b/c.txt", "")
    sandbox.files.write("walk/a.txt", "")
    walked = sandbox.files.list("walk", depth=3)
    report["walk"] = [entry.path.removeprefix("/home/user/walk/") for entry in walked]
    info = sandbox.files.get_info("a/b.txt")
    report["info"] = [info.size, info.permissions, info.owner, oct(info.mode)]
    sandbox.commands.run("ln -s a/b.txt link")
    report["link"] = sandbox.files.get_info("link").symlink_target
    moved = sandbox.files.rename("a/b.txt", "new/c.txt")
    report["moved"] = [moved.path, sandbox.files.exists("a/b.txt"), sandbox.files.exists("new/c.txt")]
    sandbox.files.remove("new/c.txt")
    sandbox.files.remove("new/c.txt")
    report["removed"] = sandbox.files.exists("new/c.txt")
    several = sandbox.files.write_files(
        [{"path": "one.txt", "data": "1"}, {"path": "/tmp/two.txt", "data": b"2"}]
    )
    report["several"] = [file.path for file in several]
    sandbox.files.write("/etc/of-root", "x", user="root")
    report["of_root"] = sandbox.commands.run("stat -c %U /etc/of-root").stdout.strip()
    report["missing"] = raised(lambda: sandbox.files.read("/absent"))
    report["missing_list"] = raised(lambda: sandbox.files.list("/absent"))
    report["directory"] = raised(lambda: sandbox.files.read("/tmp"))
    report["list_file"] = raised(lambda: sandbox.files.list("one.txt"))

    if "metadata" in inspect.signature(sandbox.files.write).parameters:
        sandbox.files.write("marked.txt", "x", metadata={"Author": "me", "kind": "note"})
        report["file_metadata"] = sandbox.files.get_info("marked.txt").metadata
        sandbox.files.write("marked.txt", "y")
        report["no_file_metadata"] = sandbox.files.get_info("marked.txt").metadata
    watcher = sandbox.files.watch_dir("/home/user/made")
    sandbox.files.write("made/watched.txt", "x")
    events = [(event.name, event.type.value) for event in watcher.get_new_events()]
    sandbox.files.remove("made/watched.txt")
    events += [(event.name, event.type.value) for event in watcher.get_new_events()]
    watcher.stop()
    report["events"] = events
    report["stopped"] = raised(watcher.get_new_events)

    url = sandbox.download_url("one.txt", use_signature_expiration=60)
    with urllib.request.urlopen(url) as answer:
        report["signed"] = answer.read().decode()
    wrong = url.replace("one.txt", "two.txt")
    report["wrong_signature"] = raised(lambda: urllib.request.urlopen(wrong))


def added_users(sandbox, report):
    """Users that are added inside, who own their homes."""
    root = lambda line: sandbox.commands.run(line, user="root").stdout
    root("adduser --comment test --disabled-password added >/dev/null && sudo useradd -m second")
    here = sandbox.commands.run("id -un; pwd; echo $HOME $USER; echo x > made; ls made", user="added")
    report["added_user"] = here.stdout.split()
    report["second_user"] = sandbox.commands.run("sudo -u second -i sh -c 'pwd; touch made'").stdout
    report["homes"] = root("stat -c '%U %a' /home/added /home/second /home/added/made").split()


def lifecycle(sandbox, report):
    info = sandbox.get_info()
    report["state"] = info.state.value
    before = info.end_at
    sandbox.set_timeout(3000)
    report["longer"] = sandbox.get_info().end_at > before
    again = Sandbox.connect(sandbox.sandbox_id)
    report["connected"] = again.commands.run("cat one.txt").stdout
    metrics = sandbox.get_metrics()
    report["metrics"] = metrics[0].mem_total > 0
    paged = Sandbox.list(limit=1)
    listed = paged.next_items()
    report["pages"] = [len(listed), paged.has_next]
    query = e2b.SandboxQuery(metadata={"a b": "c&d"})
    found = Sandbox.list(query=query).next_items()
    report["by_metadata"] = [one.sandbox_id == sandbox.sandbox_id for one in found]
    report["metadata"] = info.metadata
    pause = getattr(sandbox, "pause", None) or sandbox.beta_pause
    pause()
    report["paused"] = sandbox.get_info().state.value
    report["when_paused"] = [sandbox.is_running(), raised(lambda: sandbox.commands.run("true"))]
    resumed = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    report["resumed"] = [resumed.get_info().state.value, resumed.commands.run("cat one.txt").stdout]


def paused_by_itself(report):
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    try:
        sandbox = Sandbox.create(timeout=300, lifecycle=lifecycle)
    except TypeError:
        return
    sandbox.commands.run("echo kept > kept.txt")
    sleeping = sandbox.commands.run("sleep 300", background=True)
    sandbox.set_timeout(0)
    deadline = time.monotonic() + 30
    while sandbox.get_info().state.value != "paused" and time.monotonic() < deadline:
        time.sleep(0.1)
    report["paused_by_itself"] = sandbox.get_info().state.value
    # A request resumes it, with its processes.
    report["resumed_by_itself"] = sandbox.files.read("kept.txt")
    report["kept"] = [process.pid for process in sandbox.commands.list()] == [sleeping.pid]
    sandbox.kill()


def copies(sandbox, report):
    sandbox.files.write("/home/user/of-parent", "parent")
    snapshot = sandbox.create_snapshot()
    copy = Sandbox.create(snapshot.snapshot_id)
    report["copy"] = copy.files.read("/home/user/of-parent")
    copy.kill()
    if hasattr(sandbox, "fork"):
        forks = sandbox.fork(count=2)
        report["forks"] = [fork.files.read("/home/user/of-parent") for fork in forks]
        for fork in forks:
            fork.kill()


def killed_while_running(sandbox, report):
    handle = sandbox.commands.run("sleep 300", background=True)
    timer = threading.Timer(0.3, sandbox.kill)
    timer.start()
    report["killed_running"] = raised(handle.wait)
    timer.join()


def volumes(report):
    """A volume, its files, and a sandbox that mounts it."""
    name = "data-of-python"
    volume = e2b.Volume.create(name)
    report["volumes"] = [
        name in [one.name for one in e2b.Volume.list()],
        e2b.Volume.connect(volume.volume_id).name == name,
    ]
    report["volume_exists"] = raised(lambda: e2b.Volume.create(name))
    volume.make_dir("/dir/deep", force=True)
    volume.write_file("/dir/a.txt", "text", mode=0o600)
    volume.write_file("/dir/large", b"x" * 3_000_000)
    report["volume_file"] = [
        volume.read_file("/dir/a.txt"),
        len(b"".join(volume.read_file("/dir/large", format="stream"))) == 3_000_000,
        raised(lambda: volume.read_file("/absent")),
        raised(lambda: volume.make_dir("/dir")),
    ]
    stat = volume.get_info("/dir/a.txt")
    report["volume_stat"] = [stat.name, str(stat.type), stat.path, stat.size, oct(stat.mode)]
    volume.update_metadata("/dir/a.txt", mode=0o644)
    volume.remove("/dir/deep")
    volume.remove("/dir/large")
    report["volume_list"] = [one.path for one in volume.list("/dir")]
    sandbox = Sandbox.create(timeout=120, volume_mounts={"/mnt/data": volume})
    sandbox.files.write("/mnt/data/inside.txt", "written inside")
    report["volume_mounted"] = [
        sandbox.files.read("/mnt/data/dir/a.txt"),
        volume.read_file("/inside.txt"),
    ]
    sandbox.kill()
    volume.remove("/dir")
    report["volume_removed"] = [
        volume.exists("/dir"),
        e2b.Volume.destroy(volume.volume_id),
        e2b.Volume.destroy(volume.volume_id),
        raised(lambda: e2b.Volume.get_info(volume.volume_id)),
    ]
    absent = {"/mnt/data": "absent"}
    report["volume_absent"] = raised(lambda: Sandbox.create(volume_mounts=absent))


def main():
    report = {"version": e2b.__dict__.get("__version__")}
    other = Sandbox.create(timeout=120)
    sandbox = Sandbox.create(
        timeout=600, metadata={"a b": "c&d", "user": "me"}, envs={"SHARED": "shared"}
    )
    report["running"] = sandbox.is_running()
    report["host"] = sandbox.get_host(3000).split(".")[0] == f"3000-{sandbox.sandbox_id}"
    commands(sandbox, report)
    terminal(sandbox, report)
    files(sandbox, report)
    lifecycle(sandbox, report)
    copies(sandbox, report)
    paused_by_itself(report)
    if sandbox.commands.run("sudo true && ls /usr/sbin/adduser || true").stdout:
        added_users(sandbox, report)
    if hasattr(e2b, "Volume"):
        volumes(report)
    report["kill"] = [sandbox.kill(), sandbox.kill()]
    report["gone"] = [sandbox.is_running(), raised(lambda: sandbox.commands.run("true"))]
    report["gone_info"] = raised(sandbox.get_info)
    killed_while_running(other, report)
    report["no_template"] = raised(lambda: Sandbox.create("/etc"))
    report["wrong_key"] = raised(lambda: Sandbox.create(api_key="e2b_" + "0" * 40))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
