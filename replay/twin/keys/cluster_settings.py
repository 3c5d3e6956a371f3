"""Sections of ``cluster`` to the simulator's settings and back, by their dataclasses, one message for each error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin

import yaml

from replay.twin.keys.key import classes_in, hints_of
from replay.twin.keys.read_keys import default_of, refuse_missing
from sim import InvalidConfig
from traces import ConfigError
from traces.strict.section import MOST_INTEGER, Section
from traces.strict.yaml_nodes import PRINTABLE, line_of, place, scalar_of, shown

Built = TypeVar("Built")


# -- read -----------------------------------------------------------------------------------------------------


def built(cls: Callable[..., Built], section: Section) -> Built:
    """Return settings that are all of one section, those in lists included. Raises ConfigError."""
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type] # all are dataclasses
    section.refuse_unknown(names)
    refuse_missing(section, cls, expected="it")
    collections = {name: _collection(section, name, hints_of(cls)[name]) for name in section.nodes}
    given = {name: value for name, value in collections.items() if value is not None}
    return translated(lambda: cls(**{**plain_section(section), **given}), section)


def parts_of(
    cls: Callable[..., Any], section: Section, *, other_than: Collection[str] = ()
) -> dict[str, Any]:
    """Return the settings of a dataclass that have sections of their own, as far as a section gives them."""
    kinds = {
        name: hint
        for name, hint in hints_of(cls).items()
        if classes_in(hint) == (hint,) and name not in other_than
    }
    given = {name: section.section(name) for name in kinds}
    return {name: built(kinds[name], part) for name, part in given.items() if part is not None}


def listed(cls: Callable[..., Built], section: Section, key: str) -> tuple[Built, ...]:
    """Return the settings in a list of sections, none where there is no list. Raises ConfigError."""
    return tuple(built(cls, each) for each in section.sections(key))


def _collection(section: Section, name: str, hint: Any) -> Any:  # noqa: ANN401 - a type hint, and a value of it
    """Return the value of a key that holds a list; None of another, whose value the class checks itself."""
    if get_origin(hint) is Mapping:
        section.section(name)  # the class would look into it
    if not isinstance(get_origin(hint), type) or not issubclass(get_origin(hint), Collection):
        return None
    inner: Any = get_args(hint)[0]
    if classes_in(inner):
        return listed(inner, section, name)
    return section.texts(name) if get_origin(hint) is not Mapping else None


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


# -- written back ---------------------------------------------------------------------------------------------


def lines_of(value: Any, names: Collection[str], *, always: Collection[str] = ()) -> list[str]:  # noqa: ANN401 - any
    """Return a dataclass' settings as lines of YAML, in the order of ``names``: those that are not at their default."""
    members = {item.name: item for item in fields(value)}
    given = {name: getattr(value, name) for name in names}
    return [
        f"{name}: {flow_text(plain_of(each))}"
        for name, each in given.items()
        if name in always or each != default_of(members[name])
    ]


def plain_of(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return a value as a file has it: a dataclass as a mapping without what is None, a policy with its name first."""
    if is_dataclass(value):
        name = getattr(type(value), "name", None)
        policy = {"policy": name} if isinstance(name, str) else {}
        given = {item.name: getattr(value, item.name) for item in fields(value)}
        return policy | {key: plain_of(each) for key, each in given.items() if each is not None}
    if isinstance(value, Mapping):
        return {key: plain_of(each) for key, each in value.items()}
    return [plain_of(each) for each in value] if isinstance(value, tuple | list) else value


def flow_text(value: object) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_text(key)}: {flow_text(item)}" for key, item in value.items()) + "}"
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000)
    return text.removesuffix("\n").removesuffix("\n...")
