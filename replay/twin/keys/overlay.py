"""``--set KEY=VALUE``: keys of TWIN.yaml from the command line, in place of the file's or beside them.

A value is written as in the file. Commas outside of brackets, braces and quotes part several values, of which each
makes a variant: ``engine.max_num_seqs=32,64``. A list is one value in its brackets. ``null`` takes the key away.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from lazy_dataclasses import dataclass, replace

import yaml

from traces import ConfigError
from traces.strict.section import Section
from traces.strict.yaml_nodes import is_null, parse_yaml

_KEY = re.compile(r"[A-Za-z_][\w-]*(\[\d+\])*(\.[A-Za-z_][\w-]*(\[\d+\])*)*")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NUMBER = re.compile(r"\d[\d,.]*")
IN_QUOTES = """--set 'cluster={"instances": 4}'"""
"""How a shell passes a mapping."""
_OPENING, _CLOSING, _QUOTES = "[{", "]}", "\"'"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key with one value, as text."""

    key: str
    value: str

    def __str__(self) -> str:
        """Return it as it is written after ``--set``."""
        return f"{self.key}={self.value}"

    @property
    def short(self) -> str:
        """Return it with the last part of the key alone."""
        return f"{self.key.rpartition('.')[2]}={self.value}"


def parse_settings(texts: Sequence[str]) -> list[tuple[Setting, ...]]:
    """Return the values of each ``--set`` in order: one or several of one key. Raises ConfigError."""
    found: list[tuple[Setting, ...]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            in_quotes = f"; a mapping stands in quotes: {IN_QUOTES}" if text.startswith("{") else ""
            raise ConfigError(f"--set: got {text!r}, expected KEY=VALUE (engine.max_num_seqs=64){in_quotes}")
        values = split_values(value)
        if "" in values:
            raise ConfigError(f"--set {key}: got {value!r}, expected a value, or several with commas between")
        if any(key == each[0].key for each in found):
            raise ConfigError(f"--set {key}: got it twice, expected it once ({key}=1,2 gives two variants)")
        if len(set(values)) < len(values):
            raise ConfigError(f"--set {key}: got a value twice, expected different ones ({value})")
        found.append(tuple(Setting(key, each) for each in values))
    return found


def setting_of(given: Setting | str) -> Setting:
    """Return one key with one value, which may be a text as after ``--set``. Raises ConfigError for several values."""
    if isinstance(given, Setting):
        return given
    first, *more = parse_settings([given])[0]
    if more:
        raise ConfigError(f"settings: got {given!r}, expected one value of a key (engine.max_num_seqs=64)")
    return first


def variants_of(settings: Sequence[tuple[Setting, ...]]) -> list[tuple[Setting, ...]]:
    """Return every combination of the values, the last key's changing fastest; one empty combination without keys."""
    return list(itertools.product(*settings))


def split_values(text: str) -> list[str]:
    """Return the values between commas; those in brackets, braces and quotes part nothing."""
    values, start, depth, quote = [], 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            values.append(text[start:place])
            start = place + 1
    return [value.strip() for value in (*values, text[start:])]


def overlaid(root: Section, settings: Sequence[Setting]) -> Section:
    """Return a file's root with the settings in place of its own keys. Raises ConfigError on an empty value."""
    top = yaml.MappingNode("tag:yaml.org,2002:map", [(_text(key), node) for key, node in root.nodes.items()])
    for each in settings:
        steps: list[int | str] = [int(i) if i else name for i, name in _STEP.findall(each.key)]
        value = _parsed(each)
        top = _put(top, steps, _unmarked(value), each)
    nodes: dict[str, yaml.Node] = {key.value: node for key, node in top.value}
    lines: Mapping[str, int] = {key: root.key_lines.get(key, 0) for key in nodes}
    return replace(root, nodes=nodes, key_lines=lines)


def _parsed(of: Setting) -> yaml.Node:
    """Return a setting's value. Raises ConfigError on nothing, and on a mapping that lost its quotes in the shell."""
    lost = ConfigError(
        f"--set {of.key}: got {of.value}, which has lost its quotes in the shell, expected single quotes around it and "
        f"double quotes around each key and text: {IN_QUOTES}"
    )
    try:
        value = parse_yaml(of.value, file=f"--set {of}")
    except ConfigError as error:
        raise lost if re.match(r"\[*\{\w+:\S", of.value) else error from error
    if value is None:
        raise ConfigError(f"--set {of.key}: got nothing, expected a value")
    if _has_lost_quotes(value):
        raise lost
    return value


def _has_lost_quotes(node: yaml.Node) -> bool:
    """Return whether a mapping in braces has a key with a colon and no value: ``{a:1}``, once ``{"a":1}``."""
    if isinstance(node, yaml.SequenceNode):
        return any(map(_has_lost_quotes, node.value))
    if not isinstance(node, yaml.MappingNode):
        return False
    return any(
        (isinstance(key, yaml.ScalarNode) and not key.style and ":" in key.value and is_null(value))
        or _has_lost_quotes(value)
        for key, value in node.value
    )


def named(error: ConfigError, settings: Sequence[Setting]) -> ConfigError:
    """Return an error about a setting with that setting as its place; any other error unchanged."""
    message = str(error)
    for each in settings:
        about = each.key.split("[")[0]
        parent = each.key.rpartition(".")[0]
        if message.startswith(
            (f"{each.key}:", f"{each.key}.", f"{each.key}[", f"{about}:", f"{parent}: unknown key")
        ):
            return ConfigError(re.sub(r" \([^()]*\)$", "", message) + f" (--set {each})")
        section = re.escape(each.key.rpartition(".")[0])
        if re.match(
            rf"{section} \([^()]*\): got '{re.escape(each.value)}'", message
        ):  # a GPU that is not known
            return ConfigError(f"{each.key}{message[message.index(': got') :]} (--set {each})")
    return error


def _put(
    node: yaml.Node | None, steps: Sequence[int | str], value: yaml.Node, of: Setting
) -> yaml.MappingNode:
    """Return a mapping with a value put under a path, mappings made along the way; the node itself stays as it was."""
    name, rest = str(steps[0]), steps[1:]
    if isinstance(node, yaml.ScalarNode) and not is_null(node) and of.key.startswith("hardware."):
        node = yaml.MappingNode(
            "tag:yaml.org,2002:map", [(_text("gpu"), node)]
        )  # hardware: H100 means its gpu
    pairs = list(node.value) if isinstance(node, yaml.MappingNode) else []
    below = next((held for key, held in pairs if key.value == name), None)
    place = next((i for i, (key, _) in enumerate(pairs) if key.value == name), len(pairs))
    if not rest and is_null(value):
        kept = pairs[:place] + pairs[place + 1 :]
    else:
        put = _below(below, rest, value, of) if rest else value
        kept = [*pairs[:place], (_text(name), put), *pairs[place + 1 :]]
    begins = None if node is None else node.start_mark  # a missing part is reported there
    return yaml.MappingNode("tag:yaml.org,2002:map", kept, start_mark=begins)


def _below(node: yaml.Node | None, steps: Sequence[int | str], value: yaml.Node, of: Setting) -> yaml.Node:
    """Return a key's node with the value inserted further down: in a mapping, or in an item of a list."""
    if not isinstance(steps[0], int):
        return _put(node, steps, value, of)
    items = list(node.value) if isinstance(node, yaml.SequenceNode) else []
    if steps[0] >= len(items):
        raise ConfigError(
            f"--set {of.key}: got item {steps[0]}, expected one of the {len(items)} in the file (from 0)"
        )
    rest = steps[1:]
    items[steps[0]] = _below(items[steps[0]], rest, value, of) if rest else value
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items)


def _text(name: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", name)


def _unmarked(node: yaml.Node) -> yaml.Node:
    """Return a node without a line of the file."""
    if isinstance(node, yaml.MappingNode):
        return yaml.MappingNode(node.tag, [(_unmarked(key), _unmarked(value)) for key, value in node.value])
    if isinstance(node, yaml.SequenceNode):
        return yaml.SequenceNode(node.tag, [_unmarked(item) for item in node.value])
    assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - there is no fourth kind
    return yaml.ScalarNode(node.tag, node.value, style=node.style)


def notes_of_variants(notes: Iterable[Sequence[str]]) -> list[str]:
    """Return the notes of several variants, each once, with its count; notes that differ in numbers count as one."""
    each = list(notes)
    alike: dict[str, list[str]] = {}
    for of_one in each:
        for note in dict.fromkeys(of_one):
            alike.setdefault(_NUMBER.sub("0", note), []).append(note)
    return [_counted(found, of=len(each)) for found in alike.values()]


def _counted(found: Sequence[str], *, of: int) -> str:
    """Return the first of some similar notes, with how many variants have one, unless all have the same."""
    differ = len(set(found)) > 1
    if len(found) == 1 or (len(found) == of and not differ):
        return found[0]
    return f"{found[0]}; so in {len(found):,} of {of:,} variants{', with other numbers' if differ else ''}"
