//! Suggests the known name that was probably meant by an unknown one.

/// The nearest known name, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let allowed = if name.len() < 3 { 1 } else { name.len() / 3 + 1 };
    let distances = known.into_iter().map(|known| {
        let other: Vec<char> = known.to_lowercase().chars().collect();
        (distance(&name, &other), known)
    });
    distances.filter(|(far, _)| *far <= allowed).min_by_key(|(far, _)| *far).map(|(_, known)| known)
}

/// The message for a field that an object does not have.
pub(crate) fn unknown_field(object: &str, field: &str, known: &[&str]) -> String {
    let hint = match nearest(field, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("it has {}", known.join(", ")),
    };
    format!("`{object}` has no `{field}` — {hint}")
}

/// The number of letters to add, remove, replace or swap with their neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_near() {
        let known = ["timeoutMs", "retries", "retryPolicy", "continueOnFail", "id"];
        for (typed, expected) in [
            ("timeout", Some("timeoutMs")),
            ("timeoutMS", Some("timeoutMs")),
            ("retires", Some("retries")),
            ("continueonfail", Some("continueOnFail")),
            ("ID", Some("id")),
            ("volumes", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, known), expected, "{typed}");
        }
    }
}
