"""YAML to and from frozen dataclasses, strictly: the error for a key or a value names its line."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from traces.errors import ConfigError, TraceError, VtwinError
from traces.strict.section import Section, section_of
from traces.strict.yaml_nodes import (
    is_null,
    join,
    kind_of,
    line_at,
    line_of,
    nearest,
    parse_yaml,
    place,
    refuse,
    scalar_of,
    shown,
)

T = TypeVar("T")


def load_dataclass(text: str, cls: type[T], *, file: str, what: str) -> T:
    """Return the ``cls`` in the YAML document ``text``; a key that is absent or null has its default.

    ``what`` is the document, as errors name it: a TraceV2 header. Raises TraceError, one line, for what YAML cannot
    parse, an empty document, an unknown or repeated key, a wrong type.
    """
    node = parse_yaml(text, file=file, error=TraceError)
    if node is None:
        raise TraceError(f"{what}: got an empty file, expected YAML ({file})")
    value: T = _Decoder(file=file, what=what).decode(node, cls, "")
    return value


def dump_dataclass(value: object) -> str:
    """Return ``value`` as a YAML mapping; None and empty members are left out, the order is the class's."""
    text: str = yaml.safe_dump(
        _encode(value), sort_keys=False, default_flow_style=False, allow_unicode=True, width=10_000
    )
    return text


def place_of(text: str, key: str, *, file: str) -> str:
    """Return ``file:line`` of a dotted key in a document that was read before."""
    return place(file, line_at(parse_yaml(text, file=file, error=TraceError), key))


class _Decoder:
    """Decodes the nodes of one document by type hints; ``file`` and ``what`` are for its errors."""

    def __init__(self, *, file: str, what: str, error: type[VtwinError] = TraceError) -> None:
        self._file, self._what, self._error = file, what, error

    def decode(self, node: yaml.Node, kind: Any, where: str) -> Any:  # noqa: ANN401  a type hint, and a value of it
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            (inner,) = (arg for arg in get_args(kind) if arg is not type(None))
            return None if is_null(node) else self.decode(node, inner, where)
        if is_dataclass(kind):
            return self._dataclass(node, kind, where)
        if origin is Mapping:
            section, value_kind = self._section(node, where), get_args(kind)[1]
            return {
                key: self.decode(child, value_kind, f"{where}.{key}") for key, child in section.nodes.items()
            }
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                self._refuse(node, where, expected="a list")
            item_kind = get_args(kind)[0]
            return tuple(self.decode(child, item_kind, f"{where}[{i}]") for i, child in enumerate(node.value))
        return self._scalar(node, kind, where)

    def _refuse(self, node: yaml.Node, where: str, *, expected: str) -> None:
        where = where or self._what
        refuse(self._error, where, got=shown(node), expected=expected, file=self._file, line=line_of(node))

    def _section(self, node: yaml.Node, where: str) -> Section:
        if is_null(node):
            node = yaml.MappingNode(node.tag, [], node.start_mark)
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, where, expected="a mapping")
        assert isinstance(node, yaml.MappingNode)  # noqa: S101 - refused otherwise
        return section_of(node, where=where, file=self._file, error=self._error)

    def _dataclass(self, node: yaml.Node, cls: Any, where: str) -> Any:  # noqa: ANN401  a type hint, and a value of it
        members = {member.name: member for member in fields(cls)}
        hints = get_type_hints(cls)
        section = self._section(node, where)
        values: dict[str, Any] = {}
        for key, child in section.nodes.items():
            if key not in members:
                close = nearest(key, members)
                hint = f"did you mean {join(where, close)}?" if close else f"known are {', '.join(members)}"
                section.fail(key, got="an unknown key", expected=f"a key of {self._what}; {hint}")
            if not (is_null(child) and _has_default(members[key])):
                values[key] = self.decode(child, hints[key], join(where, key))
        for name, member in members.items():
            if name not in values and not _has_default(member):
                self._refuse(node, where, expected=f"the key {name}")
        try:
            return cls(**values)
        except ConfigError as error:  # of the class's own check, which knows the member and not the file
            line = line_of(section.nodes.get(str(error).partition(":")[0], node))
            raise self._error(f"{join(where, str(error))} ({place(self._file, line)})") from error

    def _scalar(self, node: yaml.Node, kind: type, where: str) -> object:
        """Return a scalar of the hint's type; text is taken as written, in quotes or not."""
        expected = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[kind]
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, where, expected=expected)
            return None
        value = scalar_of(node)
        if kind is str and kind_of(node) not in ("null", "boolean"):
            return str(node.value)
        if kind is float and kind_of(node) in ("integer", "number"):
            return float(value)  # type: ignore[arg-type]  # its kind was just seen
        if kind in (int, bool) and type(value) is kind:
            return value
        self._refuse(node, where, expected=expected)
        return None


def _has_default(member: Field[Any]) -> bool:
    return member.default is not MISSING or member.default_factory is not MISSING


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
