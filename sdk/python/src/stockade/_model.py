"""How values travel: dataclasses as JSON objects with the names of the protocol.

Text that need not be UTF-8, such as a path or the output of a command, is a `str` in which each byte that is
no UTF-8 is a surrogate, as in the functions of `os`. In JSON it is `{"base64": …}` then.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import os
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Unset(enum.Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""The value of a member that is not sent, where `None` is a value of its own."""


def text_of(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """Bytes, a path or text as text: bytes that are no UTF-8 become surrogates."""
    value = os.fspath(value)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def bytes_of(text: str) -> bytes:
    """The bytes that a text of an answer stands for."""
    return text.encode("utf-8", "surrogateescape")


class Model:
    """A value that travels as a JSON object."""

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
        return dict(self._members())

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The value of a JSON object. Members that this version does not know are ignored."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{cls.__name__} is not an object")
        known = _fields(cls)
        members: dict[str, Any] = {}
        for wire, (field, kind) in known.items():
            if field.metadata.get("rest"):
                members[field.name] = {name: value[name] for name in value if name not in known}
            elif wire in value:
                members[field.name] = decode(kind, value[wire])
            elif _is_required(field):
                raise ValueError(f"{cls.__name__} has no member {wire!r}")
        return cls(**members)

    def _members(self) -> Iterator[tuple[str, Any]]:
        for wire, (field, _) in _fields(type(self)).items():
            value = getattr(self, field.name)
            if field.metadata.get("rest"):
                yield from encode(value).items()
            elif value is not UNSET and not (value is None and field.default is None):
                yield wire, encode(value)


def encode(value: object) -> Any:
    """A value as JSON."""
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, (bytes, str, os.PathLike)):
        text = text_of(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            return {"base64": base64.b64encode(bytes_of(text)).decode()}
        return text
    if isinstance(value, Mapping):
        return {str(name): encode(member) for name, member in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: object) -> T:
    """The value of this type that JSON stands for."""
    return typing.cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin is Union or origin is types.UnionType:
        return _decode_union(get_args(kind), value)
    if origin is list:
        _check(isinstance(value, list), kind)
        (item,) = get_args(kind)
        return [_decode(item, member) for member in value]
    if origin is dict:
        _check(isinstance(value, Mapping), kind)
        _, item = get_args(kind)
        return {name: _decode(item, member) for name, member in value.items()}
    if isinstance(kind, type) and issubclass(kind, Model):
        return kind.from_json(value)
    if kind is str and isinstance(value, Mapping):
        return base64.b64decode(str(value["base64"])).decode("utf-8", "surrogateescape")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        _check(types.NoneType in kinds, kinds)
        return None
    for kind in kinds:
        if kind is not types.NoneType and _fits(kind, value):
            return _decode(kind, value)
    raise ValueError(f"{type(value).__name__} is none of {kinds}")


def _fits(kind: Any, value: Any) -> bool:
    """Whether JSON is of a type, as far as it must be known to choose between the types of a union."""
    origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, Model):
        return isinstance(value, Mapping) and _is_of(kind, value)
    if origin is Literal:
        return isinstance(value, str)
    if origin is list:
        (item,) = get_args(kind)
        return isinstance(value, list) and all(_fits(item, member) for member in value)
    if origin is dict:
        return isinstance(value, Mapping)
    if kind is str:
        return isinstance(value, str) or (isinstance(value, Mapping) and set(value) == {"base64"})
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind is Any or (isinstance(kind, type) and isinstance(value, kind))


def _is_of(model: type[Model], value: Mapping[str, Any]) -> bool:
    for wire, (field, kind) in _fields(model).items():
        if get_origin(kind) is Literal and "tag" in field.metadata:
            if value.get(wire) not in get_args(kind):
                return False
        elif _is_required(field) and wire not in value:
            return False
    return True


def _check(holds: bool, kind: object) -> None:
    if not holds:
        raise ValueError(f"the value is not {kind}")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _fields(model: type[Model]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The members of a model by their names in JSON."""
    found = _FIELDS.get(model)
    if found is None:
        found = _FIELDS[model] = _read_fields(model)
    return found


_FIELDS: Final[dict[type[Model], dict[str, tuple[dataclasses.Field[Any], Any]]]] = {}


def _read_fields(model: type[Model]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    module = sys.modules[model.__module__]
    hints = get_type_hints(model, vars(module))
    fields = dataclasses.fields(typing.cast(Any, model))
    return {
        field.metadata.get("name", _camel_case(field.name)): (field, hints[field.name])
        for field in fields
    }


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
