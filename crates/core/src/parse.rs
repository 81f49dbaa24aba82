//! Parsing of sizes, durations and processor shares as people write them.

use std::time::Duration;

/// A value that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is invalid: expected {expected}")]
pub struct ParseError {
    /// The value.
    pub input: String,
    /// The expected form, with an example.
    pub expected: &'static str,
}

/// Parses a number of bytes: `1048576`, `64k`, `512M`, `1.5g`, `2GiB`. Units are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    let expected = "a size such as 512M, 2g or 1048576";
    let units = |unit: &str| match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1.0),
        "k" | "kb" | "kib" => Some(1024.0),
        "m" | "mb" | "mib" => Some(1024.0 * 1024.0),
        "g" | "gb" | "gib" => Some(1024.0 * 1024.0 * 1024.0),
        "t" | "tb" | "tib" => Some(1024.0_f64.powi(4)),
        _ => None,
    };
    let value = with_unit(text, units, expected)?;
    whole(value, text, expected)
}

/// Parses a duration: `30` (seconds), `1.5s`, `250ms`, `10m`, `2h`, `1d`, `1w`, and sums such as
/// `1h30m`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let expected = "a duration such as 30s, 250ms, 10m, 2h, 1h30m or 7d";
    let units = |unit: &str| match unit {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        "w" => Some(604_800.0),
        _ => None,
    };
    let refused = || ParseError { input: text.to_owned(), expected };
    let mut seconds = 0.0;
    let mut last_unit = f64::INFINITY;
    for part in parts(text) {
        let unit = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        // In a sum every part has a unit, each smaller than the one before.
        let factor = units(unit).filter(|factor| *factor < last_unit).ok_or_else(refused)?;
        if unit.is_empty() && part.len() < text.len() {
            return Err(refused());
        }
        last_unit = factor;
        seconds += with_unit(part, units, expected).map_err(|_| refused())?;
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(refused()),
    }
}

/// Splits a sum such as `1h30m` before each number; a text without a number stays whole.
fn parts(text: &str) -> Vec<&str> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let bytes = text.as_bytes();
    let starts = (1..bytes.len()).filter(|at| is_number(bytes[*at]) && !is_number(bytes[*at - 1]));
    let starts: Vec<_> = std::iter::once(0).chain(starts).chain([bytes.len()]).collect();
    starts.windows(2).filter_map(|pair| text.get(pair[0]..pair[1])).collect()
}

/// A limit as users write it: a value, or `none` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

/// The text for no limit.
const NONE: &str = "none";

/// Parses a duration or `none`.
pub fn parse_duration_or_none(text: &str) -> Result<OrNone<Duration>, ParseError> {
    or_none(text, "a duration such as 30s, 10m, 2h, 1h30m or 7d, or `none`", parse_duration)
}

/// Parses a size or `none`.
pub fn parse_bytes_or_none(text: &str) -> Result<OrNone<u64>, ParseError> {
    or_none(text, "a size such as 512M, 2g or 1048576, or `none`", parse_bytes)
}

/// Parses a share of processors or `none`.
pub fn parse_cpus_or_none(text: &str) -> Result<OrNone<u64>, ParseError> {
    or_none(text, "a number of processors such as 0.5 or 2, or `none`", parse_cpus)
}

/// Parses a whole number of at least one, or `none`.
pub fn parse_count_or_none(text: &str) -> Result<OrNone<u64>, ParseError> {
    let expected = "a whole number of at least 1, or `none`";
    let count = |text: &str| {
        let refused = || ParseError { input: text.to_owned(), expected };
        text.parse().ok().filter(|count| *count > 0).ok_or_else(refused)
    };
    or_none(text, expected, count)
}

fn or_none<T>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Result<T, ParseError>,
) -> Result<OrNone<T>, ParseError> {
    if text == NONE {
        return Ok(OrNone(None));
    }
    let parsed = parse(text).map_err(|_| ParseError { input: text.to_owned(), expected });
    parsed.map(|value| OrNone(Some(value)))
}

/// Parses a share of processors, such as `0.5` or `2`, as thousandths of one processor.
pub fn parse_cpus(text: &str) -> Result<u64, ParseError> {
    let expected = "a number of processors such as 0.5 or 2";
    let value = with_unit(text, |unit| unit.is_empty().then_some(1000.0), expected)?;
    whole(value, text, expected)
}

fn with_unit(
    text: &str,
    factor: impl Fn(&str) -> Option<f64>,
    expected: &'static str,
) -> Result<f64, ParseError> {
    let refused = || ParseError { input: text.to_owned(), expected };
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| refused())?;
    Ok(number * factor(unit).ok_or_else(refused)?)
}

fn whole(value: f64, text: &str, expected: &'static str) -> Result<u64, ParseError> {
    // 2^53: up to here every whole number has an exact float.
    if value.is_finite() && (1.0..=9_007_199_254_740_992.0).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be between 1 and 2^53 above"
        )]
        return Ok(value as u64);
    }
    Err(ParseError { input: text.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "1x", "M", "1e9", "NaN", "inf", "1 M", "99999999999999999999"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units_and_are_not_zero() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_duration("2w"), Ok(Duration::from_hours(14 * 24)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(parse_duration("1d2h3m4s5ms"), Ok(Duration::from_millis(93_784_005)));
        for text in [
            "", "0", "0ms", "0d", "-3s", "5y", "s", "1.2.3s", "1h30", "30m1h", "1h1h", "1 h",
            "1d-1h", "1D", "h1", "1é2s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_limit_may_be_none() {
        assert_eq!(parse_duration_or_none("none"), Ok(OrNone(None)));
        assert_eq!(parse_duration_or_none("1d"), Ok(OrNone(Some(Duration::from_hours(24)))));
        assert_eq!(parse_bytes_or_none("none"), Ok(OrNone(None)));
        assert_eq!(parse_bytes_or_none("1k"), Ok(OrNone(Some(1024))));
        assert_eq!(parse_cpus_or_none("none"), Ok(OrNone(None)));
        assert_eq!(parse_cpus_or_none("0.5"), Ok(OrNone(Some(500))));
        assert_eq!(parse_count_or_none("none"), Ok(OrNone(None)));
        assert_eq!(parse_count_or_none("3"), Ok(OrNone(Some(3))));
        for text in ["", "0", "None", "never", "-1"] {
            let error = parse_duration_or_none(text).unwrap_err().to_string();
            assert!(error.contains("`none`"), "{error}");
            assert!(parse_bytes_or_none(text).is_err(), "{text}");
            assert!(parse_count_or_none(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_thousandths() {
        assert_eq!(parse_cpus("0.5"), Ok(500));
        assert_eq!(parse_cpus("2"), Ok(2000));
        for text in ["0", "-1", "two", "2cpus"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }
}
