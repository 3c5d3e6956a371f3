"""The ranges of drawn runs beside plain second versions: counted requests and sorted lists."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from replay.twin.fitted.fitted_range import (
    BEYOND,
    ENOUGH,
    NAMES,
    FittedRange,
    Range,
    extrapolation_note,
    range_of,
    range_of_run,
    ways_beyond,
)
from tests.examples import few_or_all
from traces import ClosedLoop, Header, Trace, fewest_beyond, make_trace

S = 1_000_000
Requests = list[dict[str, Any]]


def drawn_requests(rng: random.Random, *, num: int, spread_s: float) -> Requests:
    """Return requests of one run: sent within a time, some queueing, some that failed or whose answer is not known."""
    return [
        {
            "sent": round(rng.random() * spread_s * S),
            "queued": rng.choice([0, rng.randint(1, S)]),
            "took": rng.randint(S, 3 * S),
            "prompt": rng.randint(1, 5000),
            "output": rng.randint(2, 400),
            "ok": rng.random() < 0.9,
            "instance": rng.choice(["a", "a", "a", "b", None]),
            "chosen": rng.random() < 0.7,
        }
        for _ in range(num)
    ]


def trace_of(requests: Requests, *, has_instances: bool = False, loop: bool = False) -> Trace:
    columns: dict[str, Any] = {
        "request_id": [str(number) for number in range(len(requests))],
        "arrival_time_us": [each["sent"] for each in requests],
        "send_time_us": [each["sent"] for each in requests],
        "scheduled_time_us": [each["sent"] + each["queued"] for each in requests],
        "content_first_time_us": [each["sent"] + each["took"] if each["ok"] else None for each in requests],
        "last_token_time_us": [each["sent"] + each["took"] if each["ok"] else None for each in requests],
        "input_tokens": [each["prompt"] for each in requests],
        "output_tokens": [each["output"] for each in requests],
        "status": ["ok" if each["ok"] else "error" for each in requests],
    }
    if has_instances:
        columns["instance"] = [each["instance"] for each in requests]
    closed = ClosedLoop(concurrency=2) if loop else None
    return make_trace(Header(tool="vtwin", mode="simulated", closed_loop=closed), columns)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile, between the two nearest values in proportion."""
    values = sorted(values)
    place = percent / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def inner(values: list[float]) -> Range:
    return rounded(percentile(values, 1)), rounded(percentile(values, 99))


def widened(values: list[float]) -> Range:
    """Return the ends of the intervals of both percentiles; of few values by Weissman's estimate."""
    values, fewest = sorted(values), int(fewest_beyond(len(values)))
    if fewest >= 1:
        return rounded(values[fewest - 1]), rounded(values[-fewest])
    most, num_largest = values[-1], math.isqrt(len(values))
    if len(values) >= ENOUGH:
        threshold = values[-num_largest - 1]
        index = sum(math.log(each / threshold) for each in values[-num_largest:]) / num_largest
        index *= 1 + 1 / math.sqrt(num_largest)
        most = max(most, threshold * (max(100 * num_largest / len(values), 1)) ** index)
    return rounded(values[0]), rounded(most)


def running(requests: Requests, among: Requests) -> list[float]:
    """Return how many of ``among`` run when each request is sent: begun, and not ended."""
    found = []
    for each in requests:
        now = each["sent"]
        begun = [other for other in among if other["sent"] + other["queued"] <= now]
        ended = [other for other in among if other["sent"] + other["took"] <= now]
        found.append(float(max(len(begun) - len(ended), 1)))
    return found


def rate(requests: Requests) -> Range | None:
    """Return the gaps between requests over their time, if that is longer than half of the answers took."""
    sent = [each["sent"] for each in requests]
    span = max(sent) - min(sent)
    took = [each["took"] for each in requests if each["ok"]]
    if span <= (float(np.median(took)) if took else 0.0):
        return None
    found = rounded((len(sent) - 1) / (span / S))
    return found, found


@pytest.mark.parametrize("is_fitted", [False, True])
def test_a_run_s_range_is_counted_request_by_request(is_fitted: bool) -> None:
    ends = widened if is_fitted else inner
    for seed in range(few_or_all(25, 1000)):
        rng = random.Random(seed)
        num = rng.choice([2, 3, ENOUGH - 1, ENOUGH, 40, 400])
        requests = drawn_requests(rng, num=num, spread_s=rng.choice([2, 30]))
        looped, whole = rng.random() < 0.2, rng.random() < 0.5
        chosen = None if whole else np.array([each["chosen"] for each in requests])
        kept = [each for each in requests if each["ok"] and (whole or each["chosen"])]
        found = range_of([trace_of(requests, loop=looped)], [chosen], is_fitted=is_fitted)
        if not kept:
            assert found.is_empty()
            continue
        assert found.rate_per_s == (None if looped else rate(kept)), seed
        assert found.prompt_tokens == ends([each["prompt"] for each in kept]), seed
        assert found.output_tokens == ends([each["output"] for each in kept])
        assert found.concurrency == ends(running(kept, [each for each in requests if each["ok"]]))


def test_a_cluster_s_range_is_that_of_its_instances_from_the_lowest_to_the_highest() -> None:
    for seed in range(few_or_all(25, 1000)):
        rng = random.Random(seed)
        requests = drawn_requests(rng, num=rng.choice([1, 5, 30, 80]), spread_s=rng.choice([2, 30]))
        looped = rng.random() < 0.2
        found = range_of_run(trace_of(requests, has_instances=True, loop=looped))
        kept = [each for each in requests if each["ok"] and each["instance"]]
        span = max((each["sent"] for each in kept), default=0) - min(
            (each["sent"] for each in kept), default=0
        )
        parts = [part for name in "ab" if (part := [each for each in kept if each["instance"] == name])]
        rates: list[Range | None] = []
        for part in parts:
            few = rounded(len(part) / (span / S)) if span else None
            rates.append(rate(part) if len(part) >= ENOUGH else None if few is None else (few, few))
        known = [] if looped else [each for each in rates if each is not None]
        for name, ranges in (
            ("rate_per_s", known),
            ("prompt_tokens", [inner([each["prompt"] for each in part]) for part in parts]),
            ("output_tokens", [inner([each["output"] for each in part]) for part in parts]),
            ("concurrency", [inner(running(part, part)) for part in parts]),
        ):
            expected = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
            assert getattr(found, name) == expected, (seed, name)


def test_each_way_beyond_is_told_with_its_factor() -> None:
    for seed in range(few_or_all(60, 1000)):
        rng = random.Random(seed)
        fitted, run = (
            FittedRange(
                **{name: rng.choice([None, (0.0, rng.choice([0.0, 10.0, 11.0, 37.5]))]) for name in NAMES}
            )
            for _ in range(2)
        )
        told = []
        for name, (what, unit) in NAMES.items():
            seen, asked = getattr(fitted, name), getattr(run, name)
            if seen and asked and seen[1] > 0 and asked[1] >= BEYOND * seen[1]:
                told.append(
                    f"{what} by a factor {asked[1] / seen[1]:.1f} ({asked[1]:.4g} {unit}, fitted up to {seen[1]:.4g})"
                )
        assert ways_beyond(fitted, run) == told
        expected = f"extrapolated beyond the fit, here: {', '.join(told)}" if told else None
        assert extrapolation_note(fitted, run, where="here") == expected
