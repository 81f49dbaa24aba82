//! Metrics for monitoring: counters, gauges and histograms under stable names, as JSON and as the
//! text that Prometheus scrapes. Which metrics there are is defined elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Metrics, by their key in JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measurements(pub BTreeMap<String, Measurement>);

/// Requests all metrics of the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Its name in Prometheus.
    pub name: String,
    /// Its description, one sentence.
    pub help: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its values, each with labels.
    pub series: Vec<Series>,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A current value.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The labels that distinguish it.
    pub labels: BTreeMap<String, String>,
    /// The value.
    #[serde(flatten)]
    pub number: Number,
}

/// A value in JSON: a `value`, or the fields of a histogram.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// The value of a counter or a gauge.
    Plain {
        /// The value.
        value: u64,
    },
    /// The value of a histogram.
    Histogram(Histogram),
}

/// A distribution of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The numbers of values up to each bound, in ascending order.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper bound.
    pub le: f64,
    /// How many values are at most the bound.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram with these bounds, which must be in ascending order.
    pub fn new(bounds: &[f64]) -> Self {
        let buckets = bounds.iter().map(|&le| Bucket { le, count: 0 }).collect();
        Self { count: 0, sum: 0.0, buckets }
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        for bucket in self.buckets.iter_mut().filter(|bucket| value <= bucket.le) {
            bucket.count += 1;
        }
    }
}

impl Measurements {
    /// The text that Prometheus scrapes (its exposition format, version 0.0.4).
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for Measurement { name, help, kind, series } in self.0.values() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            line(&mut text, format_args!("# HELP {name} {help}"));
            line(&mut text, format_args!("# TYPE {name} {kind}"));
            for Series { labels, number } in series {
                match number {
                    Number::Plain { value } => {
                        line(
                            &mut text,
                            format_args!("{name}{} {value}", format_labels(labels, None)),
                        );
                    }
                    Number::Histogram(Histogram { count, sum, buckets }) => {
                        let finite = buckets.iter().map(|it| (it.le.to_string(), it.count));
                        for (le, count) in finite.chain([("+Inf".to_owned(), *count)]) {
                            let labels = format_labels(labels, Some(&le));
                            line(&mut text, format_args!("{name}_bucket{labels} {count}"));
                        }
                        let labels = format_labels(labels, None);
                        line(&mut text, format_args!("{name}_sum{labels} {sum}"));
                        line(&mut text, format_args!("{name}_count{labels} {count}"));
                    }
                }
            }
        }
        text
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{words}");
}

fn format_labels(labels: &BTreeMap<String, String>, le: Option<&str>) -> String {
    let quoted = |(name, value): (&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all: Vec<String> = own.chain(le.map(|le| ("le", le))).map(quoted).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn both() -> Measurements {
        let mut histogram = Histogram::new(&[1.0, 2.5]);
        for value in [0.5, 2.0, 2.5, 9.0] {
            histogram.observe(value);
        }
        let of = |name: &str, kind, labels, number| Measurement {
            name: name.to_owned(),
            help: "One\nof\\two".to_owned(),
            kind,
            series: vec![Series { labels, number }],
        };
        let plain = labels(&[("by", "a\"b\\c\nd"), ("of", "é")]);
        Measurements(BTreeMap::from([
            ("n".to_owned(), of("n_total", Kind::Counter, plain, Number::Plain { value: 3 })),
            (
                "took".to_owned(),
                of("took_ms", Kind::Histogram, labels(&[]), Number::Histogram(histogram)),
            ),
        ]))
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let expected = "# HELP n_total One\\nof\\\\two\n# TYPE n_total counter\n\
                        n_total{by=\"a\\\"b\\\\c\\nd\",of=\"é\"} 3\n\
                        # HELP took_ms One\\nof\\\\two\n# TYPE took_ms histogram\n\
                        took_ms_bucket{le=\"1\"} 1\ntook_ms_bucket{le=\"2.5\"} 3\n\
                        took_ms_bucket{le=\"+Inf\"} 4\ntook_ms_sum 14\ntook_ms_count 4\n";
        assert_eq!(both().to_prometheus(), expected);
    }

    #[test]
    fn json_has_the_same_and_is_read_back() {
        let value = serde_json::to_value(both()).unwrap();
        assert_eq!(value["n"]["series"][0]["value"], 3);
        assert_eq!(value["took"]["type"], "histogram");
        let buckets = json!([{ "le": 1.0, "count": 1 }, { "le": 2.5, "count": 3 }]);
        assert_eq!(value["took"]["series"][0]["buckets"], buckets);
        assert_eq!(serde_json::from_value::<Measurements>(value).unwrap(), both());
    }
}
