//! Downloads one blob: continues where an earlier attempt ended, checks the size while it arrives
//! and the digest at the end, and tries again a bounded number of times.

use hyper::header;
use stockade_image::Descriptor;
use stockade_registry_control::Event;

use crate::error::Error;
use crate::exchange::Response;
use crate::layout::{Layout, Partial};
use crate::source::Source;

/// So many new bytes make an attempt count as progress, after which it may fail again.
const PROGRESS_BYTES: u64 = 1 << 20;
/// After so many new bytes the caller is told.
const REPORT_BYTES: u64 = 512 << 10;

/// Downloads a blob from the first of these sources that has it.
pub(crate) async fn fetch(
    sources: &[Source<'_>],
    layout: &Layout,
    blob: &Descriptor,
    report: &dyn Fn(Event),
) -> Result<(), Error> {
    if layout.has(&blob.digest, blob.size) {
        return Ok(());
    }
    let mut failure = None;
    for source in sources {
        match from_source(source, layout, blob, report).await {
            Ok(()) => return Ok(()),
            Err(error) if error.depends_on_source() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| Error::NotFound {
        host: "the registry".to_owned(),
        what: format!("blob {}", blob.digest),
    }))
}

async fn from_source(
    source: &Source<'_>,
    layout: &Layout,
    blob: &Descriptor,
    report: &dyn Fn(Event),
) -> Result<(), Error> {
    let times = source.client.times;
    let (mut failures, mut pause) = (0, times.pause);
    let mut best = 0;
    loop {
        let mut partial = layout.partial(&blob.digest, blob.size)?;
        let error = match attempt(source, &mut partial, blob, report).await {
            Ok(()) => return layout.complete(partial, &blob.digest),
            Err(error) => error,
        };
        if partial.length >= best + PROGRESS_BYTES {
            (best, failures, pause) = (partial.length, 0, times.pause);
        }
        let asked = match &error {
            Error::RateLimited { after, .. } => after.unwrap_or(pause),
            _ => pause,
        };
        failures += 1;
        if !error.is_temporary() || failures > times.retries || asked > times.longest_pause {
            return Err(error);
        }
        let reason = crate::problem::text(&error);
        report(Event::Retry { what: blob.digest.to_string(), reason });
        tokio::time::sleep(asked.max(pause)).await;
        pause *= 2;
    }
}

/// One request for what is missing of a blob.
async fn attempt(
    source: &Source<'_>,
    partial: &mut Partial,
    blob: &Descriptor,
    report: &dyn Fn(Event),
) -> Result<(), Error> {
    let Descriptor { digest, size, .. } = blob;
    let mismatch = |found: String| Error::Mismatch {
        host: source.host.name.clone(),
        what: format!("blob {digest}"),
        found,
    };
    if partial.length < *size || *size == 0 {
        let path = format!("blobs/{digest}");
        let response = source.get(&path, "*/*", partial.length).await?;
        if !continues(&response, partial.length, *size) {
            partial.clear()?;
            if response.status.as_u16() == 206 {
                return Err(Error::Invalid {
                    host: response.host(),
                    reason: "it sends another part than the requested one".to_owned(),
                });
            }
        }
        let length = response.header(header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        if let Some(length) = length
            && partial.length.saturating_add(length) != *size
        {
            return Err(mismatch(format!("{length} bytes instead of {size}")));
        }
        let mut parts = response.parts();
        let mut reported = partial.length;
        while let Some(part) = parts.next().await? {
            if partial.length + part.len() as u64 > *size {
                partial.clear()?;
                return Err(mismatch(format!("more than {size} bytes")));
            }
            partial.append(&part)?;
            if partial.length >= reported + REPORT_BYTES || partial.length == *size {
                reported = partial.length;
                report(Event::Progress { digest: digest.clone(), bytes: reported });
            }
        }
        if partial.length < *size {
            // It may have been cut; the next attempt asks for the rest.
            return Err(Error::Unreachable {
                host: source.host.name.clone(),
                reason: format!("it sent {} of {size} bytes", partial.length),
            });
        }
    }
    let found = partial.digest();
    if found != *digest {
        partial.clear()?;
        return Err(mismatch(format!("the digest {found}")));
    }
    Ok(())
}

/// Whether a response continues at this byte of a blob.
fn continues(response: &Response, from: u64, size: u64) -> bool {
    if response.status.as_u16() != 206 {
        return from == 0;
    }
    let range = response.header(header::CONTENT_RANGE).unwrap_or_default();
    let expected = format!("bytes {from}-{}/", size.saturating_sub(1));
    range.starts_with(&expected)
}
