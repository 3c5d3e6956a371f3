"""``vtwin fleet size`` and ``profile``. What is heavy is imported by the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from replay.fleet.commands.asking import (
    check_of,
    doubts_of,
    infeasible,
    misfit_notes,
    say_with_notes,
    simulated_of,
    sources_of,
    workload_of,
)
from replay.fleet.commands.layouts import form_of, rates_of, sized_for, with_defaults
from replay.fleet.commands.options import ProfileOptions, SizeOptions
from replay.fleet.commands.pools_command import pools
from replay.fleet.commands.question_commands import compare, disagg, thresholds
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.facts import Verbatim, say_answer, terminal_lines
from traces.strict.option_table import with_option_tables
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.fleet.inputs.profiles import ProfileSource
    from sim.fleet import Lengths
    from traces.console.options import AnswerForm


@with_code_option
@with_option_tables
def size(asked: SizeOptions) -> None:
    """Find the smallest fleet that meets a TTFT objective, and simulate it.

    Formulas (Erlang C, Kimura) give a first number of engines; the token-level engine then serves the same
    workload with more or fewer, until the smallest is found that meets the objective with two seeds, the noise of the
    simulation included. Exit code 1 if none does.
    """
    form = form_of(asked)
    answer = {"compare": compare, "thresholds": thresholds, "disagg": disagg, "pools": pools}.get(
        form, _one_or_two
    )
    answer(with_defaults(asked, form))


def _one_or_two(asked: SizeOptions) -> None:
    """Size one pool, or one for short and one for long requests, and simulate it."""
    from replay.console.progress import working
    from replay.fleet.commands.memory_notes import memory_notes
    from replay.fleet.inputs.outside_fit import outside_loads
    from replay.fleet.size import sized_fleet
    from replay.fleet.text import fleet_document, fleet_parts
    from traces import check_place

    check_place(asked.report, option="--report")
    question, split = sized_for(asked), asked.split.split
    sources, longest = question.sources, question.context
    lengths, runs, arrivals = simulated_of(
        question.lengths, question.whole, asked.arrivals, num_requests=asked.num_requests or 0
    )
    check = check_of(runs, verify=asked.verify, seed=asked.seed or 0, smallest=bool(asked.smallest))
    with infeasible(), working("sizing and simulating the fleet"):
        plan = sized_fleet(
            sources,
            lengths,
            rates_of(asked)[0],
            question.objective,
            context=longest,
            split=split,
            check=check,
        )
    beyond = outside_loads(each.load for each in plan.pools if each.engines)
    plan = replace(
        plan,
        notes=(*question.notes, *arrivals, *beyond, *memory_notes(plan), *misfit_notes(sources, power=True)),
    )
    say_answer(lambda: fleet_document(plan), lambda: fleet_parts(plan), asked.answer)
    if asked.report is not None:
        from replay.fleet.page import write_page

        with infeasible(), working("drawing the page"):
            write_page(asked.report, plan, sources, lengths, context=longest, split=split)
        tell(f"wrote {asked.report}")
    if plan.is_met is False:
        raise typer.Exit(ExitCode.NEGATIVE)


@with_code_option
@with_option_tables
def show_profile(asked: ProfileOptions) -> None:
    """Print a GPU's profile: W, H and the rest.

    Derived from any latency model, with its misfit; or computed from a model and a GPU, with the terms that W and H
    are made of.
    """
    import numpy as np

    from replay.fleet.inputs.profiles import profile_yaml
    from sim.fleet import Lengths
    from traces import ConfigError

    if (asked.source is None) == (asked.model is None) or (asked.model is None) != (asked.gpu is None):
        raise ConfigError("fleet profile: expected --from, or --model and --gpu")
    if asked.workload is None:
        lengths = Lengths(input_tokens=np.array([1000.0]), output_tokens=np.array([250.0]))
        longest = asked.lengths.context or 8192
    else:
        found, longest = workload_of(asked.workload, asked.lengths)
        lengths = found.lengths
    if asked.model is not None and asked.gpu is not None:
        _show_computed(
            asked.model,
            asked.gpu,
            asked.tp,
            lengths=lengths,
            context=longest,
            prices=asked.prices,
            how=asked.answer,
        )
        return
    (source,) = sources_of(str(asked.source), lengths, longest, prices=asked.prices)[:1]
    say_with_notes(
        doubts_of([source]),
        lambda: _profile_document(source),
        lambda: [Verbatim(profile_yaml(source).splitlines())],
        asked.answer,
    )


def _profile_document(found: ProfileSource) -> dict[str, object]:
    from dataclasses import asdict

    from replay.fleet.inputs.profiles import profile_figures

    misfit = None if found.misfit is None else asdict(found.misfit)
    return {"name": found.name, "profile": profile_figures(found.profile), "misfit": misfit}


def _show_computed(
    model: str, gpu: str, tp: int, *, lengths: Lengths, context: int, prices: Path | None, how: AnswerForm
) -> None:
    from dataclasses import asdict

    from replay.fleet.inputs.computed import computed
    from replay.fleet.inputs.profiles import priced, profile_yaml
    from replay.fleet.text import profile_parts
    from replay.model.gpus import find_gpu
    from replay.model.prices import read_prices

    find_gpu(gpu)
    made = computed(model, gpu, tp=tp, lengths=lengths, context=context)
    found = priced(made.source, None if prices is None else read_prices(prices))
    terms = [f"# {line}" for line in terminal_lines(profile_parts(made), width=None)]
    say_answer(
        lambda: (
            _profile_document(found)
            | {
                "terms": [asdict(each) for each in made.terms],
                "prefill": {**asdict(made.prefill), "bound": made.prefill.bound},
                "assumptions": dict(made.assumptions),
            }
        ),
        lambda: [Verbatim([*terms, *profile_yaml(found).splitlines()])],
        how,
    )
