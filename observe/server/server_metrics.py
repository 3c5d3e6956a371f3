"""A vLLM server's metrics: its configuration, and which counters moved during a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from observe.response.stated_values import short_text
from observe.server.engines_behind import engines_behind
from observe.server.prometheus_text import Sample
from traces import CounterReading, ServerInfo, SpecDecode

SOURCE = "/metrics"
_COUNTERS = ("_total", "_sum", "_count")
_CONFIG = "vllm:cache_config_info"
_FLAGS = "vtwin:scheduler_config_info"
_SPEC_DECODE = "vllm:spec_decode_"
_MOST_COUNTED = 1e18
"""A larger value is not a counter: an int64 ends at 9.2e18."""
_LONGEST_KEY = 500
_POSITION = re.compile(r'[{,]position="(\d{1,3})"')

ALWAYS_RECORDED = (
    *("vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
)
"""Counters that are recorded even if they did not move: that nothing was preempted is useful to know."""


def learn_from_metrics(info: ServerInfo, samples: list[Sample]) -> ServerInfo:
    """Return ``info`` with the KV cache's values from the labels of ``vllm:cache_config_info``.

    With the servers behind a router and the engines of a server, too (``engines_behind``). An emulated server
    (``vtwin serve``) also reports the scheduler's flags, which a vLLM does not.
    """
    behind = engines_behind(samples, model=info.model)
    if len(behind.servers) > 1:
        info = info.learn(
            f"{SOURCE} label {behind.label}",
            num_instances=len(behind.servers),
            instance_names=behind.servers,
        )
    info = _learn_flags(info, samples).learn(
        f"{SOURCE} label engine", data_parallel=behind.ranks if behind.ranks > 1 else None
    )
    configs = [sample.labels for sample in samples if sample.name == _CONFIG]
    if not configs:
        return info
    labels = configs[0]
    return info.learn(
        f"{SOURCE} {_CONFIG}",
        num_gpu_blocks=_whole(labels.get("num_gpu_blocks")),
        block_size=_whole(labels.get("block_size")),
        enable_prefix_caching=_truth(labels.get("enable_prefix_caching")),
        gpu_memory_utilization=_number(labels.get("gpu_memory_utilization")),
        kv_cache_dtype=_known(labels.get("cache_dtype")),
    )


def _learn_flags(info: ServerInfo, samples: list[Sample]) -> ServerInfo:
    labels = next((sample.labels for sample in samples if sample.name == _FLAGS), {})
    numbers = ("max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold")
    truths = ("enable_chunked_prefill", "scheduler_reserve_full_isl", "async_scheduling")
    return info.learn(
        f"{SOURCE} {_FLAGS}",
        scheduling_policy=_known(labels.get("scheduling_policy")),
        **{name: _whole(labels.get(name)) for name in numbers},
        **{name: _truth(labels.get(name)) for name in truths},
    )


def speaks_vllm(samples: list[Sample]) -> bool:
    """Return whether the samples are a vLLM server's."""
    return any(sample.name.startswith("vllm:") for sample in samples)


def counter_deltas(before: list[Sample], after: list[Sample]) -> dict[str, CounterReading]:
    """Return vLLM's counters that moved between two scrapes, and those that are always worth knowing.

    A histogram counts by its sum and count. A counter that appears only afterwards began at 0. Impossible counters
    (negative, beyond 10**18, a name of more than a line) are left out.
    """
    before = [sample for sample in before if _can_be(sample)]
    after = [sample for sample in after if _can_be(sample)]
    earlier = {sample.key: sample.value for sample in before}
    deltas = {
        sample.key: CounterReading(before=earlier.get(sample.key, 0.0), after=sample.value)
        for sample in after
        if sample.name.startswith("vllm:") and sample.name.endswith(_COUNTERS)
    }
    return {
        key: reading
        for key, reading in deltas.items()
        if reading.before != reading.after or key.partition("{")[0] in ALWAYS_RECORDED
    }


def _can_be(sample: Sample) -> bool:
    return 0 <= sample.value <= _MOST_COUNTED and len(sample.key) <= _LONGEST_KEY and sample.key.isprintable()


def spec_decode(deltas: Mapping[str, CounterReading]) -> SpecDecode | None:
    """Return the counters of speculative decoding, summed over engines; None if nothing was drafted.

    Source of the names: vllm v1/spec_decode/metrics.py.
    """
    drafts, drafted = _increase(deltas, "num_drafts"), _increase(deltas, "num_draft_tokens")
    accepted = _increase(deltas, "num_accepted_tokens")
    if drafts < 1:
        return None
    at_position: dict[int, float] = {}
    for key, reading in deltas.items():
        found = _POSITION.search(key)
        if found is not None and key.startswith(f"{_SPEC_DECODE}num_accepted_tokens_per_pos_total{{"):
            at_position[int(found[1])] = at_position.get(int(found[1]), 0.0) + reading.after - reading.before
    return SpecDecode(
        num_drafts=round(drafts),
        num_draft_tokens=round(drafted),
        num_accepted_tokens=round(accepted),
        mean_accepted_length=1 + accepted / drafts,
        accepted_frac_per_position=tuple(
            at_position.get(place, 0.0) / drafts for place in range(max(at_position, default=-1) + 1)
        ),
    )


def _increase(deltas: Mapping[str, CounterReading], name: str) -> float:
    """Return by how much a counter of all engines grew."""
    full = f"{_SPEC_DECODE}{name}_total"
    return sum(
        reading.after - reading.before for key, reading in deltas.items() if key.partition("{")[0] == full
    )


def _known(text: str | None) -> str | None:
    return None if text == "None" else short_text(text)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,15}", text) else None


def _truth(text: str | None) -> bool | None:
    return {"True": True, "False": False, "true": True, "false": False}.get(text or "")


def _number(text: str | None) -> float | None:
    try:
        number = math.nan if text is None else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
