//! Names of headers with a meaning for the whole of a request, as lenient servers read them. Values are
//! not here.

/// Headers that must not be in a trailer, because they have a meaning for the whole message.
const NOT_IN_TRAILERS: &[&str] = &[
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers by which servers, gateways and frameworks let a client replace the method or the path of its
/// request, or name a second path (`Destination`, RFC 4918, section 10.3).
const OVERRIDING: &[&str] = &[
    "destination",
    "x-envoy-original-path",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
    "x-waws-unencoded-url",
];

/// Checks the name of a trailer of a request: some servers add trailers to the headers.
///
/// # Errors
/// It has a meaning for the whole message.
pub(crate) fn check_trailer(name: &str) -> Result<(), &'static str> {
    let plain = hyphenated(name);
    if NOT_IN_TRAILERS.iter().any(|other| plain.eq_ignore_ascii_case(other)) || overrides(name) {
        return Err("a trailer of the request has a meaning for the whole message");
    }
    Ok(())
}

/// Whether a header replaces the method or the path of its request, or names a second path.
pub(super) fn overrides(name: &str) -> bool {
    let name = hyphenated(name);
    OVERRIDING.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The name of a header as gateways and frameworks read it that take an underscore for a hyphen.
pub(super) fn hyphenated(name: &str) -> String {
    name.replace('_', "-")
}
