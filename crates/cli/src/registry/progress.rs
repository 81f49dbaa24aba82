//! The progress of a pull on standard error: bars on a terminal, else a line for what happens, and one
//! from time to time. A server that has started the pull has these lines in its log, and gets
//! [`DownloadProgress`] as lines of JSON.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use stockade_api::DownloadProgress;
use stockade_core::printable::escaped;
use stockade_image::{Digest, Reference};
use stockade_registry_control::{Event, Layer};

use crate::table::size;

/// The style of the bar of a layer.
const STYLE: &str = "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {msg}";
/// How often a line says how far a download is, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// How many digits of a digest are shown.
const DIGITS: usize = 12;

/// How often a server hears of it.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As bars or lines.
    Text,
    /// Not at all.
    Quiet,
    /// As lines, and as events for the server that has started this process.
    Events,
}

/// Shows the progress of a pull.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    form: Form,
    bars: MultiProgress,
    layers: BTreeMap<Digest, ProgressBar>,
    is_terminal: bool,
    received: Received,
}

/// How much of an image has arrived, for lines.
#[derive(Debug)]
struct Received {
    by_layer: BTreeMap<Digest, u64>,
    all_bytes: u64,
    last_line: Instant,
    /// The last event, and when it was written.
    last_event: Option<(DownloadProgress, Instant)>,
}

impl Received {
    fn new(now: Instant) -> Self {
        Self { by_layer: BTreeMap::new(), all_bytes: 0, last_line: now, last_event: None }
    }

    fn bytes(&self) -> u64 {
        self.by_layer.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The event that follows from the last one, if that was long ago or all has arrived.
    fn event(&mut self, now: Instant) -> Option<DownloadProgress> {
        let bytes = self.bytes();
        let (event, at) = self.last_event.as_mut()?;
        let DownloadProgress::Pulling { received_bytes, total_bytes, .. } = event else {
            return None;
        };
        let is_late = now.saturating_duration_since(*at) >= EVENT_INTERVAL;
        if bytes == *received_bytes || !is_late && bytes < *total_bytes {
            return None;
        }
        (*received_bytes, *at) = (bytes, now);
        Some(event.clone())
    }

    /// Records the bytes of a layer. Returns a text, if the last one was long ago.
    fn record(&mut self, digest: &Digest, bytes: u64, now: Instant) -> Option<String> {
        self.by_layer.insert(digest.clone(), bytes);
        if now.saturating_duration_since(self.last_line) < LINE_INTERVAL {
            return None;
        }
        self.last_line = now;
        Some(format!("{} of {}", size(self.bytes()), size(self.all_bytes)))
    }
}

impl Progress {
    pub(crate) fn new(reference: &Reference, form: Form) -> Self {
        Self {
            name: reference.familiar(),
            form,
            bars: MultiProgress::new(),
            layers: BTreeMap::new(),
            is_terminal: rustix::termios::isatty(std::io::stderr()),
            received: Received::new(Instant::now()),
        }
    }

    /// Another process downloads the same image.
    pub(crate) fn waits(&self) {
        self.line(&format!("another process downloads {}: waiting for it", self.name));
        self.tell(&DownloadProgress::Waiting);
    }

    /// The image is complete and goes into the store.
    pub(crate) fn unpacks(&mut self) {
        self.end();
        self.line(&format!("unpacking {}", self.name));
        self.tell(&DownloadProgress::Unpacking);
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Resolved { host, layers, .. } => self.start(host, layers),
            Event::Progress { digest, bytes } => {
                let text = self.received.record(digest, *bytes, Instant::now());
                if let Some(text) = text.filter(|_| !self.is_terminal) {
                    self.line(&format!("pulling {}: {text}", self.name));
                }
                if let Some(event) = self.received.event(Instant::now()) {
                    self.tell(&event);
                }
                if let Some(bar) = self.layers.get(digest) {
                    bar.set_position(*bytes);
                    if bar.length() == Some(*bytes) {
                        bar.finish();
                    }
                }
            }
            Event::Retry { what, reason } => {
                let what = what.strip_prefix("sha256:").unwrap_or(what);
                let what: String = what.chars().take(DIGITS).collect();
                self.line(&format!("{what}: trying again ({reason})"));
            }
            Event::Done { .. } | Event::Failed { .. } => {}
        }
    }

    fn start(&mut self, host: &str, layers: &[Layer]) {
        let missing: Vec<_> = layers.iter().filter(|layer| !layer.present).collect();
        let bytes = missing.iter().map(|layer| layer.size).fold(0, u64::saturating_add);
        self.line(&format!(
            "pulling {} from {host}: {} of {} layers, {}",
            self.name,
            missing.len(),
            layers.len(),
            size(bytes)
        ));
        self.received.all_bytes = bytes;
        let event = DownloadProgress::Pulling {
            host: host.to_owned(),
            layers: layers.len() as u64,
            missing_layers: missing.len() as u64,
            received_bytes: 0,
            total_bytes: bytes,
        };
        self.tell(&event);
        self.received.last_event = Some((event, Instant::now()));
        if self.form != Form::Text || !self.is_terminal {
            return;
        }
        for layer in missing {
            let bar = self.bars.add(ProgressBar::new(layer.size));
            if let Ok(style) = ProgressStyle::with_template(STYLE) {
                bar.set_style(style);
            }
            bar.set_prefix(layer.digest.hex()[..DIGITS].to_owned());
            self.layers.insert(layer.digest.clone(), bar);
        }
    }

    fn line(&self, text: &str) {
        if self.form != Form::Quiet {
            let text = escaped(text);
            self.bars.suspend(|| eprint_line!("stockade: {text}"));
        }
    }

    fn tell(&self, progress: &DownloadProgress) {
        if self.form == Form::Events
            && let Ok(line) = serde_json::to_string(progress)
        {
            eprint_line!("{line}");
        }
    }

    /// Removes the bars.
    pub(crate) fn end(&mut self) {
        self.layers.clear();
        let _ = self.bars.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_from_time_to_time_how_much_has_arrived() {
        let start = Instant::now();
        let digest =
            |letter: &str| -> Digest { format!("sha256:{}", letter.repeat(64)).parse().unwrap() };
        let mut received = Received { all_bytes: 3 << 20, ..Received::new(start) };
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(received.record(&digest("a"), 1 << 20, later(1)), None);
        let text = received.record(&digest("b"), 1 << 19, later(11)).unwrap();
        assert_eq!(text, "1.5 MiB of 3.0 MiB");
        assert_eq!(received.record(&digest("b"), 1 << 20, later(12)), None);
        assert_eq!(
            received.record(&digest("b"), 2 << 20, later(22)).unwrap(),
            "3.0 MiB of 3.0 MiB"
        );
    }

    #[test]
    fn a_server_hears_of_it_once_a_second_and_of_the_end() {
        let start = Instant::now();
        let digest: Digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let pulling = |received_bytes| DownloadProgress::Pulling {
            host: "registry.example".to_owned(),
            layers: 2,
            missing_layers: 1,
            received_bytes,
            total_bytes: 10,
        };
        let mut received = Received::new(start);
        assert_eq!(received.event(start), None);
        received.last_event = Some((pulling(0), start));
        for (bytes, after_ms, expected) in
            [(3, 500, None), (4, 1500, Some(4)), (4, 5000, None), (10, 5001, Some(10))]
        {
            let now = start + Duration::from_millis(after_ms);
            received.record(&digest, bytes, now);
            assert_eq!(received.event(now), expected.map(pulling), "{bytes}");
        }
    }
}
