//! Commands of tasks: the command lines of agents, and the two executors. A command is executed in a
//! sandbox of its own or, if this process is itself confined, beside this process, and nowhere else.

mod agent_command;
mod executor;
pub(crate) mod helper;
mod local_executor;
mod output;
mod sandbox_executor;

pub(crate) use agent_command::{AgentCommand, resolve};
pub(crate) use executor::{
    CommandResult, DEFAULT_TIMEOUT, Executor, Job, OUTPUT_LIMIT_BYTES, RUN_LABEL, SANDBOX_LABEL,
    no_executor, project_of, without_network,
};
pub use local_executor::OuterSandbox;
pub(crate) use local_executor::{HelperGuard, LocalExecutor};
pub(crate) use output::{CommandOutput, output_event, read_output};
pub(crate) use sandbox_executor::SandboxExecutor;
