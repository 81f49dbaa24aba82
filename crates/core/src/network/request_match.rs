//! Which requests of HTTP a rule or a binding is about: their methods and paths. A path is read only
//! if all servers read it alike; every other one is refused where a rule depends on it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::name::as_text;

/// The longest pattern, in bytes.
const PATH_BYTES: usize = 1024;
/// The most methods or paths of one rule.
pub const MAX_REQUESTS: usize = 64;

/// A path or, with `/*` at its end, all paths below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern(String);

impl PathPattern {
    /// The beginning of all paths below it, with the slash.
    fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Whether it is about a path that [`canonical_path`] has read.
    pub fn matches(&self, path: &str) -> bool {
        self.prefix().map_or(self.0 == path, |prefix| path.starts_with(prefix))
    }

    /// Whether it is about every path that another one is about.
    pub fn covers(&self, other: &Self) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(own), Some(other)) => other.starts_with(own),
            (Some(own), None) => other.0.starts_with(own),
            (None, None) => self == other,
            (None, Some(_)) => false,
        }
    }

    /// Whether some server may take a path for one that it is about: many ignore the case of letters,
    /// and a slash at the end.
    pub fn may_match(&self, path: &str) -> bool {
        let (own, is_prefix) = self.folded();
        is_within(&own, is_prefix, &folded(path))
    }

    /// Whether some server may take a path for one of both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ((own, is_prefix), (others, is_other_prefix)) = (self.folded(), other.folded());
        is_within(&own, is_prefix, &others) || is_within(&others, is_other_prefix, &own)
    }

    /// Its beginning as [`folded`] writes it, and whether it is about all paths below it.
    fn folded(&self) -> (String, bool) {
        match self.prefix() {
            Some(prefix) => (folded(prefix), true),
            None => (folded(&self.0), false),
        }
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > PATH_BYTES {
            return Err(format!("a path has at most {PATH_BYTES} bytes"));
        }
        let plain = text
            .strip_suffix("/*")
            .map_or(text, |above| if above.is_empty() { "/" } else { above });
        if plain.contains(['*', '?', '#']) {
            return Err(format!("`{text}` is not a path, or a path with `/*` at its end"));
        }
        match canonical_path(plain) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(why) => Err(format!("`{text}` is not a path: {why}")),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

as_text!(PathPattern);

/// A path in small letters and without a slash at its end.
fn folded(path: &str) -> String {
    path.trim_end_matches('/').to_ascii_lowercase()
}

/// Whether a path is another one or, of a prefix, below it. Both are folded.
fn is_within(own: &str, is_prefix: bool, path: &str) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || is_prefix && rest.starts_with('/'))
}

/// Whether some server may take a character for an ASCII one: after it has changed the case of
/// letters, or replaced compatible characters (Unicode, "Normalization Forms").
fn resembles_ascii(character: char) -> bool {
    let is_ascii_then = |mut cased: Box<dyn Iterator<Item = char>>| cased.all(|c| c.is_ascii());
    !character.is_ascii()
        && (is_ascii_then(Box::new(character.to_lowercase()))
            || is_ascii_then(Box::new(character.to_uppercase()))
            || matches!(character,
                '\u{2024}'..='\u{2026}' | '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{29f5}' | '\u{29f8}'
                | '\u{3002}' | '\u{fe52}' | '\u{fe68}' | '\u{ff01}'..='\u{ff5e}' | '\u{ff61}'))
}

/// The path of the target of a request, without its query.
///
/// # Errors
/// Why two servers could read it differently.
pub fn canonical_path(target: &str) -> Result<&str, &'static str> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if !path.starts_with('/') {
        return Err("it does not begin with a slash");
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['\\', '#', ';']) {
        return Err("it has characters that servers read differently");
    }
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err("it has an empty or relative part");
        }
        // Windows leaves out dots and blanks at the end of a name.
        if segment.ends_with('.') || segment.ends_with("%20") {
            return Err("it has a part that ends with a dot or a blank");
        }
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((plain, encoded)) = rest.split_once('%') {
        let digits = encoded.get(..2).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else { return Err("it has an incomplete percent-encoding") };
        // A server that decodes these sees another path.
        if byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"-._~/\\%;?#".contains(&byte)
        {
            return Err("it encodes characters that change which path it is");
        }
        decoded.extend_from_slice(plain.as_bytes());
        decoded.push(byte);
        rest = encoded.get(2..).unwrap_or_default();
    }
    // A longer encoding of an ASCII character is not UTF-8.
    match std::str::from_utf8(&decoded) {
        Ok(text) if !text.chars().any(resembles_ascii) => {}
        _ => return Err("it encodes characters that some servers take for others"),
    }
    Ok(path)
}

/// Which requests something is about: all that have one of the methods, if there are some, and one of
/// the paths, if there are some.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// The methods, in capitals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPattern>,
    /// Whether it is also about the requests by which git fetches: `POST` to a path that ends with
    /// `/git-upload-pack`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub git_fetch: bool,
}

/// The end of the path to which git sends what it wants to fetch.
const GIT_FETCH: &str = "/git-upload-pack";

impl Requests {
    /// The requests that only read, those of git among them.
    pub fn reading() -> Self {
        let methods = ["GET", "HEAD", "OPTIONS"].map(str::to_owned).into();
        Self { methods, paths: Vec::new(), git_fetch: true }
    }

    /// Whether it is about every request.
    pub fn is_all(&self) -> bool {
        self.methods.is_empty() && self.paths.is_empty() && !self.git_fetch
    }

    /// What is wrong with it.
    pub fn fault(&self) -> Option<&'static str> {
        if self.methods.len() > MAX_REQUESTS || self.paths.len() > MAX_REQUESTS {
            return Some("it has too many methods or paths");
        }
        let is_method = |method: &String| {
            !method.is_empty()
                && method.len() <= 32
                && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        };
        if !self.methods.iter().all(is_method) {
            return Some("a method is a word in capitals");
        }
        if self.methods.iter().any(|method| method == "CONNECT") {
            return Some("CONNECT is no request to a host");
        }
        None
    }

    /// Whether it is about a request with this method and path.
    pub fn matches(&self, method: &str, path: &str) -> bool {
        if self.git_fetch && method == "POST" && path.ends_with(GIT_FETCH) {
            return true;
        }
        if self.git_fetch && self.methods.is_empty() && self.paths.is_empty() {
            return false;
        }
        (self.methods.is_empty() || self.methods.iter().any(|own| own == method))
            && (self.paths.is_empty() || self.paths.iter().any(|own| own.matches(path)))
    }

    /// Whether some server may take a request for one that it is about.
    pub fn may_match(&self, method: &str, path: &str) -> bool {
        if self.git_fetch && method == "POST" && folded(path).ends_with(GIT_FETCH) {
            return true;
        }
        if self.git_fetch && self.methods.is_empty() && self.paths.is_empty() {
            return false;
        }
        (self.methods.is_empty() || self.methods.iter().any(|own| own == method))
            && (self.paths.is_empty() || self.paths.iter().any(|own| own.may_match(path)))
    }

    /// Whether it is about every request that another one is about.
    pub fn covers(&self, other: &Self) -> bool {
        if self.is_all() {
            return true;
        }
        // Without methods and paths it is about nothing but fetching.
        let fetches_only = |own: &Self| own.methods.is_empty() && own.paths.is_empty();
        if fetches_only(self) {
            return other.git_fetch && fetches_only(other);
        }
        let has_fetch = !other.git_fetch || self.git_fetch;
        if other.git_fetch && fetches_only(other) {
            return has_fetch;
        }
        let has_methods = self.methods.is_empty()
            || !other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method));
        let has_paths = self.paths.is_empty()
            || !other.paths.is_empty()
                && other.paths.iter().all(|path| self.paths.iter().any(|own| own.covers(path)));
        has_methods && has_paths && has_fetch
    }

    /// Whether some request is of both.
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.git_fetch || other.git_fetch {
            return true;
        }
        let share_method = self.methods.is_empty()
            || other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method));
        let share_path = self.paths.is_empty()
            || other.paths.is_empty()
            || self.paths.iter().any(|own| other.paths.iter().any(|path| own.overlaps(path)));
        share_method && share_path
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.paths.iter().map(ToString::to_string);
        let fetch = self.git_fetch.then(|| "git-fetch".to_owned());
        let words: Vec<_> = self.methods.iter().cloned().chain(paths).chain(fetch).collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_pattern_is_a_path_or_all_below_one() {
        for (text, matching, other) in [
            ("/a", &["/a"][..], &["/a/", "/a/b", "/ab", "/"][..]),
            ("/a/*", &["/a/", "/a/b", "/a/b/c"], &["/a", "/ab", "/b/a/"]),
            ("/*", &["/", "/a", "/a/b"], &[]),
        ] {
            let own = pattern(text);
            assert!(matching.iter().all(|path| own.matches(path)), "{text}");
            assert!(!other.iter().any(|path| own.matches(path)), "{text}");
        }
        for bad in ["", "a", "/a*", "/*/b", "/a?b", "/a/../b", "//a", "/a b", "/a%2fb", "/%61", "*"]
        {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_read_only_in_one_form() {
        for (target, path) in
            [("/", "/"), ("/a/b?x=../y", "/a/b"), ("/a/", "/a/"), ("/caf%C3%A9", "/caf%C3%A9")]
        {
            assert_eq!(canonical_path(target), Ok(path));
        }
        for bad in [
            "*",
            "a",
            "/a/../b",
            "/a/./b",
            "/a//b",
            "//a",
            "/a\\b",
            "/a%2e%2e/b",
            "/a%2Fb",
            "/%61dmin",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%252fb",
            "/a;x/b",
            "/a%00",
            "/..",
            "/a/..",
            "/a./b",
            "/a%20/b",
            "/a%0d",
            "/a%3fb",
            "/a%c0%af",
            "/a%e0%80%af",
            "/%ef%bc%a1",
            "/%e2%84%aa",
            "/a%ff",
        ] {
            assert!(canonical_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_cover_and_overlap() {
        let of = |methods: &[&str], paths: &[&str]| Requests {
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            paths: paths.iter().map(|path| pattern(path)).collect(),
            git_fetch: false,
        };
        let all = of(&[], &[]);
        let reading = of(&["GET", "HEAD"], &[]);
        let below = of(&["GET"], &["/a/*"]);
        assert!(all.covers(&reading) && reading.covers(&below) && all.covers(&below));
        assert!(
            !below.covers(&reading)
                && !reading.covers(&all)
                && !below.covers(&of(&["GET"], &["/a"]))
        );
        assert!(below.overlaps(&of(&[], &["/a/b"])) && !below.overlaps(&of(&["PUT"], &["/a/b"])));
        assert!(!below.overlaps(&of(&["GET"], &["/b/*"])));
        for bad in [of(&["get"], &[]), of(&[""], &[]), of(&["CONNECT"], &[])] {
            assert!(bad.fault().is_some(), "{bad}");
        }
    }
}
