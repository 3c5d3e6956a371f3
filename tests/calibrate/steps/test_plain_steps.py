"""Steps against plain second versions: drawn logs read step by step, the model's clock, and what a fit minimizes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, least_squares

from calibrate.fit.objective.coefficients import decimals_of
from calibrate.fit.objective.fit_trace import LOSS_METRICS, fit_trace
from calibrate.fit.objective.objective import robust
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD, Prior, proportions, with_priors
from calibrate.fit.pipeline import SPARE_DECIMALS
from calibrate.steps.step_fit import (
    LEAST_SHARE,
    NAMES,
    NOISE,
    REPLICATES,
    START_KAPPA,
    _off,
    _StepTask,
    _straight_line,
    fit_steps,
)
from calibrate.steps.step_model import predicted_us
from calibrate.steps.step_series import LONGEST_US, MOST_TOGETHER, StepSeries, _series
from calibrate.steps.way_in import _ttft_of, fit_way_in
from sim import Blackbox, Extended
from sim.latency import throttled_us
from tests.calibrate.compare.drawn import draw_counts
from tests.calibrate.known_servers import SERVER, observed, workload
from tests.examples import few_or_all
from traces import TraceError
from traces.statistics.bootstrap import Floats, block_length, generator_of
from traces.steps import LoggedSteps

GPU = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY}


@dataclass
class Step:
    """One line of a log: its count, its prompts as (cached, new) tokens, how many decode, and its times in µs."""

    number: int
    prompts: list[tuple[int, int]]
    decoding: int
    took: float
    end: float

    @property
    def new(self) -> int:
        return sum(new for _, new in self.prompts)

    @property
    def works(self) -> bool:
        return self.new + self.decoding > 0


def drawn_steps(rng: random.Random, num: int) -> list[Step]:
    """Return steps with and without prompts, idle ones, gaps in their count, and times that are none."""
    steps: list[Step] = []
    number, end = 0, 1e9
    busy = rng.random()
    for _ in range(num):
        number += rng.choice([1] * 9 + [3])
        length, cached = rng.randint(1, 30), rng.choice([0, 16])
        prompts = [(cached, length)] * rng.randint(1, 3) if rng.random() < busy else []
        decoding = rng.randint(0, 4)
        took = rng.choice([0.0, LONGEST_US] + [float(rng.randint(1, 9999))] * 8)
        end += took
        steps.append(Step(number, prompts, decoding, took, end))
    return steps


def logged(steps: list[Step], *, whole: bool, ends: bool, contexts: bool) -> LoggedSteps:
    """Return the log of these steps; ``contexts``: with what forward-pass metrics say beyond vLLM's own log."""
    decoding = np.array([float(step.decoding) for step in steps])
    end = np.array([step.end if ends else np.nan for step in steps])
    return LoggedSteps(
        engine=np.zeros(len(steps)),
        number=np.array([float(step.number) for step in steps]),
        prefill_requests=np.array([float(len(step.prompts)) for step in steps]),
        prefill_tokens=np.array([float(step.new) for step in steps]),
        decode_requests=decoding,
        decode_tokens=decoding,
        duration_us=np.array([step.took for step in steps]),
        end_us=end,
        prefill_cached=np.array([float(sum(cached for cached, _ in step.prompts)) for step in steps])
        if contexts
        else None,
        decode_context=decoding * 100 if contexts else None,
        prompt_variance=np.array(
            [float(np.var([new for _, new in step.prompts])) if step.prompts else 0.0 for step in steps]
        )
        if contexts
        else None,
        is_whole=whole,
    )


@pytest.mark.parametrize("contexts", [False, True])
@pytest.mark.parametrize(("whole", "ends"), [(True, True), (False, True), (False, False)])
def test_a_log_is_read_step_by_step(whole: bool, ends: bool, contexts: bool) -> None:
    for seed in range(few_or_all(40, 1000)):
        rng = random.Random(seed)
        steps = drawn_steps(rng, rng.randint(1, 40))
        found = _series(logged(steps, whole=whole, ends=ends, contexts=contexts))
        follows = [False] + [b.number - a.number == 1 and a.works for a, b in pairwise(steps)]
        working = [(step, after) for step, after in zip(steps, follows, strict=True) if step.works]
        took = [step.took for step, _ in working]
        if ends and not whole:
            took = [math.nan] + [b.end - a.end for (a, _), (b, _) in pairwise(working)]
            known = [after and step.decoding > 0 for step, after in working]
            took = [each if is_known else math.nan for each, is_known in zip(took, known, strict=True)]
        took = [each if 0 < each < LONGEST_US else math.nan for each in took]
        groups: list[list[int]] = []
        for place, (step, after) in enumerate(working):
            if (whole or ends) and step.new and after and len(groups[-1]) < MOST_TOGETHER:
                groups[-1].append(place)
            else:
                groups.append([place])
        end = [step.end for step, _ in working]
        if not ends:
            end = np.cumsum([0.0 if math.isnan(each) else each for each in took]).tolist()
        begin = [b - t if after else math.nan for b, t, (_, after) in zip(end, took, working, strict=True)]
        assert found.group.tolist() == [at for at, group in enumerate(groups) for _ in group], seed
        np.testing.assert_array_equal(found.took_us, [sum(took[at] for at in group) for group in groups])
        assert found.has_prompts.tolist() == [any(working[at][0].new for at in group) for group in groups]
        np.testing.assert_array_equal(found.end_us, end)
        np.testing.assert_array_equal(found.begin_us, begin)
        assert_batch(found, [step for step, _ in working], contexts=contexts)


def assert_batch(found: StepSeries, steps: list[Step], *, contexts: bool) -> None:
    """Compare what is in the steps with sums over their prompts, and over the requests that decode."""
    batch = found.batch
    assert batch.num_prefill_tokens.tolist() == [step.new for step in steps]
    assert batch.num_decode_tokens.tolist() == [step.decoding for step in steps]
    assert batch.num_prefill_seqs.tolist() == [len(step.prompts) for step in steps]
    known = [[(cached * contexts, new) for cached, new in step.prompts] for step in steps]
    assert batch.prefill_context_tokens.tolist() == [sum(map(sum, prompts)) for prompts in known]
    pairs = [sum(new * cached + new * (new + 1) // 2 for cached, new in prompts) for prompts in known]
    assert batch.prefill_pairs.tolist() == pairs
    read: list[float] = []
    lengths = [new for step in steps for _, new in step.prompts]
    usual = sum(lengths) / max(len(lengths), 1)
    decoding: list[float] = []  # tokens of each request that decodes, the oldest first
    for step in steps:
        decoding = decoding[max(len(decoding) - step.decoding, 0) :]
        decoding += [usual] * (step.decoding - len(decoding))
        decoding = [tokens + 1 for tokens in decoding]
        read.append(sum(decoding))
        decoding += [float(new) for _, new in step.prompts]
    read = [step.decoding * 100.0 for step in steps] if contexts else read
    assert batch.decode_context_tokens == pytest.approx(read, abs=0.501)


def made(steps: list[Step]) -> StepSeries:
    return _series(logged(steps, whole=True, ends=True, contexts=True))


def test_the_clock_s_slow_state_is_carried_from_step_to_step() -> None:
    for seed in range(few_or_all(20, 500)):
        rng = random.Random(seed)
        model = Extended(
            beta0=rng.choice([0, 500]),
            beta1=rng.choice([0, 30]),
            beta2=rng.choice([0, 200]),
            floor=rng.choice([0, 2000]),
            kappa=rng.choice([0.0, 0.8]),
            u0=rng.choice([0.0, 0.3]),
            tau_s=rng.choice([0.005, 0.05]),
        )
        series = made(drawn_steps(rng, 12))
        compute = model.compute_us(series.batch)
        alone = model.slowed_us(series.batch, np.ones(len(series)))
        tau_us, duty, before = model.tau_s * 1e6, 0.0, -math.inf
        slowed = []
        for at, (begin, end) in enumerate(zip(series.begin_us, series.end_us, strict=True)):
            start = begin if begin == begin else max(end - alone[at], before)  # noqa: PLR0124
            if start > before:
                duty *= math.exp((before - start) / tau_us)
            busy = throttled_us(compute[at], duty, model.kappa, model.u0, tau_us)
            slowed.append(busy / compute[at] if compute[at] > 0 else 1.0)
            took = max(end - start, 1.0)
            share = min(busy / took, 1.0) if compute[at] > 0 else 0.0
            duty = share + (duty - share) * math.exp(-took / tau_us)
            before = end
        expected = model.slowed_us(series.batch, np.array(slowed))
        assert predicted_us(model, series) == pytest.approx(expected, rel=1e-9), seed


def line_of(beta0: float, beta1: float, beta2: float, *, decodes: bool = True) -> list[StepSeries]:
    """Return two engines' steps whose times are a straight line in their tokens."""
    found = []
    for engine in range(2):
        rng = random.Random(engine)
        steps, end = [], 1e9
        for number in range(60):
            prompts = [(0, rng.randint(1, 90))] * (number % 4 == 1 or not decodes)
            decoding = rng.randint(1, 40) * decodes
            took = beta0 + beta1 * sum(new for _, new in prompts) + beta2 * decoding
            end += took
            steps.append(Step(number, prompts, decoding, took, end))
        found.append(made(steps))
    return found


def test_a_straight_line_through_the_times_is_found_and_each_slope_is_above_0() -> None:
    found = _straight_line(line_of(5000, 30, 100))
    assert found == pytest.approx({"beta0": 5000, "beta1": 30, "beta2": 100}, rel=1e-4)
    alone = line_of(5000, 30, 0, decodes=False)
    took = np.median(np.concatenate([log.took_us for log in alone]))
    assert _straight_line(alone)["beta2"] == pytest.approx(0.02 * took, rel=1e-6)


@pytest.mark.parametrize("priors", [{}, GPU, {"floor": Prior(centre=1e9, width=1.0, source="made")}])
def test_a_search_begins_at_the_line_and_is_scaled_by_what_is_known(priors: dict[str, object]) -> None:
    task = _StepTask.of(line_of(5000, 30, 100), Blackbox(alpha0=9, alpha3=7), priors)  # type: ignore[arg-type]
    known = with_priors(proportions(beta1=30, step_us=5000), priors)  # type: ignore[arg-type]
    decodes = np.concatenate([log.batch.num_decode_tokens for log in task.logs]).mean()
    guess = {name: each.centre for name, each in known.items()}
    floor = min(guess["floor"], 4000)
    guess |= {
        "beta0": 5000 - floor,
        "beta1": 30,
        "beta2": 50 * decodes ** guess["concavity"],
        "floor": floor,
        "kappa": max(guess["kappa"], START_KAPPA),
    }
    scale = {name: each.width for name, each in known.items()}
    scale |= {"beta0": 5000, "beta1": 30, "beta2": 5000 / decodes, "floor": 5000}
    assert task.guess == pytest.approx([guess[name] for name in NAMES], rel=1e-3)
    assert task.scale == pytest.approx([max(scale[name], 1e-9) for name in NAMES], rel=1e-3)
    assert task.start() == pytest.approx(np.maximum(task.guess / task.scale, LEAST_SHARE))
    assert (task.base.alpha0, task.base.alpha3) == (9, 7)
    without = _StepTask.of(line_of(5000, 30, 0, decodes=False), Blackbox(), priors)  # type: ignore[arg-type]
    assert without.scale[NAMES.index("beta2")] == without.scale[NAMES.index("beta0")]


def test_what_is_minimized_is_the_robust_loss_of_times_and_priors() -> None:
    """A twentieth of each time's, and all of each prior's."""
    task = replace(_StepTask.of(line_of(5000, 30, 100), Blackbox(), GPU), noise=0.07)
    x = task.start() * 1.3
    model = task.model(x)
    observed, predicted, prompts = [], [], []
    for log in task.logs:
        observed += log.took_us[log.known()].tolist()
        predicted += log.summed(predicted_us(model, log))[log.known()].tolist()
        prompts += log.has_prompts[log.known()].tolist()
    ratio = np.log(np.array(predicted) / np.array(observed))
    assert task.ratios(x) == pytest.approx(ratio)
    assert task.took_us().tolist() == observed
    assert task.has_prompts().tolist() == prompts
    off = [
        (value - prior.centre) / prior.width
        for value, prior in ((x[NAMES.index(name)] * task.scale[NAMES.index(name)], prior)
        for name, prior in task.priors.items() if name in NAMES)
    ]  # fmt: skip
    loss = robust(ratio / 0.07).sum() / 20 + robust(np.array(off)).sum()
    assert (task.residuals(x) ** 2).sum() == pytest.approx(loss)
    assert np.sign(task.residuals(x)[: len(ratio)]).tolist() == np.sign(ratio).tolist()
    assert task.spread(x) == pytest.approx(np.median(np.abs(ratio)) / 0.6745, rel=1e-3)


def assert_refits_move_alike(task: _StepTask, found: OptimizeResult, replicates: Floats) -> None:
    """Fit again to the times drawn anew, with the priors moved, and compare with the one step of a replicate."""
    num_times = len(task.took_us())
    slopes = found.jac[:num_times] * found.fun[:num_times, None]
    block = max(block_length(column) for column in slopes.T)
    counts = draw_counts(num_times, block, replicates=REPLICATES, seed=3, stream=8600)
    moved = generator_of(3, 8601).normal(size=(REPLICATES, len(found.fun) - num_times))
    low, high = task.limits()
    free = (low + 0.05 < found.x) & (found.x < high - 0.05)
    for number in range(3):

        def weighed(x: Floats, number: int = number) -> Floats:
            off = task.residuals(x)
            return np.concatenate(
                [off[:num_times] * np.sqrt(counts[number]), off[num_times:] + moved[number]]
            )

        again = least_squares(weighed, found.x, bounds=(low, high), xtol=1e-6, ftol=1e-6)
        moves = (again.x - found.x)[free], (replicates[number] - found.x)[free]
        assert np.corrcoef(*moves)[0, 1] > 0.8


def test_the_spread_of_the_coefficients_is_that_of_their_slopes() -> None:
    task = _StepTask.of(line_of(5000, 30, 100), Blackbox(), GPU)
    rng = np.random.default_rng(1)
    logs = tuple(
        replace(log, took_us=log.took_us * rng.lognormal(0, NOISE, len(log.took_us))) for log in task.logs
    )
    task = replace(task, logs=logs)
    found = task.solved(task.start())
    spread = task.uncertainty(found, seed=3)
    assert_refits_move_alike(task, found, spread.replicates / task.scale)
    num_times = sum(int(log.known().sum()) for log in logs)
    slopes, pulls = found.jac[:num_times], found.jac[num_times:]
    singular = np.linalg.svd(slopes, compute_uv=False)
    least = math.sqrt(singular[-1] ** 2 + 1e-9)
    assert spread.condition_number == pytest.approx(singular[0] / least, rel=0.05)
    inverse = np.linalg.pinv(slopes.T @ slopes + pulls.T @ pulls, rcond=1e-15)
    shares = [float((pull**2).sum() * inverse[j, j]) for j, pull in enumerate(pulls.T)]
    assert spread.prior_share == pytest.approx(np.clip(shares, 0, 1), abs=1e-3)
    deviation = np.sqrt(np.diag(spread.covariance))
    of_data = slopes * found.fun[:num_times, None]
    expected = inverse @ (of_data.T @ of_data + pulls.T @ pulls) @ inverse
    assert deviation == pytest.approx(np.sqrt(np.diag(expected)) * task.scale, rel=0.25)
    moves = deviation > 1e-6 * task.scale
    correlation = spread.covariance / np.outer(deviation, deviation)
    assert spread.correlation[np.ix_(moves, moves)] == pytest.approx(
        correlation[np.ix_(moves, moves)], abs=0.02
    )
    low, high = (each * task.scale for each in task.limits())
    assert ((spread.replicates >= low) & (spread.replicates <= high)).all()
    centre = found.x * task.scale
    free = (centre - low > 4 * deviation) & (high - centre > 4 * deviation)
    assert free.sum() >= 2
    assert spread.replicates.mean(axis=0)[free] == pytest.approx(
        centre[free], abs=0.15 * deviation[free].max()
    )


def test_what_a_prior_pulls_against_is_no_error_of_the_coefficients() -> None:
    """A floor that is expected far from where the times put it: replicates lie around what was found all the same."""
    far = {"floor": Prior(centre=500.0, width=50.0, source="made")}
    task = _StepTask.of(line_of(5000, 30, 100), Blackbox(), far)
    found = task.solved(task.start())
    spread = task.uncertainty(found, seed=3)
    deviation = np.sqrt(np.diag(spread.covariance))
    off = (spread.replicates.mean(axis=0) - found.x * task.scale) / deviation
    assert np.abs(off[NAMES.index("beta0")]) < 0.15


def test_all_predicted_time_over_all_observed_less_1() -> None:
    took, predicted = np.array([10.0, 40.0, 50.0]), np.array([20.0, 40.0, 50.0])
    assert _off(np.log(predicted / took), took) == pytest.approx(0.1)
    assert _off(np.zeros(0), np.zeros(0)) == 0


def test_a_fit_says_how_far_it_is_off() -> None:
    logs = line_of(5000, 30, 100)
    logs[0] = replace(
        logs[0], took_us=logs[0].took_us * np.where(np.arange(len(logs[0].took_us)) % 5, 1, 1.3)
    )
    found = fit_steps(logs, Blackbox(alpha0=3), priors=GPU)
    by_name = {each.name: each.value for each in found.coefficients}
    ratio, prompts, took = [], [], []
    for log in logs:
        known = log.known()
        ratio.append(np.log(log.summed(predicted_us(found.model, log))[known] / log.took_us[known]))
        prompts.append(log.has_prompts[known])
        took.append(log.took_us[known])
    off, has, all_us = np.concatenate(ratio), np.concatenate(prompts), np.concatenate(took)
    assert (found.num_steps, found.num_known) == (sum(map(len, logs)), len(off))
    for said, rows in ((found.decode_off, ~has), (found.prefill_off, has)):
        assert said == pytest.approx(_off(off[rows], all_us[rows]), abs=1e-3)
    for said, rows in ((found.decode_mape, ~has), (found.prefill_mape, has)):
        assert said == pytest.approx(np.abs(np.exp(off[rows]) - 1).mean(), rel=0.02, abs=1e-3)
    assert found.loss == pytest.approx(robust(off / NOISE).mean(), rel=0.05)
    assert found.converged
    assert 0 < found.seconds < 60
    for name, value in by_name.items():
        assert getattr(found.model, name) == round(value, decimals_of(name) - SPARE_DECIMALS)
    with_prompts = line_of(5000, 30, 0, decodes=False)
    assert fit_steps(with_prompts, Blackbox(), priors={}).decode_mape == 0


def test_only_the_ttft_takes_part_in_the_way_in() -> None:
    trace = fit_trace(observed(workload(30, rate=6, seed=6), SERVER, noise=0.05), SERVER, name="made")
    found = _ttft_of(trace).observed_us
    at = LOSS_METRICS.index("ttft_us")
    np.testing.assert_array_equal(found[at], trace.observed_us[at])
    assert np.isnan(np.delete(found, at, axis=0)).all()
    none = replace(trace, observed_us=np.full_like(trace.observed_us, np.nan))
    with pytest.raises(TraceError, match="--steps: got 0 requests with a TTFT, expected at least 20"):
        fit_way_in([none], SERVER, SERVER.latency, seed=1, report=lambda _stage, _loss: None)


class Begun(Exception):  # noqa: N818 - no fault
    """The search for the way in has begun."""


def test_as_many_requests_as_must_be_are_enough_for_the_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        raise Begun

    monkeypatch.setattr("calibrate.steps.way_in.descend", begun)
    for number, expected in ((20, Begun), (19, TraceError)):
        made = fit_trace(observed(workload(number, rate=6, seed=6), SERVER, noise=0.05), SERVER, name="made")
        with pytest.raises(expected):
            fit_way_in([made], SERVER, SERVER.latency, seed=1, report=lambda _stage, _loss: None)
