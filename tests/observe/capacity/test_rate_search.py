"""The search on simulated servers of known capacity, and on servers that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from observe.capacity.rate_search import MOST_STEPS, FoundRate, NextRate, RateSearch, SeenStep
from observe.judged.criteria import Criterion, criteria_of
from observe.judged.judged_step import StepAnswers, StepVerdict, judge
from observe.judged.sequential_test import ShareBeyond
from observe.judged.step_watch import FIRST_LOOK, FURTHER, answers_of
from replay import run
from tests.examples import few_or_all
from tests.twins import SIXTY_FOUR_SEATS
from traces.workload import WorkloadOptions, trace_from_options

SLO = "ttft_p99=500ms"
CRITERIA = criteria_of(SLO)
LOAD = WorkloadOptions(prompt_tokens=300, output_tokens=100, prompt_tokens_stdev=150, output_tokens_stdev=50)
PER_STEP = 30_000
SEEDS = few_or_all(3, 20)
WITHIN = 0.03

Observe = Callable[[NextRate, int], StepVerdict]


def searched(
    observe: Observe, *, begin: float, is_near: bool = False, criteria: tuple[Criterion, ...] = CRITERIA
) -> tuple[FoundRate, list[SeenStep]]:
    """Return what a search finds, and its steps. ``observe``: what to observe and the step's number to its verdict."""
    search = RateSearch(criteria=criteria, begin_per_s=begin, is_near=is_near)
    steps: list[SeenStep] = []
    while (following := search.next_rate(steps)) is not None:
        verdict = observe(following, len(steps))
        steps.append(
            SeenStep(rate_per_s=following.rate_per_s, verdict=verdict, is_met=verdict.best_guess(criteria))
        )
    return search.found(steps), steps


def first_of(answers: StepAnswers, number: int) -> StepAnswers:
    ratios = {name: values[:number] for name, values in answers.ratios.items()}
    return StepAnswers(send_us=answers.send_us[:number], end_us=answers.end_us[:number], ratios=ratios)


def looked_at(answers: StepAnswers) -> StepVerdict:
    """Return the verdict at the look that ends the step, as a step under way is looked at."""
    number = FIRST_LOOK
    while number < len(answers.send_us):
        verdict = judge(first_of(answers, number), CRITERIA)
        if verdict.is_met is not None:
            return verdict
        number = int(FURTHER * number) + 1
    return judge(answers, CRITERIA)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "twin.yaml"
    path.write_text(SIXTY_FOUR_SEATS)
    return path


def simulated(twin: Path, rate: float, *, number: int, seed: int) -> StepAnswers:
    trace = trace_from_options(replace(LOAD, rate=rate, num_requests=number, seed=seed))
    return answers_of(run(trace, twin).trace, CRITERIA)


@pytest.fixture(scope="module")
def capacity(twin: Path) -> float:
    """The highest rate within the SLO in the long run, by bisection over runs of 200,000 requests."""
    low, high = 30.0, 60.0
    while high / low > 1.002:
        middle = float(np.sqrt(low * high))
        ratios = simulated(twin, middle, number=200_000, seed=77).ratios["ttft_p99"][20_000:]
        low, high = (middle, high) if np.mean(ratios > 1) <= 0.01 else (low, middle)
    return low


@pytest.mark.parametrize("is_near", [True, False])
def test_the_capacity_is_found_within_three_percent_in_at_most_eight_steps(
    twin: Path, capacity: float, *, is_near: bool
) -> None:
    generator = np.random.default_rng(1)
    errors = []
    for seed in range(1, SEEDS + 1):
        off = 0.05 * generator.standard_normal() if is_near else generator.uniform(-0.7, 0.4)
        found, steps = searched(
            lambda following, step, seed=seed: looked_at(  # type: ignore[misc]
                simulated(
                    twin,
                    following.rate_per_s,
                    number=round(following.effort * PER_STEP),
                    seed=1000 * seed + step,
                )
            ),
            begin=capacity * float(np.exp(off)),
            is_near=is_near,
        )
        assert len(steps) <= MOST_STEPS
        assert found.rate_per_s is not None
        assert found.limiting in {"ttft_p99", "throughput"}
        errors.append(found.rate_per_s / capacity - 1)
    assert np.abs(errors).max() <= WITHIN, np.round(errors, 3)


@pytest.mark.parametrize(
    ("share", "most_wrong"), [(0.7, 0), (0.9, 0), (0.97, 1), (1.03, 1), (1.1, 0), (1.3, 0)]
)
def test_a_step_is_rarely_surely_wrong(twin: Path, capacity: float, share: float, most_wrong: int) -> None:
    found = [
        looked_at(simulated(twin, share * capacity, number=10_000, seed=seed))
        for seed in range(few_or_all(8, 20))
    ]
    wrong = sum(each.is_met is not None and each.is_met != (share < 1) for each in found)
    assert wrong <= most_wrong


# -- servers that misbehave -----------------------------------------------------------------------------------


def verdict(beyond_frac: float, *, is_behind: bool = False) -> StepVerdict:
    """Return what a long step sees."""
    shares = {
        "ttft_p99": ShareBeyond(beyond_frac=beyond_frac, worth=2000.0, is_met=None),
        "failed": ShareBeyond(beyond_frac=0.0, worth=2000.0, is_met=True),
    }
    is_met = None if 0.006 < beyond_frac < 0.015 else beyond_frac <= 0.01
    return StepVerdict(
        is_met=False if is_behind else is_met,
        shares=shares,
        grown_frac=0.1 if is_behind else 0.0,
        is_behind=is_behind,
        is_too_short=False,
        slow_start_us=None,
        answered_per_s=100.0 if is_behind else None,
        num_judged=24_000,
    )


def at(rate: float, *, capacity: float) -> StepVerdict:
    """Return what a server shows at a rate: the logit of the share is a line over the rate's logarithm."""
    logit = np.log(0.01 / 0.99) + 40 * np.log(rate / capacity)
    return verdict(float(1 / (1 + np.exp(-logit))))


def test_a_plain_server_is_found_and_recovers() -> None:
    found, steps = searched(lambda following, _: at(following.rate_per_s, capacity=14.2), begin=10.0)
    assert found.rate_per_s == pytest.approx(14.2, rel=0.01)
    assert found.is_narrow
    assert found.recovers is True
    assert found.limiting == "ttft_p99"
    assert len(steps) <= MOST_STEPS


def test_no_rate_is_believed_below_one_that_was_surely_kept() -> None:
    search = RateSearch(criteria=CRITERIA, begin_per_s=5.0)
    steps = [
        SeenStep(rate_per_s=rate, verdict=verdict(beyond), is_met=beyond < 0.01)
        for rate, beyond in ((5.0, 0.0), (8.0, 0.004), (20.0, 0.9), (5.2, 0.5), (5.4, 0.5))
    ]
    believed = search.belief(steps[:3])
    assert 8.0 <= believed.rate_per_s <= 20.0
    contradicted = [steps[1], SeenStep(rate_per_s=12.0, verdict=verdict(0.9), is_met=False)]
    far = RateSearch(criteria=CRITERIA, begin_per_s=0.5, is_near=True)
    assert 8.0 <= far.belief(contradicted).rate_per_s <= 12.0


def test_a_server_that_does_not_recover_from_an_overload_is_told() -> None:
    was_overloaded = False

    def observe(following: NextRate, _: int) -> StepVerdict:
        nonlocal was_overloaded
        seen = at(following.rate_per_s, capacity=3.0 if was_overloaded else 14.2)
        was_overloaded |= seen.is_met is False
        return seen

    found, steps = searched(observe, begin=10.0)
    assert found.recovers is False
    assert steps[-1].rate_per_s <= 13
    assert len(steps) <= MOST_STEPS


def test_a_server_that_no_rate_breaks_is_told_as_at_least() -> None:
    found, steps = searched(lambda *_: verdict(0.0), begin=10.0)
    assert len(steps) == MOST_STEPS
    assert found.high is None
    assert found.rate_per_s == steps[-1].rate_per_s > 500


def test_a_server_that_breaks_at_every_rate_has_none() -> None:
    found, steps = searched(lambda *_: verdict(0.5), begin=10.0)
    assert found.rate_per_s is None
    assert found.limiting == "ttft_p99"
    assert len(steps) == MOST_STEPS


def test_a_server_that_is_too_slow_when_idle_is_not_asked_for_long() -> None:
    found, steps = searched(lambda *_: verdict(0.97), begin=10.0)
    assert found.rate_per_s is None
    assert [each.rate_per_s for each in steps] == [10.0, 1.0]


def test_an_overloaded_server_tells_where_to_look() -> None:
    _, steps = searched(
        lambda following, _: (
            verdict(0.5, is_behind=True)
            if following.rate_per_s > 100
            else at(following.rate_per_s, capacity=95)
        ),
        begin=400,
    )
    assert steps[1].rate_per_s == pytest.approx(95)
