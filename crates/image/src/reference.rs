//! The name of an image, read as Docker reads it: `node:20-alpine` is
//! `docker.io/library/node:20-alpine`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, InvalidDigest};

/// The registry of a name without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Another name of the same registry.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// The first part of a repository of the default registry that has only one part.
const OFFICIAL: &str = "library";
/// The tag of a name with neither tag nor digest.
const DEFAULT_TAG: &str = "latest";
/// The greatest length of a repository's name with its registry.
const MAX_NAME: usize = 255;
/// The greatest length of a tag.
const MAX_TAG: usize = 128;

/// The whole name of an image: registry, repository, and a tag or a digest or both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
    /// Whether the tag was added because there was neither tag nor digest.
    defaulted: bool,
}

/// Why a text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// It is empty.
    #[error("the name of an image is empty")]
    Empty,
    /// It has upper-case letters outside of the tag.
    #[error("the name of an image has upper-case letters: `{0}`")]
    UpperCase(String),
    /// It has a part that no repository or registry can have.
    #[error("`{}` is not the name of an image", .0.escape_debug())]
    Name(String),
    /// It has a tag that no image can have.
    #[error("`{}` is not a tag of an image", .0.escape_debug())]
    Tag(String),
    /// The digest cannot be used.
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
    /// It is too long.
    #[error("the name of an image is longer than {MAX_NAME} characters")]
    TooLong,
}

impl Reference {
    /// The host of the registry, with the port if the name has one: `docker.io` is the registry
    /// that Docker uses when there is none.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository at the registry, such as `library/node`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; absent only where there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest. Where there is one, it alone says which image is meant, and the tag is only a
    /// note.
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Whether the text had neither a tag nor a digest, so that `latest` was assumed: a warning is
    /// due.
    pub const fn is_unpinned(&self) -> bool {
        self.defaulted
    }

    /// Whether the other name has the same registry and repository.
    pub fn is_same_repository(&self, other: &Self) -> bool {
        self.registry == other.registry && self.repository == other.repository
    }

    /// The same repository with this digest alone.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), defaulted: false, ..self.clone() }
    }

    /// The same name with this digest, so that it always means the same.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), defaulted: false, ..self.clone() }
    }

    /// The same repository with this tag alone.
    ///
    /// # Errors
    /// [`InvalidReference::Tag`].
    pub fn with_tag(&self, tag: &str) -> Result<Self, InvalidReference> {
        check_tag(tag)?;
        Ok(Self { tag: Some(tag.to_owned()), digest: None, defaulted: false, ..self.clone() })
    }

    /// The name as people write it: without the default registry and its `library/`.
    pub fn familiar(&self) -> String {
        let mut text = match (self.registry.as_str(), self.repository.strip_prefix("library/")) {
            (DEFAULT_REGISTRY, Some(official)) => official.to_owned(),
            (DEFAULT_REGISTRY, None) => self.repository.clone(),
            (registry, _) => format!("{registry}/{}", self.repository),
        };
        text.push_str(&self.suffix());
        text
    }

    fn suffix(&self) -> String {
        let tag = self.tag.iter().map(|tag| format!(":{tag}"));
        tag.chain(self.digest.iter().map(|digest| format!("@{digest}"))).collect()
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if text.is_empty() {
            return Err(InvalidReference::Empty);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        // A colon before a slash belongs to the port of a registry.
        let tag_at = rest.rfind(':').filter(|colon| !rest[*colon..].contains('/'));
        let (name, tag) = match tag_at {
            Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
            None => (rest, None),
        };
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let (registry, repository) = split_registry(name);
        let whole_name = || name.to_owned();
        if !is_host(registry) {
            return Err(InvalidReference::Name(whole_name()));
        }
        if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidReference::UpperCase(whole_name()));
        }
        if !repository.split('/').all(is_component) {
            return Err(InvalidReference::Name(whole_name()));
        }
        let registry = if registry == LEGACY_REGISTRY { DEFAULT_REGISTRY } else { registry };
        let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
            format!("{OFFICIAL}/{repository}")
        } else {
            repository.to_owned()
        };
        if registry.len() + 1 + repository.len() > MAX_NAME {
            return Err(InvalidReference::TooLong);
        }
        let defaulted = tag.is_none() && digest.is_none();
        let tag = if defaulted { Some(DEFAULT_TAG) } else { tag }.map(str::to_owned);
        Ok(Self { registry: registry.to_owned(), repository, tag, digest, defaulted })
    }
}

/// The first part of a name is a registry if it cannot be anything else: it has a dot or a port,
/// or is `localhost`, or has upper-case letters.
fn split_registry(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_REGISTRY, name),
    }
}

fn is_host(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, port.strip_prefix(':').or(Some(""))),
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        },
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let is_host = if registry.starts_with('[') {
        host.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    };
    is_host && port.is_none_or(is_port)
}

/// Lower-case letters and digits, separated by a dot, one or two underscores, or hyphens.
fn is_component(component: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().is_some_and(is_word) && bytes.last().is_some_and(is_word);
    ends && bytes.split(is_word).all(|between| {
        matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|b| *b == b'-')
    })
}

fn check_tag(tag: &str) -> Result<(), InvalidReference> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_next = |byte: u8| is_first(byte) || matches!(byte, b'.' | b'-');
    let is_tag = tag.bytes().next().is_some_and(is_first)
        && tag.bytes().all(is_next)
        && tag.len() <= MAX_TAG;
    if is_tag { Ok(()) } else { Err(InvalidReference::Tag(tag.to_owned())) }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.registry, self.repository, self.suffix())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl TryFrom<String> for Reference {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests;
