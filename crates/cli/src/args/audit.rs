//! The arguments of `audit`.

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

#[derive(Debug, Args)]
pub struct Audit {
    #[command(subcommand)]
    pub what: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List the audit records: who requested what, and how it was decided
    #[command(visible_alias = "list", after_help = examples::AUDIT_LS)]
    Ls(AuditList),
    /// Check that no record was changed, removed, moved or added
    #[command(after_help = examples::AUDIT_VERIFY)]
    Verify(AuditVerify),
    /// Print the records for another program, one JSON object per line
    #[command(after_help = examples::AUDIT_EXPORT)]
    Export(AuditExport),
}

#[derive(Debug, Args)]
pub struct AuditList {
    /// List only the last N records
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// List only requests that were refused or failed
    #[arg(long)]
    pub refused: bool,
    #[command(flatten)]
    pub common: AuditOptions,
}

#[derive(Debug, Args)]
pub struct AuditVerify {
    #[command(flatten)]
    pub common: AuditOptions,
}

#[derive(Debug, Args)]
pub struct AuditExport {
    /// The form of the records
    #[arg(long, value_enum, default_value_t = AuditFormat::Ocsf)]
    pub format: AuditFormat,
}

/// The form of exported records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// API Activity of the Open Cybersecurity Schema Framework
    Ocsf,
    /// As they are stored
    Json,
}

#[derive(Debug, Args)]
pub struct AuditOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Audit {
    /// Whether errors must be printed as JSON, too.
    pub(crate) const fn wants_json(&self) -> bool {
        match &self.what {
            AuditCommand::Ls(AuditList { common, .. })
            | AuditCommand::Verify(AuditVerify { common }) => common.json,
            AuditCommand::Export(_) => false,
        }
    }
}
