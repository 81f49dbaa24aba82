//! Applying hunks at exactly their line numbers.

use crate::patch::{Hunk, Line, Side};

/// Applies the hunks to `base`; the error says why they do not match it.
pub fn apply(base: &[u8], hunks: &[Hunk<'_>]) -> Result<Vec<u8>, &'static str> {
    let lines: Vec<&[u8]> = base.split_inclusive(|byte| *byte == b'\n').collect();
    let mut new = Vec::with_capacity(base.len());
    let mut next = 0;
    // Whether the line written last is the last line of the file.
    let mut is_ended = false;
    for hunk in hunks {
        let first = hunk.old_start as usize;
        // An empty range follows the line that it names.
        let first = if hunk.old_count == 0 { first } else { first.saturating_sub(1) };
        let kept = lines.get(next..first).ok_or("it refers to lines that do not exist")?;
        kept.iter().for_each(|line| new.extend_from_slice(line));
        is_ended |= kept.last().is_some_and(|line| !line.ends_with(b"\n"));
        next = first;
        for line in &hunk.lines {
            if line.side != Side::New {
                if lines.get(next).is_none_or(|found| !is_same(found, line)) {
                    return Err("the lines that it refers to are different");
                }
                next += 1;
            }
            if line.side != Side::Old {
                if is_ended {
                    return Err("it extends beyond the end of the file");
                }
                new.extend_from_slice(line.text);
                if line.newline {
                    new.push(b'\n');
                }
                is_ended = !line.newline;
            }
        }
    }
    let rest = lines.get(next..).unwrap_or_default();
    if is_ended && !rest.is_empty() {
        return Err("it extends beyond the end of the file");
    }
    rest.iter().for_each(|line| new.extend_from_slice(line));
    Ok(new)
}

fn is_same(found: &[u8], line: &Line<'_>) -> bool {
    match found.strip_suffix(b"\n") {
        Some(text) => line.newline && text == line.text,
        None => !line.newline && found == line.text,
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::BundleLimits;

    use super::*;

    fn applied(base: &str, hunks: &str) -> Result<String, &'static str> {
        let text = format!("--- a/x\n+++ b/x\n{hunks}");
        let files = crate::patch::parse(text.as_bytes(), &BundleLimits::RUN).unwrap();
        apply(base.as_bytes(), &files[0].hunks).map(|new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn hunks_apply_at_their_lines() {
        let base = "1\n2\n3\n4\n5\n6\n";
        for (hunks, new) in [
            ("@@ -1,2 +1,2 @@\n-1\n+one\n 2\n", "one\n2\n3\n4\n5\n6\n"),
            ("@@ -0,0 +1 @@\n+0\n", "0\n1\n2\n3\n4\n5\n6\n"),
            ("@@ -6,0 +7 @@\n+7\n", "1\n2\n3\n4\n5\n6\n7\n"),
            ("@@ -2 +2,2 @@\n 2\n+b\n@@ -5,2 +6 @@\n-5\n 6\n", "1\n2\nb\n3\n4\n6\n"),
            ("@@ -6 +6 @@\n-6\n+6\n\\ No newline at end of file\n", "1\n2\n3\n4\n5\n6"),
        ] {
            assert_eq!(applied(base, hunks).as_deref(), Ok(new), "{hunks}");
        }
        let last = "@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+2\n";
        assert_eq!(applied("1\n2", last).as_deref(), Ok("1\n2\n"));
    }

    #[test]
    fn what_does_not_fit_exactly_is_refused() {
        let base = "1\n2\n3\n";
        for hunks in [
            "@@ -1 +1 @@\n-2\n+x\n",
            "@@ -4 +4 @@\n-4\n+x\n",
            "@@ -9,0 +10 @@\n+x\n",
            "@@ -3 +3 @@\n-3\n\\ No newline at end of file\n+x\n",
            "@@ -2 +2 @@\n-2\n+x\n\\ No newline at end of file\n",
            "@@ -1 +1 @@\n-1 \n+x\n",
        ] {
            assert!(applied(base, hunks).is_err(), "{hunks}");
        }
        // Nothing can follow a line without a newline at its end.
        assert!(applied("1", "@@ -1,0 +2 @@\n+2\n").is_err());
    }
}
