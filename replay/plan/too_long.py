"""What a search says where there is nothing to search: no prompt fits into any of the engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from sim.config import EngineConfig
    from traces import Trace


def tell_too_long(trace: Trace, twins: Iterable[TwinConfig]) -> None:
    """Say on stderr where every prompt is too long for every engine, so that no rate can meet any limit."""
    from traces import prompt_tokens

    shortest = int(prompt_tokens(trace).min()) if len(trace) else 0
    longest = max(engine.max_model_len for twin in twins for engine in _engines(twin))
    if shortest >= longest:
        tell(
            f"no request finishes at any rate: got prompts of at least {shortest:,} tokens, expected fewer than "
            f"engine.max_model_len, {longest:,}"
        )


def _engines(twin: TwinConfig) -> list[EngineConfig]:
    return [twin.engine] if twin.cluster is None else [pool.engine for pool in twin.cluster.pools]
