"""What the engine is configured with: vLLM's names, vLLM's defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

SchedulingPolicy = Literal["fcfs", "priority", "sjf", "reverse-priority"]
PriorityScoring = Literal["constant", "slo-based", "inverted-slo"]
Frontend = Literal["openai", "none"]

UNBOUNDED = 0
"""``num_gpu_blocks`` of a KV cache that never binds."""


class InvalidConfig(ValueError):  # noqa: N818 - callers translate it; the name says what it is
    """A value the engine cannot run with; the message names the field, what it got and what it expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The scheduler's and the KV cache's settings under vLLM 0.32's own names.

    ``num_gpu_blocks`` counts blocks as vLLM does, the null block included (usable = n - 1);
    0 means a KV cache that never binds. ``watermark`` is a fraction of ``num_gpu_blocks``.

    Beyond vLLM: ``scheduling_policy`` sjf (shortest prompt first) and reverse-priority; ``priority_scoring`` lets a
    request's priority change with its age, by ``priority_age_weight`` per second: slo-based makes those who wait
    more urgent, inverted-slo less.
    Raises InvalidConfig on a value the engine cannot run with.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    num_gpu_blocks: int = UNBOUNDED
    block_size: int = 16
    max_model_len: int = 32768
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    scheduling_policy: SchedulingPolicy = "fcfs"
    priority_scoring: PriorityScoring = "constant"
    priority_age_weight: float = 0.0
    async_scheduling: bool = True
    frontend: Frontend = "openai"

    def __post_init__(self) -> None:
        """Check every field; the first that cannot be is named."""
        least = {"max_num_seqs": 1, "max_num_batched_tokens": 1, "block_size": 1, "max_model_len": 1}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise InvalidConfig(f"{field.name}: got {value!r}, expected true or false")
            if field.type == "int":
                low = least.get(field.name, 0)
                if isinstance(value, bool) or not isinstance(value, int) or value < low:
                    raise InvalidConfig(f"{field.name}: got {value!r}, expected an integer >= {low}")
        if self.num_gpu_blocks == 1:
            raise InvalidConfig(
                "num_gpu_blocks: got 1, expected >= 2 (block 0 is the null block), or 0: unbounded"
            )
        if not isinstance(self.watermark, int | float) or not 0 <= self.watermark < 1:
            raise InvalidConfig(f"watermark: got {self.watermark!r}, expected a fraction in [0, 1)")
        if not isinstance(self.priority_age_weight, int | float) or not 0 <= self.priority_age_weight < 1e9:
            raise InvalidConfig(
                f"priority_age_weight: got {self.priority_age_weight!r}, expected a number >= 0"
            )
        for name, choices in (
            ("scheduling_policy", SchedulingPolicy),
            ("priority_scoring", PriorityScoring),
            ("frontend", Frontend),
        ):
            value = getattr(self, name)
            if value not in get_args(choices):
                raise InvalidConfig(f"{name}: got {value!r}, expected one of {', '.join(get_args(choices))}")
