"""YAML read so that every complaint can name its line: the parser behind TWIN.yaml and defaults.yaml."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn

import yaml

from traces.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = tuple(_TAG + kind for kind in ("str", "float", "int", "timestamp"))
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is built in


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A YAML mapping whose keys know where they stand.

    ``where`` is its dotted path ("" at the top), ``file`` the name to use in messages. Every reading method
    raises ConfigError with one line: what, got, expected, file and line. A key that is absent reads as None.
    """

    where: str
    file: str
    line: int
    nodes: Mapping[str, yaml.Node]
    key_lines: Mapping[str, int]

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
                raise ConfigError(f"{self.path(key)}: unknown key, did you mean {hint}? ({self.file}:{line})")

    def path(self, key: str) -> str:
        """Return the dotted path of one of the section's keys."""
        return f"{self.where}.{key}" if self.where else key

    def fail(self, key: str, *, got: str, expected: str) -> NoReturn:
        """Raise ConfigError about one key, or about its absence."""
        line = self.key_lines.get(key, self.line)
        raise ConfigError(f"{self.path(key)}: got {got}, expected {expected} ({self.file}:{line})")

    def text(self, key: str, *, expected: str = "text", choices: tuple[str, ...] = ()) -> str | None:
        """Return a scalar's text as written; numbers and dates without quotes are text too."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if choices:
            expected = f"one of {', '.join(choices)}"
        ok = isinstance(node, yaml.ScalarNode) and node.tag in _TEXT_TAGS
        if not ok or not node.value or (choices and node.value not in choices):
            self.fail(key, got=shown(node), expected=expected)
        return str(node.value)

    def integer(self, key: str, *, least: int) -> int | None:
        """Return a whole number of at least ``least``; ``"4"`` in quotes, 4.0 and true are not one."""
        node = self.nodes.get(key)
        if node is None:
            return None
        expected = f"an integer >= {least}"
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TAG + "int":
            self.fail(key, got=shown(node), expected=expected)
        try:
            value = int(node.value)
        except ValueError:  # YAML 1.1 also calls 0x10 and 1:30 integers
            self.fail(key, got=shown(node), expected=expected)
        if value < least:
            self.fail(key, got=shown(node), expected=expected)
        return value

    def boolean(self, key: str) -> bool | None:
        """Return true or false; YAML 1.1's yes, no, on and off are refused."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if node.tag != _TAG + "bool" or node.value.lower() not in ("true", "false"):
            self.fail(key, got=shown(node), expected="true or false")
        return bool(node.value.lower() == "true")

    def decimal(self, key: str, *, expected: str, least: Decimal = Decimal(0)) -> Decimal | None:
        """Return the number exactly as its text says, in or out of quotes, finite and at least ``least``."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode) or node.tag == _TAG + "bool":
            self.fail(key, got=shown(node), expected=expected)
        try:
            value = Decimal(node.value)
        except InvalidOperation:
            self.fail(key, got=shown(node), expected=expected)
        if not value.is_finite() or value < least:
            self.fail(key, got=shown(node), expected=expected)
        return value

    def fractions(self, key: str) -> tuple[float, ...] | None:
        """Return the list of shares in [0, 1] under a key; a single one is a list of one."""
        node = self.nodes.get(key)
        if node is None:
            return None
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        expected = "numbers in [0, 1]"
        values = []
        for item in items:
            if not isinstance(item, yaml.ScalarNode) or item.tag not in (_TAG + "float", _TAG + "int"):
                self.fail(key, got=shown(item), expected=expected)
            try:
                value = float(item.value)
            except ValueError:  # YAML 1.1 also calls 1:30 a number
                self.fail(key, got=shown(item), expected=expected)
            if not 0 <= value <= 1:
                self.fail(key, got=shown(item), expected=expected)
            values.append(value)
        return tuple(values)

    def section(self, key: str, *, expected: str = "a mapping") -> Section | None:
        """Return the mapping under a key."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self.fail(key, got=shown(node), expected=expected)
        return _section(node, where=self.path(key), file=self.file)

    def sections(self, key: str) -> Iterator[Section]:
        """Yield the mappings of the list under a key; an absent key is an empty list."""
        node = self.nodes.get(key)
        if node is None:
            return
        if not isinstance(node, yaml.SequenceNode):
            self.fail(key, got=shown(node), expected="a list")
        for number, item in enumerate(node.value):
            if not isinstance(item, yaml.MappingNode):
                self.fail(key, got=f"{shown(item)} as item {number + 1}", expected="a list of mappings")
            yield _section(item, where=f"{self.path(key)}[{number}]", file=self.file)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of scalars under a key as text; an absent key is an empty list."""
        node = self.nodes.get(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not all(
            isinstance(i, yaml.ScalarNode) for i in node.value
        ):
            self.fail(key, got=shown(node), expected="a list of texts")
        return tuple(item.value for item in node.value)

    def _nearest(self, key: str, names: list[str]) -> str:
        plain = key.lower().replace("-", "_").strip("_")
        return self.path(difflib.get_close_matches(plain, names, n=1, cutoff=0.0)[0])


def read_section(path: Path) -> Section:
    """Return the mapping that a YAML file holds; an empty file is an empty mapping. Raises ConfigError."""
    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or "a syntax error"
        raise ConfigError(
            f"YAML: got text that does not parse ({problem}), expected YAML ({path}:{line})"
        ) from error
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise ConfigError(
            f"YAML: got text that does not parse ({problem}), expected YAML ({path})"
        ) from error
    if node is None:
        return Section(where="", file=str(path), line=1, nodes={}, key_lines={})
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"YAML: got {shown(node)}, expected a mapping of keys ({path}:1)")
    return _section(node, where="", file=str(path))


def read_text(path: Path) -> str:
    """Return a file's text; a file that is missing or cannot be read is a ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"file: got nothing at this path, expected a YAML file ({path})") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise ConfigError(f"file: got {reason}, expected a readable YAML file ({path})") from error


def shown(node: yaml.Node) -> str:
    """Return a node as a message quotes it: scalars as written, collections by kind."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _TAG + "null":
        return "nothing"
    text = " ".join(str(node.value).split())[:80]
    return f'"{text}"' if node.tag == _TAG + "str" else text


def _section(node: yaml.MappingNode, *, where: str, file: str) -> Section:
    nodes: dict[str, yaml.Node] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{where or 'YAML'}: got {shown(key)} as a key, expected text ({file}:{line})")
        if key.value in nodes:
            path = f"{where}.{key.value}" if where else key.value
            raise ConfigError(f"{path}: got the key twice, expected it once ({file}:{line})")
        nodes[key.value], lines[key.value] = value, line
    return Section(where=where, file=file, line=node.start_mark.line + 1, nodes=nodes, key_lines=lines)
