"""The fit as a function: coefficients in, how far the simulated latencies are from the observed ones out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

import sim
from calibrate.compare.bootstrap import Floats
from calibrate.compare.engine_steps import EngineSteps
from calibrate.fit.capacity import in_order
from calibrate.fit.exposure import Timeline, exposures, steps_between
from calibrate.fit.priors import WAY_IN, Prior
from sim import Blackbox, EngineConfig, Extended, LatencyModel, Requests, Status

COEFFICIENTS = ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2")
FITTED = ("alpha0", "alpha1", "beta0", "beta1", "beta2")
EXTENDED_FITTED = ("beta3", "beta4", "floor", "kappa")
"""What a fit of ``latency.model: extended`` varies beside these."""
EXTENDED_SHOWN = (*EXTENDED_FITTED, "tau_s", "sigma")
UNITS = {
    "alpha0": "µs",
    "alpha1": "µs/prompt token",
    "alpha2": "µs/output token",
    "beta0": "µs/step",
    "beta1": "µs/prefill token",
    "beta2": "µs/decode token",
    "beta3": "µs/context token read",
    "beta4": "µs/(query, key) pair",
    "floor": "µs/step",
    "kappa": "per unit of duty",
    "tau_s": "s",
    "sigma": "of log(step time)",
}
LATENCIES = ("ttft_us", "e2e_us", "tpot_us")
LOSS_METRICS = (*LATENCIES, "done_us")
"""What the loss is made of, per request; the rows of every [4, n] array here. ``done_us``: when as many requests as in
the trace were done (``calibrate.fit.capacity``), of traces that completions pace or whose load was above capacity."""

NOISE = np.array([0.10, 0.03, 0.03, 0.03])
"""Relative spread taken for one request's TTFT, E2E, TPOT and completion before the fit has measured its own."""
NOISE_LIMITS = (0.02, 0.30)
"""The measured spread stays within these: below, rounding would rule; above, a metric would not count."""
PRIOR_REQUESTS = 4.0
"""A prior that is one width off weighs as much as so many requests that are one noise off: neighbours share their
queues, so the traces hold fewer independent observations than requests, and no model is exact."""
NEVER_FINISHED = np.log(10.0)
"""Residual of a request that the simulator does not finish: as if it were ten times too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTrace:
    """One observed trace, made ready once: n requests in the simulator's columns and what was measured.

    ``observed_us`` [4, n]: ``LOSS_METRICS``, NaN where a request has none or takes no part in the loss.
    ``steps``: the engine's own log of its steps, where there is one.
    ``done_rows``: the requests whose completions count, in the order in which they were observed; may be none.
    ``closed_loop``: (concurrency, think time in µs) where completions set the arrivals. ``max_concurrency``: the
    client's cap, where completions let go what is due.
    """

    name: str
    requests: Requests
    observed_us: Floats
    observed_timeline: Timeline
    steps: EngineSteps | None = None
    done_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None

    def used(self) -> NDArray[np.bool_]:
        """Return which requests take part in the loss."""
        return np.asarray(np.isfinite(self.observed_us).any(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the simulator made of one trace: latencies [4, n], NaN where unfinished, and the timeline."""

    latency_us: Floats
    timeline: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be fitted; immutable, every evaluation simulates the same requests.

    ``names``: the coefficients that vary, in the order of every vector. ``base``: the model they vary in.
    ``scale``: what each would be if it explained a typical latency alone: the natural size of a step.
    ``priors``: where some of them are expected, by name.
    """

    traces: tuple[FitTrace, ...]
    engine: EngineConfig
    names: tuple[str, ...]
    base: Blackbox
    scale: Floats
    noise: Floats = field(default_factory=NOISE.copy)
    priors: Mapping[str, Prior] = field(default_factory=lambda: MappingProxyType({}))

    def latency(self, theta: Floats) -> Blackbox:
        """Return the latency model with these coefficients."""
        values = {
            name: round(max(float(value), 0.0), decimals_of(name))
            for name, value in zip(self.names, theta, strict=True)
        }
        return replace(self.base, **values)

    def held(self) -> dict[str, float]:
        """Return the coefficients that do not vary (µs)."""
        return {name: float(getattr(self.base, name)) for name in COEFFICIENTS if name not in self.names}

    def on(self, traces: tuple[FitTrace, ...]) -> Problem:
        """Return the problem of other traces."""
        return replace(self, traces=traces)

    def subset(self, names: Sequence[str]) -> Problem:
        """Return the problem in which only these of its coefficients vary, the others as in ``base``."""
        at = [self.names.index(name) for name in names]
        return replace(self, names=tuple(names), scale=self.scale[at])

    def simulate(self, theta: Floats) -> list[Run]:
        """Return every trace simulated with these coefficients."""
        model = self.latency(theta)
        return [simulated(trace, engine=self.engine, model=model) for trace in self.traces]

    def residuals(self, runs: Sequence[Run]) -> list[Floats]:
        """Return, per trace [4, n], log(simulated / observed) in units of the noise, NaN unless used."""
        return [
            log_ratio(run.latency_us, trace.observed_us) / self.noise[:, None]
            for run, trace in zip(runs, self.traces, strict=True)
        ]

    def weights(self) -> list[Floats]:
        """Return, per trace, each residual's weight: every trace counts alike, every metric in it alike."""
        weights = []
        for trace in self.traces:
            counts = np.isfinite(trace.observed_us).sum(axis=1)
            cells = max(1, int(np.count_nonzero(counts))) * len(self.traces)
            weight = np.where(counts > 0, 1 / (np.maximum(counts, 1) * cells), 0.0)
            weights.append(np.broadcast_to(weight[:, None], trace.observed_us.shape))
        return weights

    def prior_precision(self) -> Floats:
        """Return the weight in the loss of each scaled coefficient's squared distance from its prior."""
        one = 1.0 / max(sum(int(trace.used().sum()) for trace in self.traces), 1)
        weight = np.array(
            [
                PRIOR_REQUESTS * one / self.priors[name].width ** 2
                if name in self.priors
                else one / WAY_IN.get(name, np.inf) ** 2
                for name in self.names
            ]
        )
        return np.asarray(self.scale**2 * weight)

    def prior_centre(self) -> Floats:
        """Return where each coefficient is expected; 0 without a prior."""
        return np.array([self.priors[name].centre if name in self.priors else 0.0 for name in self.names])

    def prior_width(self) -> Floats:
        """Return how far off each coefficient may well be; infinite without a prior."""
        known = {name: prior.width for name, prior in self.priors.items()}
        return np.array([known.get(name, WAY_IN.get(name, np.inf)) for name in self.names])

    def loss(self, residuals: Sequence[Floats], theta: Floats) -> float:
        """Return the mean robust loss, prior included: 1 is a typical error of one noise, 0 perfection."""
        off = (theta - self.prior_centre()) / self.scale
        return float(self.prior_precision() @ off**2) + float(
            sum(
                np.nansum(weight * robust(residual))
                for weight, residual in zip(self.weights(), residuals, strict=True)
            )
        )

    def evaluate(self, theta: Floats) -> float:
        """Return the loss at these coefficients."""
        return self.loss(self.residuals(self.simulate(theta)), theta)

    def exposure_gradients(self, runs: Sequence[Run]) -> list[Floats]:
        """Return, per trace, d residual / d coefficient while the schedule stays as it is: [p, 4, n]."""
        values = []
        for run, trace in zip(runs, self.traces, strict=True):
            latencies = exposure_columns(run.timeline, trace.requests.prompt_tokens.astype(np.float64))
            chosen = np.stack([latencies[name] for name in self.names])
            values.append(chosen / (np.maximum(run.latency_us, 1.0) * self.noise[:, None]))
        return values

    def with_noise_of(self, runs: Sequence[Run]) -> Problem:
        """Return the problem with each metric's noise measured from what these runs leave unexplained."""
        ratios = np.concatenate(
            [
                log_ratio(run.latency_us, trace.observed_us)
                for run, trace in zip(runs, self.traces, strict=True)
            ],
            axis=1,
        )
        measured = np.array([_spread(row) for row in ratios])
        noise = np.where(np.isfinite(measured), np.clip(measured, *NOISE_LIMITS), self.noise)
        return replace(self, noise=noise)


def head_of(trace: FitTrace, number: int) -> FitTrace:
    """Return a trace's first requests by arrival; those that were not done when the next one arrived do not count."""
    n = len(trace.requests)
    if n <= number:
        return trace
    order = np.argsort(trace.requests.arrival_us, kind="stable")
    rows, next_us = np.sort(order[:number]), trace.observed_timeline.joined[order[number]]
    place = np.full(n, -1)
    place[rows] = np.arange(number)
    timeline = Timeline(
        **{each.name: getattr(trace.observed_timeline, each.name)[rows] for each in fields(Timeline)}
    )
    is_done = trace.observed_timeline.last[rows] <= next_us
    done_rows = place[trace.done_rows]
    return replace(
        trace,
        requests=trace.requests.take(rows),
        observed_us=np.where(is_done, trace.observed_us[:, rows], np.nan),
        observed_timeline=timeline,
        done_rows=done_rows[(done_rows >= 0) & is_done[done_rows]],
    )


def robust(residual: Floats) -> Floats:
    """Return the loss of residuals: squares near 0, straight lines far out (soft L1)."""
    return np.asarray(2 * (np.sqrt(1 + residual**2) - 1))


def robust_weight(residual: Floats) -> Floats:
    """Return what a residual's square must be weighted with for the same derivative as its robust loss."""
    return np.asarray(1 / np.sqrt(1 + residual**2))


def log_ratio(simulated_us: Floats, observed_us: Floats) -> Floats:
    """Return log(simulated / observed), NaN where not observed, ``NEVER_FINISHED`` where not simulated."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(np.maximum(simulated_us, 1.0)) - np.log(observed_us)
    ratio = np.where(np.isfinite(simulated_us), ratio, NEVER_FINISHED)
    return np.where(np.isfinite(observed_us) & (observed_us > 0), ratio, np.nan)


def _spread(ratios: Floats) -> float:
    """Return the standard deviation of a normal spread with this median of |log ratio|; NaN of none."""
    known = ratios[np.isfinite(ratios)]
    return float(1.4826 * np.median(np.abs(known))) if len(known) else float("nan")


def simulated(trace: FitTrace, *, engine: EngineConfig, model: LatencyModel) -> Run:
    """Return one trace simulated."""
    simulation = sim.simulate(
        trace.requests,
        engine,
        model,
        closed_loop=trace.closed_loop,
        max_concurrency=trace.max_concurrency,
    )
    outcomes = simulation.outcomes
    done = outcomes.status == Status.OK

    def time(values: NDArray[np.int64]) -> Floats:
        return np.where(done, values, np.nan)

    first, last, joined = (
        time(outcomes.first_token_us),
        time(outcomes.last_token_us),
        time(outcomes.queued_us),
    )
    tokens = outcomes.num_output_tokens.astype(np.float64)
    arrival = time(outcomes.arrival_us)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(tokens > 1, (last - first) / (tokens - 1), np.nan)
    timeline = Timeline(
        joined=joined,
        prefill=time(outcomes.scheduled_us),
        first=first,
        last=last,
        prefill_tokens=trace.requests.prompt_tokens - time(outcomes.num_cached_tokens),
        output_tokens=tokens,
    )
    done = in_order(
        last, trace.done_rows, start_us=float(outcomes.arrival_us[outcomes.arrival_us >= 0].min())
    )
    return Run(latency_us=np.stack([first - arrival, last - arrival, gap, done]), timeline=timeline)


def decimals_of(name: str) -> int:
    """Return to how many decimals a coefficient (µs) is kept: blackbox's to 10⁻⁶, the tiny ones of attention finer."""
    return 12 if name in ("beta3", "beta4") else 6


def coefficients_in(latency: Blackbox) -> tuple[str, ...]:
    """Return the names of the coefficients that a model has and a report shows."""
    return COEFFICIENTS + (EXTENDED_SHOWN if isinstance(latency, Extended) else ())


def exposure_columns(timeline: Timeline, prompt_tokens: Floats) -> dict[str, Floats]:
    """Return, per coefficient, d latency / d coefficient of the metrics, [4, n], in units of each.

    The floor's and the slowdown's are not to be had this way: 0, as those of completions are.

    The steps are not counted but follow from the time: what prefill and decode tokens leave, ``beta0`` took.
    Their number needs no log of steps, but a rate of steps: that of the decoding requests, and at least the
    one step that every request's prefill takes.
    """
    seen = exposures(timeline, prompt_tokens)
    n = len(prompt_tokens)
    gaps = np.maximum(timeline.output_tokens - 1, 1)
    before = np.maximum(steps_between(timeline, timeline.joined, timeline.first), 1.0)
    after = timeline.output_tokens - 1
    one, zero = np.ones(n), np.zeros(n)
    return {
        "alpha0": np.stack([one, one, zero, zero]),
        "alpha1": np.stack([prompt_tokens, prompt_tokens, zero, zero]),
        "alpha2": np.stack([one, timeline.output_tokens, one, zero]),
        "beta0": np.stack([before, before + after, after / gaps, zero]),
        "beta1": _before_and_after(seen.prefill_before, seen.prefill_after, gaps),
        "beta2": _before_and_after(seen.decode_before, seen.decode_after, gaps),
        "beta3": _before_and_after(seen.context_before, seen.context_after, gaps),
        "beta4": _before_and_after(seen.pairs_before, seen.pairs_after, gaps),
        "floor": np.zeros((len(LOSS_METRICS), n)),
        "kappa": np.zeros((len(LOSS_METRICS), n)),
    }


def _before_and_after(before: Floats, after: Floats, gaps: Floats) -> Floats:
    """Return an exposure's share in TTFT, E2E and TPOT, and none in completions."""
    return np.stack([before, before + after, after / gaps, np.zeros(len(before))])


UNITS |= {
    **dict.fromkeys(("prefill_compute", "decode_compute", "expert_compute", "prefill_attention"), "x peak"),
    **dict.fromkeys(("decode_attention", "prefill_kv", "decode_kv", "weights", "expert_weights"), "x peak"),
    **dict.fromkeys(("head", "activation", "tensor_parallel"), "x peak"),
    **dict.fromkeys(("layer_us", "moe_layer_us", "interleaved_moe_layer_us"), "µs/layer"),
    **dict.fromkeys(("request_us", "cpu_request_us"), "µs/request"),
    **dict.fromkeys(("step_us", "cpu_step_us"), "µs/step"),
    "all_reduce_us": "µs/collective",
    "expert_tile": "rows",
}
"""Those of physics beside the others: factors on the time at the peak, and overheads."""
