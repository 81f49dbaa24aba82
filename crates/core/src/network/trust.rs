//! The certificates that programs inside trust, and the variables by which they find them.

/// Where programs inside find the certificates to trust, if the system's are not sufficient.
pub const TRUSTED_INSIDE: &str = "/etc/stockade/authorities.pem";

/// The variables by which programs inside find the trusted certificates, for programs that do not
/// use the system's: OpenSSL and similar libraries, curl, git, Python, Node, npm, Deno, cargo, Nix,
/// Elixir, Ruby, Perl, and the tools of AWS and Google.
pub fn trust_variables() -> impl Iterator<Item = (&'static str, String)> {
    const NAMES: [&str; 15] = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "DENO_CERT",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "NIX_SSL_CERT_FILE",
        "HEX_CACERTS_PATH",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
        "BUNDLE_SSL_CA_CERT",
        "PERL_LWP_SSL_CA_FILE",
        "npm_config_cafile",
    ];
    NAMES.into_iter().map(|name| (name, TRUSTED_INSIDE.to_owned()))
}
