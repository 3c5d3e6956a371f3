"""The use of every key of a workload specification, as data: for the page of coverage.

Most keys decide what is drawn; their meaning is on the reference page of specifications. The result is a trace; if a
key becomes a column of it, the column's row describes how a server or a simulation uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from traces.coverage import Coverage
from traces.workload.spec.fields import Section, SectionKey

COLUMNS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "A client.id": ("client_id",),
    "A client.tenant_id": ("tenant_id",),
    "A client.slo_class": ("slo_class",),
    "A client.priority": ("vllm_priority",),
    "A client.model": ("model",),
    "A client.adapter": ("adapter",),
    "A client.arrival": ("arrival_time_us",),
    "A client.input_distribution": ("input_tokens",),
    "A client.output_distribution": ("output_tokens",),
    "A client.total_distribution": ("input_tokens", "output_tokens"),
    "A client.prefill_to_decode_ratio": ("input_tokens", "output_tokens"),
    "A client.prefix_group": ("prefix_group",),
    "A client.prefix_length": ("prefix_length",),
    "A client.streaming": ("streaming",),
    "A client.timeout": ("deadline_us",),
    "A client.slo_target_us": ("slo_target_us",),
    "A client.guided_frac": ("guided",),
    "A cohort.id": ("client_id",),
    "A client's reasoning.reason_ratio_distribution": ("reason_ratio",),
    "Its multi_turn.max_rounds": ("session_id", "round_index"),
    "Its multi_turn.think_time_us": ("think_time_us",),
    "Its multi_turn.context_growth": ("new_input_tokens",),
    "A client's multimodal.text_distribution": ("text_tokens",),
    "A client's multimodal.image_distribution": ("image_tokens", "images"),
    "A client's multimodal.audio_distribution": ("audio_tokens",),
    "A client's multimodal.video_distribution": ("video_tokens",),
    "A client's network.rtt_ms": ("network_rtt_us",),
    "A client's network.bandwidth_mbps": ("network_bandwidth_mbps",),
}
"""The columns of the drawn trace that a key fills, by section and key as the reference page names them."""

OTHERWISE: Final[Mapping[str, Coverage]] = {
    "The file.category": Coverage("kept", "a label: the clients' own sections say what is drawn"),
    "The file.version": Coverage("modelled", "what two service classes are called"),
    "The file.goodput_slo_targets": Coverage("modelled", "in the trace's header; goodput by class"),
    "A client.concurrency": Coverage("modelled", "in the trace's header: closed_loop"),
    "A client.think_time_us": Coverage("modelled", "in the trace's header: closed_loop"),
    **{
        f"Targets of a service class.{name}": Coverage("modelled", "goodput")
        for name in ("ttft_ms", "itl_ms", "e2e_ms")
    },
}

DRAWN: Final[Mapping[str, tuple[str, ...]]] = {
    "The file": (
        "seed",
        "aggregate_rate",
        "num_requests",
        "total_tokens_max",
        "horizon",
        "clients",
        "cohorts",
        "inference_perf",
        "servegen_data",
    ),
    "A client": (*("rate_fraction", "network", "multimodal", "reasoning", "closed_loop", "lifecycle"),),
    "A cohort": ("population", "prefix_sharing", "diurnal", "spike", "drain"),
    "A cohort's diurnal": ("peak_hour", "peak_to_trough_ratio"),
    "A cohort's spike": ("start_time_us", "duration_us", "trace_rate"),
    "A cohort's drain": ("start_time_us", "ramp_duration_us"),
    "An arrival": ("process", "cv", "shape", "scale"),
    "A client's reasoning": ("multi_turn",),
    "Its multi_turn": ("single_session",),
    "A client's multimodal": (
        "image_count_distribution",
        "audio_count_distribution",
        "video_count_distribution",
    ),
    "A distribution": ("type", "params", "file"),
    "A lifecycle": ("windows",),
    "A window": ("start_us", "end_us", "trace_rate", "arrival", "input_distribution", "output_distribution"),
    "inference_perf": ("stages", "shared_prefix"),
    "A stage": ("rate", "duration"),
    "servegen_data": ("path", "span_start", "span_end", "rate_scale"),
    "Its shared_prefix": (
        *("num_unique_system_prompts", "num_users_per_system_prompt", "system_prompt_len", "question_len"),
        *("output_len", "enable_multi_turn_chat"),
    ),
}
"""Keys that decide what is drawn and fill no column of their own."""


def spec_coverage(sections: Mapping[str, Section]) -> Iterator[tuple[str, Coverage]]:
    """Yield section and key, and how it is used, for every key of the sections in order.

    Raises KeyError for a key that no table above has.
    """
    for title, section in sections.items():
        for name, key in section.items():
            where = f"{title}.{name}"
            yield where, _of_key(where, key)


def _of_key(where: str, key: SectionKey) -> Coverage:
    if not key.supported:
        return Coverage("refused", key.meaning)
    if where in OTHERWISE:
        return OTHERWISE[where]
    title, _, name = where.rpartition(".")
    if name in DRAWN.get(title, ()):
        return Coverage("modelled", "decides what is drawn")
    return Coverage("modelled", f"drawn into {', '.join(f'`{column}`' for column in COLUMNS_OF[where])}")
