"""A section's values read by what its keys hold: the one strict reader of engine, hardware and latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from decimal import Decimal
from typing import Any

from replay.twin.keys.key import Key
from traces.strict.section import Section

LEAST_ABOVE_ZERO = Decimal("1e-9")


def values_of(section: Section, keys: Iterable[Key]) -> dict[str, Any]:
    """Return the values that a section gives, by the names of their keys, those of mappings left out.

    Raises ConfigError at the first that is none of its key's, with the line.
    """
    found = {
        key.name: value_of(section, key) for key in keys if key.kind != "mapping" and key.name in section
    }
    return {name: value for name, value in found.items() if value is not None}


def held_by(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are fields of a dataclass."""
    return {item.name: values[item.name] for item in fields(cls) if item.name in values}


def refuse_missing(section: Section, cls: Any, *, expected: str) -> None:  # noqa: ANN401 - any dataclass
    """Refuse a section without a setting that its dataclass has no default for."""
    for item in fields(cls):
        if default_of(item) is MISSING and item.name not in section:
            section.fail(item.name, got="nothing", expected=expected)


def default_of(item: Field[Any]) -> Any:  # noqa: ANN401 - of any type
    """Return a field's default, MISSING where it has none."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def value_of(section: Section, key: Key) -> Any:  # noqa: ANN401 - of the key's kind
    """Return a key's value, None where the section does not give it. Raises ConfigError."""
    if key.kind == "integer":
        return section.integer(key.name, least=key.least)
    if key.kind == "boolean":
        return section.boolean(key.name)
    if key.kind == "numbers":
        return section.numbers(key.name)
    if key.kind in ("fraction", "number"):
        least = LEAST_ABOVE_ZERO if key.is_above_zero else Decimal(0)
        value = section.decimal(key.name, expected=key.wanted, least=least)
        return None if value is None else float(value)
    return section.text(key.name, choices=key.choices)
