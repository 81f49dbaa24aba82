//! The types of secrets with their fields: those of FireFlow's vault, and one of ours for keys of ssh.

use std::fmt;

/// The type of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Any text.
    Text,
    /// An API key of OpenAI.
    OpenAi,
    /// An API key of Anthropic.
    Anthropic,
    /// An API key of Gemini.
    Gemini,
    /// An API key of DeepSeek.
    DeepSeek,
    /// An API key of Groq.
    Groq,
    /// An API key of Moonshot.
    Moonshot,
    /// An API key of CoinMarketCap.
    CoinMarketCap,
    /// A private key of 0G.
    ZeroG,
    /// The keys of a user of X.
    XApi,
    /// The keys of an application of X.
    XApp,
    /// The keys of the exchange of OKX.
    OkxDexApi,
    /// An API key of Alchemy.
    Alchemy,
    /// A private key of ssh. FireFlow has no such type.
    Ssh,
}

impl Kind {
    /// All types.
    pub const ALL: &[Self] = &[
        Self::Text,
        Self::OpenAi,
        Self::Anthropic,
        Self::Gemini,
        Self::DeepSeek,
        Self::Groq,
        Self::Moonshot,
        Self::CoinMarketCap,
        Self::ZeroG,
        Self::XApi,
        Self::XApp,
        Self::OkxDexApi,
        Self::Alchemy,
        Self::Ssh,
    ];

    /// Its name, which is FireFlow's where it has the type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::DeepSeek => "deepseek",
            Self::Groq => "groq",
            Self::Moonshot => "moonshot",
            Self::CoinMarketCap => "coinmarketcap",
            Self::ZeroG => "0g",
            Self::XApi => "xAPI",
            Self::XApp => "xApp",
            Self::OkxDexApi => "OkxDexApi",
            Self::Alchemy => "alchemy",
            Self::Ssh => "ssh",
        }
    }

    /// The names of its fields.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Text => &["value"],
            Self::OpenAi
            | Self::Anthropic
            | Self::Gemini
            | Self::DeepSeek
            | Self::Groq
            | Self::Moonshot
            | Self::CoinMarketCap
            | Self::Alchemy => &["apiKey"],
            Self::ZeroG | Self::Ssh => &["privateKey"],
            Self::XApi | Self::XApp => &["key", "secretKey"],
            Self::OkxDexApi => &["apiKey", "apiPassphrase", "secretKey"],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
