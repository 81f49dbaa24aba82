//! Variables in the environment of a run ([`Up::environment`](crate::Up::environment)) that limit its
//! tools, or name its secrets or its server. The command that starts a run sets them; the engine reads them.

/// How much each command of an agent or of a `<Sandbox>` of a run may write, in bytes.
pub const MAX_OUTPUT_BYTES: &str = "STOCKADE_MAX_OUTPUT_BYTES";
/// How long each command of an agent or of a `<Sandbox>` of a run may take, in milliseconds.
pub const TOOL_TIMEOUT_MS: &str = "STOCKADE_TOOL_TIMEOUT_MS";

/// The URL of the server that holds the sandboxes of a run ([`Up::server`](crate::Up::server)).
pub const SERVER: &str = "STOCKADE_RUN_SERVER";

/// The secrets of a run and the hosts that receive them, as `NAME@HOST` or `NAME@HOST:PORT`, separated by
/// spaces. Their values are in [`Up::secrets`](crate::Up::secrets), and stored nowhere.
pub const SECRETS: &str = "STOCKADE_SECRETS";
