"""What ``run --samples`` does: simulate rollouts and show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.progress import counting
from traces.facts import say_answer

if TYPE_CHECKING:
    from replay.options.run_options import RunOptions, TwinOptions
    from replay.rollouts.rollouts import RolloutSettings
    from replay.twin.twin_config import TwinConfig
    from traces.console.options import AnswerForm
    from traces.workload import WorkloadOptions

NOT_WRITTEN = (
    *("slo", "measure", "warmup_frac", "horizon", "itl", "operator_times", "steps", "trace_events", "report"),
    *("decisions", "counterfactual", "fitness_weights"),
)
"""Options of ``run`` that cannot be combined with rollouts, which are many simulations."""


def check_rollout_options(twin: TwinOptions, how: RunOptions, *, sweep: str | None) -> None:
    """Raise ConfigError on options of ``run`` that rollouts do not have."""
    from traces import ConfigError

    given = [name for name in NOT_WRITTEN if getattr(how, name)]
    given += ["output"] if twin.output is not None else []
    given += ["sweep"] if sweep is not None else []
    given += ["base"] if twin.base else []
    if given:
        name = "--" + given[0].replace("_", "-")
        raise ConfigError(f"{name}: cannot be combined with --samples, whose batches are many simulations")


def simulate_rollouts(
    workload: WorkloadOptions, twins: Sequence[TwinConfig], settings: RolloutSettings, *, how: AnswerForm
) -> None:
    """Simulate rollouts and print their results. Raises ConfigError."""
    from replay.rollouts.rollout_summary import summarize_rollouts
    from replay.rollouts.rollouts import run_rollouts
    from replay.rollouts.text import rollout_parts
    from replay.twin.config_write import name_of
    from traces import ConfigError

    if len(twins) > 1:
        raise ConfigError(
            f"--set: {len(twins):,} variants cannot be combined with --samples, expected one server or cluster"
        )
    twin = twins[0]
    total = settings.batches * (2 + len(settings.oversubscriptions))
    with counting("simulating batches", total) as advance:
        found = run_rollouts(workload, twin, settings, advance=advance)
    summary = summarize_rollouts(found)
    say_answer(
        lambda: {
            "rollouts": summary,
            "latency": {"model": name_of(twin.latency), "reason": twin.latency_reason or None},
            "unanswered": twin.unanswered_document,
            "warnings": list(twin.notes),
        },
        lambda: rollout_parts(summary),
        how,
    )
