"""YAML to and from frozen dataclasses, strictly: the error for a key or a value names its line."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from traces.errors import TraceError

T = TypeVar("T")

_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
_NULL_TAG = "tag:yaml.org,2002:null"


def load_dataclass(text: str, cls: type[T], *, file: str) -> T:
    """Return the ``cls`` that the YAML document ``text`` spells; an empty document is all defaults.

    Raises TraceError, one line, for what YAML cannot parse, an unknown or repeated key, a wrong type.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise TraceError(f"header: {_one_line(error)}, expected YAML ({file})") from error
    if node is None:
        raise TraceError(f"header: got an empty file, expected a TraceV2 header ({file})")
    try:
        value: T = _decode(node, cls, "")
    except _BadNodeError as bad:
        raise TraceError(f"{bad} ({file})") from None
    return value


def dump_dataclass(value: object) -> str:
    """Return ``value`` as a YAML mapping; None and empty members are left out, the order is the class's."""
    text: str = yaml.safe_dump(
        _encode(value), sort_keys=False, default_flow_style=False, allow_unicode=True, width=10_000
    )
    return text


def nearest(name: str, known: list[str], *, likeness: float = 0.6) -> str | None:
    """Return the known name that ``name`` is probably a slip of, or None; difflib's likeness, in [0, 1]."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=likeness)
    return matches[0] if matches else None


class _BadNodeError(Exception):
    """A node that does not fit its type; carries where, line and what was expected."""


def _bad(node: yaml.Node, where: str, *, expected: str) -> _BadNodeError:
    got = repr(node.value) if isinstance(node, yaml.ScalarNode) else _kind(node)
    return _BadNodeError(
        f"{where or 'header'}: got {got} at line {node.start_mark.line + 1}, expected {expected}"
    )


def _kind(node: yaml.Node) -> str:
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


def _decode(node: yaml.Node, kind: Any, where: str) -> Any:  # noqa: ANN401  a type hint, and a value of it
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if _is_null(node):
            return None
        (inner,) = (arg for arg in get_args(kind) if arg is not type(None))
        return _decode(node, inner, where)
    if is_dataclass(kind):
        return _decode_dataclass(node, kind, where)
    if origin is Mapping:
        _, value_kind = get_args(kind)
        return {key: _decode(child, value_kind, f"{where}.{key}") for key, _, child in _pairs(node, where)}
    if origin is tuple:
        if not isinstance(node, yaml.SequenceNode):
            raise _bad(node, where, expected="a list")
        item_kind = get_args(kind)[0]
        return tuple(_decode(child, item_kind, f"{where}[{i}]") for i, child in enumerate(node.value))
    return _decode_scalar(node, kind, where)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL_TAG


def _pairs(node: yaml.Node, where: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
    if _is_null(node):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise _bad(node, where, expected="a mapping")
    pairs: list[tuple[str, yaml.Node, yaml.Node]] = []
    seen: set[str] = set()
    for key_node, child in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise _bad(key_node, where, expected="a key that is text")
        key = str(key_node.value)
        if key in seen:
            raise _bad(key_node, _join(where, key), expected="each key once")
        seen.add(key)
        pairs.append((key, key_node, child))
    return pairs


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _decode_dataclass(node: yaml.Node, cls: Any, where: str) -> Any:  # noqa: ANN401  a type hint, and a value of it
    members = {member.name: member for member in fields(cls)}
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, key_node, child in _pairs(node, where):
        if key not in members:
            raise _unknown_key(key, key_node, where=where, known=list(members))
        if not (_is_null(child) and _has_default(members[key])):
            values[key] = _decode(child, hints[key], _join(where, key))
    for name, member in members.items():
        if name not in values and not _has_default(member):
            raise _bad(node, where, expected=f"the key {name}")
    return cls(**values)


def _has_default(member: Field[Any]) -> bool:
    return member.default is not MISSING or member.default_factory is not MISSING


def _unknown_key(key: str, node: yaml.Node, *, where: str, known: list[str]) -> _BadNodeError:
    close = nearest(key, known)
    hint = f"did you mean {_join(where, close)}?" if close else f"known are {', '.join(known)}"
    return _BadNodeError(
        f"{_join(where, key)}: got an unknown key at line {node.start_mark.line + 1}, "
        f"expected a TraceV2 header key; {hint}"
    )


def _decode_scalar(node: yaml.Node, kind: Any, where: str) -> Any:  # noqa: ANN401  a type hint, and a value of it
    expected = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[kind]
    if not isinstance(node, yaml.ScalarNode):
        raise _bad(node, where, expected=expected)
    text = str(node.value)
    try:
        return _SCALARS[kind](text)
    except ValueError:
        raise _bad(node, where, expected=expected) from None


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


_SCALARS: dict[type, Any] = {int: int, float: float, bool: _bool, str: str}


def _encode(value: object) -> object:
    if is_dataclass(value):
        members = ((member.name, getattr(value, member.name)) for member in fields(value))
        return {name: _encode(inner) for name, inner in members if not _is_absent(inner)}
    if isinstance(value, Mapping):
        return {str(key): _encode(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(inner) for inner in value]
    return value


def _is_absent(value: object) -> bool:
    if is_dataclass(value):
        return all(_is_absent(getattr(value, member.name)) for member in fields(value))
    return value is None or (isinstance(value, Mapping | tuple) and not value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
