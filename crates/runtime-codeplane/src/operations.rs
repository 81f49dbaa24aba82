//! The scripts of operations on files. Each prints `!` and the error number of Linux for what failed, or its
//! result after `+`. Paths are quoted, so they may have any bytes.

use std::os::unix::ffi::OsStrExt as _;

use stockade_core::sandbox::User;
use stockade_runtime::{ReadRange, SandboxPath, WriteOptions};

use crate::script::quoted;

/// What each script begins with: `f` fails, `seen` requires the path, `gone` says why there is none, and
/// `made` makes a directory, with the rights of the administrator where the user has them.
const COMMON: &str = r#"export LC_ALL=C
f() { printf '!%s' "$1"; exit 0; }
gone() { q=$1; while :; do q=${q%/*}; [ -n "$q" ] || break
if [ -e "$q" ]; then [ -d "$q" ] || f 20; [ -x "$q" ] || f 13; break; fi; done; f 2; }
seen() { [ -e "$1" ] || [ -L "$1" ] || gone "$1"; }
parent() { d=${1%/*}; [ -n "$d" ] || d=/; }
made() { [ -d "$1" ] && return; umask 022; mkdir -p -- "$1" 2>/dev/null && return; q=$1
sudo -n mkdir -p -- "$1" 2>/dev/null && sudo -n chown "$(id -u):$(id -g)" -- "$1" && return
while [ -n "$q" ]; do if [ -e "$q" ]; then [ -d "$q" ] || f 20; break; fi; q=${q%/*}; done; f 13; }
"#;
/// The attributes of a file: kind, size, mode, owner, time, name and target of a link.
const FIELDS: &str = r"'%y %s %m %U %G %T@ %f\0%l\0'";

/// A script about a path, which is `$p`, and perhaps another one, which is `$o`.
fn about(path: &SandboxPath, other: Option<&SandboxPath>, text: &str) -> Vec<u8> {
    let mut script = COMMON.as_bytes().to_vec();
    for (name, path) in [(b"p=", Some(path)), (b"o=", other)] {
        if let Some(path) = path {
            script.extend(
                [&name[..], &quoted(path.as_path().as_os_str().as_bytes()), b"\n"].concat(),
            );
        }
    }
    script.extend(text.as_bytes());
    script
}

pub(crate) fn stat(path: &SandboxPath) -> Vec<u8> {
    let text = format!("seen \"$p\"; printf +; exec find \"$p\" -maxdepth 0 -printf {FIELDS}");
    about(path, None, &text)
}

pub(crate) fn list(path: &SandboxPath) -> Vec<u8> {
    let text = format!(
        "seen \"$p\"; [ -d \"$p\" ] || f 20; [ -r \"$p\" ] && [ -x \"$p\" ] || f 13; printf +; \
         exec find -H \"$p\" -mindepth 1 -maxdepth 1 -printf {FIELDS}"
    );
    about(path, None, &text)
}

/// Reads a part of a file, after a line that tells it from another file of that name.
pub(crate) fn read(path: &SandboxPath, range: ReadRange) -> Vec<u8> {
    // A shell cannot count further, and no file is that long.
    let offset = range.offset.min(1 << 60);
    let length = range.length.unwrap_or(1 << 60).min(1 << 60);
    let text = format!(
        "seen \"$p\"; [ -d \"$p\" ] && f 21; [ -e \"$p\" ] || f 2; [ -r \"$p\" ] || f 13; [ -f \"$p\" ] || f 22; \
         exec 3<\"$p\" || f 2; printf '+%s\\n' \"$(stat -L -c %d:%i /proc/self/fd/3)\"; \
         tail -c +{} <&3 | head -c {length}",
        offset + 1
    );
    about(path, None, &text)
}

/// Stores the input in a new file beside the path.
pub(crate) fn upload(path: &SandboxPath, unique: &str, options: WriteOptions) -> Vec<u8> {
    let parents = if options.make_parents { "made \"$d\"" } else { "[ -d \"$d\" ] || gone \"$p\"" };
    let text = format!(
        "[ ! -L \"$p\" ] || p=$(readlink -m -- \"$p\"); [ ! -d \"$p\" ] || f 21; \
         [ ! -e \"$p\" ] || [ -f \"$p\" ] || f 22; parent \"$p\"; {parents}; \
         [ -w \"$d\" ] || f 13; umask 077; cat >\"$d/{unique}\" && printf + || f 28"
    );
    about(path, None, &text)
}

/// Gives the new file the name of the path, if it has this length.
pub(crate) fn commit(
    path: &SandboxPath,
    unique: &str,
    length: u64,
    options: WriteOptions,
) -> Vec<u8> {
    let owner = options.owner.map_or_else(String::new, |owner| chown(owner, "\"$t\""));
    let text = format!(
        "[ ! -L \"$p\" ] || p=$(readlink -m -- \"$p\"); parent \"$p\"; t=$d/{unique}; \
         n=$(stat -c %s -- \"$t\") && [ \"$n\" = {length} ] || {{ rm -f -- \"$t\"; f 5; }}; \
         if [ -f \"$p\" ]; then chmod --reference=\"$p\" -- \"$t\"; else chmod {:o} -- \"$t\"; fi; {owner}\
         mv -f -T -- \"$t\" \"$p\" 2>/dev/null && printf + || {{ rm -f -- \"$t\"; f 13; }}",
        options.mode & 0o777
    );
    about(path, None, &text)
}

/// Removes a new file that is not completed.
pub(crate) fn discard(path: &SandboxPath, unique: &str) -> Vec<u8> {
    let text = format!(
        "[ ! -L \"$p\" ] || p=$(readlink -m -- \"$p\"); parent \"$p\"; rm -f -- \"$d/{unique}\"; printf +"
    );
    about(path, None, &text)
}

pub(crate) fn make_directory(path: &SandboxPath, options: WriteOptions) -> Vec<u8> {
    let owner = options.owner.map_or_else(String::new, |owner| chown(owner, "\"$p\""));
    let text = format!(
        "if [ ! -d \"$p\" ]; then [ ! -e \"$p\" ] || f 17; made \"$p\"; chmod {:o} -- \"$p\" || f 1; {owner}fi; printf +",
        options.mode & 0o777
    );
    about(path, None, &text)
}

pub(crate) fn attributes(path: &SandboxPath, mode: Option<u32>, owner: Option<User>) -> Vec<u8> {
    let mode = mode.map_or_else(String::new, |mode| {
        format!("chmod {:o} -- \"$p\" 2>/dev/null || f 1; ", mode & 0o777)
    });
    let owner = owner.map_or_else(String::new, |owner| chown(owner, "\"$p\""));
    about(path, None, &format!("seen \"$p\"; [ -e \"$p\" ] || f 2; {owner}{mode}printf +"))
}

fn chown(owner: User, path: &str) -> String {
    format!("chown {}:{} -- {path} 2>/dev/null || f 1; ", owner.user, owner.group)
}

pub(crate) fn rename(from: &SandboxPath, to: &SandboxPath) -> Vec<u8> {
    let text = "seen \"$p\"; case $o/ in \"$p\"/*) [ \"$o\" = \"$p\" ] && { printf +; exit; }; f 22 ;; esac
parent \"$o\"; [ -d \"$d\" ] || gone \"$o\"
t() { [ -d \"$1\" ] && [ ! -L \"$1\" ]; }
if t \"$o\"; then t \"$p\" || f 21; [ -z \"$(ls -A -- \"$o\")\" ] || f 39; rmdir -- \"$o\" || f 13
elif t \"$p\" && [ -e \"$o\" ]; then f 20; fi
mv -f -T -- \"$p\" \"$o\" 2>/dev/null && printf + || f 13";
    about(from, Some(to), text)
}

pub(crate) fn remove(path: &SandboxPath) -> Vec<u8> {
    let text = "seen \"$p\"; [ \"$p\" != / ] || f 16; rm -rf -- \"$p\" 2>/dev/null || {
while :; do n=$(find \"$p\" -type d ! -perm -700 -exec chmod u+rwx {} + -print 2>/dev/null | wc -l); [ $n -gt 0 ] || break; done
rm -rf -- \"$p\" 2>/dev/null; }
[ ! -e \"$p\" ] && [ ! -L \"$p\" ] && printf + || f 13";
    about(path, None, text)
}

/// Writes an archive of a directory.
pub(crate) fn archive(path: &SandboxPath, limit_bytes: u64) -> Vec<u8> {
    // A hollow file has any length: no more than what is accepted is sent.
    let text = format!(
        "seen \"$p\"; [ -d \"$p\" ] || f 20; printf +; cd -- \"$p\" || exit 1; \
         tar -c --warning=no-file-changed --warning=no-file-removed --warning=no-file-ignored -f - . | head -c {limit_bytes}"
    );
    about(path, None, &text)
}

/// Extracts the input, which is an archive of this length, to a directory.
pub(crate) fn extract(path: &SandboxPath, unique: &str, length: u64) -> Vec<u8> {
    let text = format!(
        "made \"$p\"; umask 077; t=/tmp/{unique}; cat >$t && [ $(wc -c <$t) -eq {length} ] || {{ rm -f $t; f 28; }}; \
         umask 022; tar -x -p --no-same-owner -f $t -C \"$p\"; c=$?; rm -f $t; [ $c -eq 0 ] && printf + || f 5"
    );
    about(path, None, &text)
}
