//! The platform that an image is made for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An operating system, a processor architecture and its variant, with the names that Go uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system: `linux`.
    pub os: String,
    /// The architecture, such as `amd64`.
    pub architecture: String,
    /// The variant of the architecture, such as `v7`, where it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// A text that is no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a platform such as linux/amd64 or linux/arm/v7", .0.escape_debug())]
pub struct InvalidPlatform(String);

impl Platform {
    /// A platform in normal form: other names of an architecture are replaced, and the usual
    /// variant is left out.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let variant = variant.filter(|variant| !variant.is_empty());
        let (architecture, variant) = match (architecture, variant) {
            ("x86_64" | "x86-64" | "amd64", None | Some("v1")) => ("amd64", None),
            ("x86_64" | "x86-64", variant) => ("amd64", variant),
            ("aarch64" | "arm64", None | Some("8" | "v8")) => ("arm64", None),
            ("aarch64", variant) => ("arm64", variant),
            ("i386" | "i486" | "i586" | "i686" | "x86", _) => ("386", None),
            ("armhf" | "arm", None | Some("7" | "v7")) => ("arm", Some("v7")),
            ("armel", _) => ("arm", Some("v6")),
            ("powerpc64le", variant) => ("ppc64le", variant),
            other => other,
        };
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    /// Whether an image of the other platform is one for this platform: only a variant that one
    /// of them does not name may differ, and older ARM variants are included in newer ones.
    pub fn accepts(&self, image: &Self) -> bool {
        let variants = match (&self.variant, &image.variant) {
            (Some(wanted), Some(found)) => {
                wanted == found || (self.architecture == "arm" && found < wanted)
            }
            _ => true,
        };
        self.os == image.os && self.architecture == image.architecture && variants
    }

    /// The platform of this host.
    pub fn host() -> Self {
        Self::new("linux", std::env::consts::ARCH, None)
    }
}

impl FromStr for Platform {
    type Err = InvalidPlatform;

    fn from_str(text: &str) -> Result<Self, InvalidPlatform> {
        let invalid = || InvalidPlatform(text.to_owned());
        let is_name = |part: &&str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        let parts: Vec<&str> = text.split('/').collect();
        if !parts.iter().all(is_name) {
            return Err(invalid());
        }
        match parts[..] {
            ["linux"] => Ok(Self::host()),
            [os, architecture] => Ok(Self::new(os, architecture, None)),
            [os, architecture, variant] => Ok(Self::new(os, architecture, Some(variant))),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_has_one_name() {
        let text = |text: &str| text.parse::<Platform>().map(|platform| platform.to_string());
        assert_eq!(text("linux/x86_64").unwrap(), "linux/amd64");
        assert_eq!(text("linux/arm64/v8").unwrap(), "linux/arm64");
        assert_eq!(text("linux/arm").unwrap(), "linux/arm/v7");
        assert_eq!(text("linux/arm/v6").unwrap(), "linux/arm/v6");
        assert_eq!(text("linux").unwrap(), Platform::host().to_string());
        for wrong in ["", "linux/", "Linux/amd64", "linux/amd64/v1/x", "linux/../etc"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
