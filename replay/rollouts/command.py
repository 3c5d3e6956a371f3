"""What ``vtwin rollouts`` does: simulate batches of rollouts and show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.console.progress import counting
from traces.facts import say_answer

if TYPE_CHECKING:
    from replay.rollouts.rollouts import RolloutSettings
    from replay.twin.twin_config import TwinConfig
    from traces.console.options import AnswerForm
    from traces.workload import WorkloadOptions


def simulate_rollouts(
    workload: WorkloadOptions, twins: Sequence[TwinConfig], settings: RolloutSettings, *, how: AnswerForm
) -> None:
    """Simulate rollouts and print their results. Raises ConfigError."""
    from replay.rollouts.rollout_summary import summarize_rollouts
    from replay.rollouts.rollouts import run_rollouts
    from replay.rollouts.text import rollout_parts
    from traces import ConfigError

    if len(twins) > 1:
        raise ConfigError(
            f"--set: got {len(twins):,} variants, expected one server or cluster, whose batches are many simulations"
        )
    total = settings.batches * (2 + len(settings.oversubscriptions))
    with counting("simulating batches", total) as advance:
        found = run_rollouts(workload, twins[0], settings, advance=advance)
    say_answer(found.document, lambda: rollout_parts(summarize_rollouts(found)), how)
