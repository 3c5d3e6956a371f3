"""Pipeline stages (``sim/engine/optional/pipeline_stages.py`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllRules, AllSettings, InvalidConfig, changing, setting, since

AsyncPipeline = Literal["none", "waits for output", "every batch", "staggered"]
"""What async scheduling does with pipeline stages, see ``StageRules``."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class StageSettings:
    """``pipeline_parallel_size`` p: stages that a batch passes one after the other.

    Each works on another batch. Then p batches are in flight, with async scheduling as many as the version has
    (``max_concurrent_batches``).
    """

    __slots__ = ()

    pipeline_parallel_size: int = setting(
        1,
        "Pipeline stages: as many batches in flight, with async scheduling as the version has "
        "it. Absent: `hardware.pp`.",
        least=1,
        most=1024,
        flag="pipeline-parallel-size",
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class StageRules:
    """What versions do with stages.

    - ``sets_stale_output_aside``: with pipeline stages a preempted request with tokens in flight is passed over until
      they are in, and is then computed from its beginning; before, it could resume meanwhile, and they counted among
      its tokens under way (sched/scheduler.py:_preempt_request, from 0.27.0).
    - ``async_pipeline``: what async scheduling does with ``pipeline_parallel_size`` p > 1. ``none``: it is off (up to
      0.14). ``waits for output``: p batches in flight, and a request whose token is in flight sits a step out (0.15;
      sched/scheduler.py:schedule). ``every batch``: p batches in flight, each may hold every request, and the device
      waits for the tokens that it needs (0.16 to 0.22). ``staggered``: p + 1 batches in flight, and a request that
      samples decodes again p steps later (from 0.23.0, with model runner V2: config/vllm.py:max_concurrent_batches,
      sched/async_scheduler.py:_update_after_schedule). Up to 0.30 model runner V1 serves most mixtures of experts, and
      there ``every batch`` still holds, which is not simulated.
    """

    __slots__ = ()

    sets_stale_output_aside: bool = since(27, asked=False)
    async_pipeline: AsyncPipeline = changing(
        "none", {15: "waits for output", 16: "every batch", 23: "staggered"}
    )


def check_stages(config: AllSettings, rules: AllRules) -> None:
    """Raise InvalidConfig on settings that cannot be combined with stages, in the twin or in the version."""
    if config.pipeline_parallel_size == 1:
        return
    got = f"pipeline_parallel_size: got {config.pipeline_parallel_size}"
    if config.compatibility == "blis":
        raise InvalidConfig(f"{got} with compatibility blis, expected 1: it has no stages")
    if config.async_scheduling and rules.async_pipeline == "none":
        raise InvalidConfig(
            f"async_scheduling: got true with pipeline_parallel_size {config.pipeline_parallel_size}, expected "
            f"false: vLLM {config.vllm_version} cannot do both"
        )
