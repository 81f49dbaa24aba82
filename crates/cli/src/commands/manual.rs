//! `stockade completions` and `stockade man`: the arguments, for shells and for `man`. Both are
//! generated from the definition of the arguments, so they cannot differ from it.

use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;
use stockade_core::{Code, Problem};

use crate::args::{Arguments, Completions, Man};
use crate::output;
use crate::problem::{Failure, caused};

/// Prints a shell completion script.
pub(crate) fn completions(arguments: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "stockade", &mut script);
    print(&with_ids(arguments.shell, &String::from_utf8_lossy(&script)).into_bytes())
}

/// A completion script that also offers ids, which `stockade complete` prints.
fn with_ids(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let ends = script.rfind("\nif [[").map_or(script.len(), |at| at + 1);
            let (functions, registration) = script.split_at(ends);
            let registration = registration.replace("-F _stockade ", "-F _stockade_with_ids ");
            format!("{functions}{BASH}{registration}")
        }
        Shell::Zsh => match script.split_once('\n') {
            Some((head, rest)) => {
                format!("{head}\n{ZSH}{}", rest.replace(":_default'", ":_stockade_ids'"))
            }
            None => script.to_owned(),
        },
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

/// Adds the ids to what the generated function offers.
const BASH: &str = r#"
_stockade_with_ids() {
    _stockade "$@"
    local id word="${COMP_WORDS[COMP_CWORD]}"
    [[ "$word" == -* ]] && return 0
    while IFS= read -r id; do
        COMPREPLY+=("$id")
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    return 0
}

"#;

/// Offers ids for arguments, and files where there are none.
const ZSH: &str = r#"
_stockade_ids() {
    local -a typed ids
    typed=("${(@Q)${(z)LBUFFER}}")
    [[ "$LBUFFER" == *[[:space:]] ]] && typed+=('')
    ids=("${(@f)$(command stockade complete -- "${typed[@]}" 2>/dev/null)}")
    if [[ -n "${ids[*]}" ]]; then
        compadd -a ids
    else
        _default
    fi
}
"#;

/// Offers ids beside what the generated script offers.
const FISH: &str = r#"
complete -c stockade -a '(command stockade complete -- (commandline -opc) (commandline -ct) 2>/dev/null)'
"#;

/// Prints a manual page, to be read with `man -l -`.
pub(crate) fn page(arguments: &Man) -> Result<u8, Failure> {
    let mut command = Arguments::command();
    command.build();
    for name in &arguments.command {
        command = command.find_subcommand(name).cloned().ok_or_else(|| {
            let names = arguments.command.join(" ");
            Problem::new(Code::InvalidInput, format!("there is no command {names}"))
                .remedied_by("stockade --help")
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|error| caused(Code::Io, &error))?;
    print(&page)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    let mut to = std::io::stdout();
    output::check_written(to.write_all(text).and_then(|()| to.flush()))?;
    Ok(0)
}
