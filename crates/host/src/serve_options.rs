//! The options of `serve`: one list, from which a flag, an environment variable and a member of the
//! configuration file get the same name. A flag precedes a variable, and that the file. The table in
//! `SPECIFICATION.md` is this list.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use clap::ValueEnum as _;
use stockade_cli::args::serve::Serve;
use stockade_core::{Code, Problem};

use crate::web::LoginFile;

/// The prefix of the variables.
const PREFIX: &str = "STOCKADE_";
/// The table that only the file can have.
const LOGIN: &str = "login";
/// The largest configuration file, in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// `true` or `false`; in a variable also `1` or `0`.
    Switch,
    /// Several texts: an array in the file, and in a variable separated by this byte.
    List(u8),
}

/// An option.
#[derive(Debug)]
struct Definition {
    /// Its name as a flag and in the file.
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
}

const fn option(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Definition {
    Definition { name, kind, default, about }
}

const OPTIONS: [Definition; 26] = [
    option("listen", Kind::Text, "`127.0.0.1:8080`", "the address and port for clients over TCP"),
    option("data-dir", Kind::Text, "the user's", "the data directory"),
    option(
        "database-url",
        Kind::Text,
        "a file in the data directory",
        "the PostgreSQL database with the records; a password only in the variable or the file",
    ),
    option(
        "cluster-secret-file",
        Kind::Text,
        "none",
        "the file with the secret of all servers on this database",
    ),
    option(
        "cluster-url",
        Kind::Text,
        "that of the listener",
        "the URL at which the other servers reach this one",
    ),
    option(
        "queues",
        Kind::List(b','),
        "all",
        "the queues that this server works on: `fireflow-sandbox`, or `none`",
    ),
    option(
        "host-patience",
        Kind::Number,
        "`120`",
        "after how many seconds of silence a server is given up with its sandboxes",
    ),
    option("tls-cert", Kind::Text, "none", "the certificates for TLS, in PEM format"),
    option("tls-key", Kind::Text, "none", "the private key for TLS, in PEM format"),
    option(
        "allowed-host",
        Kind::List(b','),
        "those of the loopback",
        "further host names under which clients address the server",
    ),
    option(
        "allowed-origin",
        Kind::List(b','),
        "none",
        "the origins whose web pages are served with a key or a token",
    ),
    option(
        "public-ports",
        Kind::Switch,
        "`false`",
        "ports of programs in sandboxes of E2B's clients need no token, unless `allowPublicTraffic` is false",
    ),
    option(
        "sandbox-domain",
        Kind::Text,
        "`localhost`",
        "the domain whose names are those of ports of sandboxes, for browsers",
    ),
    option(
        "public-url",
        Kind::Text,
        "`http://localhost` with the port",
        "the URL under which browsers reach the server",
    ),
    option(
        "allow-plaintext",
        Kind::Switch,
        "`false`",
        "listen without TLS where other hosts reach the address",
    ),
    option("allow-no-keys", Kind::Switch, "`false`", "listen there before there is an API key"),
    option(
        "requests-per-minute",
        Kind::Number,
        "`60000`",
        "how many requests each API key may send in a minute",
    ),
    option(
        "bytes-per-minute",
        Kind::Text,
        "no limit",
        "how many bytes the requests and responses of each API key may have in a minute, such as `10G`",
    ),
    option(
        "log",
        Kind::Text,
        "none",
        "write a line for each request to the standard error: `text` or `json`",
    ),
    option(
        "log-file",
        Kind::Text,
        "the standard error",
        "the file that these lines are written to; full ones are kept as FILE.1 to FILE.5",
    ),
    option("log-file-size", Kind::Text, "`64M`", "when the file of the log is full"),
    option(
        "otlp",
        Kind::Text,
        "none",
        "the collector that a trace of each request is sent to, by OTLP over HTTP; needs a build with the feature `otlp`",
    ),
    option("max-sandboxes", Kind::Number, "`1000`", "the most sandboxes of an owner"),
    option("max-snapshots", Kind::Number, "`1000`", "the most snapshots of an owner"),
    option("pool", Kind::Number, "`64`", "how many sandboxes are started in advance, at most 512"),
    option(
        "host-paths",
        Kind::List(b':'),
        "all",
        "the directories that a `<Sandbox>` may mount; none if it is empty",
    ),
];

impl Definition {
    /// Its environment variable.
    fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// The text of a value in the file, as it is in a variable.
    fn text(&self, value: &toml::Value) -> Result<OsString, String> {
        let expected = match (self.kind, value) {
            (Kind::Text, toml::Value::String(text)) => return Ok(text.into()),
            (Kind::Number, toml::Value::Integer(number)) => return Ok(number.to_string().into()),
            (Kind::Switch, toml::Value::Boolean(is_on)) => return Ok(is_on.to_string().into()),
            (Kind::List(separator), toml::Value::Array(all)) => {
                return self.joined(separator, all.iter().map(|one| one.as_str()));
            }
            (Kind::Text, _) => "a text",
            (Kind::Number, _) => "a whole number",
            (Kind::Switch, _) => "`true` or `false`",
            (Kind::List(_), _) => "an array of texts",
        };
        let Self { name, about, default, .. } = self;
        Err(format!("`{name}` must be {expected}: {about}; the default is {default}"))
    }

    /// Several texts as one.
    fn joined<'a>(
        &self,
        separator: u8,
        all: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<OsString, String> {
        let mut joined = Vec::new();
        for (number, text) in all.enumerate() {
            let text = text.ok_or_else(|| format!("`{}` must be an array of texts", self.name))?;
            if text.is_empty() || text.as_bytes().contains(&separator) {
                return Err(format!("`{}` has the invalid value {text:?}", self.name));
            }
            if number > 0 {
                joined.push(separator);
            }
            joined.extend(text.as_bytes());
        }
        Ok(OsString::from_vec(joined))
    }
}

/// The values of the options.
pub(crate) struct Values<V> {
    flags: BTreeMap<&'static str, OsString>,
    variable: V,
    file: ConfigFile,
}

/// The content of a configuration file.
#[derive(Debug, Default)]
struct ConfigFile {
    members: BTreeMap<&'static str, OsString>,
    login: Option<LoginFile>,
}

impl<V: Fn(&str) -> Option<OsString>> Values<V> {
    /// The values of these flags, of variables, and of the file that the flags or the environment
    /// (`STOCKADE_CONFIG`) name.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a file that cannot be read, or that has unknown members.
    pub(crate) fn read(
        flags: &Serve,
        data_dir: Option<&Path>,
        variable: V,
    ) -> Result<Self, Problem> {
        let named = variable("STOCKADE_CONFIG").filter(|name| !name.is_empty());
        let path = flags.config.clone().or_else(|| named.map(Into::into));
        let text = path.as_deref().map(read_file).transpose()?;
        Self::of(flags, data_dir, variable, text.as_deref().unwrap_or_default())
            .map_err(|why| unreadable(path.as_deref().unwrap_or_else(|| Path::new("")), why))
    }

    /// The same with the text of a file.
    pub(crate) fn of(
        flags: &Serve,
        data_dir: Option<&Path>,
        variable: V,
        file: &str,
    ) -> Result<Self, String> {
        Ok(Self { flags: of_flags(flags, data_dir), variable, file: parse(file)? })
    }

    /// The value for the variable of an option. Any other variable is that of the environment.
    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        let Some(option) = OPTIONS.iter().find(|option| option.variable() == name) else {
            return (self.variable)(name);
        };
        // An empty list is a value.
        let counts = |value: &OsString| !value.is_empty() || option.name == "host-paths";
        let of_file = || self.file.members.get(option.name).cloned();
        let of_flag = self.flags.get(option.name).cloned();
        of_flag.or_else(|| (self.variable)(name).filter(counts)).or_else(of_file)
    }

    /// The table about logins.
    pub(crate) const fn login(&self) -> Option<&LoginFile> {
        self.file.login.as_ref()
    }

    /// The value of a switch.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a variable with another value.
    pub(crate) fn is_on(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name).as_deref().map(|value| value.as_bytes()) {
            None | Some(b"false" | b"0") => Ok(false),
            Some(b"true" | b"1") => Ok(true),
            Some(_) => {
                let message = format!("{name} must be `true` or `false`");
                Err(Problem::new(Code::InvalidInput, message).remedied_by(format!("unset {name}")))
            }
        }
    }
}

fn of_flags(flags: &Serve, data_dir: Option<&Path>) -> BTreeMap<&'static str, OsString> {
    let path = |path: &Option<std::path::PathBuf>| path.clone().map(OsString::from);
    let number = |number: Option<u32>| number.map(|number| number.to_string().into());
    let switch = |is_on: bool| is_on.then(|| "true".into());
    let hosts = (!flags.allowed_host.is_empty()).then(|| flags.allowed_host.join(",").into());
    let origins = (!flags.allowed_origin.is_empty()).then(|| flags.allowed_origin.join(",").into());
    let queues = (!flags.queues.is_empty()).then(|| flags.queues.join(",").into());
    let log = flags.log.and_then(|format| format.to_possible_value());
    let log = log.map(|format| format.get_name().into());
    let all: [(&str, Option<OsString>); 26] = [
        ("listen", flags.listen.map(|address| address.to_string().into())),
        ("data-dir", data_dir.map(Into::into)),
        ("database-url", flags.database_url.clone().map(Into::into)),
        ("cluster-secret-file", path(&flags.cluster_secret_file)),
        ("cluster-url", flags.cluster_url.clone().map(Into::into)),
        ("queues", queues),
        ("host-patience", number(flags.host_patience)),
        ("tls-cert", path(&flags.tls_cert)),
        ("tls-key", path(&flags.tls_key)),
        ("allowed-host", hosts),
        ("allowed-origin", origins),
        ("public-ports", switch(flags.public_ports)),
        ("sandbox-domain", flags.sandbox_domain.clone().map(Into::into)),
        ("public-url", flags.public_url.clone().map(Into::into)),
        ("allow-plaintext", switch(flags.allow_plaintext)),
        ("allow-no-keys", switch(flags.allow_no_keys)),
        ("requests-per-minute", number(flags.requests_per_minute)),
        ("bytes-per-minute", flags.bytes_per_minute.map(|bytes| bytes.to_string().into())),
        ("log", log),
        ("log-file", path(&flags.log_file)),
        ("log-file-size", flags.log_file_size.map(|bytes| bytes.to_string().into())),
        ("otlp", flags.otlp.clone().map(Into::into)),
        ("max-sandboxes", number(flags.max_sandboxes)),
        ("max-snapshots", number(flags.max_snapshots)),
        ("pool", number(flags.pool)),
        ("host-paths", flags.host_paths.clone()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn read_file(path: &Path) -> Result<String, Problem> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 <= FILE_BYTES => Ok(text),
        Ok(_) => Err(unreadable(path, format!("it is larger than {FILE_BYTES} bytes"))),
        Err(error) => Err(unreadable(path, error.to_string())),
    }
}

fn unreadable(path: &Path, why: String) -> Problem {
    let message = format!("the configuration {} cannot be used", path.display());
    Problem::new(Code::InvalidInput, message).because(why)
}

/// Reads a configuration file.
fn parse(text: &str) -> Result<ConfigFile, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut file = ConfigFile::default();
    for (name, value) in table {
        if name == LOGIN {
            let login = value.try_into().map_err(|error| format!("`[{LOGIN}]`: {error}"))?;
            file.login = Some(login);
            continue;
        }
        let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
            let known: Vec<_> = OPTIONS.iter().map(|option| option.name).chain([LOGIN]).collect();
            return Err(format!("there is no option {name:?}; known ones: {}", known.join(", ")));
        };
        file.members.insert(option.name, option.text(&value)?);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use stockade_cli::args::Arguments;
    use stockade_cli::programs::FRONT;

    use super::*;

    fn values<'v>(
        flags: &Serve,
        file: &str,
        variables: &'v [(&'v str, &'v str)],
    ) -> Values<impl Fn(&str) -> Option<OsString> + 'v> {
        let variable = |asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| OsString::from(value))
        };
        Values::of(flags, None, variable, file).unwrap()
    }

    #[test]
    fn a_flag_precedes_a_variable_and_that_the_file() {
        let file =
            "listen = '127.0.0.1:1'\nallowed-host = ['a', 'b']\npool = 3\nallow-no-keys = true";
        let variables = [("STOCKADE_LISTEN", "127.0.0.1:2"), ("STOCKADE_POOL", "")];
        let flags = Serve { listen: "127.0.0.1:3".parse().ok(), ..Serve::default() };
        fn get<V: Fn(&str) -> Option<OsString>>(all: &Values<V>, name: &str) -> Option<String> {
            all.get(name).map(|value| value.into_string().unwrap())
        }
        let all = values(&flags, file, &variables);
        assert_eq!(get(&all, "STOCKADE_LISTEN").as_deref(), Some("127.0.0.1:3"));
        assert_eq!(get(&all, "STOCKADE_ALLOWED_HOST").as_deref(), Some("a,b"));
        assert_eq!(get(&all, "STOCKADE_POOL").as_deref(), Some("3"));
        assert_eq!(get(&all, "STOCKADE_TLS_KEY"), None);
        assert_eq!(all.is_on("STOCKADE_ALLOW_NO_KEYS"), Ok(true));
        assert_eq!(all.is_on("STOCKADE_ALLOW_PLAINTEXT"), Ok(false));
        let default = Serve::default();
        let all = values(&default, file, &variables);
        assert_eq!(get(&all, "STOCKADE_LISTEN").as_deref(), Some("127.0.0.1:2"));
        let other = [("STOCKADE_ALLOW_NO_KEYS", "0"), ("STOCKADE_HOST_PATHS", "")];
        let all = values(&default, file, &other);
        assert_eq!(all.is_on("STOCKADE_ALLOW_NO_KEYS"), Ok(false));
        assert_eq!(get(&all, "STOCKADE_HOST_PATHS").as_deref(), Some(""));
        let wrong = [("STOCKADE_ALLOW_NO_KEYS", "yes")];
        assert!(values(&default, "", &wrong).is_on("STOCKADE_ALLOW_NO_KEYS").is_err());
    }

    #[test]
    fn unknown_members_and_other_types_are_refused() {
        for refused in [
            "lisen = '127.0.0.1:1'",
            "listen = 8080",
            "pool = '3'",
            "pool = 3.5",
            "allow-no-keys = 'true'",
            "allowed-host = 'a'",
            "allowed-host = ['a,b']",
            "host-paths = ['/a:/b']",
            "[listen]\naddress = 'x'",
            "login = 'x'",
            "[login]\nissuer = 'https://a.example'",
            "[login]\nissuer = 'https://a.example'\nclient-id = 'a'\nclient-name = 'b'",
            "listen",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
        assert_eq!(parse("host-paths = []").unwrap().members["host-paths"], "");
        let login = "pool = 3\n[login]\nissuer = 'https://a.example'\nclient-id = 'a'";
        let file = parse(login).unwrap();
        assert_eq!((file.members.len(), file.login.is_some()), (1, true));
    }

    #[test]
    fn each_option_is_a_flag_and_each_flag_an_option() {
        let mut definition = Arguments::definition(FRONT);
        definition.build();
        let serve = definition.find_subcommand("serve").unwrap();
        let flags: Vec<_> = serve
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .filter(|name| !["config", "help", "version", "server", "tls-ca"].contains(name))
            .collect();
        for option in &OPTIONS {
            assert!(flags.contains(&option.name), "{}", option.name);
        }
        assert_eq!(flags.len(), OPTIONS.len(), "{flags:?}");
    }

    #[test]
    fn the_specification_has_this_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SPECIFICATION.md");
        let text = std::fs::read_to_string(path).unwrap();
        let head = "| flag | variable | in the file | default | meaning |\n|---|---|---|---|---|\n";
        let rows = OPTIONS.iter().map(|option| {
            let Definition { name, default, about, .. } = option;
            let variable = option.variable();
            format!("| `--{name}` | `{variable}` | `{name}` | {default} | {about} |\n")
        });
        let table: String = std::iter::once(head.to_owned()).chain(rows).collect();
        assert!(text.contains(&table), "SPECIFICATION.md needs:\n{table}");
    }
}
