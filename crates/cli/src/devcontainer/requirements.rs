//! `hostRequirements`: what the host must have.

use serde_json::Value;
use stockade_bundle::project::Project;
use stockade_core::{Code, Problem, parse_bytes};

use super::Reader;

const NAME: &str = "hostRequirements";

/// Refuses a host that has less than required.
pub(super) fn check(reader: &Reader<'_>, project: &Project) -> Result<(), Problem> {
    let requirements = match reader.value(NAME) {
        None => return Ok(()),
        Some(Value::Object(requirements)) => requirements,
        Some(_) => return Err(reader.invalid(NAME, "is not an object")),
    };
    let info = rustix::system::sysinfo();
    let memory = u64::from(info.mem_unit).saturating_mul(info.totalram);
    let space = || {
        let stat = rustix::fs::fstatvfs(&project.dir).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    };
    for (name, value) in requirements {
        let at = format!("{NAME}.{name}");
        let bytes = || {
            let text = value.as_str().ok_or_else(|| reader.invalid(&at, "is not a size"))?;
            parse_bytes(text).map_err(|error| reader.invalid(&at, &error.to_string()))
        };
        let lacks = match name.as_str() {
            "cpus" => {
                let wanted =
                    value.as_u64().ok_or_else(|| reader.invalid(&at, "is not a number"))?;
                let there =
                    std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
                wanted > there
            }
            "memory" => bytes()? > memory,
            "storage" => {
                let wanted = bytes()?;
                space().is_some_and(|free| wanted > free)
            }
            "gpu" => !matches!(value, Value::Bool(false)) && value != "optional",
            _ => return Err(reader.invalid(&at, "is not a known requirement")),
        };
        if lacks {
            let message = format!("{}: this host does not have `{at}`", reader.file.display());
            return Err(
                Problem::new(Code::Unsupported, message).because(format!("it requires {value}"))
            );
        }
    }
    Ok(())
}
