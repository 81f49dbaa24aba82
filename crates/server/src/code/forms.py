"""The forms of values by their media type, and the module that shows them under its usual name. Part of the program `driver.py`, which
comes after it.
"""

import base64
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys

# The most bytes of one result in one form.
RESULT_BYTES = 8 << 20

MIME = [
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
]


def encoded(value):
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value


def bundle(value):
    """The forms of a value by their media type."""
    forms = {}
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__} in its representation>"
    if isinstance(value, str):
        text = value
    forms["text/plain"] = text
    if inspect.isclass(value):
        return forms
    for name, kind in MIME:
        method = getattr(value, name, None)
        if not callable(method):
            continue
        try:
            form = method()
        except Exception:
            continue
        # Some methods return the form and its properties.
        form = form[0] if isinstance(form, tuple) else form
        if form is not None:
            forms[kind] = encoded(form)
    method = getattr(value, "_repr_mimebundle_", None)
    if callable(method):
        try:
            found = method()
            found = found[0] if isinstance(found, tuple) else found
            forms.update({kind: encoded(form) for kind, form in (found or {}).items()})
        except Exception:
            pass
    if isinstance(value, (list, dict)):
        try:
            forms["application/json"] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            pass
    elif type(value).__name__ == "DataFrame" and hasattr(value, "to_dict"):
        try:
            forms["e2b/data"] = json.loads(json.dumps(value.to_dict(orient="list"), default=str))
        except Exception:
            pass
    return forms


def size(form):
    return len(form) if isinstance(form, str) else len(json.dumps(form, default=str))


class Shown:
    """A text or bytes in one form."""

    KIND = ""

    def __init__(self, data=None, filename=None, **_):
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data

    def _repr_mimebundle_(self, **_):
        return {self.KIND: self.data}


class Image(Shown):
    """An image, whose form follows from its first bytes."""

    def _repr_mimebundle_(self, **_):
        kind = "image/jpeg" if bytes(self.data[:2]) == b"\xff\xd8" else "image/png"
        return {kind: self.data}


KINDS = {
    "HTML": "text/html", "Markdown": "text/markdown", "Latex": "text/latex", "SVG": "image/svg+xml",
    "JSON": "application/json", "Javascript": "application/javascript",
}


def clear_output(wait=False):
    """Does nothing: what was shown has been sent."""


class DisplayFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `IPython.display`, from which code that shows values imports `display`: the package's own with the function of this
    program in it, since there is no kernel of IPython, or what the class has for a machine without the package.
    """

    NAMES = ("IPython", "IPython.display")

    def __init__(self, display, get_ipython):
        self.display, self.get_ipython = display, get_ipython
        self.installed = None

    def find_spec(self, name, path=None, target=None):
        if name not in self.NAMES:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is not None and name == self.NAMES[0]:
            return None
        self.installed = found and found.loader
        spec = found or importlib.machinery.ModuleSpec(name, self, is_package=name == self.NAMES[0])
        spec.loader = self
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if self.installed is not None:
            self.installed.exec_module(module)
        elif module.__name__ == self.NAMES[0]:
            module.get_ipython = self.get_ipython
        else:
            module.Image, module.clear_output = Image, clear_output
            for name, kind in KINDS.items():
                setattr(module, name, type(name, (Shown,), {"KIND": kind}))
                setattr(module, f"display_{name.lower()}", self.display_as(kind))
        module.display = self.display

    def display_as(self, kind):
        def display(*values, raw=False, **_):
            for value in values:
                self.display({kind: value} if raw else value, raw=raw)

        return display


class ImagesFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `PIL.Image`. There is no window, so an image is a result when the code shows it, or saves it to a file."""

    NAME = "PIL.Image"

    def __init__(self, display):
        self.display = display
        self.installed = None

    def find_spec(self, name, path=None, target=None):
        if name != self.NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            self.installed, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.installed.exec_module(module)
        save, display = module.Image.save, self.display

        def save_and_show(image, fp, *arguments, **options):
            save(image, fp, *arguments, **options)
            # A figure that is saved is a result of its own.
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            if isinstance(fp, (str, os.PathLike)) and not caller.startswith("matplotlib"):
                display(image)

        module.Image.save = save_and_show
        module.Image.show = lambda image, *_, **__: display(image)
