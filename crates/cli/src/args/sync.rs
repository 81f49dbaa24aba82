//! The arguments of `stockade sync` and `stockade workspace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stockade_core::{OrNone, parse_bytes_or_none};

use super::examples;
use super::sandbox::ServerMode;

#[derive(Debug, Args)]
pub struct Sync {
    /// A directory: of the host, or ID:PATH, or workspace:NAME[/PATH]. One of the two is in a sandbox
    pub from: OsString,
    /// The directory that gets the files
    pub to: OsString,
    /// Copy only what a pattern matches, in the form of a line of a .gitignore file; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Leave out what a pattern matches; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Also copy what .gitignore files name
    #[arg(long)]
    pub no_gitignore: bool,
    /// Also copy directories without files
    #[arg(long)]
    pub empty_dirs: bool,
    /// Delete what FROM does not have from TO, except what patterns exclude or a .gitignore file names
    #[arg(long, visible_alias = "delete", conflicts_with = "two_way")]
    pub mirror: bool,
    /// Copy the changes of both directories to the other one
    #[arg(long)]
    pub two_way: bool,
    /// Allow a mirror of an empty directory
    #[arg(long, requires = "mirror")]
    pub allow_empty: bool,
    /// What to do with files that both sides have changed
    #[arg(long, value_name = "POLICY", default_value = "fail")]
    pub conflict: Conflict,
    /// Commit what changes outside of the sandbox, in the workspace or the git repository
    #[arg(long)]
    pub commit: bool,
    /// The message of the commit
    #[arg(long, short, value_name = "TEXT", requires = "commit")]
    pub message: Option<String>,
    /// The branch of the workspace or of the commit [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Also copy .git directories into the sandbox
    #[arg(long)]
    pub git_dirs: bool,
    /// The largest file that is copied, or `none`
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_file: Option<OrNone<u64>>,
    /// What to do with larger files
    #[arg(long, value_name = "POLICY", default_value = "skip")]
    pub large_files: Large,
    /// The most that is copied, or `none`
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_size: Option<OrNone<u64>>,
    /// The most files that are copied
    #[arg(long, value_name = "COUNT")]
    pub max_files: Option<u64>,
    /// Only print what would be done
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

/// What is done with files that both sides have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Conflict {
    /// Nothing is copied
    Fail,
    /// They stay as they are
    Skip,
    /// The files outside of the sandbox win
    #[value(alias = "vfs_wins")]
    VfsWins,
    /// The files of the sandbox win
    #[value(alias = "container_wins")]
    ContainerWins,
}

/// What is done with files that are larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Large {
    /// They are not copied
    Skip,
    /// Nothing is copied
    Fail,
}

#[derive(Debug, Args)]
pub struct Workspace {
    /// What to do
    #[command(subcommand)]
    pub what: WorkspaceCommand,
}

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    #[command(after_help = examples::WORKSPACE_CREATE)]
    Create(OneWorkspace),
    /// List workspaces
    #[command(visible_alias = "list")]
    #[command(after_help = examples::WORKSPACE_LS)]
    Ls(ListWorkspaces),
    /// Remove a workspace with its history
    #[command(visible_alias = "remove")]
    #[command(after_help = examples::WORKSPACE_RM)]
    Rm(OneWorkspace),
    /// List the files of a workspace
    #[command(after_help = examples::WORKSPACE_FILES)]
    Files(WorkspaceFiles),
    /// Print a file of a workspace
    #[command(after_help = examples::WORKSPACE_CAT)]
    Cat(WorkspaceFiles),
    /// Stage a file, from a file of the host or standard input
    #[command(after_help = examples::WORKSPACE_WRITE)]
    Write(WriteWorkspace),
    /// Stage a new directory
    #[command(after_help = examples::WORKSPACE_MKDIR)]
    Mkdir(WorkspacePaths),
    /// Stage the deletion of files and directories
    #[command(after_help = examples::WORKSPACE_DELETE)]
    Delete(WorkspacePaths),
    /// Drop what is staged
    #[command(after_help = examples::WORKSPACE_DISCARD)]
    Discard(OneBranch),
    /// Commit what is staged
    #[command(after_help = examples::WORKSPACE_COMMIT)]
    Commit(CommitWorkspace),
    /// List the commits of a workspace
    #[command(after_help = examples::WORKSPACE_LOG)]
    Log(WorkspaceLog),
}

#[derive(Debug, Args)]
pub struct OneWorkspace {
    /// The name of the workspace
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct ListWorkspaces {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct OneBranch {
    /// The name of the workspace
    pub name: String,
    /// The branch [default: main]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct WorkspaceFiles {
    /// The name of the workspace
    pub name: String,
    /// A file or directory
    pub path: Option<OsString>,
    /// A branch or the id of a commit [default: main, with what is staged]
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct WriteWorkspace {
    /// The name of the workspace
    pub name: String,
    /// The path in the workspace
    pub path: OsString,
    /// The file of the host; standard input if it is missing or `-`
    pub file: Option<PathBuf>,
    /// The branch [default: main]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct WorkspacePaths {
    /// The name of the workspace
    pub name: String,
    /// Paths in the workspace
    #[arg(required = true)]
    pub path: Vec<OsString>,
    /// The branch [default: main]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct CommitWorkspace {
    /// The name of the workspace
    pub name: String,
    /// The message
    #[arg(long, short, value_name = "TEXT")]
    pub message: String,
    /// The branch [default: main]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct WorkspaceLog {
    /// The name of the workspace
    pub name: String,
    /// A branch or the id of a commit [default: main]
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

impl Workspace {
    /// Whether errors must be printed as JSON, too.
    pub const fn wants_json(&self) -> bool {
        match &self.what {
            WorkspaceCommand::Create(OneWorkspace { json, .. })
            | WorkspaceCommand::Ls(ListWorkspaces { json, .. })
            | WorkspaceCommand::Rm(OneWorkspace { json, .. })
            | WorkspaceCommand::Files(WorkspaceFiles { json, .. })
            | WorkspaceCommand::Cat(WorkspaceFiles { json, .. })
            | WorkspaceCommand::Write(WriteWorkspace { json, .. })
            | WorkspaceCommand::Mkdir(WorkspacePaths { json, .. })
            | WorkspaceCommand::Delete(WorkspacePaths { json, .. })
            | WorkspaceCommand::Discard(OneBranch { json, .. })
            | WorkspaceCommand::Commit(CommitWorkspace { json, .. })
            | WorkspaceCommand::Log(WorkspaceLog { json, .. }) => *json,
        }
    }
}
