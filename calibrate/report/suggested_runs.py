"""For every coefficient that the traces do not determine: a run that would, as an ``observe`` command line to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.fit.uncertainty import CONFOUNDED

if TYPE_CHECKING:
    from calibrate.findings import Calibration, Compared
    from calibrate.fit.result import Fit

ADDRESS = "http://HOST:PORT"
"""The URL in the command if no trace names its server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedLoad:
    """A load: users (``concurrency``) or a share of the highest rate seen; lengths as shares.

    ``prompt``, ``output``: tokens of the mean (and its standard deviation). ``shows`` finishes "this run shows …".
    """

    name: str
    shows: str
    concurrency: int | None = None
    rate_share: float | None = None
    num_requests: int = 100
    prompt: tuple[int, int] | None = None
    output: tuple[int, int] | None = None


ALONE = SuggestedLoad(
    name="alone",
    shows="one request at a time, prompts of very different lengths: a first token without queue or neighbours",
    concurrency=1,
    num_requests=60,
    prompt=(800, 800),
    output=(16, 0),
)
LONG_ANSWERS = SuggestedLoad(
    name="long-answers",
    shows="steps that only decode, one sequence after another: the time of a step without what comes before it",
    concurrency=1,
    num_requests=20,
    prompt=(32, 0),
    output=(256, 0),
)
MANY_DECODE = SuggestedLoad(
    name="many-decode",
    shows="short prompts, long answers, users who come and go: steps of few and of many sequences",
    concurrency=32,
    num_requests=128,
    prompt=(32, 0),
    output=(256, 200),
)
LONG_PROMPTS = SuggestedLoad(
    name="long-prompts",
    shows="prompts of very different lengths that delay each other: the time of a prefill token",
    concurrency=4,
    num_requests=80,
    prompt=(1200, 1000),
    output=(8, 0),
)
LONG_CONTEXTS = SuggestedLoad(
    name="long-contexts",
    shows="long answers after prompts short and long: what reading a context costs, separate from decoding",
    concurrency=16,
    num_requests=64,
    prompt=(2000, 1800),
    output=(256, 100),
)
BUSY = SuggestedLoad(
    name="busy",
    shows="the usual lengths at a load close to what the server can serve: what only a full server shows",
    rate_share=1.5,
    num_requests=400,
)

RUN_FOR: Mapping[str, SuggestedLoad] = {
    "alpha0": ALONE,
    "alpha1": ALONE,
    "alpha2": MANY_DECODE,
    "alpha3": MANY_DECODE,
    "beta0": LONG_ANSWERS,
    "beta1": LONG_PROMPTS,
    "beta2": MANY_DECODE,
    "beta3": LONG_CONTEXTS,
    "beta4": LONG_PROMPTS,
    "beta5": LONG_PROMPTS,
    "floor": LONG_ANSWERS,
    "concavity": MANY_DECODE,
    "kappa": BUSY,
    "u0": BUSY,
    "tau_s": BUSY,
}
"""The run that a single coefficient needs."""
RUN_TO_SEPARATE: Mapping[frozenset[str], SuggestedLoad] = {
    frozenset({"alpha0", "beta0"}): LONG_ANSWERS,
    frozenset({"alpha1", "beta1"}): LONG_PROMPTS,
    frozenset({"alpha0", "alpha1"}): ALONE,
    frozenset({"alpha0", "beta1"}): ALONE,
    frozenset({"beta0", "beta1"}): LONG_PROMPTS,
    frozenset({"beta0", "beta2"}): MANY_DECODE,
    frozenset({"beta2", "beta3"}): LONG_CONTEXTS,
    frozenset({"beta2", "concavity"}): MANY_DECODE,
    frozenset({"beta1", "beta4"}): LONG_PROMPTS,
}
"""The run that two coefficients need if only their sum is determined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedRun:
    """A run that would determine some coefficients: ``command`` to copy, ``shows`` says what it shows."""

    coefficients: tuple[str, ...]
    shows: str
    command: str


def suggested_runs(calibration: Calibration) -> tuple[SuggestedRun, ...]:
    """Return a run for the coefficients that were fitted and are not identifiable, one line per run."""
    if calibration.fit is None:
        return ()
    needed: dict[str, tuple[SuggestedLoad, list[str]]] = {}
    for name in unseen(calibration.fit):
        run = run_for(name, partner=partner_of(calibration.fit, name))
        needed.setdefault(run.name, (run, []))[1].append(name)
    return tuple(
        SuggestedRun(
            coefficients=tuple(names), shows=run.shows, command=command_of(run, traces=calibration.traces)
        )
        for run, names in needed.values()
    )


def unseen(fit: Fit) -> list[str]:
    """Return the fitted coefficients that the traces do not determine."""
    return [each.name for each in fit.coefficients if each.fitted and not each.identifiable]


def run_for(name: str, *, partner: str | None) -> SuggestedLoad:
    """Return the run that determines a coefficient, or separates it from the one it is confounded with."""
    together = None if partner is None else RUN_TO_SEPARATE.get(frozenset({name, partner}))
    return together or RUN_FOR.get(name, BUSY)


def partner_of(fit: Fit, name: str) -> str | None:
    """Return the coefficient with which this one is confounded, None if it has too little effect on its own."""
    if name not in fit.names:
        return None
    index = fit.names.index(name)
    others = np.abs(fit.correlation[index]).copy()
    others[index] = 0.0
    strongest = int(np.argmax(others))
    return fit.names[strongest] if others[strongest] >= CONFOUNDED else None


def command_of(run: SuggestedLoad, *, traces: Sequence[Compared]) -> str:
    """Return the ``observe`` command line of a run, for the server and the lengths of the traces."""
    servers = [each.source.trace.header.server for each in traces]
    url = next((server.url for server in servers if server.url), ADDRESS)
    arguments = ["vtwin", "observe", "--url", url]
    model = next((server.model for server in servers if server.model), None)
    if model is not None:
        arguments += ["--model", model]
    if run.concurrency is not None:
        arguments += ["--concurrency", str(run.concurrency)]
    else:
        arguments += ["--rate", f"{(run.rate_share or 1.0) * _highest_rate(traces):.3g}"]
    arguments += ["--num-requests", str(run.num_requests)]
    longest = min((server.max_model_len for server in servers if server.max_model_len), default=None)
    arguments += _lengths(run, traces, longest=longest)
    return shlex.join([*arguments, "--output", run.name])


def _lengths(run: SuggestedLoad, traces: Sequence[Compared], *, longest: int | None) -> list[str]:
    """Return the options that say the lengths: the run's own, else those seen; within what the model takes."""
    found = []
    room = None if longest is None else longest // 2
    for side, own in (("prompt", run.prompt), ("output", run.output)):
        mean, deviation = own or _seen(traces, f"{side}_tokens")
        if room is not None:
            mean, deviation = min(mean, max(room // 2, 1)), min(deviation, room // 2)
        found += [f"--{side}-tokens", str(mean), f"--{side}-tokens-stdev", str(deviation)]
        if room is not None:
            found += [f"--{side}-tokens-max", str(room)]
    return found


def _seen(traces: Sequence[Compared], column: str) -> tuple[int, int]:
    values = np.concatenate([each.pairs.requests[column].to_numpy(dtype=np.float64) for each in traces])
    known = values[np.isfinite(values)]
    return (round(float(known.mean())), round(float(known.std()))) if len(known) else (512, 256)


def _highest_rate(traces: Sequence[Compared]) -> float:
    """Return the highest rate at which any of the traces arrived, requests/s; 1 if none has a rate.

    A load that was sent at once, before the first answer, has no rate.
    """
    from replay.twin.fitted import open_loop_rate

    rates = [
        open_loop_rate(
            each.pairs.requests["arrival_us"].to_numpy(dtype=np.float64),
            each.pairs.observed["e2e_us"].to_numpy(dtype=np.float64),
        )
        for each in traces
    ]
    return max((rate for rate in rates if rate is not None), default=1.0)
