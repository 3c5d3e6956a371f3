"""``engine.prefix_cache_retention_interval``: which windows and states a server keeps in its prefix cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.twin.keys.key import Key
from sim import nearest_rules

if TYPE_CHECKING:
    from sim import EngineSettings
    from traces.strict.section import Section

INTERVAL = "prefix_cache_retention_interval"
MOST_DIGITS = 12
"""The engine refuses numbers that are too large; Python cannot convert a text of thousands of digits."""
ALL = "none"
"""vLLM's None: every block that a hit can end at is kept."""

RETENTION_KEY = Key(
    path=f"engine.{INTERVAL}",
    kind="text",
    default="0 from vllm_version 0.29 on, before that none",
    meaning="With KV cache groups of windows or states: how many tokens apart they are kept in the prefix cache; 0: "
    "only where a prompt ends and where prompts were seen to part; none: wherever a hit can end. States with "
    "`use_eagle`: none.",
)


def with_retention(engine: EngineSettings, section: Section | None) -> tuple[EngineSettings, tuple[str, ...]]:
    """Return the engine with the interval of its file, or the version's, and a line if the file gives none.

    Source of the defaults: vLLM's pull requests 52216 (0 in place of none; merged after 0.28.0) and 55760 (states with
    EAGLE). Raises ConfigError on an interval that is no number.
    """
    if section is not None and INTERVAL in section:
        written = section.text(INTERVAL) or ""
        is_number = written.isascii() and written.isdecimal() and len(written) <= MOST_DIGITS
        if written != ALL and not is_number:
            section.fail(INTERVAL, got=written, expected=f"an integer >= 0, or {ALL}")
        interval = None if written == ALL else int(written)
        return replace(engine, prefix_cache_retention_interval=interval), ()
    if not engine.enable_prefix_caching or not nearest_rules(engine.vllm_version).retains_sparsely:
        return engine, ()
    kinds = {group.kind for group in engine.kv_cache_groups}
    if not kinds & {"sliding", "state"} or ("state" in kinds and engine.use_eagle):
        return engine, ()
    note = (
        f"engine.{INTERVAL} is absent: 0, as vLLM {engine.vllm_version} has it: windows and states stay in the prefix "
        "cache only where a prompt ends and where prompts were seen to part"
    )
    return replace(engine, prefix_cache_retention_interval=0), (note,)
