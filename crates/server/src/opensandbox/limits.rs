//! Resource limits as OpenSandbox writes them: the quantities of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use stockade_core::sandbox::{BestEffort, Limits};

use crate::failure::{Failure, invalid, unsupported};

/// What the clients request if their user requests nothing.
const DEFAULTS: [(&str, &str); 2] = [("cpu", "1"), ("memory", "2Gi")];

/// The limits of a request, and which of them this host may be unable to enforce: only the defaults
/// of the clients, which their users did not choose.
pub(super) fn limits(
    requested: &BTreeMap<String, String>,
) -> Result<(Limits, BTreeSet<BestEffort>), Failure> {
    let mut limits = Limits::default();
    for (name, value) in requested {
        let number = quantity(value).ok_or_else(|| {
            invalid(format!("the resource limit `{name}` is {value:?}, which is no quantity"))
        });
        match name.as_str() {
            "cpu" => limits.cpu_millis = Some(number?),
            "memory" => limits.memory_bytes = Some(whole(name, number?)?),
            "disk" | "storage" | "ephemeral-storage" => {
                limits.disk_bytes = Some(whole(name, number?)?);
            }
            "pids" => limits.processes = Some(whole(name, number?)?),
            other => return Err(unsupported(format_args!("the resource limit `{other}`"))),
        }
    }
    let is_default = requested.len() == DEFAULTS.len()
        && DEFAULTS.iter().all(|(name, value)| requested.get(*name).is_some_and(|it| it == value));
    let best_effort = match is_default {
        true => [BestEffort::Cpus, BestEffort::Memory].into(),
        false => BTreeSet::new(),
    };
    Ok((limits, best_effort))
}

fn whole(name: &str, thousandths: u64) -> Result<u64, Failure> {
    match thousandths / 1000 {
        0 => Err(invalid(format!("the resource limit `{name}` is too small"))),
        number => Ok(number),
    }
}

/// A quantity in thousandths.
fn quantity(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor: u64 = match unit {
        "m" => 1,
        "" => 1000,
        "k" | "K" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let value = digits.checked_mul(factor.into())? / scale;
    u64::try_from(value).ok().filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<(Limits, bool)> {
        let map = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (limits, best_effort) = limits(&map.collect()).ok()?;
        Some((limits, best_effort.is_empty()))
    }

    #[test]
    fn quantities_are_those_of_kubernetes() {
        let (limits, strict) = read(&[("cpu", "500m"), ("memory", "512Mi")]).unwrap();
        assert_eq!((limits.cpu_millis, limits.memory_bytes), (Some(500), Some(512 << 20)));
        assert!(strict);
        let (limits, strict) = read(&[("cpu", "1"), ("memory", "2Gi")]).unwrap();
        assert_eq!((limits.cpu_millis, limits.memory_bytes), (Some(1000), Some(2 << 30)));
        assert!(!strict, "the defaults of the clients");
        let (limits, _) = read(&[("cpu", "1.5"), ("pids", "64"), ("disk", "1G")]).unwrap();
        assert_eq!(limits.cpu_millis, Some(1500));
        assert_eq!((limits.processes, limits.disk_bytes), (Some(64), Some(1_000_000_000)));
        for (name, value) in [
            ("cpu", ""),
            ("cpu", "0"),
            ("cpu", "-1"),
            ("cpu", "1x"),
            ("cpu", "1.2.3"),
            ("memory", "1m"),
            ("memory", ".5Gi"),
            ("memory", "99999999999999Ti"),
            ("gpu", "1"),
        ] {
            assert!(read(&[(name, value)]).is_none(), "{name}={value}");
        }
    }
}
