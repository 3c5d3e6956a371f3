"""The whole of ``calibrate``: which traces are fitted, which judge, and what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.errors import Bootstrap, MetricErrors, Throughput, compare, throughput
from calibrate.fit import Fit, fit, fit_trace
from calibrate.pair import PairBy, Pairs, concat, pair, take
from calibrate.problem import FITTED
from calibrate.search import Report
from calibrate.strata import Stratum, strata_of
from traces.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from sim import Outcomes
    from traces import Trace

Role = Literal["compared", "fitted", "first half fitted, second half judged", "judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace, what it is called (its stem), and the SHA-256 of its table where it has a file."""

    name: str
    trace: Trace
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One observed trace beside its simulation; ``partner``: the trace that it was compared with, if given."""

    source: Source
    role: Role
    pairs: Pairs
    notes: tuple[str, ...]
    partner: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What ``calibrate`` found out. ``unseen``: how the requests behind ``holdout`` came to be unseen.

    ``in_sample`` and ``holdout`` are errors by metric; where nothing was fitted they are the same.
    ``pairs`` are the requests behind ``holdout``, ``in_sample_pairs`` those behind ``in_sample``.
    """

    fit: Fit | None
    config: TwinConfig | None
    in_sample: dict[str, MetricErrors]
    holdout: dict[str, MetricErrors]
    in_sample_throughput: Throughput
    holdout_throughput: Throughput
    in_sample_pairs: Pairs
    pairs: Pairs
    unseen: str
    strata: tuple[Stratum, ...]
    traces: tuple[Compared, ...]
    excluded: dict[str, int]
    notes: tuple[str, ...]
    bootstrap: Bootstrap
    pair_by: PairBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to compare and fit. ``names``: the coefficients that vary."""

    pair_by: PairBy = "request_id"
    seed: int = 42
    names: tuple[str, ...] = FITTED
    infer_async: bool = False
    replicates: int = 1000

    def bootstrap(self) -> Bootstrap:
        """Return how intervals are drawn."""
        return Bootstrap(seed=self.seed, replicates=self.replicates)


def compare_with_simulated(observed: Source, simulated: Source, options: Options) -> Calibration:
    """Return how two traces of the same requests differ; nothing is simulated or fitted."""
    pairs = concat([pair(observed.trace, simulated.trace, by=options.pair_by)])
    compared = Compared(
        source=observed,
        role="compared",
        pairs=pairs,
        notes=_trace_notes(observed.trace, pairs),
        partner=simulated,
    )
    return _unfitted([compared], config=None, options=options, unseen=f"compared with {simulated.name}")


def compare_with_twin(
    observed: Sequence[Source], config: TwinConfig, options: Options, *, holdout: Sequence[Source] = ()
) -> Calibration:
    """Return how far a twin as configured is from the traces; nothing is fitted."""
    compared = [_compare(source, config, options, role="compared") for source in observed]
    judged = [_compare(source, config, options, role="judged") for source in holdout]
    if not judged:
        return _unfitted(compared, config=config, options=options, unseen="nothing was fitted")
    return _assembled(
        compared + judged,
        in_sample=concat([each.pairs for each in compared]),
        judged=concat([each.pairs for each in judged]),
        options=options,
        config=config,
        unseen="traces named with --holdout; nothing was fitted",
    )


def calibrate(
    observed: Sequence[Source],
    config: TwinConfig,
    options: Options,
    *,
    holdout: Sequence[Source] = (),
    report: Report | None = None,
) -> Calibration:
    """Return the twin fitted to the observed traces and judged on the held-out ones.

    Without held-out traces each observed one is simulated whole, fitted on the first half of its requests by
    arrival and judged on the second.
    """
    halves = None if holdout else [first_half(source.trace) for source in observed]
    ready = [
        fit_trace(source.trace, config, name=source.name, chosen=None if halves is None else halves[i])
        for i, source in enumerate(observed)
    ]
    found = fit(
        ready,
        config,
        names=options.names,
        seed=options.seed,
        infer_async=options.infer_async,
        report=report,
    )
    if halves is None:
        fitted = [_compare(source, found.config, options, role="fitted") for source in observed]
        judged = [_compare(source, found.config, options, role="judged") for source in holdout]
        in_sample, unseen_pairs = (concat([each.pairs for each in part]) for part in (fitted, judged))
        how = "traces that the fit has not seen"
    else:
        role: Role = "first half fitted, second half judged"
        fitted, judged = [_compare(source, found.config, options, role=role) for source in observed], []
        in_sample, unseen_pairs = (_half(fitted, halves, first=first) for first in (True, False))
        how = "the second half of the requests by arrival; the fit has seen the first"
    calibration = _assembled(
        fitted + judged,
        in_sample=in_sample,
        judged=unseen_pairs,
        options=options,
        config=found.config,
        unseen=how,
    )
    return replace(calibration, fit=found)


def first_half(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows belong to the first half of the requests by arrival; ties by row."""
    from traces import send_or_arrival_us

    order = np.argsort(send_or_arrival_us(trace), kind="stable")
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[: (len(order) + 1) // 2]] = True
    return chosen


def _half(compared: Sequence[Compared], halves: Sequence[NDArray[np.bool_]], *, first: bool) -> Pairs:
    """Return the pairs of one half of every trace. Raises TraceError when that half has none."""
    parts = []
    for each, half in zip(compared, halves, strict=True):
        chosen = half[each.pairs.requests["row"].to_numpy()] == first
        if not chosen.any():
            which = "first" if first else "second"
            raise TraceError(
                f"{each.source.name}: got no finished request in the {which} half, expected at least one"
            )
        parts.append(take(each.pairs, chosen))
    return concat(parts)


def _compare(source: Source, config: TwinConfig, options: Options, *, role: Role) -> Compared:
    """Return a trace beside what the twin makes of it."""
    from replay import check_fits, simulate_trace

    check_fits(config, source.trace)
    simulated, simulation = simulate_trace(source.trace, config, record="tokens")
    if source.trace.column("server_queue_us").notna().any():
        simulated = _with_server_queue(simulated, simulation.outcomes)
    pairs = concat([pair(source.trace, simulated, by=options.pair_by)])
    return Compared(source=source, role=role, pairs=pairs, notes=_trace_notes(source.trace, pairs))


def _with_server_queue(simulated: Trace, outcomes: Outcomes) -> Trace:
    """Return the simulated trace with the queue time that a server counts: without the way to its queue."""
    was_scheduled = outcomes.scheduled_us >= 0
    queued = pd.array(np.where(was_scheduled, outcomes.scheduled_us - outcomes.queued_us, 0), dtype="Int64")
    return simulated.with_columns(server_queue_us=pd.Series(queued).where(was_scheduled))


def _trace_notes(trace: Trace, pairs: Pairs) -> tuple[str, ...]:
    """Return what a reader must know about one trace's comparison."""
    from replay import pacing_of
    from traces import metric_notes

    lines = list(metric_notes(trace).lines())
    if pairs.observed_gaps.basis != "events":
        lines.append(
            "ITL statistics are of each request's mean, since no single gaps are recorded on both sides"
        )
    if pairs.num_token_mismatch:
        lines.append(f"{pairs.num_token_mismatch} pairs disagree on their token counts and were kept")
    if (paced := pacing_of(trace).note()) is not None:
        lines.append(paced)
    return tuple(lines)


def _unfitted(
    compared: list[Compared], *, config: TwinConfig | None, options: Options, unseen: str
) -> Calibration:
    """Return a comparison in which every request is as unseen as any other."""
    pairs = concat([each.pairs for each in compared])
    return _assembled(compared, in_sample=None, judged=pairs, options=options, config=config, unseen=unseen)


def _assembled(
    compared: list[Compared],
    *,
    in_sample: Pairs | None,
    judged: Pairs,
    options: Options,
    config: TwinConfig | None,
    unseen: str,
) -> Calibration:
    """Return the calibration with its errors worked out; ``in_sample`` None: the same as ``judged``."""
    bootstrap = options.bootstrap()
    holdout = compare(judged, bootstrap=bootstrap)
    excluded: Counter[str] = Counter()
    for each in compared:
        excluded.update(each.pairs.excluded)
    return Calibration(
        fit=None,
        config=config,
        in_sample=holdout if in_sample is None else compare(in_sample, bootstrap=bootstrap),
        holdout=holdout,
        in_sample_throughput=throughput(judged if in_sample is None else in_sample),
        holdout_throughput=throughput(judged),
        in_sample_pairs=judged if in_sample is None else in_sample,
        pairs=judged,
        unseen=unseen,
        strata=strata_of(judged, bootstrap=bootstrap),
        traces=tuple(compared),
        excluded=dict(sorted(excluded.items())),
        notes=() if config is None else config.notes,
        bootstrap=bootstrap,
        pair_by=options.pair_by,
    )


def check_options(
    *, simulated: bool, config: bool, fitting: bool, num_observed: int, num_holdout: int
) -> None:
    """Raise ConfigError when the options do not go together."""
    if simulated == config:
        got = "both" if simulated else "neither"
        raise ConfigError(f"--simulated, --config: got {got}, expected one of them")
    if simulated and (fitting or num_holdout):
        given = "--fit" if fitting else "--holdout"
        raise ConfigError(
            f"{given}: got it with --simulated, expected --config: only a twin can be simulated anew"
        )
    if simulated and num_observed != 1:
        raise ConfigError(f"OBSERVED: got {num_observed} traces with --simulated, expected one")
