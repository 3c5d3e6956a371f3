"""``vtwin observe --plan``, ``--sweep`` and ``--repeat``: asks for consent, runs the loads, shows each result."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from observe.campaign import Outcome, estimate_all, model_length, run_loads
from observe.observation import observe_with
from observe.plan.auto_sweep import end_loads, num_rates, rate_loads
from observe.plan.loads import ListedLoad, calibration_loads, single_load, sweep_loads
from observe.result.json_document import SCHEMA_VERSION, ObservedSummary, summarize_observed
from observe.run.panel import show
from traces import ConfigError, Goodput
from traces.facts import AlignedRows, AnswerPart, PastedForm, say_json, say_pasted, terminal_lines
from traces.strict.tell import say, tell
from traces.workload import limit_note, seed_of, with_cancellations

if TYPE_CHECKING:
    from observe.observation import Observation
    from observe.options import ListOptions
    from observe.settings import Settings
    from traces.workload import Cancellation, WorkloadOptions

_MINUTE_S = 60.0


async def observe_list(
    workload: WorkloadOptions,
    settings: Settings,
    *,
    options: ListOptions,
    cuts: Cancellation | None,
    folder: Path,
    overwrite: bool,
) -> list[Outcome]:
    """Run the list into ``folder``, with requests cut by ``cuts``; return the result of each load that was begun.

    Raises ConfigError where the list cannot be made, typer.Abort where the user does not want it; ServerError where
    ``--sweep auto`` has no answers to choose rates by.
    """

    async def run(loads: Sequence[ListedLoad], done: Sequence[Outcome] = ()) -> list[Outcome]:
        cut = [
            replace(load, requests=with_cancellations(load.requests, cuts, seed=seed_of(workload)))
            for load in loads
        ]
        num_done = sum(len(each.load.requests) for each in done)
        return await _run(
            cut, settings, options=options, folder=folder, overwrite=overwrite, num_done=num_done
        )

    number = num_rates(options.sweep)
    if number is None:
        loads = await _loads(workload, settings, options=options)
        if options.repeat is not None:
            from observe.repeats.repeat_blocks import in_blocks

            loads = in_blocks(loads, options.repeat, seed=seed_of(workload))
        return await run(loads)
    ends = end_loads(workload)
    outcomes = await run(ends)
    if len(outcomes) < len(ends) or any(each.is_interrupted for each in outcomes):
        return outcomes
    throughputs = [summarize_observed(each.trace, slo_us={})["request_throughput"] for each in outcomes]
    return outcomes + await run(rate_loads(workload, throughputs, number=number), outcomes)


async def _run(
    loads: Sequence[ListedLoad],
    settings: Settings,
    *,
    options: ListOptions,
    folder: Path,
    overwrite: bool,
    num_done: int,
) -> list[Outcome]:
    """Run loads into ``folder``, before which ``num_done`` requests were planned."""
    ends = accumulate((len(load.requests) for load in loads), initial=num_done)
    num_before = {load.name: before for load, before in zip(loads, ends, strict=False)}
    for load in loads:
        if (limit := limit_note(load.requests)) is not None:
            tell(f"observe: {load.name}: {limit}")

    async def observe(load: ListedLoad, stem: Path) -> Observation:
        own = settings
        if settings.texts is not None:  # a load's texts are none of those before it: no cache knows them
            own = replace(settings, texts=replace(settings.texts, num_before=num_before[load.name]))
        return await observe_with(
            load.requests, own, output=stem, display=show(), tell=_tell_line, handle_signals=True
        )

    return await run_loads(
        loads, folder, observe=observe, resume=options.resume, overwrite=overwrite, tell=_tell_line
    )


async def _loads(workload: WorkloadOptions, settings: Settings, *, options: ListOptions) -> list[ListedLoad]:
    """Return the loads, once each."""
    if options.sweep is not None:
        return sweep_loads(workload, options.sweep)
    if options.plan is None:
        return [single_load(workload)]
    loads = calibration_loads(workload, max_model_len=await model_length(settings))
    await _ask(loads, settings, options=options, rate_per_s=workload.rate)
    return loads


def _tell_line(line: str) -> None:
    """Print one line on stderr."""
    tell(f"observe: {line}")


async def _ask(
    loads: Sequence[ListedLoad], settings: Settings, *, options: ListOptions, rate_per_s: float | None
) -> None:
    """Show how long each load takes, and continue only if the user agrees."""
    if not options.yes and not sys.stdin.isatty():
        raise ConfigError("--plan: got no terminal to confirm on, expected --yes")
    seconds = await estimate_all(loads, settings, rate_per_s=rate_per_s)
    for load, each in zip(loads, seconds, strict=True):
        tell(f"  {load.name:<16}{len(load.requests):>8,} requests{each:>10,.0f} s   {load.purpose}")
    tell(f"  about {sum(seconds) / _MINUTE_S:,.1f} minutes for these loads")
    if not options.yes:
        typer.confirm("Run this plan?", abort=True, err=True)


def report_list(
    outcomes: Sequence[Outcome], *, slo_us: Mapping[str, float], as_json: bool, form: PastedForm | None
) -> None:
    """Print a row per load on stdout, in ``form``; with ``as_json`` one document with all summaries, rows on stderr."""
    summaries = {outcome.load.name: summarize_observed(outcome.trace, slo_us=slo_us) for outcome in outcomes}
    generates = all(each["num_inputs"] is None for each in summaries.values())
    head = (
        "ok",
        "sent/s",
        "done/s",
        "tokens/s" if generates else "inputs/s",
        "TTFT p50",
        "TTFT p99",
        "ITL p50",
        "E2E p50",
    )
    rows = [["load, times in ms", *head], *([name, *_cells(each)] for name, each in summaries.items())]
    if any(each["goodput"] is not None for each in summaries.values()):
        within = [_within(each["goodput"]) for each in summaries.values()]
        rows = [[*row, cell] for row, cell in zip(rows, ("in SLO", *within), strict=True)]
    limited = [
        f"{name}: client-limited: {each['client']['reason']}"
        for name, each in summaries.items()
        if each["client"]["limited"]
    ]
    parts: list[AnswerPart] = [AlignedRows(rows, [-20, *[10] * (len(rows[0]) - 1)]), *limited]
    if form is not None:
        say_pasted(form, lambda: parts, lambda: [{"run": name, **each} for name, each in summaries.items()])
    else:
        say(*terminal_lines(parts, width=None), err=as_json)
    if as_json:
        say_json({"schema_version": SCHEMA_VERSION, "loads": summaries})


def _within(goodput: Goodput | None) -> str:
    share = None if goodput is None else goodput["good_frac"]
    return "-" if share is None else f"{share:.1%}"


def _cells(summary: ObservedSummary) -> list[str]:
    def milliseconds(value: float | None) -> str:
        return "-" if value is None else f"{value / 1e3:,.1f}"

    def rate(value: float | None) -> str:
        return "-" if value is None else f"{value:,.2f}"

    return [
        f"{summary['num_by_status'].get('ok', 0):,}",
        rate(summary["client"]["rate_achieved_per_s"]),
        rate(summary["request_throughput"]),
        rate(
            summary["output_token_throughput"]
            if summary["num_inputs"] is None
            else summary["input_throughput"]
        ),
        milliseconds(summary["ttft_us"]["p50"]),
        milliseconds(summary["ttft_us"]["p99"]),
        milliseconds(summary["itl_us"]["p50"]),
        milliseconds(summary["e2e_us"]["p50"]),
    ]
