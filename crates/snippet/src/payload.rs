//! The payload of a request: its forms and its limits. Error messages are those of the reference.

use std::collections::BTreeSet;
use std::time::Duration;

use stockade_script::SourceFile;

/// The file that is run.
pub(crate) const ENTRY: &str = "src/main.ts";

const MAX_FILES: usize = 10;
const MAX_BYTES: usize = 200_000;
const DEFAULT_TIMEOUT_MS: u64 = 5_000;
const MIN_TIMEOUT_MS: u64 = 100;
const MAX_TIMEOUT_MS: u64 = 10_000;

/// A request before validation.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    /// A single file, which is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Several files, of which `src/main.ts` is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<SourceFile>>,
    /// The timeout in milliseconds; clamped to 100 to 10 000, 5 000 when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<f64>,
}

/// Files within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    files: Vec<SourceFile>,
    timeout: Duration,
}

/// Why a request is refused before its files are checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    /// Both forms were given.
    #[error("pass either `source` or `files`, not both")]
    Both,
    /// No form was given.
    #[error("must pass either `source` or `files`")]
    Neither,
    /// No file.
    #[error("files array is empty")]
    NoFiles,
    /// More files than the limit.
    #[error("payload exceeds {MAX_FILES} files")]
    TooManyFiles,
    /// A file without a name.
    #[error("every file must have a non-empty path")]
    NoPath,
    /// A name that is not a relative path.
    #[error("file path \"{0}\" is not a relative path of plain names")]
    Path(String),
    /// Two files with one name.
    #[error("file path \"{0}\" is given twice")]
    DuplicatePath(String),
    /// An empty file.
    #[error("file \"{0}\" has empty source")]
    NoSource(String),
    /// More bytes than the limit.
    #[error("total payload is {0} bytes (max {MAX_BYTES})")]
    TooLarge(usize),
    /// Nothing to run.
    #[error("payload must include \"{ENTRY}\" — the runner entry point")]
    NoEntry,
}

impl Payload {
    /// Validates a request.
    ///
    /// # Errors
    /// The first violated limit.
    pub fn new(input: Input) -> Result<Self, InvalidInput> {
        let files = match (input.source, input.files) {
            (Some(_), Some(_)) => return Err(InvalidInput::Both),
            (None, None) => return Err(InvalidInput::Neither),
            (Some(source), None) => vec![SourceFile { path: ENTRY.to_owned(), source }],
            (None, Some(files)) => files,
        };
        if files.is_empty() {
            return Err(InvalidInput::NoFiles);
        }
        if files.len() > MAX_FILES {
            return Err(InvalidInput::TooManyFiles);
        }
        let mut paths = BTreeSet::new();
        for SourceFile { path, source } in &files {
            if path.is_empty() {
                return Err(InvalidInput::NoPath);
            }
            if !is_plain(path) {
                return Err(InvalidInput::Path(path.clone()));
            }
            if source.is_empty() {
                return Err(InvalidInput::NoSource(path.clone()));
            }
            if !paths.insert(path) {
                return Err(InvalidInput::DuplicatePath(path.clone()));
            }
        }
        let total = files.iter().map(|file| file.source.len()).sum();
        if total > MAX_BYTES {
            return Err(InvalidInput::TooLarge(total));
        }
        if !paths.contains(&ENTRY.to_owned()) {
            return Err(InvalidInput::NoEntry);
        }
        Ok(Self { timeout: timeout(input.timeout_ms), files })
    }

    /// The files, in the order given.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The timeout of a run.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Whether a path is relative and has only names without a special meaning for an engine or a file
/// system.
fn is_plain(path: &str) -> bool {
    let name = |name: &str| !matches!(name, "" | "." | "..");
    !path.contains(|c: char| c.is_control() || matches!(c, ':' | '\\' | '@'))
        && path.split('/').all(name)
}

fn timeout(requested_ms: Option<f64>) -> Duration {
    let Some(asked) = requested_ms.filter(|asked| asked.is_finite()) else {
        return Duration::from_millis(DEFAULT_TIMEOUT_MS);
    };
    let bounded = asked.floor().clamp(0.0, 10_000.0);
    let bounded = Duration::from_secs_f64(bounded / 1_000.0);
    bounded.clamp(Duration::from_millis(MIN_TIMEOUT_MS), Duration::from_millis(MAX_TIMEOUT_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, source: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), source: source.to_owned() }
    }

    fn refusal(files: Vec<SourceFile>) -> String {
        Payload::new(Input { files: Some(files), ..Input::default() }).unwrap_err().to_string()
    }

    #[test]
    fn limits_are_told_in_the_words_of_the_reference() {
        assert_eq!(
            Payload::new(Input::default()).unwrap_err().to_string(),
            "must pass either `source` or `files`"
        );
        assert_eq!(refusal(vec![file("src/main.ts", "")]), "file \"src/main.ts\" has empty source");
        assert_eq!(
            refusal(vec![file("src/a.ts", "1")]),
            "payload must include \"src/main.ts\" — the runner entry point"
        );
        let exactly = "é".repeat(MAX_BYTES / 2);
        assert!(Payload::new(Input { source: Some(exactly), ..Input::default() }).is_ok());
        for path in ["/etc/x.ts", "../x.ts", "a//b.ts", "a:b.ts", "a\\b.ts", "a\u{0}.ts", "@a/b"] {
            assert!(refusal(vec![file(path, "1")]).contains("relative"), "{path:?}");
        }
        let twice = vec![file("src/main.ts", "1"), file("src/main.ts", "2")];
        assert_eq!(refusal(twice), "file path \"src/main.ts\" is given twice");
    }

    #[test]
    fn a_timeout_is_brought_into_its_range() {
        let ms = |asked| timeout(asked).as_millis();
        assert_eq!(ms(None), 5_000);
        assert_eq!(ms(Some(f64::NAN)), 5_000);
        assert_eq!(ms(Some(f64::INFINITY)), 5_000);
        assert_eq!(ms(Some(-7.0)), 100);
        assert_eq!(ms(Some(99.9)), 100);
        assert_eq!(ms(Some(1_500.9)), 1_500);
        assert_eq!(ms(Some(1e300)), 10_000);
    }
}
