"""YAML and JSON text to nodes with their lines: a document's structure, before types are checked.

One rule for scalars, that of YAML 1.2: ``true`` and ``false`` are booleans, ``yes``, ``on`` and ``1:30`` are text,
``1e6`` is a number; what stands in quotes is text. Underscores between digits are allowed. A key that is given twice
is refused, ``<<`` merges a mapping. Every error is one line, ``what: got X, expected Y (file:line)``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NoReturn

import yaml

from traces.errors import ConfigError, VtwinError, cut
from traces.strict.json_text import parse_value
from traces.strict.whole_file import whole_file

Kind = Literal["null", "boolean", "integer", "number", "text"]

MAX_NODES = 500_000
"""The most values of a document, aliases unfolded: they take some 300 MB. No document of vtwin has a tenth of it."""

MOST_DOCUMENTS = 1000
"""In one text, between lines of ``---``."""

MAX_DEPTH = 200
"""Levels of nesting: no document of vtwin needs more than a dozen."""

MOST_CHARACTERS = 300
"""A longer number counts as text: no quantity has that many digits."""

_TAG = "tag:yaml.org,2002:"
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is built in
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_INTEGER = re.compile(rf"[-+]?{_DIGITS}")
_NUMBER = re.compile(rf"[-+]?(?:\.[0-9]+|{_DIGITS}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MERGE = "<<"


def read_text(path: Path, *, expected: str, what: str = "file", error: type[VtwinError] = ConfigError) -> str:
    """Return a file's text. Raises ``error`` where it is missing or cannot be read.

    ``expected``: a YAML file. ``what`` the error names: the option that gave the path, where it is known.
    """
    try:
        return whole_file(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError as fault:
        raise error(f"{what}: got nothing at this path, expected {expected} ({path})") from fault
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "bytes that are not UTF-8"
        raise error(f"{what}: got {reason}, expected a readable file: {expected} ({path})") from fault


def parse_yaml(text: str, *, file: str, error: type[VtwinError] = ConfigError) -> yaml.Node | None:
    """Return the document's root, None of an empty one; its keys are checked on the way to their values.

    Raises ``error``, one line, for text that is not YAML, is nested too deeply, or grows too much by aliases.
    """
    roots = parse_yaml_documents(text, file=file, error=error, most=1)
    return roots[0] if roots else None


def parse_yaml_documents(
    text: str,
    *,
    file: str,
    error: type[VtwinError] = ConfigError,
    most: int = MOST_DOCUMENTS,
    nodes: int = MAX_NODES,
) -> list[yaml.Node]:
    """Return the roots of a text's documents, ``most`` of them, empty ones left out.

    ``nodes``: of all together, aliases unfolded. Raises ``error`` as ``parse_yaml`` does.
    """
    try:
        _refuse_large(text, file=file, error=error, most=nodes)
        if most == 1:
            root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
            roots = [] if root is None else [root]
        else:
            roots = [root for root in yaml.compose_all(text, Loader=_Loader) if root is not None]
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        problem = fault.problem or "a syntax error"
        if "\t" in "".join(text.splitlines()[line - 1 : line]):
            problem = "a tab; YAML indents with spaces"
        raise error(
            f"YAML: got text that does not parse ({problem}), expected YAML ({file}:{line})"
        ) from fault
    except yaml.YAMLError as fault:
        problem = str(fault).splitlines()[0]
        raise error(f"YAML: got text that does not parse ({problem}), expected YAML ({file})") from fault
    if len(roots) > most:
        raise error(f"YAML: got {len(roots):,} documents, expected at most {most:,} ({file})")
    if sum(_refuse_endless(root, file=file, error=error, most=nodes) for root in roots) > nodes:
        raise error(f"YAML: got more than {nodes:,} values, expected fewer ({file})")
    return roots


def parse_json(text: str, *, file: str, error: type[VtwinError] = ConfigError) -> yaml.Node:
    """Return a JSON document as nodes, without lines. Raises ``error`` for text that is not JSON."""
    try:
        return json_node(parse_value(text))
    except (ValueError, RecursionError) as fault:
        raise error(f"JSON: got text that does not parse ({fault}), expected JSON ({file})") from fault


def json_node(value: object) -> yaml.Node:
    """Return a value of JSON as a node without a line."""
    if isinstance(value, dict):
        pairs = [(json_node(str(key)), json_node(item)) for key, item in value.items()]
        return yaml.MappingNode(_TAG + "map", pairs)
    if isinstance(value, list):
        return yaml.SequenceNode(_TAG + "seq", [json_node(item) for item in value])
    if isinstance(value, str):
        return yaml.ScalarNode(_TAG + "str", value, style='"')
    return yaml.ScalarNode(_TAG + "str", json.dumps(value))


def _refuse_large(text: str, *, file: str, error: type[VtwinError], most: int) -> None:
    """Raise if values are nested too deeply, or more than ``most``, before they take memory.

    libyaml composes by recursion: a deep file ends the process.
    """
    if len(text) <= MAX_DEPTH:
        return
    depth = number = 0
    for event in yaml.parse(text, Loader=_Loader):
        number += isinstance(event, yaml.NodeEvent)
        if number > most:
            raise error(f"YAML: got more than {most:,} values, expected fewer ({file})")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            where = place(file, line)
            raise error(f"YAML: got values nested more than {MAX_DEPTH} deep, expected fewer ({where})")


def _refuse_endless(root: yaml.Node, *, file: str, error: type[VtwinError], most: int) -> int:
    """Return how many values a document unfolds to. Raise if a node contains itself, or they are more than ``most``."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in open_nodes:
            raise error(
                f"YAML: got an alias to what it stands in, expected a document with an end ({file}:{line_of(node)})"
            )
        if id(node) not in sizes:
            open_nodes.add(id(node))
            sizes[id(node)] = 1 + sum(size(child) for child in _children(node))
            open_nodes.discard(id(node))
        return sizes[id(node)]

    if size(root) > most:
        raise error(f"YAML: got aliases that unfold to {size(root):,} values, expected fewer ({file})")
    return size(root)


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def line_of(node: yaml.Node) -> int:
    """Return the line of a node, counted from 1; 0 where it is not known."""
    return node.start_mark.line + 1 if node.start_mark is not None else 0


def place(file: str, line: int) -> str:
    """Return ``file:line``, or the file alone where the line is not known."""
    return f"{file}:{line}" if line else file


PRINTABLE = "text on one line, of printable characters"
"""The required form of keys and names: others could end a line of a table, or control the terminal that shows them."""


def pairs_of(
    node: yaml.MappingNode, *, where: str, file: str, error: type[VtwinError] = ConfigError
) -> dict[str, tuple[int, yaml.Node]]:
    """Return a mapping's keys with the line of each and its value. Raises ``error`` for a key that is given twice."""
    found: dict[str, tuple[int, yaml.Node]] = {}
    merged: dict[str, tuple[int, yaml.Node]] = {}
    for key, value in node.value:
        line = line_of(key)
        if not isinstance(key, yaml.ScalarNode):
            raise error(f"{where or 'YAML'}: got {shown(key)} as a key, expected text ({place(file, line)})")
        if not key.value.isprintable():
            raise error(
                f"{where or 'YAML'}: got {shown(key)} as a key, expected {PRINTABLE} ({place(file, line)})"
            )
        if key.value == _MERGE and _is_plain(key):
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(each, yaml.MappingNode):
                    raise error(
                        f"{join(where, _MERGE)}: got {shown(each)}, expected a mapping ({place(file, line)})"
                    )
                merged = {**pairs_of(each, where=where, file=file, error=error), **merged}
            continue
        if key.value in found:
            raise error(
                f"{join(where, key.value)}: got the key twice, expected it once ({place(file, line)})"
            )
        found[key.value] = (line, value)
    return {**merged, **found}


def join(where: str, key: str) -> str:
    """Return the dotted path of a key, as messages quote it."""
    return f"{where}.{cut(key)}" if where else cut(key)


def kind_of(node: yaml.ScalarNode) -> Kind:
    """Return the type of a scalar."""
    if not _is_plain(node):
        return "text"
    if node.value in _NULLS:
        return "null"
    if node.value in _BOOLEANS:
        return "boolean"
    if len(node.value) > MOST_CHARACTERS:
        return "text"
    if _INTEGER.fullmatch(node.value):
        return "integer"
    return "number" if _NUMBER.fullmatch(node.value) or _SPECIAL.fullmatch(node.value) else "text"


def _is_plain(node: yaml.ScalarNode) -> bool:
    return node.style in (None, "")


def is_null(node: yaml.Node) -> bool:
    """Return whether a value is null."""
    return isinstance(node, yaml.ScalarNode) and kind_of(node) == "null"


def scalar_of(node: yaml.ScalarNode) -> str | int | float | bool | None:
    """Return a scalar's value."""
    kind = kind_of(node)
    if kind == "null":
        return None
    if kind == "boolean":
        return _BOOLEANS[node.value]
    if kind == "integer":
        return int(node.value)
    if kind == "number":
        return float(re.sub(r"^([-+]?)\.(?=[iInN])", r"\1", node.value))
    return str(node.value)


def plain_value(
    node: yaml.Node | None, *, file: str, where: str = "", error: type[VtwinError] = ConfigError
) -> object:
    """Return a node as dicts, lists and scalars; keys are text. Raises ``error`` as ``pairs_of``."""
    if node is None:
        return None
    if isinstance(node, yaml.MappingNode):
        pairs = pairs_of(node, where=where, file=file, error=error)
        return {
            key: plain_value(value, file=file, where=join(where, key), error=error)
            for key, (_, value) in pairs.items()
        }
    if isinstance(node, yaml.SequenceNode):
        return [
            plain_value(item, file=file, where=f"{where}[{i}]", error=error)
            for i, item in enumerate(node.value)
        ]
    assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - there is no fourth kind
    return scalar_of(node)


_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def line_at(root: yaml.Node | None, path: str) -> int:
    """Return the line of the node at a dotted path (``clients[0].arrival.cv``), or of the longest existing part."""
    node, line = root, 0 if root is None else line_of(root)
    for number, name in _STEP.findall(path):
        if number and isinstance(node, yaml.SequenceNode) and int(number) < len(node.value):
            node = node.value[int(number)]
            line = line_of(node)
        elif name and isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == name), None)
            if found is None:
                return line
            line, node = line_of(found[0]), found[1]
        else:
            return line
    return line


def shown(node: yaml.Node) -> str:
    """Return a node as a message quotes it: scalars as written, collections by kind."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - there is no fourth kind
    kind = kind_of(node)
    if kind == "null":
        return "nothing"
    text = cut(" ".join(str(node.value).split()))
    return f'"{text}"' if kind == "text" else text


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the known name that ``name`` probably misspells, or None; by difflib's similarity, in [0, 1]."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def refuse(error: type[VtwinError], where: str, *, got: str, expected: str, file: str, line: int) -> NoReturn:
    """Raise ``error`` with the one line that every reader of this package raises."""
    raise error(f"{where}: got {got}, expected {expected} ({place(file, line)})")
