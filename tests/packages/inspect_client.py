"""An evaluation of Inspect whose solver works in a sandbox of E2B by Inspect's own tools. No model is used: Inspect would
download a list of tokens for it. Prints as JSON what it observed.
"""

import json
import tempfile

from inspect_ai import Task, eval as run
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.tool import bash, python
from inspect_ai.util import sandbox


@solver
def work():
    async def solve(state, generate):
        said = [await bash(timeout=30)(command="cat data.txt; pwd; id -un")]
        said.append(await python(timeout=30)(code="print(open('data.txt').read().upper())"))
        await sandbox().write_file("sub/answer.txt", "The answer is 42.")
        state.output.completion = await sandbox().read_file("sub/answer.txt")
        state.metadata["said"] = said
        return state

    return solve


def main():
    sample = Sample(input="What is 6 * 7?", target="42", files={"data.txt": "hello\n"})
    task = Task(dataset=[sample], solver=work(), scorer=includes(), sandbox="e2b")
    with tempfile.TemporaryDirectory() as logs:
        [log] = run(task, model="mockllm/model", display="none", log_dir=logs)
        [sample] = log.samples
        scores = [score.value for score in (sample.scores or {}).values()]
        report = {"status": log.status, "scores": scores, "said": sample.metadata.get("said")}
        if log.error:
            report["error"] = log.error.message
    print(json.dumps(report))


main()
