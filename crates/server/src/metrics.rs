//! The metrics of the listener over TCP, in the text format of Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper bounds of the durations of requests, in seconds.
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: String,
    route: String,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: String,
    route: String,
}

/// The metrics. Its clones are the same.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Shared>);

struct Shared {
    registry: Registry,
    requests: Family<Labels, Counter>,
    durations: Family<Route, Histogram>,
    in_flight: Gauge<i64, AtomicI64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A request in progress.
pub(crate) struct InFlight(Gauge<i64, AtomicI64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::<Labels, Counter>::default();
        let durations =
            Family::<Route, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        let in_flight = Gauge::<i64, AtomicI64>::default();
        registry.register(
            "stockade_http_requests",
            "Requests over TCP that were answered",
            requests.clone(),
        );
        registry.register(
            "stockade_http_request_duration_seconds",
            "The time until the head of the response",
            durations.clone(),
        );
        registry.register(
            "stockade_http_requests_in_flight",
            "Requests over TCP in progress",
            in_flight.clone(),
        );
        Self(Arc::new(Shared { registry, requests, durations, in_flight }))
    }
}

impl Metrics {
    pub(crate) fn start(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.0.in_flight.clone())
    }

    pub(crate) fn end(&self, method: &Method, route: &str, status: u16, duration: Duration) {
        // Clients may send any word as the method.
        let is_standard =
            ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].contains(&method.as_str());
        let method = if is_standard { method.as_str() } else { "other" }.to_owned();
        let (route, status) = (route.to_owned(), status.to_string());
        let of_route = Route { method: method.clone(), route: route.clone() };
        self.0.durations.get_or_create(&of_route).observe(duration.as_secs_f64());
        self.0.requests.get_or_create(&Labels { method, route, status }).inc();
    }

    /// All metrics as text; `sandboxes` are the numbers of sandboxes by their state.
    pub(crate) fn text(&self, sandboxes: &[(String, u64)]) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        let end = text.strip_suffix("# EOF\n").map_or(text.len(), str::len);
        text.truncate(end);
        text += "# HELP stockade_sandboxes The caller's sandboxes by their state.\n";
        text += "# TYPE stockade_sandboxes gauge\n";
        for (state, count) in sandboxes {
            text += &format!("stockade_sandboxes{{state=\"{state}\"}} {count}\n");
        }
        let version = env!("CARGO_PKG_VERSION");
        text += "# HELP stockade_build The version of the server.\n# TYPE stockade_build gauge\n";
        text += &format!("stockade_build{{version=\"{version}\"}} 1\n# EOF\n");
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let metrics = Metrics::default();
        {
            let _in_flight = metrics.start();
            assert!(metrics.text(&[]).unwrap().contains("stockade_http_requests_in_flight 1\n"));
        }
        metrics.end(&Method::GET, "/v1/sandboxes/{id}", 200, Duration::from_millis(3));
        let odd = Method::from_bytes(b"ODD").unwrap();
        metrics.end(&odd, "unknown", 404, Duration::from_millis(3));
        let text = metrics.text(&[("running".to_owned(), 2)]).unwrap();
        for line in [
            "stockade_http_requests_total{method=\"GET\",route=\"/v1/sandboxes/{id}\",status=\"200\"} 1",
            "stockade_http_requests_total{method=\"other\",route=\"unknown\",status=\"404\"} 1",
            "stockade_http_requests_in_flight 0",
            "stockade_sandboxes{state=\"running\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
