"""``vtwin rollouts``. What is heavy is imported by the command."""

from __future__ import annotations

from typing import Annotated

import typer

from replay.console.twins import AnywayOption, InstancesOption, RoutingOption, load_twins
from replay.rollouts.options import RolloutOptions
from replay.twin.own.own_code import with_code_option
from traces.console.options import AnswerForm, ConfigOption, DefaultsOption
from traces.strict.option_table import option_table, with_option_tables
from traces.strict.tell import tell
from traces.workload import WorkloadOptions


@option_table
class OneTwinOptions:
    """The twin, and what is changed of it."""

    config: ConfigOption
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of TWIN.yaml in place of the file's: engine.max_num_seqs=64. Repeatable.",
        ),
    ] = None
    instances: InstancesOption = None
    routing: RoutingOption = None
    anyway: AnywayOption = False
    defaults: DefaultsOption = None
    answer: AnswerForm = AnswerForm()


@with_code_option
@with_option_tables
def rollouts(*, workload: WorkloadOptions, rollout: RolloutOptions, twin: OneTwinOptions) -> None:
    """Time the rollouts of reinforcement learning: batches of N prompts with G samples each.

    The weights are updated between batches. It tells how long a batch takes, what waiting for the last answers costs,
    and what ending early, drawing more samples or carrying unfinished ones on would change.
    """
    from replay.rollouts.command import simulate_rollouts
    from replay.rollouts.prompt_samples import long_tailed
    from traces.workload import check_options, clipping_notes

    settings = rollout.settings(workload)
    check_options(workload)
    twins = load_twins(
        twin.config,
        twin.defaults,
        twin.settings,
        instances=twin.instances,
        routing=twin.routing,
        anyway=twin.anyway,
    )
    for note in clipping_notes(long_tailed(workload)):
        tell(f"warning: {note}")
    simulate_rollouts(workload, [each for _, each in twins], settings, how=twin.answer)
