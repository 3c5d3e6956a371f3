"""``calibrate`` from traces to errors: which traces are fitted, which are held out, and the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.equivalence import equivalences
from calibrate.compare.metric_errors import compare
from calibrate.compare.network import server_view
from calibrate.compare.pair import Pairs, concat, pair, take
from calibrate.compare.phases import origin_of
from calibrate.compare.rates import rates_of
from calibrate.compare.served import RateCurve, rate_curve
from calibrate.compare.strata import strata_of
from calibrate.compare.worst_requests import worst_of
from calibrate.distinct_runs import has_lengths_of
from calibrate.findings import (
    Accuracy,
    Calibration,
    Compared,
    NamedTrace,
    NoiseFloor,
    Options,
    Role,
)
from calibrate.fit.beyond import beyond_load
from calibrate.fit.objective.fit_trace import FitTrace, fit_trace
from calibrate.fit.objective.known_server import KnownServer, known_physics, known_tiles
from calibrate.fit.objective.priors import Prior, known_priors
from calibrate.fit.pipeline import fit
from calibrate.fit.result import Fit, pace_of
from calibrate.fit.search import Report
from calibrate.flags.known_model_and_gpu import absent_candidates, known_of
from calibrate.misfit import kept_up_with, loads_of, without_missed
from calibrate.noise_floor import couples_of, noise_pairs
from calibrate.run_to_run.bands import bands_of
from calibrate.run_to_run.pace_today import AtPace, pace_today
from calibrate.run_to_run.server_pace import recorded_spreads, run_to_run
from calibrate.simulated_side import against_trace, against_twin
from calibrate.steps.step_logs import NO_STEPS, StepLogs
from replay.model.matmuls import Tiles
from replay.twin import twin_of
from replay.twin.fitted import FittedRange, range_of, union
from traces import ConfigError, TraceError
from traces.strict.free_memory import require_memory

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

Part = tuple[Compared, Pairs]
"""A trace and those of its pairs that count: all, or one half's."""
BYTES_PER_TOKEN = 120
"""Memory of a fit for each token of output. Measured: 1,000 requests of 516 tokens take 0.44 GB in all, 10,000 1.28."""


def compare_with_simulated(
    observed: NamedTrace, simulated: NamedTrace, options: Options, *, repeats: Sequence[NamedTrace] = ()
) -> Calibration:
    """Return how two traces of the same requests differ; nothing is simulated or fitted."""
    compared = against_trace(observed, simulated, options)
    return _assembled(
        [(compared, compared.pairs)],
        None,
        options=options,
        repeats=repeats,
        unseen=f"compared with {simulated.name}",
    )


def compare_with_twin(
    observed: Sequence[NamedTrace],
    config: TwinConfig | str | Path,
    options: Options,
    *,
    holdout: Sequence[NamedTrace] = (),
    repeats: Sequence[NamedTrace] = (),
) -> Calibration:
    """Return the errors of a twin as configured against the traces; nothing is fitted. ``config``: or its path."""
    config = twin_of(config)
    options = _with_run_to_run(options, [*observed, *holdout], repeats)
    compared = [against_twin(source, config, options, role="compared") for source in observed]
    held_out = [against_twin(source, config, options, role="held out") for source in holdout]
    found = _assembled(
        _all_pairs(held_out or compared),
        _all_pairs(compared) if held_out else None,
        options=options,
        repeats=repeats,
        config=config,
        unseen="traces named with --holdout; no fit" if held_out else "the given twin, no fit",
    )
    judged = list(holdout or observed)

    def at_pace(twin: TwinConfig) -> AtPace:
        runs = [against_twin(each, twin, options, role="compared") for each in judged]
        return _at_pace(runs, _accuracy_of(_all_pairs(runs), replace(options, replicates=2)))

    today = pace_today(config, _at_pace(held_out or compared, found.held_out), at_pace)
    return found if today is None else replace(found, pace_today=today)


def _at_pace(runs: Sequence[Compared], accuracy: Accuracy) -> AtPace:
    return AtPace(pairs=[each.pairs for each in runs if not each.is_saturated], errors=accuracy.errors)


UNSEEN = "traces that the fit has not seen"
SEEN_LENGTHS = "traces that were not fitted, of which some repeat the lengths of fitted ones"


def unseen_by_fit(holdout: Sequence[NamedTrace], observed: Sequence[NamedTrace]) -> str:
    """Return whether named hold-outs are new to a fit by their requests, or only by their run."""
    repeats = any(has_lengths_of(one.trace, other.trace) for one in holdout for other in observed)
    return SEEN_LENGTHS if repeats else UNSEEN


def calibrate(
    observed: Sequence[NamedTrace],
    config: TwinConfig | str | Path,
    options: Options,
    *,
    holdout: Sequence[NamedTrace] = (),
    repeats: Sequence[NamedTrace] = (),
    steps: StepLogs = NO_STEPS,
    report: Report | None = None,
) -> Calibration:
    """Return the twin (or its path) fitted to the observed traces, with its errors on the held-out ones.

    Without held-out traces each observed one is simulated in full, fitted on the first half of its requests by
    arrival, and its errors are those of the second half. ``steps``: the server's own; the traces then show the way in.
    """
    _check(observed, holdout)
    options, config = _with_run_to_run(options, [*observed, *holdout], repeats), twin_of(config)
    halves = None if holdout else [first_half(source.trace) for source in observed]
    chosen = [None] * len(observed) if halves is None else halves
    ready = [
        fit_trace(
            _as_met(source.trace, options),
            config,
            name=source.name,
            chosen=half,
            steps=source.steps,
            max_concurrency=options.max_concurrency,
        )
        for source, half in zip(observed, chosen, strict=True)
    ]
    priors = known_priors(known := known_of(observed[0].trace, config, options))
    old = None if options.from_twin is None else twin_of(options.from_twin)
    found = _fitted(ready, known, config, options, old=old, priors=priors, steps=steps, report=report)
    fitted, held_out, how = _both_parts(observed, holdout, halves, found.config, options)
    parts = zip(observed, chosen, strict=True)
    spans = [range_of([source.trace], [half], is_fitted=True) for source, half in parts]
    met = list({id(each): each for each, _ in [*fitted, *held_out]}.values())
    loads = union(loads_of([source.trace for source in observed], spans))
    found = _with_reach(found, without_missed(loads, met), options, old=old)
    found = _with_lasting(found, observed, spans, [each for each, _ in fitted])
    calibration = _assembled(
        held_out, fitted, options=options, repeats=repeats, config=found.config, unseen=steps.told(how)
    )
    return replace(
        calibration,
        fit=found,
        beyond=beyond_load(found, ready, ranges=spans, priors=priors),
        bands=bands_of(calibration.fitted_on.pairs, calibration.held_out.pairs),
        notes=(*calibration.notes, *steps.remarks, *absent_candidates(observed[0].trace, config, options)),
    )


def _with_reach(fit: Fit, loads: FittedRange, options: Options, *, old: TwinConfig | None) -> Fit:
    """Return the fit whose twin says for which loads it stands, and how far its steps may be off there and beyond."""
    pace = pace_of(fit, run_to_run=options.run_to_run.bound)
    range_ = loads.within(fit.config.engine.max_num_seqs)
    if old is not None:
        from calibrate.carried.old_twin import pace_carried, range_carried

        range_, pace = range_carried(old.fitted, range_), pace_carried(pace)
    return replace(fit, config=replace(fit.config, fitted=range_, pace=pace))


def _with_lasting(
    fit: Fit, observed: Sequence[NamedTrace], spans: Sequence[FittedRange], runs: Sequence[Compared]
) -> Fit:
    """Return the fit whose twin says up to which rate it is trusted in a run as long as one likes.

    By the requests of the observed trace with the highest rate, the first one where none has a rate.
    """
    from replay.search import lasting_rates

    fitted = fit.config.fitted
    if fitted is None:
        return fit
    rates = [0.0 if span.rate_per_s is None else span.rate_per_s[1] for span in spans]
    busiest = observed[rates.index(max(rates))].trace
    lasting = lasting_rates(busiest, fit.config, kept_up_with(runs, fitted.rate_per_s))
    return replace(fit, config=replace(fit.config, fitted=replace(fitted, lasting=lasting)))


def _check(observed: Sequence[NamedTrace], holdout: Sequence[NamedTrace]) -> None:
    _check_kinds(observed)
    _check_memory([*observed, *holdout])


def _check_kinds(observed: Sequence[NamedTrace]) -> None:
    """Raise TraceError where each trace has several answers, or inputs, a request, which are simulated as one."""
    clients = [(source.name, source.trace.header.client) for source in observed]
    several = {
        name: client.several for name, client in clients if client is not None and client.several is not None
    }
    if len(several) == len(observed):
        name, said = next(iter(several.items()))
        raise TraceError(
            f"{name}: got {said}, which are simulated as one, expected a trace of one answer to one prompt: a "
            "fit would take the difference for the server's"
        )


def _check_memory(sources: Sequence[NamedTrace]) -> None:
    """Raise ConfigError where a fit would take more memory than there is."""
    num = sum(len(source.trace) for source in sources)
    tokens = sum(float(source.trace.cells("output_tokens").values.sum()) for source in sources)
    what = f"--fit: got {num:,} requests with {tokens:,.0f} tokens of output"
    require_memory(f"{what}, which take", round(BYTES_PER_TOKEN * tokens))


def _fitted(
    ready: Sequence[FitTrace],
    known: KnownServer,
    config: TwinConfig,
    options: Options,
    *,
    old: TwinConfig | None,
    priors: Mapping[str, Prior],
    steps: StepLogs,
    report: Report | None,
) -> Fit:
    """Return the fit; where it may choose, its candidates include the models derived from model and GPU.

    ``steps``: the server's own, if any, which it is then a fit to. ``old``: another server's twin, from
    which it is made.
    """
    if old is not None:
        from calibrate.carried.old_twin import fit_carried

        return fit_carried(ready, known, config, old, report=report)
    if steps.series:
        from calibrate.steps.fitted_to_steps import fit_to_steps

        return fit_to_steps(steps, ready, config, priors=priors, seed=options.seed, report=report)
    is_open = options.latency_model == "auto"
    return fit(
        ready,
        config,
        names=options.names,
        seed=options.seed,
        infer_async=options.infer_async,
        latency_model=options.latency_model,
        priors=priors,
        physics=known_physics(known, config)[0] if is_open else None,
        tiles=(known_tiles(known, config) if is_open else Tiles()).factors,
        report=report,
    )


def _both_parts(
    observed: Sequence[NamedTrace],
    holdout: Sequence[NamedTrace],
    halves: Sequence[NDArray[np.bool_]] | None,
    config: TwinConfig,
    options: Options,
) -> tuple[list[Part], list[Part], str]:
    """Return the fitted and the held-out requests with their simulations, and how the latter are new to the fit."""
    if halves is None:
        return (
            _all_pairs([against_twin(source, config, options, role="fitted") for source in observed]),
            _all_pairs([against_twin(source, config, options, role="held out") for source in holdout]),
            unseen_by_fit(holdout, observed),
        )
    role: Role = "first half fitted, second half held out"
    compared = [against_twin(source, config, options, role=role) for source in observed]
    fitted, held_out = (_half(compared, halves, first=first) for first in (True, False))
    return fitted, held_out, "the second half of the requests by arrival; the fit has seen the first"


def _with_run_to_run(
    options: Options, sources: Sequence[NamedTrace], repeats: Sequence[NamedTrace]
) -> Options:
    """Return the options with the server's pace from run to run, as the runs that repeat another one show it."""
    couples = [
        (one.trace, other.trace)
        for one, other in couples_of(sources, repeats)
        if one.trace.header.noise_floor is None or other.trace.header.noise_floor is None
    ]  # the others are counted in what their headers have
    found = run_to_run(
        [pair(one, other, by=options.pair_by) for one, other in couples],
        stated=options.run_to_run,
        recorded=recorded_spreads([each.trace for each in (*sources, *repeats)]),
    )
    return replace(options, run_to_run=found)


def first_half(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows belong to the first half of the requests by arrival; ties by row."""
    from traces import send_or_arrival_us

    order = np.argsort(send_or_arrival_us(trace), kind="stable")
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[: (len(order) + 1) // 2]] = True
    return chosen


def _as_met(trace: Trace, options: Options) -> Trace:
    """Return the trace as the server received it, which a fit needs."""
    return trace if options.network is None else server_view(trace, options.network)


def _all_pairs(compared: Sequence[Compared]) -> list[Part]:
    return [(each, each.pairs) for each in compared]


def _half(compared: Sequence[Compared], halves: Sequence[NDArray[np.bool_]], *, first: bool) -> list[Part]:
    """Return the pairs of one half of every trace. Raises TraceError when that half has none."""
    parts: list[Part] = []
    for each, half in zip(compared, halves, strict=True):
        chosen = half[each.pairs.requests["row"].to_numpy()] == first
        if not chosen.any():
            which = "first" if first else "second"
            raise TraceError(
                f"{each.source.name}: got no finished request in the {which} half, expected at least one"
            )
        parts.append((each, take(each.pairs, chosen)))
    return parts


def _assembled(
    held_out: Sequence[Part],
    fitted: Sequence[Part] | None,
    *,
    options: Options,
    repeats: Sequence[NamedTrace],
    unseen: str,
    config: TwinConfig | None = None,
) -> Calibration:
    """Return the calibration with its errors worked out; ``fitted`` None: the same as ``held_out``."""
    bootstrap = options.bootstrap()
    traces = list({id(each): each for each, _ in [*(fitted or ()), *held_out]}.values())
    names, latency = _latency_parts(held_out)
    accuracy = _accuracy_of(held_out, options)
    excluded: Counter[str] = Counter()
    for each in traces:
        excluded.update(each.pairs.excluded)
    return Calibration(
        fit=None,
        config=config,
        fitted_on=accuracy if fitted is None else _accuracy_of(fitted, options),
        held_out=accuracy,
        noise=_noise(traces, repeats, options),
        equivalence=equivalences(accuracy.errors, options.margins),
        origin=origin_of(latency, bootstrap=bootstrap),
        worst=worst_of(latency, names),
        unseen=unseen,
        strata=strata_of(latency, bootstrap=bootstrap, trace_names=names),
        traces=tuple(traces),
        excluded=dict(sorted(excluded.items())),
        notes=() if config is None else config.notes,
        bootstrap=bootstrap,
        options=options,
        rate_curve=_rate_curve([each for each, _ in held_out], traces, config, options),
    )


def _rate_curve(
    held_out: Sequence[Compared], traces: Sequence[Compared], config: TwinConfig | None, options: Options
) -> RateCurve | None:
    """Return the twin's latency over the rate, for the longest held-out run that allows it."""
    if config is None or options.network is not None:
        return None
    first = sorted(held_out, key=lambda each: len(each.pairs), reverse=True)
    order = {id(each): each for each in [*first, *traces]}.values()
    return rate_curve([(each.source.name, each.source.trace, each.pairs) for each in order], config)


def _latency_parts(parts: Sequence[Part]) -> tuple[list[str], Pairs]:
    """Return the traces whose latencies count, by name, and their pairs: the saturated ones only if all are."""
    kept = [part for part in parts if not part[0].is_saturated] or list(parts)
    return [each.source.name for each, _ in kept], concat([pairs for _, pairs in kept])


def _accuracy_of(parts: Sequence[Part], options: Options) -> Accuracy:
    """Return the errors of these requests: latencies where the server served the load, throughput where it did not."""
    bootstrap = options.bootstrap()
    _, latency = _latency_parts(parts)
    saturated = [pairs for each, pairs in parts if each.is_saturated]
    are_all = all(len(pairs) == len(each.pairs) for each, pairs in parts)
    counters = [each.counters for each, _ in parts] if are_all else []
    everything = concat([pairs for _, pairs in parts])
    return Accuracy(
        errors=compare(latency, bootstrap=bootstrap),
        rates=rates_of(everything, slo_us=options.slo_us, bootstrap=bootstrap, counters=counters),
        capacity=rates_of(concat(saturated), slo_us=options.slo_us, bootstrap=bootstrap) if saturated else {},
        of_saturated=len(saturated) == len(parts),
        pairs=latency,
    )


def _noise(traces: Sequence[Compared], repeats: Sequence[NamedTrace], options: Options) -> NoiseFloor | None:
    """Return the server's run-to-run noise, if a load was observed twice."""
    couples = couples_of([each.source for each in traces if each.partner is None], repeats)
    if not couples and repeats:
        couples = couples_of([each.source for each in traces], repeats)
    pairs = noise_pairs(couples, by=options.pair_by)
    if pairs is None:
        return None
    bootstrap = options.bootstrap()
    accuracy = Accuracy(
        errors=compare(pairs, bootstrap=bootstrap),
        rates=rates_of(pairs, slo_us=options.slo_us, bootstrap=bootstrap),
        capacity={},
        of_saturated=False,
        pairs=pairs,
    )
    return NoiseFloor(accuracy=accuracy, couples=tuple((one.name, other.name) for one, other in couples))


def check_options(
    *, simulated: bool, config: bool, fitting: bool, num_observed: int, num_holdout: int
) -> None:
    """Raise ConfigError on options that cannot be combined."""
    if simulated and config:
        raise ConfigError("--simulated: cannot be combined with --config")
    if not simulated and not config:
        raise ConfigError("--simulated, --config: got neither, expected one of them")
    if simulated and (fitting or num_holdout):
        given = "--fit" if fitting else "--holdout"
        raise ConfigError(
            f"{given}: cannot be combined with --simulated, expected --config: only a twin can be simulated again"
        )
    if simulated and num_observed != 1:
        raise ConfigError(f"OBSERVED: got {num_observed} traces with --simulated, expected one")
