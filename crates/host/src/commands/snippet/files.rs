//! Reads the files on the command line as a payload.

use std::io::Read;
use std::path::{Path, PathBuf};

use stockade_core::{Code, Problem};
use stockade_script::SourceFile;

/// The extensions of programs in a directory.
const ENDINGS: &[&str] = &["ts", "tsx", "js", "jsx", "mts", "mjs"];
/// A payload cannot have more files than this, so no more are read; larger ones are not read
/// either.
const MAX_FILES: usize = 11;
const MAX_BYTES: u64 = 200_001;
/// The most files that one check reads.
const MAX_CHECKED: usize = 10_000;
/// The argument for standard input.
const STANDARD_INPUT: &str = "-";
/// The deepest level of a directory that is searched.
const MAX_DEPTH: usize = 8;

/// Reads files as a payload. Their paths are relative to their common directory; if that is the one
/// that contains `main.ts`, they are moved below `src`.
pub(super) fn payload(paths: &[PathBuf]) -> Result<Vec<SourceFile>, Problem> {
    let found = find(paths, MAX_FILES)?;
    let common = match paths {
        [directory] if directory.is_dir() => directory.clone(),
        _ => common(&found),
    };
    let mut files = Vec::new();
    for path in &found {
        let below = path.strip_prefix(&common).unwrap_or(path);
        let name = if is_input(path) { "main.ts".to_owned() } else { text(below)? };
        files.push(SourceFile { path: name, source: content(path)? });
    }
    if files.iter().any(|file| file.path == "main.ts") {
        for file in &mut files {
            file.path.insert_str(0, "src/");
        }
    }
    Ok(files)
}

/// The file that is run.
pub(super) const ENTRY: &str = "src/main.ts";

/// The name under which a single file is run: its extension decides its syntax.
pub(super) fn entry_name(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "tsx" => "src/example.tsx",
        "jsx" => "src/example.jsx",
        "js" | "mjs" => "src/example.js",
        _ => ENTRY,
    }
}

/// A file with another name than that of the entry, and the entry that imports it.
pub(super) fn with_entry(path: &str, source: String) -> Vec<SourceFile> {
    let entry = "import \"./example.js\";\n".to_owned();
    vec![
        SourceFile { path: path.to_owned(), source },
        SourceFile { path: ENTRY.to_owned(), source: entry },
    ]
}

/// Reads files under the names that the user gave.
pub(super) fn named_files(paths: &[PathBuf]) -> Result<Vec<SourceFile>, Problem> {
    let file = |path: &PathBuf| {
        let name = if is_input(path) { "input.ts".to_owned() } else { text(path)? };
        Ok(SourceFile { path: name, source: content(path)? })
    };
    find(paths, MAX_CHECKED)?.iter().map(file).collect()
}

fn is_input(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
}

fn find(paths: &[PathBuf], limit: usize) -> Result<Vec<PathBuf>, Problem> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect_files(path, MAX_DEPTH, &is_program, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    found.sort();
    found.dedup();
    found.truncate(limit);
    if found.is_empty() {
        let message = "no TypeScript or JavaScript file was found";
        return Err(Problem::new(Code::InvalidInput, message));
    }
    Ok(found)
}

fn is_program(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ENDINGS.iter().any(|one| ending == *one))
}

/// Adds the matching files of a directory tree. Names that begin with a dot and `node_modules` are
/// excluded, and links to directories are not followed.
pub(super) fn collect_files(
    directory: &Path,
    depth: usize,
    wanted: &dyn Fn(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> Result<(), Problem> {
    let failed = |e: std::io::Error| cannot_read(directory, &e);
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_encoded_bytes().starts_with(b".") || name == "node_modules" {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            if depth > 0 {
                collect_files(&path, depth - 1, wanted, found)?;
            }
        } else if wanted(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// The common directory of all files.
fn common(files: &[PathBuf]) -> PathBuf {
    let mut common = files.first().and_then(|file| file.parent()).unwrap_or_else(|| Path::new(""));
    while !files.iter().all(|file| file.starts_with(common)) {
        common = common.parent().unwrap_or_else(|| Path::new(""));
    }
    common.to_owned()
}

fn text(path: &Path) -> Result<String, Problem> {
    path.to_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| Problem::new(Code::InvalidInput, format!("{} is not UTF-8", path.display())))
}

fn content(path: &Path) -> Result<String, Problem> {
    let read = |from: &mut dyn Read| {
        let mut source = String::new();
        from.take(MAX_BYTES).read_to_string(&mut source).map(|_| source)
    };
    let read = if is_input(path) {
        read(&mut std::io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    read.map_err(|error| cannot_read(path, &error))
}

pub(super) fn cannot_read(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::InvalidInput, format!("cannot read {}", path.display()))
        .because(error.to_string())
}
