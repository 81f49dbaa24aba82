//! The log of requests: lines for people, or one JSON object per line, on the standard error or in a file;
//! and the traces of requests (`traces`), which come from the same events.

use std::num::NonZeroU64;
use std::path::PathBuf;

use stockade_cli::args::serve::LogFormat;
use stockade_core::{Code, Problem};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log_file::LogFile;
use crate::traces;

/// When a file is full, unless an option says otherwise.
const FILE_BYTES: u64 = 64 << 20;

/// How the log is written.
#[derive(Debug, Clone)]
pub(crate) struct LogOptions {
    pub(crate) format: LogFormat,
    /// The file, and when it is full; the standard error when absent.
    file: Option<(PathBuf, u64)>,
}

impl LogOptions {
    /// The log with these values.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a file without a log, or a size without a file.
    pub(crate) fn new(
        format: Option<LogFormat>,
        path: Option<PathBuf>,
        size: Option<NonZeroU64>,
    ) -> Result<Option<Self>, Problem> {
        let needs = |option: &str, other: &str| {
            let message = format!("the option `{option}` needs `{other}`");
            Problem::new(Code::InvalidInput, message)
                .remedied_by("stockade serve --log json --log-file FILE")
        };
        match (format, path, size) {
            (_, None, Some(_)) => Err(needs("log-file-size", "log-file")),
            (None, Some(_), _) => Err(needs("log-file", "log")),
            (None, None, None) => Ok(None),
            (Some(format), path, size) => {
                let file = path.map(|path| (path, size.map_or(FILE_BYTES, NonZeroU64::get)));
                Ok(Some(Self { format, file }))
            }
        }
    }
}

/// Starts the log and the traces, if they are requested. Nothing of other crates is in them: their messages
/// may contain what clients have sent.
///
/// # Errors
/// If the file cannot be opened, or traces cannot be sent.
pub(crate) fn start(log: Option<&LogOptions>, collector: Option<&str>) -> Result<(), Problem> {
    let own = || Targets::new().with_target("stockade", LevelFilter::INFO);
    let lines = log.map(|LogOptions { format, file }| {
        let writer = match file {
            None => BoxMakeWriter::new(std::io::stderr),
            Some((path, size)) => BoxMakeWriter::new(LogFile::open(path, *size)?),
        };
        let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
        Ok::<_, Problem>(match format {
            LogFormat::Text => layer.with_filter(own()).boxed(),
            LogFormat::Json => {
                let layer = layer.json().flatten_event(true);
                layer.with_current_span(false).with_span_list(false).with_filter(own()).boxed()
            }
        })
    });
    let layers = [lines.transpose()?, traces::layer(collector)?].into_iter().flatten();
    let layers: Vec<_> = layers.collect();
    if !layers.is_empty() {
        // A log that was started before stays.
        let _ = tracing_subscriber::registry().with(layers).try_init();
    }
    Ok(())
}
