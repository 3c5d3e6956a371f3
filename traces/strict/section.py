"""A YAML or JSON mapping read key by key: the reader of TWIN.yaml, defaults.yaml, gate.yaml and config.json."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from traces.errors import ConfigError, VtwinError
from traces.strict.yaml_nodes import (
    PRINTABLE,
    is_null,
    join,
    kind_of,
    line_of,
    pairs_of,
    parse_json,
    parse_yaml,
    place,
    read_text,
    refuse,
    scalar_of,
    shown,
)

MOST_INTEGER = 10**15
"""The default limit of a key: in µs 31 years, in bytes a petabyte."""

LEAST_POWER, MOST_POWER = -330, 18
"""Powers of ten of a decimal that is not 0: beyond them, products lose precision, or overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping whose keys have their lines.

    ``where`` is its dotted path ("" at the top), ``file`` the name to use in messages. Every reading method
    raises ``error`` with one line: what, got, expected, file and line. A key that is absent reads as None.
    """

    where: str
    file: str
    line: int
    nodes: Mapping[str, yaml.Node]
    key_lines: Mapping[str, int]
    error: type[VtwinError] = ConfigError

    def __contains__(self, key: str) -> bool:
        """Return whether the key is written in the file."""
        return key in self.nodes

    def refuse_unknown(self, known: Iterable[str], *, elsewhere: Mapping[str, str] | None = None) -> None:
        """Raise at the first key that is not ``known``, naming the nearest one.

        ``elsewhere`` maps further spellings (another section's key, a foreign name) to the key to use.
        """
        names = list(known)
        for key, line in self.key_lines.items():
            if key not in names:
                hint = (elsewhere or {}).get(key) or self._nearest(key, names)
                raise self.error(
                    f"{self.path(key)}: unknown key, did you mean {hint}? ({place(self.file, line)})"
                )

    def path(self, key: str) -> str:
        """Return the dotted path of one of the section's keys."""
        return join(self.where, key)

    def fail(self, key: str, *, got: str, expected: str) -> NoReturn:
        """Raise ``error`` about one key, or about its absence."""
        line = self.key_lines.get(key, self.line)
        refuse(self.error, self.path(key), got=got, expected=expected, file=self.file, line=line)

    def refuse_together(self, key: str, other: str, *, expected: str = "") -> NoReturn:
        """Raise ``error`` about a key that cannot be combined with ``other``; ``expected``: what could be."""
        instead = f", expected {expected}" if expected else ""
        at = place(self.file, self.key_lines.get(key, self.line))
        raise self.error(f"{self.path(key)}: cannot be combined with {other}{instead} ({at})")

    def text(self, key: str, *, expected: str = "text", choices: tuple[str, ...] = ()) -> str | None:
        """Return a scalar's text as written, one printable line; numbers and dates without quotes are text too."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if choices:
            expected = f"one of {', '.join(choices)}"
        ok = isinstance(node, yaml.ScalarNode) and kind_of(node) not in ("null", "boolean")
        if not ok or not node.value or (choices and node.value not in choices):
            self.fail(key, got=shown(node), expected=expected)
        if not node.value.isprintable():
            self.fail(key, got=shown(node), expected=PRINTABLE)
        return str(node.value)

    def integer(self, key: str, *, least: int | None, most: int = MOST_INTEGER) -> int | None:
        """Return a whole number of ``least`` to ``most``; ``"4"`` in quotes, 4.0 and true are not one."""
        node = self.nodes.get(key)
        if node is None:
            return None
        expected = "an integer" if least is None else f"an integer >= {least}"
        value = scalar_of(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            self.fail(key, got=shown(node), expected=expected)
        if abs(value) > most:
            self.fail(key, got=shown(node), expected=f"an integer of at most {most:,}")
        return value

    def boolean(self, key: str) -> bool | None:
        """Return true or false; YAML 1.1's yes, no, on and off are text, and refused."""
        node = self.nodes.get(key)
        if node is None:
            return None
        value = scalar_of(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, bool):
            self.fail(key, got=shown(node), expected="true or false")
        return value

    def decimal(self, key: str, *, expected: str, least: Decimal = Decimal(0)) -> Decimal | None:
        """Return the number exactly as its text says, in or out of quotes, finite and at least ``least``."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode):
            self.fail(key, got=shown(node), expected=expected)
        try:
            value = Decimal(node.value)
        except InvalidOperation:
            self.fail(key, got=shown(node), expected=expected)
        if not value.is_finite() or value < least:
            self.fail(key, got=shown(node), expected=expected)
        if value and not LEAST_POWER <= value.adjusted() <= MOST_POWER:
            self.fail(key, got=shown(node), expected=f"{expected}, no larger than 1e{MOST_POWER}")
        return value

    def fractions(self, key: str) -> tuple[float, ...] | None:
        """Return the list of shares in [0, 1] under a key; a single one is a list of one."""
        node = self.nodes.get(key)
        if node is None:
            return None
        values = []
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = scalar_of(item) if isinstance(item, yaml.ScalarNode) else None
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                self.fail(key, got=shown(item), expected="numbers in [0, 1]")
            values.append(float(value))
        return tuple(values)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return the list of finite numbers >= 0 under a key; an absent key is an empty list."""
        values = []
        for item in self.items(key, expected="a list of numbers"):
            value = scalar_of(item) if isinstance(item, yaml.ScalarNode) else None
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                self.fail(key, got=shown(item), expected="a list of numbers >= 0")
            values.append(float(value))
        return tuple(values)

    def section(self, key: str, *, expected: str = "a mapping") -> Section | None:
        """Return the mapping under a key."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self.fail(key, got=shown(node), expected=expected)
        return section_of(node, where=self.path(key), file=self.file, error=self.error)

    def sections(self, key: str) -> Iterator[Section]:
        """Yield the mappings of the list under a key; an absent key is an empty list."""
        for number, item in enumerate(self.items(key)):
            if not isinstance(item, yaml.MappingNode):
                self.fail(key, got=f"{shown(item)} as item {number + 1}", expected="a list of mappings")
            yield section_of(item, where=f"{self.path(key)}[{number}]", file=self.file, error=self.error)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of scalars under a key as text; an absent key is an empty list."""
        items = self.items(key, expected="a list of texts")
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            self.fail(key, got=shown(self.nodes[key]), expected="a list of texts")
        for item in items:
            if not item.value.isprintable():
                self.fail(key, got=shown(item), expected=PRINTABLE)
        return tuple(item.value for item in items)

    def items(self, key: str, *, expected: str = "a list") -> list[yaml.Node]:
        """Return the nodes of the list under a key; an absent key is an empty list."""
        node = self.nodes.get(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.fail(key, got=shown(node), expected=expected)
        items: list[yaml.Node] = node.value
        return items

    def without_nulls(self) -> Section:
        """Return the section with null values taken as absent keys, as in files written by tools."""
        given = {key: node for key, node in self.nodes.items() if not is_null(node)}
        return Section(
            where=self.where,
            file=self.file,
            line=self.line,
            nodes=given,
            key_lines=self.key_lines,
            error=self.error,
        )

    def _nearest(self, key: str, names: list[str]) -> str:
        plain = key.lower().replace("-", "_").strip("_")
        return self.path(difflib.get_close_matches(plain, names, n=1, cutoff=0.0)[0])


def read_section(path: Path, *, what: str = "file") -> Section:
    """Return the mapping that a YAML file holds; an empty file is an empty mapping. Raises ConfigError.

    ``what``: the option that gave the path, for the error where nothing can be read.
    """
    return section_of_text(read_text(path, expected="a YAML file", what=what), file=str(path))


def section_of_text(text: str, *, file: str) -> Section:
    """Return the mapping that YAML text holds; ``file``: its name in errors. Raises ConfigError."""
    return _root(parse_yaml(text, file=file), file=file, kind="YAML", expected="a mapping of keys")


def read_json_section(path: Path, *, expected: str) -> Section:
    """Return the object that a JSON file holds, null taken as absent; ``expected``: a config.json."""
    node = parse_json(read_text(path, expected=expected), file=str(path))
    return _root(node, file=str(path), kind="JSON", expected="an object").without_nulls()


def _root(node: yaml.Node | None, *, file: str, kind: str, expected: str) -> Section:
    if node is None:
        return Section(where="", file=file, line=1, nodes={}, key_lines={})
    if not isinstance(node, yaml.MappingNode):
        refuse(ConfigError, kind, got=shown(node), expected=expected, file=file, line=line_of(node))
    return section_of(node, where="", file=file)


def section_of(
    node: yaml.MappingNode, *, where: str, file: str, error: type[VtwinError] = ConfigError
) -> Section:
    """Return a mapping as a section. Raises ``error`` for a key that is given twice or is not text."""
    pairs = pairs_of(node, where=where, file=file, error=error)
    return Section(
        where=where,
        file=file,
        line=line_of(node),
        nodes={key: value for key, (_, value) in pairs.items()},
        key_lines={key: line for key, (line, _) in pairs.items()},
        error=error,
    )
