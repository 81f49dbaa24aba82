#!/usr/bin/python3
"""Starts a command as another user, as sudo does, without a password.

No set-user-id bit works in a sandbox. So this asks the init of the sandbox, which starts the command with the standard
streams of this process and ends it when this process ends. It gives what the owner of the sandbox has anyway: the other
users inside, with the same walls around them.
"""

import fcntl
import os
import pwd
import signal
import socket
import struct
import sys

INIT = "\0stockade-root"
MESSAGE_BYTES = 8192
PASSED_ON = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH]
USAGE = "usage: sudo [-n] [-E] [-H] [-i] [-s] [-u USER] [NAME=VALUE ...] [--] COMMAND [ARGUMENT ...]"
# What a refusal means, where the number alone does not say it.
REASONS = {
    1: "this user may not start commands as other users",
    11: "too many commands of this sandbox run by sudo: end one of them",
}


def fail(message):
    sys.stderr.write(f"sudo: {message}\n")
    sys.exit(1)


class Options:
    """What the command line asks for."""

    def __init__(self, words):
        self.user, self.login, self.shell, self.keeps = "root", False, False, False
        self.variables = {}
        words = list(words)
        while words and words[0].startswith("-"):
            word = words.pop(0)
            if word == "--":
                break
            if word in ("-h", "--help"):
                print(USAGE)
                sys.exit(0)
            if word in ("-V", "--version"):
                print("sudo of Stockade")
                sys.exit(0)
            if word in ("-v", "-k", "-K", "--validate", "--reset-timestamp", "--remove-timestamp") and not words:
                sys.exit(0)
            self.take(word, words)
        while words and "=" in words[0] and not words[0].startswith(("=", "/", ".")):
            name, _, value = words.pop(0).partition("=")
            self.variables[name] = value
        self.words = words

    def take(self, word, rest):
        name, _, value = word.partition("=")
        if name in ("-u", "--user", "-g", "--group", "-p", "--prompt"):
            if "=" not in word and not rest:
                fail(f"{word} needs a value\n{USAGE}")
            value = value if "=" in word else rest.pop(0)
            if name in ("-u", "--user"):
                self.user = value
            elif name in ("-g", "--group"):
                fail("-g is not supported: a command has the group of its user")
            return
        if name in ("--login", "--shell", "--non-interactive", "--preserve-env", "--set-home", "--stdin"):
            word = {"--login": "-i", "--shell": "-s", "--preserve-env": "-E"}.get(name, "-n")
        if word.startswith("--"):
            fail(f"{word} is not supported\n{USAGE}")
        for at, letter in enumerate(word[1:], 1):
            if letter == "u":
                self.user = word[at + 1:] or (rest.pop(0) if rest else fail(f"-u needs a value\n{USAGE}"))
                return
            if letter == "i":
                self.login = True
            elif letter == "s":
                self.shell = True
            elif letter == "E":
                self.keeps = True
            # Without a password there is nothing to ask for and nothing to remember.
            elif letter not in "nHSkA":
                fail(f"-{letter} is not supported\n{USAGE}")


def account(name):
    if name[:1] == "#" and name[1:].isdecimal():
        number = int(name[1:])
        try:
            return pwd.getpwuid(number)
        except KeyError:
            return pwd.struct_passwd((name, "x", number, number, "", "/", "/bin/sh"))
    try:
        return pwd.getpwnam(name)
    except KeyError:
        fail(f"unknown user {name}")


def shell_of(target):
    """The shell of a user; `/bin/sh` if the account has no login shell, as root in many sandboxes."""
    shell = target.pw_shell
    return "/bin/sh" if os.path.basename(shell) in ("", "nologin", "false") else shell


def own_name():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def environment(options, target):
    kept = dict(os.environ)
    home = os.environ.get("HOME", "/")
    kept.update(options.variables)
    kept.update(USER=target.pw_name, LOGNAME=target.pw_name, SHELL=shell_of(target))
    if not options.keeps or "HOME" not in os.environ:
        kept["HOME"] = target.pw_dir
    # The programs of this user's own directory, as this one, are found as before.
    own = home + "/.local/bin"
    system = [d for d in ("/usr/local/sbin", "/usr/sbin", "/sbin") if d not in kept.get("PATH", "").split(":")]
    kept["PATH"] = ":".join([kept.get("PATH") or own + ":/usr/local/bin:/usr/bin:/bin"] + system)
    kept.update(SUDO_USER=own_name(), SUDO_UID=str(os.getuid()), SUDO_GID=str(os.getgid()))
    kept["SUDO_COMMAND"] = " ".join(options.words) or shell_of(target)
    kept.pop("OLDPWD", None)
    return [os.fsencode(f"{name}={value}") for name, value in kept.items()]


def command(options, target):
    shell = shell_of(target)
    if not options.login and not options.shell:
        if not options.words:
            fail(f"no command\n{USAGE}")
        return options.words
    text = " ".join("'" + word.replace("'", "'\\''") + "'" for word in options.words)
    return [shell] + (["-l"] if options.login else []) + (["-c", text] if options.words else [])


def may_enter(path, target):
    """Whether a user may be in a directory. Root has no capability here, so it is treated as every other user."""
    path = os.path.realpath(path)
    while True:
        try:
            found = os.stat(path)
        except OSError:
            return False
        bits = 6 if found.st_uid == target.pw_uid else 3 if found.st_gid == target.pw_gid else 0
        if not found.st_mode >> bits & 1:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def directory_of(options, target):
    """Where the command starts: init enters the directory as the target, who need not have access to this one."""
    wanted = target.pw_dir if options.login else os.getcwd()
    return wanted if may_enter(wanted, target) else "/"


def packed(text):
    return struct.pack("<I", len(text)) + text


def listed(texts):
    return struct.pack("<I", len(texts)) + b"".join(map(packed, texts))


def request(words, variables, directory, target):
    ids = struct.pack("<II", target.pw_uid, target.pw_gid)
    return b"".join([
        b"X", struct.pack("<Q", 0), packed(b""), listed([os.fsencode(word) for word in words]), listed(variables),
        packed(os.fsencode(directory)), ids, b"\0\0",
    ])


def send(init, message):
    streams = [0, 1, 2]
    if len(message) <= MESSAGE_BYTES:
        return socket.send_fds(init, [message], streams)
    memory = os.memfd_create("request", os.MFD_ALLOW_SEALING)
    with open(memory, "wb", closefd=False) as file:
        file.write(message)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return socket.send_fds(init, [b"M"], streams + [memory])


def ended(report):
    """The status of the command that a report of init contains, if it has ended."""
    kind, rest = report[:1], report[9:]
    if kind in (b"x", b"f"):
        return struct.unpack("<i", rest[:4])[0]
    if kind == b"n":
        number = struct.unpack("<i", report[-4:])[0]
        fail(REASONS.get(number) if number in REASONS else os.strerror(number))
    return None


def open_streams():
    """A stream that is closed would be one of the descriptors that are opened next."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)


def main():
    options = Options(sys.argv[1:])
    target = account(options.user)
    words, variables = command(options, target), environment(options, target)
    directory = directory_of(options, target)
    open_streams()
    init = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        init.connect(INIT)
    except OSError:
        fail("this sandbox has one user only, because an ordinary user runs its server: run the server as root")
    try:
        send(init, request(words, variables, directory, target))
    except BrokenPipeError:
        # Init has refused already: its answer can be read.
        pass
    except OSError as error:
        fail(f"the command cannot be sent to init: {error.strerror}")

    def pass_on(number, frame):
        init.send(b"S" + struct.pack("<Qi", 0, number))

    status = None
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    while status is None:
        try:
            report = init.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            # Init did not read all. Its answer comes after this error, which is given once.
            continue
        if not report:
            fail("init has ended the connection: the request is too long, or not valid")
        status = ended(report)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        sys.exit(128 + number)
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
