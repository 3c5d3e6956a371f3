"""Checks of settings, each with one message: the setting's name, what it got, what it expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_args

from sim.config import InvalidConfig

Policy = TypeVar("Policy")


def is_number(value: object) -> bool:
    """Return whether a value is a finite number, booleans excepted."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_number(name: str, value: object, *, least: float, most: float = math.inf) -> None:
    """Raise InvalidConfig on a value that is not a number from ``least`` to ``most``."""
    if not is_number(value) or not least <= value <= most:  # type: ignore[operator] # it is a number
        limits = f"a number >= {least:g}" if most == math.inf else f"a number in [{least:g}, {most:g}]"
        raise InvalidConfig(f"{name}: got {value!r}, expected {limits}")


def check_integer(name: str, value: object, *, least: int) -> None:
    """Raise InvalidConfig on a value that is not an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidConfig(f"{name}: got {value!r}, expected an integer >= {least}")


def check_flag(name: str, value: object) -> None:
    """Raise InvalidConfig on a value that is neither true nor false."""
    if not isinstance(value, bool):
        raise InvalidConfig(f"{name}: got {value!r}, expected true or false")


def check_choice(name: str, value: object, choices: object) -> None:
    """Raise InvalidConfig on a value that is not one of a Literal's."""
    if value not in get_args(choices):
        raise InvalidConfig(
            f"{name}: got {value!r}, expected one of {', '.join(map(str, get_args(choices)))}"
        )


def check_fractions(name: str, value: object) -> None:
    """Raise InvalidConfig on a value that is not a map from names to numbers in [0, 1]."""
    if not isinstance(value, Mapping) or not value:
        raise InvalidConfig(f"{name}: got {value!r}, expected names with a fraction each")
    for key, fraction in value.items():
        check_number(f"{name}.{key}", fraction, least=0, most=1)


def built_in(
    registry: Mapping[str, Callable[..., Policy]], settings: Mapping[str, Any], *, section: str
) -> Policy:
    """Return what ``settings`` ask for: ``policy`` names an entry of a registry, the rest are its settings."""
    rest = dict(settings)
    name = rest.pop("policy", None)
    if name not in registry:
        raise InvalidConfig(f"{section}.policy: got {name!r}, expected one of {', '.join(registry)}")
    known = [setting.name for setting in fields(registry[name])]  # type: ignore[arg-type] # all are dataclasses
    for key in rest:
        if key not in known:
            expected = f"one of {', '.join(known)}" if known else "no setting"
            raise InvalidConfig(f"{section}.{key}: unknown with policy {name}, expected {expected}")
    return registry[name](**rest)
