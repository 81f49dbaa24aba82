//! The peer: `docker exec` in a running container, where an engine answers and has the image.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// A running container, removed in the end.
pub(crate) struct Docker(String);

impl Docker {
    /// Starts a container that waits; why not, where that cannot be.
    pub(crate) fn start(image: &str) -> Result<Self, String> {
        let output = Command::new("docker")
            .args(["run", "--detach", "--rm", "--network", "none", image, "sleep", "3600"])
            .output()
            .map_err(|error| format!("docker does not run: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// How long `true` takes in it.
    pub(crate) fn exec(&self) -> Result<Duration, Failure> {
        let mut command = Command::new("docker");
        command.args(["exec", &self.0, "true"]).stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status()?;
        let time = begun.elapsed();
        if status.success() { Ok(time) } else { Err(format!("docker exec: {status}").into()) }
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // The container would end by itself within the hour.
        let _ = Command::new("docker").args(["kill", &self.0]).stdout(Stdio::null()).status();
    }
}
