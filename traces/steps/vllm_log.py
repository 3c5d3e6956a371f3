"""vLLM's log of its steps (``--enable-logging-iteration-details``), read into rows.

Source of the wording: vllm 0.32.0 v1/metrics/loggers.py, ``Iteration(N): C context requests, …``; 0.24.0 has it in
v1/engine/core.py. The elapsed time is the wait for the step's result. On a GPU that is less than the step, since the
next step is prepared while one runs. A log whose lines begin with the full time (``%(created)f``) also shows when each
step was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from lazy_dataclasses import dataclass

_STEP = re.compile(
    r"(?:Engine (?P<engine>[0-9]{1,9}): )?Iteration\((?P<step>[0-9]{1,15})\): "
    r"(?P<prefill_requests>[0-9]{1,9}) context requests, (?P<prefill_tokens>[0-9]{1,9}) context tokens, "
    r"(?P<decode_requests>[0-9]{1,9}) generation requests, (?P<decode_tokens>[0-9]{1,9}) generation tokens, "
    r"iteration elapsed time: (?P<ms>[0-9]{1,12}(?:\.[0-9]{1,9})?) ms"
    r"(?:, .*?KV cache usage: (?P<kv>[0-9]{1,6}(?:\.[0-9]{1,9})?)%)?"
)
_WRITTEN = re.compile(r"(?:^|\s)(\d{10}\.\d{3,6})\s")
"""Seconds since 1970 with a fraction, as ``%(created)f`` writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStep:
    """One step of the engine as it logged it; None for missing values.

    ``duration_us``: the logged wait for its result. ``end_unix_us``: when the line was written, µs since 1970.
    """

    engine: int
    step: int
    num_prefill_requests: int
    num_prefill_tokens: int
    num_decode_requests: int
    num_decode_tokens: int
    duration_us: int
    kv_cache_usage_frac: float | None
    end_unix_us: int | None = None


def parse_engine_log(lines: Iterable[str]) -> list[EngineStep]:
    """Return the steps in ``lines``, in order; other lines are skipped."""
    return [_step(match) for line in lines if (match := _STEP.search(line)) is not None]


def _step(match: re.Match[str]) -> EngineStep:
    written = _WRITTEN.search(match.string, 0, match.start())
    return EngineStep(
        engine=int(match["engine"] or 0),
        step=int(match["step"]),
        num_prefill_requests=int(match["prefill_requests"]),
        num_prefill_tokens=int(match["prefill_tokens"]),
        num_decode_requests=int(match["decode_requests"]),
        num_decode_tokens=int(match["decode_tokens"]),
        duration_us=round(float(match["ms"]) * 1000),
        kv_cache_usage_frac=None if match["kv"] is None else round(float(match["kv"]) / 100, 6),
        end_unix_us=None if written is None else round(float(written[1]) * 1e6),
    )
