//! The log of requests, on the standard error: lines for people, or one JSON object per line.

use stockade_cli::args::serve::LogFormat;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the log, if one is requested. Nothing of other crates is in it: their messages may contain what
/// clients have sent.
pub(crate) fn start(format: Option<LogFormat>) {
    let own = Targets::new().with_target("stockade", LevelFilter::INFO);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry();
    // A log that was started before stays.
    let _ = match format {
        None => return,
        Some(LogFormat::Text) => registry.with(layer.with_ansi(false).with_filter(own)).try_init(),
        Some(LogFormat::Json) => {
            let layer = layer.json().flatten_event(true).with_current_span(false);
            registry.with(layer.with_filter(own)).try_init()
        }
    };
}
