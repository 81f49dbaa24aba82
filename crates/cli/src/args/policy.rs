//! The arguments of `policy`.

use clap::{Args, Subcommand};

use super::examples;

#[derive(Debug, Args)]
pub struct PolicyArguments {
    #[command(subcommand)]
    pub what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check a network policy, and print its rules with those of its presets
    #[command(after_help = examples::POLICY_CHECK)]
    Check {
        /// The file, or the name of a preset
        #[arg(value_name = "FILE|PRESET")]
        policy: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say whether a network policy allows requests, and which rule decides
    #[command(after_help = examples::POLICY_EXPLAIN)]
    Explain {
        /// The file, or the name of a preset
        #[arg(value_name = "FILE|PRESET")]
        policy: String,
        /// The URL, or HOST:PORT
        #[arg(value_name = "URL")]
        url: String,
        /// The method of the request
        #[arg(long, short = 'X', default_value = "GET")]
        method: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what the policy B allows that the policy A does not; the exit code is 1 if there is
    /// something
    #[command(after_help = examples::POLICY_DIFF)]
    Diff {
        /// The file of A, or the name of a preset
        #[arg(value_name = "A")]
        before: String,
        /// The file of B, or the name of a preset
        #[arg(value_name = "B")]
        after: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl PolicyCommand {
    /// Whether errors must be printed as JSON, too.
    pub(crate) const fn wants_json(&self) -> bool {
        match self {
            Self::Check { json, .. } | Self::Explain { json, .. } | Self::Diff { json, .. } => {
                *json
            }
        }
    }
}
