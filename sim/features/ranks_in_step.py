"""Data-parallel ranks in step (``sim/engine/optional/prefill_balance.py`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import AllRules, AllSettings, InvalidConfig, setting, since


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class RankSettings:
    """Prompts in common steps.

    ``prefill_schedule_interval`` N: data-parallel ranks in step (``ClusterConfig.lockstep``) compute prompts in every
    N-th step only; an engine alone ignores it, as vLLM up to 0.32, and is refused from 0.33 on.
    """

    __slots__ = ()

    prefill_schedule_interval: int = setting(
        1,
        "Of ranks in step (cluster.lockstep): prompts are computed in every N-th step only.",
        least=1,
        flag="prefill-schedule-interval",
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class RankRules:
    """A rule that is not simulated.

    - ``holds_prefills_alone``: ``prefill_schedule_interval`` holds prompts back in an engine that is no rank among
      others, too (from 0.33.0; sched/scheduler.py: local_prefill_interval).
    """

    __slots__ = ()

    holds_prefills_alone: bool = since(33, asked=False)


def check_cadence_alone(config: AllSettings, rules: AllRules) -> None:
    """Raise InvalidConfig where an engine that is no rank in step would hold prompts back, which is not simulated."""
    interval, version = config.prefill_schedule_interval, config.vllm_version
    if interval > 1 and rules.holds_prefills_alone:
        raise InvalidConfig(
            f"prefill_schedule_interval: got {interval} with vllm_version {version}, expected 1, or ranks in step "
            "(lockstep): from 0.33 on vLLM holds prompts back in an engine alone, which is not simulated"
        )
