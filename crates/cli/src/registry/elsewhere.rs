//! The progress of a download that a server makes for an operation of this command: a bar on a terminal,
//! else a line for what happens, and one from time to time.

use std::pin::pin;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_api::{DownloadProgress, DownloadStatus, WaitDownload};
use stockade_core::printable::escaped;

use crate::remote::Remote;
use crate::table::size;

/// The style of the bar.
const STYLE: &str = "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
/// How long an operation may take before the server is asked.
const QUIET: Duration = Duration::from_millis(500);
/// How long after an answer without a download the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a line says how far a download is, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The most stages of which a line says that they have begun. A download has a few, but a server is not
/// trusted with the number.
const MAX_STAGES: usize = 32;
/// The most lines about how far it is: as many as a download takes that a server does not give up.
const MAX_LINES: usize = 1000;
/// The shortest time between two questions, also to a server that always has news.
const PACE: Duration = Duration::from_millis(100);
/// The most characters of the name of a registry that are shown.
const HOST_CHARACTERS: usize = 100;

/// Waits for an operation of the server that may download an image, and shows how far the download is.
pub(crate) async fn with_progress<T>(
    remote: &Remote,
    image: &str,
    operation: impl Future<Output = T>,
) -> T {
    let mut operation = pin!(operation);
    tokio::select! {
        done = &mut operation => return done,
        // A server of another version has no such operation.
        () = follow(remote, image) => {}
    }
    operation.await
}

/// Shows the progress until it is dropped, or the server does not answer: then the operation says why.
async fn follow(remote: &Remote, image: &str) {
    tokio::time::sleep(QUIET).await;
    let mut view = View::new(image, rustix::termios::isatty(std::io::stderr()));
    let mut seen = 0;
    loop {
        let request = WaitDownload { image: image.to_owned(), seen };
        let answer = remote.sandboxes.wait_download(remote.caller(), request).await;
        let Ok(DownloadStatus { number, progress }) = answer else { return };
        seen = number;
        match progress {
            None => tokio::time::sleep(PAUSE).await,
            Some(progress) => {
                if let Some(line) = view.show(&progress, Instant::now()) {
                    view.bar.suspend(|| eprint_line!("stockade: {}", escaped(&line)));
                }
                tokio::time::sleep(PACE).await;
            }
        }
    }
}

/// What is shown.
struct View {
    image: String,
    bar: ProgressBar,
    last: Option<DownloadProgress>,
    last_line: Option<Instant>,
    stages: usize,
    lines: usize,
}

impl View {
    fn new(image: &str, is_terminal: bool) -> Self {
        let bar = if is_terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template(STYLE) {
            bar.set_style(style);
        }
        bar.set_prefix(escaped(image).into_owned());
        Self { image: image.to_owned(), bar, last: None, last_line: None, stages: 0, lines: 0 }
    }

    /// Moves the bar. Returns a line, if there is something to say.
    fn show(&mut self, progress: &DownloadProgress, now: Instant) -> Option<String> {
        use DownloadProgress::{Pulling, Unpacking, Waiting};
        let last = self.last.replace(progress.clone());
        if last.as_ref() == Some(progress) {
            return None;
        }
        let is_new = last
            .is_none_or(|last| std::mem::discriminant(&last) != std::mem::discriminant(progress));
        if is_new {
            self.stages = self.stages.saturating_add(1);
        }
        let is_said = is_new && self.stages <= MAX_STAGES;
        let image = &self.image;
        match progress {
            Waiting => {
                is_said.then(|| format!("the server waits for another download before {image}"))
            }
            Unpacking => {
                self.bar.finish_and_clear();
                is_said.then(|| format!("the server unpacks {image}"))
            }
            Pulling { host, layers, missing_layers, received_bytes, total_bytes } => {
                self.bar.set_length(*total_bytes);
                self.bar.set_position(*received_bytes);
                let total = size(*total_bytes);
                if is_said {
                    self.last_line = Some(now);
                    let host: String = host.chars().take(HOST_CHARACTERS).collect();
                    return Some(format!(
                        "the server pulls {image} from {host}: {missing_layers} of {layers} \
                         layers, {total}"
                    ));
                }
                let is_late = self
                    .last_line
                    .is_none_or(|last| now.saturating_duration_since(last) >= LINE_INTERVAL);
                if !self.bar.is_hidden() || !is_late || self.lines >= MAX_LINES {
                    return None;
                }
                self.lines += 1;
                self.last_line = Some(now);
                let received = size(*received_bytes);
                Some(format!("the server pulls {image}: {received} of {total}"))
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_there_is_a_line_for_each_stage_and_one_from_time_to_time() {
        let start = Instant::now();
        let pulling = |received_bytes| DownloadProgress::Pulling {
            host: "registry.example".to_owned(),
            layers: 3,
            missing_layers: 2,
            received_bytes,
            total_bytes: 4 << 20,
        };
        let mut view = View::new("app:1", false);
        for (progress, after, expected) in [
            (
                DownloadProgress::Waiting,
                0,
                Some("the server waits for another download before app:1"),
            ),
            (DownloadProgress::Waiting, 9, None),
            (
                pulling(0),
                10,
                Some("the server pulls app:1 from registry.example: 2 of 3 layers, 4.0 MiB"),
            ),
            (pulling(1 << 20), 11, None),
            (pulling(2 << 20), 20, Some("the server pulls app:1: 2.0 MiB of 4.0 MiB")),
            (DownloadProgress::Unpacking, 21, Some("the server unpacks app:1")),
        ] {
            let line = view.show(&progress, start + Duration::from_secs(after));
            assert_eq!(line.as_deref(), expected, "{progress:?}");
        }
    }

    #[test]
    fn a_server_says_only_so_much() {
        let start = Instant::now();
        let mut view = View::new("app:1", false);
        let mut lines = Vec::new();
        for number in 0..10_000_u64 {
            let progress = match number % 3 {
                0 => DownloadProgress::Waiting,
                1 => DownloadProgress::Unpacking,
                _ => DownloadProgress::Pulling {
                    host: "h".repeat(1 << 20),
                    layers: 1,
                    missing_layers: 1,
                    received_bytes: number,
                    total_bytes: u64::MAX,
                },
            };
            // All of it within a minute.
            lines.extend(view.show(&progress, start + Duration::from_millis(number * 6)));
        }
        assert!(lines.len() <= MAX_STAGES + 6, "{}", lines.len());
        assert!(lines.iter().all(|line| line.len() < 200), "{lines:?}");
        // Nor for ever.
        let later = (0..10_000_u64).filter_map(|number| {
            let progress = DownloadProgress::Pulling {
                host: "h".to_owned(),
                layers: 1,
                missing_layers: 1,
                received_bytes: number,
                total_bytes: u64::MAX,
            };
            view.show(&progress, start + Duration::from_secs(60 + number * 60))
        });
        assert!(later.count() <= MAX_LINES);
    }
}
