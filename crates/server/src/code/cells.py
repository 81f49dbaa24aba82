"""What a cell may contain besides Python: commands (`!ls`), magics (`%time`, `%%bash`) and questions (`len?`), as in notebooks. Each
becomes a call, so that the whole is Python. Part of the program `driver.py`; `magics.py` has what is called.
"""

import ast
import io
import re
import tokenize

MAGIC = re.compile(r"%([A-Za-z_]\w*)[ \t]*(.*)")
ASSIGNMENT = re.compile(r"([A-Za-z_][\w.\[\], '\"]*?)\s*=\s*([!%].+)")
QUESTION = re.compile(r"(\?{0,2})\s*([A-Za-z_][\w.]*)\s*(\?{0,2})")
# A command that people write without a sign, since it is no Python.
PIP = re.compile(r"pip3?\s+((?:install|uninstall|list|show|freeze|download|check)\b.*)")


def ends_silently(source):
    lines = [line for line in source.splitlines() if line.strip()]
    return bool(lines) and lines[-1].split("#")[0].rstrip().endswith(";")


def outdented(code):
    """The code without the indentation of its first line, which clients leave in texts of several lines."""
    first = next((line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[:len(first) - len(first.lstrip())]
    try:
        # Texts in the code keep their lines if it can do without.
        ast.parse(code)
        return code
    except SyntaxError:
        lines = [line[len(indent):] if line.startswith(indent) else line for line in code.split("\n")]
        return "\n".join(lines)


def translated(code):
    """The code of a cell as Python."""
    code = outdented(code)
    first = next((line for line in code.split("\n") if line.strip()), "")
    magic = MAGIC.fullmatch(first[1:].rstrip()) if first.startswith("%%") else None
    if magic:
        body = code[code.index(first):].partition("\n")[2]
        return f"get_ipython().run_cell_magic({magic[1]!r}, {magic[2]!r}, {body!r})"
    try:
        ast.parse(code)
        return code
    except SyntaxError:
        pass
    lines, rest = [], code.split("\n")
    while rest:
        line = rest.pop(0)
        text = line.strip()
        if call_of(text) is not None and not is_continued(lines):
            while text.endswith("\\") and rest:
                text = text[:-1] + rest.pop(0).strip()
            line = line[:len(line) - len(line.lstrip())] + call_of(text)
        lines.append(line)
    return "\n".join(lines)


def is_continued(lines):
    """Whether the line after these belongs to a text or an expression that has begun in them."""
    if lines and lines[-1].endswith("\\"):
        return True
    try:
        for _ in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
            pass
    except tokenize.TokenError as error:
        return "multi-line" in str(error) or "triple-quoted" in str(error)
    except SyntaxError:
        pass
    return False


def call_of(text):
    """The call that a line stands for; `None` if it is no such line."""
    if text.startswith("!!"):
        return f"get_ipython().getoutput({text[2:].strip()!r})"
    if text.startswith("!"):
        return f"get_ipython().system({text[1:].strip()!r})"
    if text.startswith("%%") and (magic := MAGIC.fullmatch(text[1:])):
        return f"get_ipython().misplaced({magic[1]!r})"
    if magic := MAGIC.fullmatch(text):
        return f"get_ipython().run_line_magic({magic[1]!r}, {magic[2]!r})"
    if pip := PIP.fullmatch(text):
        return f"get_ipython().run_line_magic('pip', {pip[1]!r})"
    if assignment := ASSIGNMENT.fullmatch(text):
        target, line = assignment.groups()
        call = f"get_ipython().getoutput({line[1:].strip()!r})" if line[0] == "!" else call_of(line)
        return call and f"{target} = {call}"
    question = QUESTION.fullmatch(text)
    if question and bool(question[1]) != bool(question[3]):
        magic = "pinfo2" if "??" in text else "pinfo"
        return f"get_ipython().run_line_magic({magic!r}, {question[2]!r})"
    return None
