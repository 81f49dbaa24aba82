//! The content of `config.toml` and `stockade.toml`: named profiles, each with values for flags. An
//! unknown key is an error, because ignoring it could give a sandbox more than its author meant.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr as _;
use std::time::Duration;

use clap::ValueEnum as _;
use stockade_core::network::AllowedHost;
use stockade_core::network::secret::BoundSecret;
use stockade_core::{
    OrNone, parse_bytes_or_none, parse_count_or_none, parse_cpus_or_none, parse_duration_or_none,
};
use toml::{Table, Value};

use crate::args::sandbox_flags::Tool;
use crate::request::{check_cache, check_volume};

/// Why a file is invalid, in words.
pub(crate) type Invalid = String;

/// The name that chooses no profile.
pub(crate) const NO_PROFILE: &str = "none";

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// The profile that is used if none is chosen.
    pub(crate) default: Option<String>,
    pub(crate) profiles: BTreeMap<String, Values>,
    /// How registries are reached; only in the user's own file.
    pub(crate) registries: Option<Registries>,
}

/// The table `registries`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registries {
    /// Hosts that may be reached without TLS, besides the loopback.
    pub(crate) insecure: Vec<String>,
    /// For each registry, the hosts that are asked first.
    pub(crate) mirrors: BTreeMap<String, Vec<String>>,
}

/// The values of one profile. Texts are kept as they are written where a message shows them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    pub(crate) allow: Vec<AllowedHost>,
    /// As for `--mount`.
    pub(crate) mounts: Vec<String>,
    /// As for `--volume`, without paths of the host.
    pub(crate) volumes: Vec<String>,
    /// As for `--env`.
    pub(crate) environment: Vec<String>,
    /// As for `--secret`.
    pub(crate) secrets: Vec<(String, BoundSecret)>,
    /// Paths that commands cannot read.
    pub(crate) hide: Vec<String>,
    /// As for `--tools`.
    pub(crate) tools: Vec<Tool>,
    /// As for `--cache`.
    pub(crate) caches: Vec<String>,
    /// As for `--private-base`.
    pub(crate) private_base: bool,
    pub(crate) limits: LimitValues,
}

/// The table `limits` of a profile.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitValues {
    pub(crate) memory: Option<OrNone<u64>>,
    pub(crate) cpus: Option<OrNone<u64>>,
    pub(crate) pids: Option<OrNone<u64>>,
    pub(crate) disk: Option<OrNone<u64>>,
    pub(crate) output: Option<OrNone<u64>>,
    pub(crate) timeout: Option<OrNone<Duration>>,
    /// All of them as they are written, for messages.
    pub(crate) written: Vec<(String, String)>,
}

const KEYS: [&str; 3] = ["default", "profile", "registries"];
const REGISTRY_KEYS: [&str; 2] = ["insecure", "mirrors"];
const PROFILE_KEYS: [&str; 10] = [
    "allow",
    "cache",
    "env",
    "hide",
    "limits",
    "mount",
    "privateBase",
    "secret",
    "tools",
    "volume",
];
const LIMIT_KEYS: [&str; 6] = ["cpus", "disk", "memory", "output", "pids", "timeout"];

impl Document {
    /// Parses the content of a file.
    ///
    /// # Errors
    /// What is invalid, and where.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, Invalid> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        check_keys(&table, &KEYS, "")?;
        let mut document = Self::default();
        if let Some(default) = table.get("default") {
            document.default = Some(text_of(default, "default")?.to_owned());
        }
        if let Some(registries) = table.get("registries") {
            document.registries = Some(self::registries(table_of(registries, "registries")?)?);
        }
        let Some(profiles) = table.get("profile") else { return Ok(document) };
        let profiles = table_of(profiles, "profile")?;
        for (name, values) in profiles {
            if name == NO_PROFILE || name.is_empty() {
                return Err(format!("`{name}` cannot be the name of a profile"));
            }
            let at = format!("profile.{name}");
            let values = profile(table_of(values, &at)?, &at)?;
            document.profiles.insert(name.clone(), values);
        }
        Ok(document)
    }
}

fn registries(table: &Table) -> Result<Registries, Invalid> {
    check_keys(table, &REGISTRY_KEYS, "registries")?;
    let mut registries = Registries::default();
    if let Some(insecure) = table.get("insecure") {
        registries.insecure = texts_of(insecure, "registries.insecure")?;
        let is_host = |host: &&String| !host.is_empty() && !host.contains(['/', '@', ' ']);
        if let Some(wrong) = registries.insecure.iter().find(|host| !is_host(host)) {
            return Err(format!("registries.insecure: {wrong:?} is not a host such as lab:5000"));
        }
    }
    if let Some(mirrors) = table.get("mirrors") {
        for (name, hosts) in table_of(mirrors, "registries.mirrors")? {
            let hosts = texts_of(hosts, &format!("registries.mirrors.{name:?}"))?;
            registries.mirrors.insert(name.clone(), hosts);
        }
    }
    Ok(registries)
}

fn profile(table: &Table, at: &str) -> Result<Values, Invalid> {
    check_keys(table, &PROFILE_KEYS, at)?;
    let texts = |key: &str| match table.get(key) {
        Some(value) => texts_of(value, &format!("{at}.{key}")),
        None => Ok(Vec::new()),
    };
    let invalid = |key: &str, text: &str, why: &dyn Display| format!("{at}.{key}: {text:?}: {why}");
    let mut values = Values {
        mounts: texts("mount")?,
        hide: texts("hide")?,
        volumes: texts("volume")?,
        caches: texts("cache")?,
        ..Values::default()
    };
    for text in texts("tools")? {
        let tool = Tool::from_str(&text, false).map_err(|_| {
            let known: Vec<_> = Tool::value_variants().iter().map(|tool| tool.name()).collect();
            let why = format!("there is no such toolchain; known: {}", known.join(", "));
            invalid("tools", &text, &why)
        })?;
        values.tools.push(tool);
    }
    for text in &values.caches {
        check_cache(text).map_err(|why| invalid("cache", text, &why))?;
    }
    for text in &values.volumes {
        check_volume(text).map_err(|why| invalid("volume", text, &why))?;
    }
    for text in texts("allow")? {
        let host = AllowedHost::from_str(&text).map_err(|why| invalid("allow", &text, &why))?;
        values.allow.push(host);
    }
    for text in texts("secret")? {
        let secret = BoundSecret::from_str(&text).map_err(|why| invalid("secret", &text, &why))?;
        values.secrets.push((text, secret));
    }
    values.environment = match table.get("env") {
        Some(Value::Table(variables)) => {
            let mut all = Vec::new();
            for (name, value) in variables {
                if name.is_empty() || name.contains(['=', '\0']) {
                    return Err(format!("{at}.env: {name:?} is not the name of a variable"));
                }
                all.push(format!("{name}={}", text_of(value, &format!("{at}.env.{name}"))?));
            }
            all
        }
        _ => texts("env")?,
    };
    if let Some(private) = table.get("privateBase") {
        values.private_base =
            private.as_bool().ok_or_else(|| format!("{at}.privateBase is not true or false"))?;
    }
    if let Some(limits) = table.get("limits") {
        let at = format!("{at}.limits");
        values.limits = limit_values(table_of(limits, &at)?, &at)?;
    }
    Ok(values)
}

fn limit_values(table: &Table, at: &str) -> Result<LimitValues, Invalid> {
    check_keys(table, &LIMIT_KEYS, at)?;
    let mut limits = LimitValues::default();
    for (key, value) in table {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => return Err(format!("{at}.{key} is not a text or a number")),
        };
        let invalid = |error: stockade_core::ParseError| format!("{at}.{key}: {error}");
        match key.as_str() {
            "memory" => limits.memory = Some(parse_bytes_or_none(&text).map_err(invalid)?),
            "cpus" => limits.cpus = Some(parse_cpus_or_none(&text).map_err(invalid)?),
            "pids" => limits.pids = Some(parse_count_or_none(&text).map_err(invalid)?),
            "disk" => limits.disk = Some(parse_bytes_or_none(&text).map_err(invalid)?),
            "output" => limits.output = Some(parse_bytes_or_none(&text).map_err(invalid)?),
            _ => limits.timeout = Some(parse_duration_or_none(&text).map_err(invalid)?),
        }
        limits.written.push((key.clone(), text));
    }
    Ok(limits)
}

fn check_keys(table: &Table, known: &[&str], at: &str) -> Result<(), Invalid> {
    let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let place = if at.is_empty() { String::new() } else { format!(" in [{at}]") };
    let all = known.join(", ");
    Err(match nearest(key, known.iter().copied()) {
        Some(name) => format!("unknown key {key:?}{place}; did you mean `{name}`?"),
        None => format!("unknown key {key:?}{place}; known keys: {all}"),
    })
}

/// The name with the smallest number of differing letters, if there are few.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    let distances = known.into_iter().map(|known| (distance(&lower, &known.to_lowercase()), known));
    let (distance, found) = distances.min()?;
    (distance <= found.len().div_ceil(3)).then_some(found)
}

/// The number of letters to insert, remove or replace.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, known) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

fn table_of<'v>(value: &'v Value, at: &str) -> Result<&'v Table, Invalid> {
    value.as_table().ok_or_else(|| format!("{at} is not a table"))
}

fn text_of<'v>(value: &'v Value, at: &str) -> Result<&'v str, Invalid> {
    let text = value.as_str().ok_or_else(|| format!("{at} is not a text"))?;
    if text.contains('\0') {
        return Err(format!("{at} contains a NUL character"));
    }
    Ok(text)
}

fn texts_of(value: &Value, at: &str) -> Result<Vec<String>, Invalid> {
    let list = value.as_array().ok_or_else(|| format!("{at} is not a list of texts"))?;
    list.iter().map(|text| text_of(text, at).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_profiles() {
        let document = Document::parse(
            br#"
            default = "work"
            [profile.work]
            allow = ["example.com:443"]
            mount = ["~/data:/data:ro"]
            env = { CI = "1" }
            secret = ["TOKEN@example.com"]
            hide = [".env"]
            [profile.work.limits]
            memory = "2G"
            pids = 500
            cpus = 0.5
            timeout = "none"
            [profile.other]
            env = ["TERM", "A=b"]
            privateBase = true
            [registries]
            insecure = ["lab:5000"]
            mirrors = { "docker.io" = ["mirror:80", "https://m.example"] }
            "#,
        )
        .unwrap();
        let registries = document.registries.as_ref().unwrap();
        assert_eq!(registries.insecure, ["lab:5000"]);
        assert_eq!(registries.mirrors["docker.io"], ["mirror:80", "https://m.example"]);
        assert_eq!(document.default.as_deref(), Some("work"));
        let work = &document.profiles["work"];
        assert_eq!(work.allow.len(), 1);
        assert_eq!(work.environment, ["CI=1"]);
        assert_eq!(work.secrets[0].0, "TOKEN@example.com");
        assert_eq!(work.limits.memory, Some(OrNone(Some(2 << 30))));
        assert_eq!(work.limits.cpus, Some(OrNone(Some(500))));
        assert_eq!(work.limits.pids, Some(OrNone(Some(500))));
        assert_eq!(work.limits.timeout, Some(OrNone(None)));
        assert_eq!(document.profiles["other"].environment, ["TERM", "A=b"]);
        assert_eq!((work.private_base, document.profiles["other"].private_base), (false, true));
        assert!(Document::parse(b"").unwrap().profiles.is_empty());
    }

    #[test]
    fn what_is_unknown_or_invalid_is_refused_by_name() {
        for (text, part) in [
            ("defualt = 'x'", "did you mean `default`?"),
            ("[profile.a]\nalow = []", "did you mean `allow`?"),
            ("[profile.a]\nmounts = []", "did you mean `mount`?"),
            ("[profile.a]\nnetwork = 'all'", "known keys"),
            ("[profile.a.limits]\nmem = '1G'", "in [profile.a.limits]"),
            ("[profile.a.limits]\nmemory = '1X'", "profile.a.limits.memory"),
            ("[profile.a]\nallow = ['https://']", "profile.a.allow"),
            ("[profile.a]\nsecret = ['TOKEN']", "profile.a.secret"),
            ("[profile.a]\ntools = ['nodee']", "known: node"),
            ("[profile.a]\ncache = ['nothing']", "profile.a.cache"),
            ("[profile.a]\nvolume = ['/etc:/x']", "profile.a.volume"),
            ("[profile.a]\nvolume = ['data']", "profile.a.volume"),
            ("[profile.a]\nmount = '/a:/b'", "not a list"),
            ("[profile.a]\nenv = { 'A=B' = 'x' }", "not the name of a variable"),
            ("[profile.a]\nprivateBase = 'yes'", "not true or false"),
            ("[profile.none]", "`none` cannot be"),
            ("profile = 1", "not a table"),
            ("default = \"a\\u0000\"", "NUL"),
            ("[registries]\nmirror = 1", "did you mean `mirrors`?"),
            ("[registries]\ninsecure = 'a'", "not a list"),
            ("[registries]\ninsecure = ['http://a']", "not a host"),
            ("[registries.mirrors]\n'docker.io' = 'a'", "not a list"),
            ("x", ""),
        ] {
            let error = Document::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Document::parse(b"default = '\xff'").is_err());
    }
}
