//! Contents that are not text, and yet are read as code by a program of the host. Their kind, size and
//! hash are not enough to decide about them.

use super::sides::Content;
use crate::manifest::{Entry, Node};

/// Kinds of contents that are programs.
const PROGRAMS: &[&str] = &[
    "script",
    "ELF program",
    "Windows program",
    "Mach-O program",
    "Java class or Mach-O program",
    "WebAssembly program",
];

/// The ends of the names of files that interpreters, loaders and build tools read as code.
const CODE: &[&str] = &[
    "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "vue", "svelte", "node", "wasm", "py",
    "pyw", "pyc", "pyo", "pyd", "pyz", "pth", "rb", "pl", "pm", "t", "php", "phar", "lua", "luac",
    "tcl", "r", "jl", "ex", "exs", "erl", "beam", "hs", "ml", "scala", "kt", "kts", "java",
    "class", "jar", "war", "groovy", "gradle", "clj", "go", "rs", "c", "h", "cc", "cpp", "cxx",
    "hpp", "m", "mm", "swift", "cs", "fs", "vb", "nim", "zig", "d", "el", "elc", "vim", "sh",
    "bash", "zsh", "fish", "ksh", "csh", "awk", "sed", "ps1", "psm1", "bat", "cmd", "vbs", "com",
    "exe", "dll", "so", "dylib", "a", "o", "ko", "mk", "cmake", "nix", "tf", "sql", "html", "htm",
    "svg", "xml", "xsl", "json", "toml", "yaml", "yml", "ini", "cfg", "conf", "env", "md", "txt",
    "gemspec", "whl", "egg", "deb", "rpm", "apk", "service",
];

/// How many bytes of a new content are not shown, if it cannot be compared with the old one. A content
/// that is not text is shown by its kind, size and hash; that is not enough for a program, and for what
/// has the name of a text.
pub(super) fn unseen_bytes(entry: &Entry, content: &Content) -> u64 {
    match content {
        Content::Binary { guess, size, .. } if PROGRAMS.contains(guess) || is_code(entry) => *size,
        Content::Binary { .. } => 0,
        Content::Text(_) | Content::Unknown(_) => content.size(),
    }
}

fn is_code(entry: &Entry) -> bool {
    if matches!(entry.change.new_node(), Some(Node::File { mode, .. }) if mode & 0o111 != 0) {
        return true;
    }
    let name = entry.path.file_name().to_ascii_lowercase();
    let name = String::from_utf8_lossy(&name);
    // `libx.so.1` is a library too.
    let mut ends = name.split('.').skip(1);
    ends.any(|end| CODE.contains(&end))
}
