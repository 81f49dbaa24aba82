# What clients expect of the environment of a machine: see expected_programs.rs.
case ":$PATH:" in *:/opt/stockade/bin:*) ;; *) PATH="/opt/stockade/bin:$PATH" ;; esac
# The system's own packages cannot be changed here, so pip need not protect them: it installs below the home.
export PIP_BREAK_SYSTEM_PACKAGES="${PIP_BREAK_SYSTEM_PACKAGES-1}"
case ":$PATH:" in *:"$HOME/.local/bin":*) ;; *) PATH="$PATH:$HOME/.local/bin" ;; esac
