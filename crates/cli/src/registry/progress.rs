//! The progress of a pull on standard error: bars on a terminal, else a line for what happens.

use std::collections::BTreeMap;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use stockade_core::printable::escaped;
use stockade_image::{Digest, Reference};
use stockade_registry_control::{Event, Layer};

use crate::table::size;

/// The style of the bar of a layer.
const STYLE: &str = "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {msg}";
/// How many digits of a digest are shown.
const DIGITS: usize = 12;

/// Shows the progress of a pull.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    quiet: bool,
    bars: MultiProgress,
    layers: BTreeMap<Digest, ProgressBar>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(reference: &Reference, quiet: bool) -> Self {
        Self {
            name: reference.familiar(),
            quiet,
            bars: MultiProgress::new(),
            layers: BTreeMap::new(),
            is_terminal: rustix::termios::isatty(std::io::stderr()),
        }
    }

    /// Another process downloads the same image.
    pub(crate) fn waits(&self) {
        self.line(&format!("another process downloads {}: waiting for it", self.name));
    }

    /// The image is complete and goes into the store.
    pub(crate) fn unpacks(&mut self) {
        self.end();
        self.line(&format!("unpacking {}", self.name));
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Resolved { host, layers, .. } => self.start(host, layers),
            Event::Progress { digest, bytes } => {
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
        if self.quiet || !self.is_terminal {
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
        if !self.quiet {
            let text = escaped(text);
            self.bars.suspend(|| eprint_line!("stockade: {text}"));
        }
    }

    /// Removes the bars.
    pub(crate) fn end(&mut self) {
        self.layers.clear();
        let _ = self.bars.clear();
    }
}
