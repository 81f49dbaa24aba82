#!/usr/bin/python3
"""Adds a user as the program of the same name does, `adduser` or `useradd`, with a home that belongs to the user.

Root of a sandbox has no capability, so it cannot give a directory to another user. Instead the new user makes its home, in a
directory that root lends it, and root moves it to its place.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile

SUDO = "/opt/stockade/bin/sudo"
SKELETON = "/etc/skel"


def fail(message):
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: {message}\n")
    sys.exit(1)


def accounts():
    return {account.pw_name: account for account in pwd.getpwall()}


class Plan:
    """What is to be done: the words for `useradd`, and whether the user gets a home."""

    def __init__(self, words, wants):
        self.words, self.wants = ["--no-create-home"] + words, wants


def plan(name, words):
    """The plan for a command line; none if the program itself is to decide."""
    if name == "useradd":
        kept = [word for word in words if word not in ("-m", "--create-home")]
        return Plan(kept, len(kept) < len(words))
    # What `adduser` itself does for a comment or a password needs PAM, which does not work without a capability.
    values = {"--comment": "-c", "--gecos": "-c", "--home": "-d", "--shell": "-s", "--uid": "-u", "--ingroup": "-g", "--gid": "-g"}
    kept, names, shell, wants, rest = [], [], ["-s", "/bin/bash"], True, list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        if word in values:
            if not value and not rest:
                return None
            kept += [values[word], value or rest.pop(0)]
            shell = [] if word == "--shell" else shell
        elif word in ("--no-create-home", "-H"):
            wants = False
        elif word.startswith("-") and word not in ("--disabled-password", "--disabled-login", "--quiet", "-q"):
            return None
        elif not word.startswith("-"):
            names.append(word)
    return Plan(shell + kept + names, wants) if len(names) == 1 else None


def run_as(account, directory, script):
    return subprocess.run([SUDO, "-u", account.pw_name, "--", "/bin/sh", "-c", script], cwd=directory).returncode == 0


def make_home(account):
    """Makes the home of a user, who owns it and what is in it."""
    home = account.pw_dir
    if os.path.lexists(home):
        return
    lent = tempfile.mkdtemp(prefix=".adduser-", dir=os.path.dirname(home))
    try:
        os.chmod(lent, 0o777)
        # Only who may write to a directory can move it to another one.
        script = f"umask 022 && mkdir -m 0777 home && cp -rT {SKELETON} home; chmod 0777 home"
        if not run_as(account, lent, script):
            fail(f"{account.pw_name} could not make a home")
        os.rename(os.path.join(lent, "home"), home)
        run_as(account, home, "chmod 0755 .")
    finally:
        shutil.rmtree(lent, ignore_errors=True)


def main():
    name = os.path.basename(sys.argv[0])
    planned = plan(name, sys.argv[1:]) if os.getuid() == 0 else None
    if planned is None:
        program = f"/usr/sbin/{name}"
        os.execv(program, [program] + sys.argv[1:])
    before = accounts()
    status = subprocess.run(["/usr/sbin/useradd"] + planned.words).returncode
    if status == 0 and planned.wants:
        for account in accounts().values():
            if account.pw_name not in before:
                make_home(account)
    sys.exit(status)


if __name__ == "__main__":
    main()
