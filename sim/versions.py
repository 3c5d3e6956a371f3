"""vLLM's versions: which scheduling rules each has, which settings it knows, and what it takes by default.

Each feature says its rules in ``sim/features``, with the versions that they changed in; a version has what every change
up to its own says. The rules were found by driving the real schedulers of 0.12.0, 0.15.1, 0.19.1, 0.23.0, 0.25.1,
0.28.0, 0.31.0, 0.32.0 and 0.33.0 through recorded cases and by reading the sources of the releases in between for where
each one begins; those of KV cache groups by driving all minor versions but 0.13, 0.16 and 0.20, those of drafts by
driving all from 0.16 on (``docs/validation.md``). Paths are under ``vllm/v1/core``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from lazy_dataclasses import dataclass, fields, replace

from sim.features.core_engine import DEFAULT_VERSION, CoreDefaults, CoreRules
from sim.features.grammars import GrammarRules
from sim.features.images import ImageRules
from sim.features.kv_groups import GroupRules, LayerRules
from sim.features.lora import LoraRules
from sim.features.offloading import FIRST_WITH_KNOWN_OFFLOADING, OffloadRules
from sim.features.pipeline_stage_settings import StageRules
from sim.features.ranks_in_step import RankRules
from sim.features.speculative_decoding import FIRST_WITH_KNOWN_DRAFTS, DraftRules

__all__ = ["DEFAULT_VERSION"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules(
    RankRules,
    OffloadRules,
    ImageRules,
    GrammarRules,
    LoraRules,
    DraftRules,
    LayerRules,
    GroupRules,
    StageRules,
    CoreDefaults,
    CoreRules,
):
    """What the scheduler of a version does and knows, and what vLLM assumes where a flag is absent.

    The defaults are the oldest known version's; each base says what its rules mean.
    """


OLDEST = 12
"""The oldest version that is known, 0.12."""

Changes = Mapping[str, bool | float | str | tuple[tuple[int, int], ...]]


def _changes() -> dict[int, Changes]:
    changes: dict[int, dict[str, bool | float | str | tuple[tuple[int, int], ...]]] = {OLDEST: {}}
    for rule in fields(VersionRules):
        for minor, value in rule.metadata["since"].items():
            changes.setdefault(minor, {})[rule.name] = value
    return dict(sorted(changes.items()))


CHANGES: Mapping[int, Changes] = _changes()
"""What changed with 0.N.0."""

NEWEST = max(CHANGES)

ASKED = tuple(rule.name for rule in fields(VersionRules) if rule.metadata["asked"])
"""Rules that compiled code asks for."""

KNOWN_VERSIONS = f"0.{OLDEST} to 0.{NEWEST}"

MOST_DIGITS = 9
"""A number with more is no version."""


def values_by_version(rule: str) -> list[tuple[str, object]]:
    """Return the values of a rule, each with the version since which it is so, oldest first."""
    oldest = next(field.default for field in fields(VersionRules) if field.name == rule)
    changed = [(f"0.{minor}", changes[rule]) for minor, changes in CHANGES.items() if rule in changes]
    return [(f"0.{OLDEST}", oldest), *changed]


def minor_version(version: str) -> int | None:
    """Return N of a version 0.N, 0.N.M, v0.N.M or 0.N.M with anything behind it; None for any other text."""
    major, _, rest = version.strip().removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_number = minor.isascii() and minor.isdigit() and len(minor) < MOST_DIGITS
    return int(minor) if major == "0" and is_number else None


def is_known(version: str) -> bool:
    """Return whether the rules of a version are in the table."""
    minor = minor_version(version)
    return minor is not None and OLDEST <= minor <= NEWEST


def has_known_drafts(version: str) -> bool:
    """Return whether speculative decoding is simulated by a version's own rules."""
    return (minor_version(version) or NEWEST) >= FIRST_WITH_KNOWN_DRAFTS


def has_native_offloading(version: str) -> bool:
    """Return whether it is known how a version stores KV blocks in host memory."""
    return (minor_version(version) or NEWEST) >= FIRST_WITH_KNOWN_OFFLOADING


@cache
def _rules(minor: int) -> VersionRules:
    rules = VersionRules()
    for since, changes in CHANGES.items():
        if since <= minor:
            rules = replace(rules, **changes)  # type: ignore[arg-type]  # the fields' own types, see the test
    return rules


@cache
def rules_of(version: str) -> VersionRules:
    """Return the rules of a version. Raises ValueError for one that is not known."""
    minor = minor_version(version)
    if minor is None or not is_known(version):
        raise ValueError(f"got {version!r}, expected {KNOWN_VERSIONS}")
    return _rules(minor)


def nearest_rules(version: str) -> VersionRules:
    """Return the rules of a version, of the oldest or newest known one for a version outside the table.

    For what is asked of any version, such as how much memory it takes. What is no version counts as the newest.
    """
    minor = minor_version(version)
    return _rules(NEWEST if minor is None else min(max(minor, OLDEST), NEWEST))


def engine_defaults(version: str, *, num_stages: int = 1) -> dict[str, bool]:
    """Return the settings of ``EngineConfig`` whose defaults go with the version and the number of pipeline stages.

    Raises ValueError as above.
    """
    rules = rules_of(version)
    can_be_async = num_stages == 1 or rules.async_pipeline != "none"
    return {
        "async_scheduling": rules.async_scheduling and can_be_async,
        "scheduler_reserve_full_isl": rules.has_full_isl_gate,
    }
