"""How a feature says a setting of the engine, and a rule of some versions of vLLM: once, with all that is known.

A setting is a field of a dataclass, of which ``sim/engine_settings.py`` puts the engine's together; a rule likewise, in
``sim/versions.py``. What is said of either stands in the field's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from typing import Any, TypeVar

MOST_INTEGER = 2**31 - 1

Value = TypeVar("Value")


class InvalidConfig(ValueError):  # noqa: N818 - callers translate it; the name says what it is
    """A value the engine cannot run with; the message names the field, what it got and what it expected."""


AllSettings = Any
"""The engine's settings (``EngineSettings``) as a feature sees them, which asks what stands beside its own."""

AllRules = Any
"""The rules of a version (``VersionRules``), likewise: both are put together above the features."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is known of a setting beside its name, its type and its default.

    ``meaning``: for the reference page. ``least`` and ``most``: of a number; of a float without ``least``, its feature
    checks the value itself. ``choices``: the type of its values, where they are words. ``flag``: of ``vllm serve``.
    ``known_by``: the rule of versions that know it, "" for all. ``taken``: compiled code has it as it is.
    """

    meaning: str = ""
    least: int | None = None
    most: int = MOST_INTEGER
    choices: object = None
    flag: str = ""
    known_by: str = ""
    taken: bool = False


def setting(default: Value, meaning: str = "", **said: Any) -> Value:  # noqa: ANN401 - the fields of ``Said``
    """Return a field of a dataclass: a setting with its default, and what is known of it (``Said``)."""
    made: Value = field(default=default, metadata={"said": Said(meaning=meaning, **said)})
    return made


def changing(first: Value, since: Mapping[int, Value], *, asked: bool = False) -> Value:
    """Return a field of a dataclass: a rule as the oldest version has it, and what it became with 0.N of ``since``.

    ``asked``: compiled code asks for it, by its name.
    """
    made: Value = field(default=first, metadata={"since": since, "asked": asked})
    return made


def since(minor: int, *, until: int | None = None, asked: bool = True) -> bool:
    """Return a field of a dataclass: a rule that holds from 0.N on, up to the version before ``until``."""
    return changing(False, {minor: True} | ({} if until is None else {until: False}), asked=asked)
