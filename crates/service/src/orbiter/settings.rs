//! The parameters of Orbiter's `Sandbox` and its description of itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::id::InvalidId;
use stockade_core::{Code, Problem, SandboxId};

use super::status::Status;

/// The parameters of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Its id; empty for a random one.
    pub sandbox_id: String,
    /// The directories that its tools may use.
    pub workspace: Vec<String>,
    /// The configuration of MCP servers for its agents.
    pub mcp_config: Map<String, Value>,
    /// Its agents.
    pub agents: Map<String, Value>,
    /// How long one call of a tool may take, in seconds.
    pub timeout: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sandbox_id: String::new(),
            workspace: Vec::new(),
            mcp_config: Map::new(),
            agents: Map::new(),
            timeout: 30.0,
        }
    }
}

impl Settings {
    /// The sandbox's id: the requested one, or twelve hexadecimal digits of `random_bytes`, random bytes
    /// from the caller.
    ///
    /// # Errors
    /// [`InvalidId`] for a requested id that is invalid.
    pub fn id(&self, random: [u8; 6]) -> Result<SandboxId, InvalidId> {
        if self.sandbox_id.is_empty() {
            let digits = random.iter().map(|byte| format!("{byte:02x}"));
            return SandboxId::new(digits.collect::<String>());
        }
        SandboxId::new(self.sandbox_id.as_str())
    }

    /// Refuses what would have no effect.
    ///
    /// # Errors
    /// [`Code::Unsupported`] if MCP servers or agents are set.
    pub(crate) fn require_supported(&self) -> Result<(), Problem> {
        let refused = [
            (
                &self.mcp_config,
                "`mcp_config` has no effect here: the client library for Python starts these servers",
                "omit `mcp_config`, or use `LocalSandbox`: pip install ./sdk/python",
            ),
            (
                &self.agents,
                "`agents` has no effect here: an agent runs outside of the sandbox and calls `run_tool`",
                "omit `agents`, or run a workflow with agents: stockade up",
            ),
        ];
        match refused.into_iter().find(|(setting, ..)| !setting.is_empty()) {
            None => Ok(()),
            Some((_, message, remedy)) => {
                Err(Problem::new(Code::Unsupported, message).remedied_by(remedy))
            }
        }
    }

    /// The description in a status: a copy.
    pub fn describe(&self, sandbox_id: SandboxId, status: Status) -> Description {
        let (workspace, timeout) = (self.workspace.clone(), self.timeout);
        Description { sandbox_id, status, workspace, timeout }
    }
}

/// The description of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its id.
    pub sandbox_id: SandboxId,
    /// Its status.
    pub status: Status,
    /// The directories that its tools may use.
    pub workspace: Vec<String>,
    /// How long one call of a tool may take, in seconds.
    pub timeout: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_or_made_up() {
        let id = |sandbox_id: &str| {
            let settings = Settings { sandbox_id: sandbox_id.to_owned(), ..Settings::default() };
            settings.id([0, 1, 0xab, 0xff, 16, 9]).map(|id| id.to_string())
        };
        assert_eq!(id(""), Ok("0001abff1009".to_owned()));
        assert_eq!(id("d1"), Ok("d1".to_owned()));
        assert!(id("../d1").is_err());
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        assert!(Settings::default().require_supported().is_ok());
        let config = Map::from_iter([("m".to_owned(), Value::Null)]);
        for settings in [
            Settings { mcp_config: config.clone(), ..Settings::default() },
            Settings { agents: config, ..Settings::default() },
        ] {
            assert_eq!(settings.require_supported().unwrap_err().code, Code::Unsupported);
        }
    }

    #[test]
    fn a_description_is_a_copy() {
        let settings = Settings { workspace: vec!["/a".to_owned()], ..Settings::default() };
        let mut description = settings.describe(settings.id([7; 6]).unwrap(), Status::Init);
        description.workspace.push("/b".to_owned());
        assert_eq!(settings.workspace, ["/a"]);
        assert!(serde_json::from_str::<Settings>(r#"{"image":"x"}"#).is_err());
    }
}
