//! Downloads one image: from the reference to the manifest of a platform, then all blobs.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::header::HeaderName;
use stockade_image::{Configuration, Descriptor, Digest, Document, MAX_DOCUMENT_BYTES, MediaType};
use stockade_registry_control::{Event, Layer, Request, Selector, choose};

use crate::blob;
use crate::connect::Trust;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::exchange::Client;
use crate::host::{Host, authority};
use crate::layout::Layout;
use crate::source::Source;
use crate::times::Times;

/// How many blobs are downloaded at a time, as Docker does.
const PARALLEL: usize = 3;
/// How deep indexes may be nested.
const MAX_DEPTH: u32 = 3;

/// Downloads the image of a request into its directory. The events say what happens; the last one is
/// [`Event::Done`], unless there is an error.
///
/// # Errors
/// Why there is no image. What was downloaded stays for the next attempt.
pub async fn download(
    request: &Request,
    credentials: &Credentials,
    trust: Trust,
    times: Times,
    report: &dyn Fn(Event),
) -> Result<(), Error> {
    let hosts = Host::all(&request.registry, &request.access)?;
    let mut insecure = request.access.insecure.clone();
    let plain = hosts.iter().filter(|host| host.base.scheme() == "http");
    insecure.extend(plain.map(|host| authority(&host.base)));
    let client = Client { trust, times, insecure };
    let sources: Vec<_> = hosts
        .into_iter()
        .map(|host| {
            let credential = credentials.of(&host.name).cloned();
            Source::new(host, &request.repository, &client, credential)
        })
        .collect();
    let layout = Layout::open(&request.directory)?;

    let mut failure = None;
    for (index, source) in sources.iter().enumerate() {
        let image = match Image::resolve(source, &layout, request, report).await {
            Ok(image) => image,
            Err(error) if error.depends_on_source() => {
                failure = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        image.fetch_blobs(&sources[index..], &layout, request, report).await?;
        let Descriptor { media_type, digest, size, .. } = &image.named;
        layout.finish(media_type, digest, *size)?;
        report(Event::Done { manifest: image.manifest, digest: digest.clone() });
        return Ok(());
    }
    Err(failure.unwrap_or_else(|| Error::Invalid {
        host: request.registry.clone(),
        reason: "there is no host to ask".to_owned(),
    }))
}

/// The image of a platform: what its manifest says.
struct Image {
    /// What the reference names: an index or the manifest.
    named: Descriptor,
    manifest: Digest,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Image {
    async fn resolve(
        source: &Source<'_>,
        layout: &Layout,
        request: &Request,
        report: &dyn Fn(Event),
    ) -> Result<Self, Error> {
        let (digest, content) = document(source, &request.selector, report).await?;
        let invalid = |reason: String| Error::Invalid { host: source.host.name.clone(), reason };
        let parse = |content: &[u8]| {
            Document::parse(content, None).map_err(|error| invalid(with_causes(&error)))
        };
        let mut document = parse(&content)?;
        let named = named(&document, &digest, content.len());
        layout.add(&digest, &content)?;
        let mut current = digest;
        for _ in 0..MAX_DEPTH {
            let index = match document {
                Document::Manifest(manifest) => {
                    let stockade_image::Manifest { config, layers, .. } = manifest;
                    return Ok(Self { named, manifest: current, config, layers });
                }
                Document::Index(index) => index,
            };
            let Some(chosen) = choose(&index, &request.platform) else {
                let available = index.platforms().into_iter().collect();
                return Err(Error::NoPlatform { wanted: request.platform.clone(), available });
            };
            let Descriptor { digest, size, .. } = chosen;
            current = digest.clone();
            let selector = Selector::Digest(digest.clone());
            let content = if layout.has(digest, *size) {
                layout.read(digest)?
            } else {
                self::document(source, &selector, report).await?.1
            };
            if content.len() as u64 != *size || Digest::of(&content) != current {
                return Err(Error::Mismatch {
                    host: source.host.name.clone(),
                    what: format!("manifest {current}"),
                    found: format!("{} bytes instead of {size}, or another digest", content.len()),
                });
            }
            layout.add(&current, &content)?;
            document = parse(&content)?;
        }
        Err(invalid(format!("indexes are nested more than {MAX_DEPTH} times")))
    }

    async fn fetch_blobs(
        &self,
        sources: &[Source<'_>],
        layout: &Layout,
        request: &Request,
        report: &dyn Fn(Event),
    ) -> Result<(), Error> {
        let total =
            self.layers.iter().fold(self.config.size, |all, layer| all.saturating_add(layer.size));
        if total > request.max_bytes {
            let what = format!("the image, with {total} bytes,");
            return Err(Error::TooLarge { what, limit: request.max_bytes, is_total: true });
        }
        if self.config.size > MAX_DOCUMENT_BYTES {
            let what = "the configuration of the image".to_owned();
            return Err(Error::TooLarge { what, limit: MAX_DOCUMENT_BYTES, is_total: false });
        }
        // The configuration says for which platform the image is, before its layers are fetched.
        blob::fetch(sources, layout, &self.config, &|_| ()).await?;
        let config = Configuration::parse(&layout.read(&self.config.digest)?);
        let found = config.map(|config| config.platform()).map_err(|error| Error::Invalid {
            host: sources[0].host.name.clone(),
            reason: with_causes(&error),
        })?;
        if !request.platform.accepts(&found) {
            let wanted = request.platform.clone();
            return Err(Error::NoPlatform { wanted, available: vec![found] });
        }
        let present = |blob: &Descriptor| {
            request.present.contains(&blob.digest) || layout.has(&blob.digest, blob.size)
        };
        let layers = self.layers.iter().map(|layer| Layer {
            digest: layer.digest.clone(),
            size: layer.size,
            present: present(layer),
        });
        report(Event::Resolved {
            host: sources[0].host.name.clone(),
            digest: self.named.digest.clone(),
            layers: layers.collect(),
        });
        let mut seen = BTreeSet::new();
        let missing = self.layers.iter().filter(|layer| !present(layer));
        let mut missing = missing.filter(|layer| seen.insert(&layer.digest));
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < PARALLEL
                && let Some(layer) = missing.next()
            {
                running.push(blob::fetch(sources, layout, layer, report));
            }
            match running.next().await {
                Some(done) => done?,
                None => return Ok(()),
            }
        }
    }
}

/// The document that a selector names, with its digest, which was checked.
async fn document(
    source: &Source<'_>,
    selector: &Selector,
    report: &dyn Fn(Event),
) -> Result<(Digest, Vec<u8>), Error> {
    let times = source.client.times;
    let (mut failures, mut pause) = (0, times.pause);
    loop {
        let error = match fetch_document(source, selector).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let asked = match &error {
            Error::RateLimited { after, .. } => after.unwrap_or(pause),
            _ => pause,
        };
        failures += 1;
        // A host that cannot be connected to is not waited for: the user sees the reason at once.
        let is_unreachable = matches!(error, Error::Unreachable { .. }) && failures > 2;
        if !error.is_temporary()
            || is_unreachable
            || failures > times.retries
            || asked > times.longest_pause
        {
            return Err(error);
        }
        let reason = crate::problem::text(&error);
        report(Event::Retry { what: selector.to_string(), reason });
        tokio::time::sleep(asked.max(pause)).await;
        pause *= 2;
    }
}

async fn fetch_document(
    source: &Source<'_>,
    selector: &Selector,
) -> Result<(Digest, Vec<u8>), Error> {
    let path = format!("manifests/{selector}");
    let response = source.get(&path, &MediaType::ACCEPTED.join(", "), 0).await?;
    let stated = response.header(HeaderName::from_static("docker-content-digest"));
    let stated = stated.map(str::to_owned);
    let content = response.document("the manifest", MAX_DOCUMENT_BYTES).await?;
    let mismatch = |found: String| Error::Mismatch {
        host: source.host.name.clone(),
        what: format!("manifest {selector}"),
        found,
    };
    let digest = Digest::of(&content);
    let expected = match selector {
        Selector::Digest(digest) => Some(digest.clone()),
        Selector::Tag(_) => stated.and_then(|text| text.parse().ok()),
    };
    if expected.is_some_and(|expected| expected != digest) {
        return Err(mismatch(format!("the digest {digest}")));
    }
    Ok((digest, content))
}

/// The descriptor of a document.
fn named(document: &Document, digest: &Digest, length: usize) -> Descriptor {
    let media_type = match document {
        Document::Manifest(_) => "application/vnd.oci.image.manifest.v1+json",
        Document::Index(_) => "application/vnd.oci.image.index.v1+json",
    };
    Descriptor {
        media_type: media_type.to_owned(),
        digest: digest.clone(),
        size: length as u64,
        platform: None,
        annotations: BTreeMap::new(),
    }
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |all, cause| format!("{all}: {cause}"))
}
