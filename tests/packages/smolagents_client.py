"""Uses a server as users of smolagents do: an agent that writes code, which runs in E2B's interpreter; the model is
a fake that says what it was told to. Prints as JSON what it observed.
"""

import json

from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole


class Script(Model):
    """Says one prepared text after the other."""

    def __init__(self, texts):
        super().__init__(model_id="script")
        self.texts = list(texts)

    def generate(self, messages, **kwargs):
        return ChatMessage(role=MessageRole.ASSISTANT, content=self.texts.pop(0))


def code(text):
    return f"Thought: I write code.\n<code>\n{text}\n</code>"


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return 2 * number


def main():
    steps = [code("x = 20\nprint('seen', x)\nx"), code("1 / 0"), code("final_answer({'sum': x + double(11)})")]
    with CodeAgent(tools=[double], model=Script(steps), executor_type="e2b", verbosity_level=0) as agent:
        answer = agent.run("Add.")
        observed = [step.observations for step in agent.memory.steps if getattr(step, "observations", None)]
        errors = [type(step.error).__name__ for step in agent.memory.steps if getattr(step, "error", None)]
        try:
            shell = agent.python_executor.run_code_raise_errors("!echo from-shell").logs
        except Exception as error:
            shell = repr(error)[:300]
    print(json.dumps({"answer": answer, "observed": "seen 20" in str(observed), "errors": errors, "shell": shell}))


main()
