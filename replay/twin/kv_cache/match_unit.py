"""``engine.prefix_match_unit``: how finely prefixes of models are matched whose layers do not all cache alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.twin.keys.key import Key

if TYPE_CHECKING:
    from sim import EngineSettings
    from traces.strict.section import Section

UNIT = "prefix_match_unit"
MOST_DIGITS = 12
"""The engine says which numbers are too large; Python turns no text of thousands of digits into one."""
COARSEST = "none"
"""vLLM's None: the greatest common divisor of all groups' blocks."""

UNIT_KEY = Key(
    path=f"engine.{UNIT}",
    kind="text",
    default=COARSEST,
    meaning="With KV cache groups: a hash for every so many tokens, a divisor of each group's `block_size`. Beside "
    "states a prefix hit can then end inside a block, where another prompt's last whole unit did "
    "(docs/how-to/plan-a-hybrid-model.md); 0.32 and 0.33. none: the greatest common divisor.",
)


def written_unit(section: Section | None) -> int | None:
    """Return the unit that a file gives, None where it gives none, or no number: ``with_match_unit`` says so."""
    written = None if section is None else section.text(UNIT)
    return int(written) if written and _is_number(written) and int(written) > 0 else None


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdecimal() and len(written) <= MOST_DIGITS


def with_match_unit(engine: EngineSettings, section: Section | None) -> EngineSettings:
    """Return the engine with the unit of its file. Raises ConfigError on one that is no number."""
    if section is None or UNIT not in section:
        return engine
    written = section.text(UNIT) or ""
    if written != COARSEST and not _is_number(written):
        section.fail(UNIT, got=written, expected=f"an integer >= 1, or {COARSEST}")
    return replace(engine, prefix_match_unit=None if written == COARSEST else int(written))
