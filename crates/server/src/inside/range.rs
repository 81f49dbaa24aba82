//! The part of a file that a request selects with the header `range`.

/// The part of a file that a request selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// From this byte on, so many bytes.
    Range(u64, u64),
    /// None of its bytes.
    Outside,
}

/// A range (RFC 9110, section 14). One that is invalid, or of several parts, is ignored, as the
/// standard says.
pub(crate) fn parse(range: &str, size: u64) -> Part {
    let Some(range) = range.strip_prefix("bytes=") else { return Part::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return Part::Whole };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match (number(first), number(last)) {
        (Some(from), Some(to)) if from <= to => (from, to.min(size.saturating_sub(1))),
        (Some(from), None) if last.trim().is_empty() => (from, size.saturating_sub(1)),
        (None, Some(0)) if first.trim().is_empty() => return Part::Outside,
        (None, Some(last)) if first.trim().is_empty() => {
            (size.saturating_sub(last), size.saturating_sub(1))
        }
        _ => return Part::Whole,
    };
    if from >= size { Part::Outside } else { Part::Range(from, to - from + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        for (range, part) in [
            ("bytes=0-3", Part::Range(0, 4)),
            ("bytes=8-100", Part::Range(8, 2)),
            ("bytes=5-", Part::Range(5, 5)),
            ("bytes=-3", Part::Range(7, 3)),
            ("bytes=-30", Part::Range(0, 10)),
            ("bytes=10-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=3-1", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=1-2", Part::Whole),
            ("bytes=", Part::Whole),
        ] {
            assert_eq!(parse(range, 10), part, "{range}");
        }
        assert_eq!(parse("bytes=0-", 0), Part::Outside);
    }
}
