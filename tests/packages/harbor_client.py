"""Uses a server as Harbor does: its environment of E2B from a prebuilt template. Prints as JSON what it observed."""

import asyncio
import json
import tempfile
from pathlib import Path

from harbor.environments.e2b import E2BEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


async def main():
    report = {}
    directory = Path(tempfile.mkdtemp())
    definition = directory / "environment"
    definition.mkdir()
    (definition / "Dockerfile").write_text("FROM debian:12\n")
    paths = TrialPaths(trial_dir=directory / "trial")
    paths.mkdir()
    environment = E2BEnvironment(
        environment_dir=definition,
        environment_name="test",
        session_id="session",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
        prebuilt_template_id="base",
    )
    await environment.start(force_build=False)
    try:
        result = await environment.exec("echo out; echo err >&2; id -u; exit 3", cwd="/tmp", env={"A": "b"})
        report["exec"] = [result.stdout, result.stderr, result.return_code]
        source = directory / "a.txt"
        source.write_text("content")
        await environment.upload_file(source, "/app/a.txt")
        await environment.upload_dir(definition, "/app/definition")
        report["uploaded"] = (await environment.exec("cat /app/a.txt; ls /app/definition")).stdout
        await environment.exec("mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt")
        await environment.download_dir("/logs/verifier", directory / "verifier")
        report["reward"] = (directory / "verifier/reward.txt").read_text()
        await environment.download_file("/app/a.txt", directory / "b.txt")
        report["downloaded"] = (directory / "b.txt").read_text()
        report["kinds"] = [await environment.is_dir("/app"), await environment.is_file("/app")]
        try:
            await environment.exec("sleep 60", timeout_sec=1)
        except Exception as error:
            report["timeout"] = type(error).__name__
    finally:
        await environment.stop(delete=True)
    print(json.dumps(report))


asyncio.run(main())
