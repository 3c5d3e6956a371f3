"""Sections of ``cluster`` to settings of the simulator and back, with one message for each error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import yaml

from replay.twin.keys.cluster_keys import CLUSTER_KEYS
from sim import InvalidConfig
from traces import ConfigError
from traces.strict.section import MOST_INTEGER, Section
from traces.strict.yaml_nodes import PRINTABLE, line_of, place, scalar_of, shown

Built = TypeVar("Built")


def names_under(path: str) -> list[str]:
    """Return the keys that the table has directly under a section."""
    start = f"{path}."
    return [
        key.path.removeprefix(start)
        for key in CLUSTER_KEYS
        if key.path.startswith(start) and "." not in key.path.removeprefix(start)
    ]


def built(cls: Callable[..., Built], section: Section) -> Built:
    """Return settings that are all of one section."""
    section.refuse_unknown([item.name for item in fields(cls)])  # type: ignore[arg-type] # all are dataclasses
    return translated(lambda: cls(**plain_section(section)), section)


def translated(build: Callable[[], Built], section: Section) -> Built:
    """Return the settings that are built; the simulator's error gets the key's full path, the file and the line."""
    try:
        return build()
    except InvalidConfig as error:
        name, _, complaint = str(error).partition(": ")
        own = section.where.rpartition(".")[2]
        name = name.removeprefix(f"{own}.").removeprefix("routing." if own.endswith("routing") else "")
        line = section.key_lines.get(name.partition(".")[0], section.line)
        raise ConfigError(f"{section.path(name)}: {complaint} ({place(section.file, line)})") from error


def plain_section(section: Section) -> dict[str, Any]:
    """Return a section's values as Python's, numbers as numbers."""
    return {key: _plain(node, section) for key, node in section.nodes.items()}


def _plain(node: yaml.Node, section: Section) -> Any:  # noqa: ANN401 - whatever the file says
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _plain(value, section) for key, value in node.value}
    if isinstance(node, yaml.ScalarNode):
        value = scalar_of(node)
        if isinstance(value, str) and not value.isprintable():
            place_of = place(section.file, line_of(node))
            raise ConfigError(f"{section.where}: got {shown(node)}, expected {PRINTABLE} ({place_of})")
        if isinstance(value, int | float) and not abs(value) <= MOST_INTEGER:
            place_of = place(section.file, line_of(node))
            raise ConfigError(
                f"{section.where}: got {node.value}, expected a number of at most {MOST_INTEGER:,} ({place_of})"
            )
        return value
    return [_plain(item, section) for item in node.value]


def settings_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass of settings
    """Return settings by their names."""
    return {item.name: getattr(value, item.name) for item in fields(value)}


def flow_text(value: object) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_text(key)}: {flow_text(item)}" for key, item in value.items()) + "}"
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000)
    return text.removesuffix("\n").removesuffix("\n...")
