"""The fit of the twin's coefficients to observed traces, with the simulator in the loop, stage by stage.

    initial guess      from the observed latencies alone (``initial_guess``, ``extended_initial_guess``)
    search             from every start towards the lowest loss, on the traces' first requests (``search``)
    refinement         by Gauss-Newton steps on all requests, and once more from elsewhere (``refinement``)
    model selection    where the model is to be chosen: each candidate's loss on requests held out (``model_selection``)
    uncertainty        intervals, correlations, and what the traces cannot tell (``uncertainty``)

What is minimized is in ``calibrate.fit.objective``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibrate.fit.extended_initial_guess import blackbox_within, extended_starts, further_starts
from calibrate.fit.initial_guess import LEAST, blackbox_starts, configured
from calibrate.fit.known_models import (
    Optimum,
    ServedTrace,
    fit_known,
    optimum,
    predictor,
    started,
)
from calibrate.fit.model_selection import (
    FLOOR,
    PHYSICS,
    SLOWDOWN,
    TERMS,
    TILES,
    Asked,
    Scores,
    candidates_of,
    held_out_scores,
    predictor_of,
    preferred,
    terms_of,
)
from calibrate.fit.objective.coefficients import (
    COEFFICIENTS,
    FITTED,
    GUESS,
    coefficients_in,
    decimals_of,
)
from calibrate.fit.objective.duty import duty
from calibrate.fit.objective.fit_trace import LATENCIES, FitTrace
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.priors import Prior, proportions, with_priors
from calibrate.fit.refinement import Refined, Surroundings, refine, restarted, surroundings
from calibrate.fit.result import Fit, ScheduleChoice
from calibrate.fit.search import Report, search
from calibrate.fit.step_noise import step_scatter
from calibrate.fit.task import Task
from calibrate.fit.uncertainty import (
    METHOD,
    Coefficient,
    Uncertainty,
    coefficients_of,
    flat_surface,
    uncertainty,
)
from replay.twin import name_of, twin_of, without_derived_launch
from sim import Blackbox, Extended, LatencyModel, Physics
from sim.latency import Fitting
from traces import ConfigError, TraceError
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import TwinConfig

SPARE_DECIMALS = 2
"""Coefficients are written with this many decimals fewer than the objective has: 1e-4 µs is finer than traces tell."""
SLOWED_TRACES = 2
"""A slowdown in one trace alone may have another cause in that trace."""
MIN_REQUESTS = 20
"""Fewer finished requests than this cannot determine five coefficients."""


def fit(  # noqa: PLR0913 - what a fit can be told
    traces: Sequence[FitTrace],
    config: TwinConfig | str | Path,
    *,
    names: Sequence[str] = FITTED,
    seed: int = 42,
    infer_async: bool = False,
    latency_model: Asked | None = None,
    priors: Mapping[str, Prior] | None = None,
    physics: Physics | None = None,
    tiles: tuple[tuple[int, float], ...] = (),
    report: Report | None = None,
) -> Fit:
    """Return the twin whose simulated latencies are nearest to the observed ones, all traces with equal weight.

    The order in which the traces are given makes no difference.
    ``names``: blackbox's coefficients to vary, the others stay as configured. ``infer_async``: fit with and without
    async scheduling and take the better. ``latency_model``: blackbox, extended, or ``auto``, which chooses among the
    extended model's terms by cross-validation; None: as configured. ``priors``: what model and GPU imply of the
    extended model's coefficients; what holds of any transformer stands in for the rest. ``physics``: of this server,
    another candidate of ``auto``, unless physics is configured, as the tables of a profile are that are configured;
    None: the model or the GPU is not known. ``tiles``: factors of this server's products (``sim.Extended.tiles``),
    which make one more; empty: not known. Raises TraceError if the traces have too few finished requests, or one has
    none. Raises ConfigError if physics or a profile is configured, no model is named, and an argument does not apply to
    such a fit: it draws nothing (no ``seed``), and its priors are its configured coefficients.
    """
    started, config = time.monotonic(), without_derived_launch(twin_of(config))
    traces = sorted(traces, key=_content)
    num_requests = _enough_requests(traces)
    if config.latency.fitting is Fitting.NEARBY and latency_model is None:
        _check_known(config.latency, names, infer_async=infer_async, priors=priors or {})
        return fit_known([ServedTrace(trace=trace, config=config) for trace in traces], report=report)[0]
    task = Task(
        traces=tuple(traces),
        config=replace(config, latency=_as_model(_fitted_model(config, latency_model), latency_model)),
        names=tuple(names),
        priors=priors or {},
        seed=seed,
        report=report or (lambda _stage, _loss: None),
        known=_known_models(config, physics),
        tiles=tiles,
    )
    schedule: ScheduleChoice | None = None
    if infer_async:
        task, schedule = better_schedule(task)
    fitted = selected_model(task) if latency_model == "auto" else result_of(configured_model(task), task)
    return replace(fitted, schedule=schedule, num_requests=num_requests, seconds=time.monotonic() - started)


def _content(trace: FitTrace) -> tuple[float, int, bytes, bytes]:
    """Return what orders the traces of a fit: the span of a request, how many there are, and then what was observed."""
    arrival = trace.requests.arrival_us
    span = float(np.ptp(arrival)) / len(arrival) if len(arrival) else 0.0
    return span, len(arrival), arrival.tobytes(), trace.observed_us.tobytes()


def configured_model(task: Task) -> Refined:
    """Return the optimum of the configured model: guess, search and refinement; the extended one's after blackbox's."""
    heads = task.heads()
    found = search_blackbox(task, heads)
    if task.latency.fit_terms:
        simpler = search_extended(task, heads, found, TERMS[FLOOR])
        found = search_extended(task, heads, found, task.latency.fit_terms, simpler=simpler)
    return found.on(found.objective.on(task.traces), report=task.report)


def _enough_requests(traces: Sequence[FitTrace]) -> int:
    """Return how many requests the traces have for the loss. Raises TraceError for too few, or for none in one."""
    num_requests = sum(trace.num_used for trace in traces)
    if num_requests < MIN_REQUESTS:
        raise TraceError(f"fit: got {num_requests} finished requests, expected at least {MIN_REQUESTS}")
    empty = next((trace.name for trace in traces if trace.num_used == 0), None)
    if empty is not None:
        raise TraceError(f"{empty}: got no finished request, expected some in each trace of a fit")
    return num_requests


def selected_model(task: Task) -> Fit:
    """Return the fit of the model that predicts held-out requests best, with all candidates and blackbox beside it.

    The candidates are in order of TERMS, known models last; blackbox's coefficients are those of the traces' first
    requests.
    """
    heads = task.heads()
    refined = _candidates(task, heads)
    noise = np.min([each.objective.noise for each in refined.values()], axis=0)
    predictors = {name: predictor_of(each) for name, each in refined.items()}
    at_heads: dict[str, Optimum] = {}
    for name, model in task.known.items():
        served = task.served(heads, model)
        at_heads[name] = optimum(served, report=task.report)
        predictors[name] = predictor(served, at_heads[name])
    scores = {name: held_out_scores(heads, predict, noise) for name, predict in predictors.items()}
    if not task.is_slowing:
        refined[SLOWDOWN] = _with_slowdown(task, heads, refined, scores)
        scores[SLOWDOWN] = held_out_scores(heads, predictor_of(refined[SLOWDOWN]), noise)
    chosen = preferred(scores)
    hidden: tuple[str, ...] = ()
    if chosen == SLOWDOWN and not shows_slowdown(refined[SLOWDOWN], seed=task.seed):
        hidden = (SLOWDOWN,)
        chosen = preferred(scores, hidden=hidden)
    if chosen in at_heads:
        served = task.served(task.traces, task.known[chosen])
        fitted = fit_known(served, report=task.report, start=at_heads[chosen].x)[0]
    else:
        best = refined[chosen]
        fitted = result_of(best.on(best.objective.on(task.traces), report=task.report), task)
    beside = () if fitted.model == "blackbox" else _blackbox_beside(refined["blackbox"], seed=task.seed)
    shown = {name: scores[name] for name in (*TERMS, *task.known) if name in scores}
    compared = candidates_of(shown, chosen=chosen, hidden=hidden, is_slowing=task.is_slowing)
    return replace(fitted, candidates=compared, blackbox=beside)


def _candidates(task: Task, heads: tuple[FitTrace, ...]) -> dict[str, Refined]:
    """Return the optimum of each candidate but known models and the slowdown, each searched from the simpler one's."""
    found = {"blackbox": search_blackbox(task, heads)}
    blackbox, simpler = found["blackbox"], None
    for name in ("attention", FLOOR, *((TILES,) if task.tiles else ())):
        asked = task.with_tiles() if name == TILES else task
        terms = terms_of(name, is_slowing=task.is_slowing)
        found[name] = simpler = search_extended(asked, heads, blackbox, terms, simpler=simpler)
        task.report(f"candidate: {name}", simpler.loss)
    return found


def _with_slowdown(
    task: Task, heads: tuple[FitTrace, ...], refined: Mapping[str, Refined], scores: Mapping[str, Scores]
) -> Refined:
    """Return the optimum with a slowdown beside the terms of the better of the two candidates that have a floor."""
    simpler = min((name for name in (FLOOR, TILES) if name in refined), key=lambda name: scores[name].off())
    asked = task.with_tiles() if simpler == TILES else task
    found = search_extended(asked, heads, refined["blackbox"], TERMS[SLOWDOWN], simpler=refined[simpler])
    task.report(f"candidate: {SLOWDOWN}", found.loss)
    return found


def shows_slowdown(found: Refined, *, seed: int) -> bool:
    """Return whether the traces show a slowdown: its interval excludes 0, and several loads lie above its start."""
    around = surroundings(found, seed=seed)
    objective, theta = around.at.objective, around.at.theta
    spread = _spread_of(around, seed=seed)
    rows = coefficients_of(
        objective.names, theta, spread=spread, scale=objective.scale, priors=objective.priors
    )
    kappa = next(each for each in rows if each.name == "kappa")
    if (kappa.low or 0.0) <= 0 or kappa.is_prior_led:
        return False
    model = Extended.of(objective.latency(theta))
    return sum(duty(model, trace) > model.u0 for trace in objective.traces) >= SLOWED_TRACES


def search_blackbox(task: Task, traces: tuple[FitTrace, ...]) -> Refined:
    """Return blackbox's coefficients, from the initial guess, its variants and the configured values."""
    objective = blackbox_within(task.objective(task.names))
    starts = blackbox_starts(objective)
    objective = objective.on(traces)
    return refine(objective, search(objective, starts, report=task.report), report=task.report)


def search_extended(
    task: Task,
    traces: tuple[FitTrace, ...],
    blackbox: Refined,
    terms: Sequence[str],
    *,
    simpler: Refined | None = None,
) -> Refined:
    """Return the coefficients with some of the extended model's ``terms``, the others 0, from blackbox's.

    ``simpler``: the optimum with fewer of the terms, another place to start from. Where blackbox's coefficient is 0,
    the proportions of any transformer are taken of the least that a search starts from.
    """
    least = dict(zip(blackbox.objective.names, LEAST * blackbox.objective.scale, strict=True))
    values = {name: max(value, least.get(name, 0.0)) for name, value in blackbox.by_name().items()}
    usual = proportions(beta1=values["beta1"], step_us=values["beta0"])
    priors = with_priors(usual, task.priors)
    objective = task.objective((*task.names, *terms))
    objective = replace(
        objective,
        base=objective.base.with_terms(terms),
        priors={name: prior for name, prior in priors.items() if name in objective.names},
    )
    has_all_else = simpler is not None and "floor" in simpler.objective.names
    starts = [] if has_all_else else extended_starts(objective, values)
    if simpler is not None:
        starts += further_starts(objective, simpler.objective.names, simpler.theta)
    if not task.latency.is_blackbox:
        starts.append(configured(objective))
    objective = objective.on(traces)
    return refine(objective, search(objective, starts, report=task.report), report=task.report)


def better_schedule(task: Task) -> tuple[Task, ScheduleChoice]:
    """Return the task under the scheduling, async or not, that explains the traces better, by one measure of noise."""
    refined: dict[bool, Refined] = {}
    tasks: dict[bool, Task] = {}
    for way in (True, False):
        label = "async" if way else "sync"

        def tell(stage: str, loss: float, label: str = label) -> None:
            task.report(f"{label}, {stage}", loss)

        engine = replace(task.config.engine, async_scheduling=way)
        tasks[way] = replace(task, config=replace(task.config, engine=engine))
        refined[way] = configured_model(replace(tasks[way], report=tell))
    noise = (refined[True].objective.noise + refined[False].objective.noise) / 2
    losses = {way: replace(each.objective, noise=noise).evaluate(each.theta) for way, each in refined.items()}
    best = min(losses, key=lambda way: losses[way])
    choice = ScheduleChoice(async_scheduling=best, loss_async=losses[True], loss_sync=losses[False])
    return tasks[best], choice


def _known_models(config: TwinConfig, physics: Physics | None) -> dict[str, LatencyModel]:
    """Return the models of this server that are known before any trace: the configured one, and physics if given."""
    found: dict[str, LatencyModel] = {} if physics is None else {PHYSICS: physics}
    if config.latency.fitting is Fitting.NEARBY:
        found[name_of(config.latency)] = started(config.latency)
    return found


def _check_known(
    latency: LatencyModel,
    names: Sequence[str],
    *,
    infer_async: bool,
    priors: Mapping[str, Prior],
) -> None:
    """Raise ConfigError on arguments that a fit of a known model would ignore."""
    kind = type(latency).__name__.lower()
    asked = {
        "--infer-async": infer_async,
        "--fit-alpha2": tuple(names) != FITTED,
        "--model-config, --gpu, --tp": bool(priors),
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise ConfigError(
                f"{option}: cannot be combined with latency.model {kind}, expected blackbox or extended: {kind} is "
                "fitted from its configured coefficients, under the configured scheduling"
            )


def _fitted_model(config: TwinConfig, asked: Asked | None) -> LatencyModel:
    """Return the model whose coefficients a fit finds, with guessed values if a known model is configured.

    Raises ConfigError if it is none of those.
    """
    if config.latency.fitting is Fitting.NEARBY and asked is not None:
        return Blackbox(**GUESS)
    if config.latency.fitting is not Fitting.FREELY:
        raise ConfigError(
            f"latency.model: got {type(config.latency).__name__.lower()}, expected blackbox, extended, physics or "
            f"profiled for a fit ({config.source})"
        )
    return config.latency


def _as_model(latency: LatencyModel, asked: Asked | None) -> LatencyModel:
    """Return a model of the requested kind with the same six coefficients; unchanged if none is requested."""
    if asked == "blackbox":
        return _blackbox_in(latency)
    if asked is None:
        return latency
    whole = Extended.of(latency)
    return whole.with_tiles(()) if asked == "auto" else whole  # with tiles it is a candidate of its own


def _blackbox_in(latency: LatencyModel) -> Blackbox:
    """Return blackbox with the coefficients that a freely fitted model shares with it."""
    return Blackbox(**{name: getattr(latency, name) for name in COEFFICIENTS})


def result_of(found: Refined, task: Task) -> Fit:
    """Return the fit with its intervals, from the end of the refinement."""
    again = restarted(found, report=task.report)
    around = surroundings(again.refined, seed=task.seed)
    found = around.at
    objective, theta, config, seed = found.objective, found.theta, task.config, task.seed
    spread = _spread_of(around, seed=seed)
    fitted = {
        each.name: each
        for each in coefficients_of(
            objective.names, theta, spread=spread, scale=objective.scale, priors=objective.priors
        )
    }
    late_us = max(each.ttft_too_long_us for each in objective.traces)
    if (
        late_us and "alpha0" in fitted
    ):  # a time that comes before every first token: what a late client adds to
        alpha0 = fitted["alpha0"]
        fitted["alpha0"] = replace(alpha0, low=max((alpha0.low or 0.0) - late_us, 0.0))
    base = objective.base.scattered(task.latency.scatter)
    if not set(objective.names) & set(base.fit_terms):
        base = _blackbox_in(base)
    shown = coefficients_in(base)
    coefficients = tuple(fitted[name] if name in fitted else held_coefficient(name, base) for name in shown)
    values = {name: round(each.value, decimals_of(name) - SPARE_DECIMALS) for name, each in fitted.items()}
    latency = replace(base, **values)
    if latency.fit_terms:
        scatter = _scatter(objective, theta, seed=seed)
        coefficients = tuple(scatter if each.name == "sigma" and scatter else each for each in coefficients)
        sigma = round(scatter.value, 6) if scatter else latency.scatter
        latency = latency.scattered(sigma, seed=config.seed)  # the seed of the file that it is written to
    return Fit(
        config=replace(config, latency=latency, engine=objective.engine),
        coefficients=coefficients,
        names=objective.names,
        correlation=spread.correlation,
        condition_number=spread.condition_number,
        loss=found.loss,
        noise=dict(zip(LATENCIES, objective.noise.tolist(), strict=False)),
        num_requests=sum(trace.num_used for trace in task.traces),
        converged=again.is_same_loss and _is_within(again.ended, [fitted[name] for name in objective.names]),
        method=METHOD,
        seconds=0.0,
    )


def _is_within(theta: Floats, coefficients: Sequence[Coefficient]) -> bool:
    """Return whether each value lies in the interval of its coefficient."""
    return all(
        (each.low or 0.0) <= value <= (np.inf if each.high is None else each.high)
        for value, each in zip(theta.tolist(), coefficients, strict=True)
    )


def _blackbox_beside(found: Refined, *, seed: int) -> tuple[Coefficient, ...]:
    """Return blackbox's six coefficients with their intervals."""
    objective, theta = found.objective, found.theta
    surface = flat_surface(objective, theta, seed=seed + 400)
    spread = uncertainty(objective, theta, surface=surface, seed=seed)
    fitted = coefficients_of(
        objective.names, theta, spread=spread, scale=objective.scale, priors=objective.priors
    )
    by_name = {each.name: each for each in fitted}
    return tuple(
        by_name[name] if name in by_name else held_coefficient(name, objective.base) for name in COEFFICIENTS
    )


def _spread_of(around: Surroundings, *, seed: int) -> Uncertainty:
    """Return the spread of the coefficients."""
    objective, theta = around.at.objective, around.at.theta
    return uncertainty(objective, theta, surface=around.surface, seed=seed, scatter=around.scatter)


def _scatter(objective: FitObjective, theta: Floats, *, seed: int) -> Coefficient | None:
    """Return sigma, 0 unless its interval excludes 0; None if the traces do not determine it."""
    found = step_scatter(objective, theta, seed=seed)
    if found is None:
        return None
    value, low, high = found
    is_seen = low > 0
    return Coefficient(
        name="sigma",
        value=value if is_seen else 0.0,
        low=low,
        high=high,
        fitted=True,
        identifiable=is_seen,
        reason=None
        if is_seen
        else "too small to measure: outputs are too alike in length, or other variation is larger",
    )


def held_coefficient(name: str, latency: LatencyModel) -> Coefficient:
    """Return a coefficient that was not fitted."""
    return Coefficient(
        name=name,
        value=float(getattr(latency, name)),
        low=None,
        high=None,
        fitted=False,
        identifiable=False,
        reason="held at the configured value",
    )
