//! Traces of requests: each is a span that goes to a collector by OTLP over HTTP. Only builds with the
//! feature `otlp` have this. The collector is one without TLS: that of the same machine, which passes
//! traces on.

use stockade_core::{Code, Problem};
use tracing_subscriber::{Layer, Registry};

/// What receives the spans.
pub(crate) type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Refuses a collector that this build cannot use.
///
/// # Errors
/// [`Code::Unsupported`] without the feature; [`Code::InvalidInput`] for a URL of another kind.
pub(crate) fn check(collector: Option<&str>) -> Result<(), Problem> {
    let Some(text) = collector else { return Ok(()) };
    if cfg!(not(feature = "otlp")) {
        let message = "this build of stockade-server sends no traces";
        return Err(Problem::new(Code::Unsupported, message)
            .because("it was built without the feature `otlp`")
            .remedied_by("cargo build --release -p stockade-host --features otlp"));
    }
    let url = url::Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    if url.is_none() {
        let message = format!("{text:?} is no URL of a collector");
        return Err(Problem::new(Code::InvalidInput, message)
            .because("traces are sent without TLS")
            .remedied_by("--otlp http://localhost:4318, the collector of this machine"));
    }
    Ok(())
}

/// The layer that sends spans, if there is a collector.
///
/// # Errors
/// As [`check`]; if the exporter cannot be made.
pub(crate) fn layer(collector: Option<&str>) -> Result<Option<BoxedLayer>, Problem> {
    check(collector)?;
    #[cfg(feature = "otlp")]
    return collector.map(export::layer).transpose();
    #[cfg(not(feature = "otlp"))]
    Ok(None)
}

/// Sends what has not been sent yet. It takes at most some seconds, and blocks.
pub(crate) fn end() {
    #[cfg(feature = "otlp")]
    export::end();
}

#[cfg(feature = "otlp")]
mod export {
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use async_trait::async_trait;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_http::hyper::HyperClient;
    use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
    use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use stockade_core::{Code, Problem};
    use tokio::runtime::Handle;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::filter::{LevelFilter, Targets};

    use super::BoxedLayer;

    /// How long a collector may take to answer.
    const TIMEOUT: Duration = Duration::from_secs(5);
    /// Where collectors take traces.
    const PATH: &str = "v1/traces";

    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

    /// The client of the library, on the threads of the server: the exporter has a thread of its own, in
    /// which nothing asynchronous runs.
    #[derive(Debug)]
    struct Client {
        server: Handle,
        client: Arc<HyperClient>,
    }

    #[async_trait]
    impl HttpClient for Client {
        async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
            let client = Arc::clone(&self.client);
            self.server.spawn(async move { client.send_bytes(request).await }).await?
        }
    }

    /// A provider for a collector.
    fn provider(collector: &str) -> Result<SdkTracerProvider, Problem> {
        let client = Client {
            server: Handle::try_current().map_err(|error| Problem::caused(Code::Io, &error))?,
            client: Arc::new(HyperClient::with_default_connector(TIMEOUT, None)),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{}/{PATH}", collector.trim_end_matches('/')))
            .with_timeout(TIMEOUT)
            .build();
        let exporter = exporter.map_err(|error| Problem::caused(Code::InvalidInput, &error))?;
        let resource = Resource::builder_empty().with_service_name("stockade").build();
        Ok(SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build())
    }

    pub(super) fn layer(collector: &str) -> Result<BoxedLayer, Problem> {
        let provider = provider(collector)?;
        let layer = layer_of(&provider);
        // The traces of a server that was started before stay.
        let _ = PROVIDER.set(provider);
        Ok(layer)
    }

    fn layer_of(provider: &SdkTracerProvider) -> BoxedLayer {
        let own = Targets::new().with_target("stockade", LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("stockade"))
            // Neither the names of source files nor those of threads are about a request.
            .with_location(false)
            .with_threads(false)
            .with_filter(own)
            .boxed()
    }

    pub(super) fn end() {
        if let Some(provider) = PROVIDER.get() {
            // A collector that does not answer loses them.
            let _ = provider.shutdown_with_timeout(TIMEOUT);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::{BufRead as _, BufReader, Read as _, Write as _};
        use std::net::TcpListener;

        use tracing_subscriber::layer::SubscriberExt as _;

        use super::*;

        /// Takes one request, and returns its first line and its body.
        fn collect(listener: &TcpListener) -> (String, String) {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let (mut lines, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                lines.push(line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            (&stream).write_all(answer.as_bytes()).unwrap();
            (lines.swap_remove(0), String::from_utf8(body).unwrap())
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_collector_receives_the_span_of_a_request() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let collector = std::thread::spawn(move || collect(&listener));
            let provider = provider(&url).unwrap();
            let subscriber = tracing_subscriber::registry().with(vec![layer_of(&provider)]);
            tracing::subscriber::with_default(subscriber, || {
                let name = "GET /v1/sandboxes";
                let span = tracing::info_span!(target: "stockade::http", "request", otel.name = name, status = 200);
                span.in_scope(|| {
                    tracing::info_span!(target: "other", "not of the server", secret = "s3cret")
                        .in_scope(|| {});
                });
            });
            tokio::task::spawn_blocking(move || provider.shutdown()).await.unwrap().unwrap();
            let (line, body) = collector.join().unwrap();
            assert!(line.starts_with("POST /v1/traces "), "{line}");
            for part in ["GET /v1/sandboxes", "stockade", "\"status\""] {
                assert!(body.contains(part), "{part}: {body}");
            }
            assert!(!body.contains("s3cret") && !body.contains(".rs"), "{body}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_cannot_be_used_is_refused() {
        assert!(check(None).is_ok());
        let code = |text| check(Some(text)).err().map(|problem| problem.code);
        if cfg!(not(feature = "otlp")) {
            assert_eq!(code("http://localhost:4318"), Some(Code::Unsupported));
            return;
        }
        assert_eq!(code("http://localhost:4318"), None);
        for bad in ["https://localhost:4318", "localhost:4318", "", "http://"] {
            assert_eq!(code(bad), Some(Code::InvalidInput), "{bad}");
        }
    }
}
