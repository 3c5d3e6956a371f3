"""``vtwin fleet size`` and ``profile``. What is heavy is imported by the command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from replay.fleet.commands.fleet_answer import say_fleet_answer
from replay.fleet.commands.layouts import (
    check_of,
    demand_of,
    factors_of,
    form_of,
    rates_of,
    with_defaults,
)
from replay.fleet.commands.options import ProfileOptions, SizeOptions
from replay.fleet.inputs import SPILL_PER_ENGINE
from replay.twin.own.own_code import with_code_option
from traces import ConfigError, ExitCode
from traces.facts import Verbatim, say_answer
from traces.strict.option_table import with_option_tables
from traces.strict.tell import tell, tell_note

if TYPE_CHECKING:
    from replay.fleet.answers import SizedFleet
    from replay.fleet.demand import FleetDemand


@with_code_option
@with_option_tables
def size(asked: SizeOptions) -> None:
    """Find the smallest fleet that meets a TTFT objective, and simulate it.

    Formulas (Erlang C, Kimura) give a first number of engines; the token-level engine then serves the same
    workload with more or fewer, until the smallest is found that meets the objective with two seeds, the noise of the
    simulation included. Exit code 1 if none does.
    """
    form = form_of(asked)
    answer = {"compare": _compare, "thresholds": _thresholds, "disagg": _disagg, "pools": _pools}.get(
        form, _one_or_two
    )
    answer(with_defaults(asked, form))


def _one_or_two(asked: SizeOptions) -> None:
    """Size one pool, or one for short and one for long requests, and simulate it."""
    from replay.console.progress import working
    from replay.fleet.question import size_fleet
    from traces import check_place

    check_place(asked.report, option="--report")
    demand = demand_of(asked, asked.lengths, asked.nodes, prices=asked.prices)
    _compile(asked)
    with working("sizing and simulating the fleet"):
        found = size_fleet(demand, rates_of(asked)[0], split=asked.split.split, check=check_of(asked))
    _show(asked, found, demand if asked.split.split is None else None)


def _pools(asked: SizeOptions) -> None:
    """Size a fleet of several pools, of different GPUs and models, behind one router.

    Verified with the token-level engine: pool by pool where the router does not look at load (length, compress, random,
    model, semantic), all pools together for spillover and least-loaded. Exit code 1 if the SLO is not kept.
    """
    from replay.console.progress import working
    from replay.fleet.other_questions import size_pools

    assert asked.pools_file is not None  # noqa: S101 - form_of has looked
    (rate,), factors = rates_of(asked), factors_of(asked, default="1.5")
    if len(factors) > 1:
        raise ConfigError(f"--compress: got {len(factors)} numbers with --layout pools, expected one")
    _compile(asked)
    with working("sizing and simulating the fleet"):
        found = size_pools(
            asked.pools_file,
            asked.workload,
            rate,
            asked.slo,
            router=asked.pools.router,
            labels=asked.pools.labels,
            spill=asked.pools.spill or SPILL_PER_ENGINE,
            factor=factors[0],
            output_frac=asked.lengths.output_frac,
            total_tokens_max=asked.lengths.total_tokens_max,
            availability=asked.nodes.availability,
            failures=asked.nodes.failures,
            utilization_cap=asked.nodes.utilization_cap,
            prices=asked.prices,
            check=check_of(asked),
        )
    _show(asked, found)


def _show(asked: SizeOptions, found: SizedFleet, one_pool: FleetDemand | None = None) -> None:
    """Print the fleet, write its page, and leave with 1 where the SLO is not met; ``one_pool``: of a fleet of one."""
    from replay.console.progress import working
    from replay.fleet.demand import infeasible

    say_answer(found.document, lambda: found.parts, asked.answer)
    if asked.report is not None:
        from replay.fleet.told.page import write_page

        beside = None
        if one_pool is not None:
            assert found.lengths is not None  # noqa: S101 - of the questions
            need = replace(one_pool.need(found.plan.rate_per_s), lengths=found.lengths)
            beside = one_pool.sources, need
        with infeasible(), working("drawing the page"):
            write_page(asked.report, found.plan, one_pool=beside)
        tell(f"wrote {asked.report}")
    if found.is_met is False:
        raise typer.Exit(ExitCode.NEGATIVE)


def _compile(asked: SizeOptions) -> None:
    """Compile what the simulations need, which tells how long it takes, before their own progress is told."""
    from replay.fleet.demand import compile_once

    if asked.verify:
        compile_once()


def _thresholds(asked: SizeOptions) -> None:
    """Compare splits into a pool for short and one for long requests: every threshold by formula."""
    from replay.fleet.question import split_fleet

    demand = demand_of(asked, asked.lengths, asked.nodes, prices=asked.prices)
    say_fleet_answer(
        split_fleet(demand, rates_of(asked)[0], factors=factors_of(asked, default="1")), asked.answer
    )


def _compare(asked: SizeOptions) -> None:
    """Compare rates and GPU types, by formula or simulated: GPUs, cost per year, power, tokens per joule.

    Exit code 1 where nothing that is compared meets the SLO.
    """
    from replay.console.progress import working
    from replay.fleet.question import compare_fleets

    demand = demand_of(asked, asked.lengths, asked.nodes, prices=asked.prices, most=None)
    _compile(asked)
    with working("sizing the fleets"):
        found = compare_fleets(demand, rates_of(asked), check=check_of(asked))
    say_fleet_answer(found, asked.answer)


def _disagg(asked: SizeOptions) -> None:
    """Size prefill and decode pools beside one pool: the Pareto set over how many of each, the cheapest simulated.

    Two profiles: of prefill and of decode. One pool has the cheaper of them. Where the simulation does not meet the
    SLO, both pools grow until it does. Exit code 1 if none does.
    """
    from replay.console.progress import working
    from replay.fleet.question import LINKS_GBPS, HandoffLinks, disaggregate_fleet

    (rate,), links = rates_of(asked), asked.disagg
    demand = demand_of(asked, asked.lengths, asked.nodes, prices=asked.prices)
    _compile(asked)
    with working("sizing and simulating the fleet"):
        found = disaggregate_fleet(
            demand,
            rate,
            links=HandoffLinks(
                gb_per_s=links.kv_bandwidth or LINKS_GBPS,
                kv_bytes_per_token=links.kv_bytes_per_token,
                alpha_prefill=links.alpha_prefill,
                alpha_decode=links.alpha_decode,
                beta_ttft=links.beta_ttft,
            ),
            with_one_pool=links.beside is not False,
            check=check_of(asked),
        )
    say_fleet_answer(found, asked.answer)


@with_code_option
@with_option_tables
def show_profile(asked: ProfileOptions) -> None:
    """Print a GPU's profile: W, H and the rest.

    Derived from any latency model, with its misfit; or computed from a model and a GPU, with the terms that W and H
    are made of.
    """
    from replay.fleet.other_questions import fleet_profile

    found = fleet_profile(
        asked.source,
        model=asked.model,
        gpu=asked.gpu,
        tp=asked.tp,
        workload=asked.workload,
        context=asked.lengths.context,
        output_frac=asked.lengths.output_frac,
        total_tokens_max=asked.lengths.total_tokens_max,
        prices=asked.prices,
    )
    for note in found.notes:
        tell_note(note)
    say_answer(found.document, lambda: [Verbatim(str(found).splitlines())], asked.answer)
