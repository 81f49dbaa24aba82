//! `stockade trust`: shows what a project's `stockade.toml` asks for, and records the user's consent to
//! exactly this content.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use stockade_bundle::project::Project;
use stockade_core::{Code, Problem};

use crate::args::Trust;
use crate::commands::print::{escaped, notify, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::{Failure, caused};
use crate::profile::{self, Accepted, Grants, PROJECT_FILE};
use crate::terminal;

/// Trusts the file of the current project, or removes that trust.
pub(crate) fn run(arguments: &Trust) -> Result<u8, Failure> {
    let current = std::env::current_dir().map_err(|error| caused(Code::Io, &error))?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = Project::find(&current, home.as_deref())
        .map_err(|error| caused(Code::ProjectRefused, &error))?;
    let data = open_data_dir(&data_path()?)?;
    let shown = project.root.join(PROJECT_FILE);
    if arguments.remove {
        let was_trusted = profile::remove(&project, &data)?;
        let is = if was_trusted { "is no longer trusted" } else { "was not trusted" };
        notify(&format!("{} {is}", escaped(&shown.to_string_lossy())));
        return Ok(0);
    }
    let Some(grants) = profile::project_grants(&project, &data)? else {
        let message = format!("there is no {}", shown.display());
        return Err(Problem::new(Code::NotFound, message).into());
    };
    show(&shown, &grants)?;
    if grants.is_trusted {
        notify("exactly this content is trusted already");
        return Ok(0);
    }
    consent(arguments, &grants)?;
    profile::record(&project, &data, &grants)?;
    notify(&format!(
        "{} is trusted until its content changes; `stockade trust --remove` ends that",
        escaped(&shown.to_string_lossy())
    ));
    Ok(0)
}

/// Prints each grant. The texts come from the project, so nothing in them may forge a line.
fn show(file: &Path, grants: &Grants) -> Result<(), Failure> {
    let mut text = format!("{} asks for:\n", escaped(&file.to_string_lossy()));
    for line in &grants.lines {
        text += &format!("  {}\n", escaped(line));
    }
    let mut sensitive = Vec::new();
    for mount in &grants.mounts {
        let (text, host) = (escaped(&mount.text), mount.host.to_string_lossy());
        sensitive.push(format!("mount of {}: {text}", escaped(&host)));
    }
    let secrets = grants.secrets.iter();
    sensitive.extend(secrets.map(|secret| format!("secret sent to a host: {}", escaped(secret))));
    let variables = grants.variables.iter();
    sensitive.extend(variables.map(|name| format!("your variable {}", escaped(name))));
    if !sensitive.is_empty() {
        text += "and for what is outside of the project:\n";
        text += &sensitive.iter().map(|line| format!("  {line}\n")).collect::<String>();
    }
    print_text(&text)
}

/// Asks for consent on a terminal; without one, every grant outside of the project must be named by a
/// flag.
fn consent(arguments: &Trust, grants: &Grants) -> Result<(), Problem> {
    let accepted = Accepted {
        mounts: &arguments.accept_mount,
        secrets: &arguments.accept_secret,
        variables: &arguments.accept_env,
    };
    let missing = grants.missing(&accepted);
    if terminal::is_on_input() {
        for (flag, text) in &missing {
            let what = flag.trim_start_matches("--accept-");
            ask(&format!("accept the {what} {}?", escaped(text)))?;
        }
        return ask("trust exactly this content?");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let flags = missing.iter().map(|(flag, text)| format!(" {flag} {}", shell_word(text)));
    Err(Problem::new(Code::InvalidInput, format!("{PROJECT_FILE} asks for more than the project"))
        .because("without a terminal, each mount outside, secret and variable must be named")
        .remedied_by(format!("stockade trust{}", flags.collect::<String>())))
}

fn ask(question: &str) -> Result<(), Problem> {
    let mut terminal = std::io::stderr();
    // Without a reader there is no answer either.
    let _ = write!(terminal, "stockade: {question} [y/N] ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| caused(Code::Io, &error))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Problem::new(Code::Cancelled, "nothing was trusted")),
    }
}

/// Quotes a word for a shell.
fn shell_word(word: &str) -> String {
    crate::problem::shell_word(word)
}
