//! The header with which a browser saves a file of a sandbox under the file's name, and shows it nowhere.

use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands for itself in a name with percent signs (RFC 8187, section 3.2.1).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The value of `Content-Disposition` for the file with this path.
pub(crate) fn attachment(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let encoded = utf8_percent_encode(name, ENCODED);
    let text = format!("attachment; filename*=UTF-8''{encoded}");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_saved_under_its_own_name() {
        for (path, expected) in [
            ("/home/user/report-1.csv", "report-1.csv"),
            ("a.txt", "a.txt"),
            ("/tmp/ü 1.txt", "%C3%BC%201.txt"),
            ("/tmp/\"; filename=evil.html\r\nx: y", "%22%3B%20filename%3Devil.html%0D%0Ax%3A%20y"),
        ] {
            let value = attachment(path);
            assert_eq!(value, format!("attachment; filename*=UTF-8''{expected}"), "{path}");
        }
    }
}
