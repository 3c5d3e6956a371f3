"""Findings beside plain second versions: drawn runs judged request by request, percentiles by scipy's binomial."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from tests.examples import few_or_all
from tests.traces.measured.test_stream_shape import answers
from traces import ClientInfo, ClosedLoop, CounterReading, Header, Trace, make_trace
from traces.findings.cold_start import ColdStart, cold_start
from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac
from traces.findings.tail_precision import precision_of, tail_precision
from traces.findings.warm_cache import MORE, MORE_OF_SHARED, warm_cache

MS = 1000
Requests = list[dict[str, Any]]


def percentile(values: list[float], share: float) -> float:
    """Return a percentile, between the two nearest values in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def trace_of(requests: Requests, *, loop: int | None = None) -> Trace:
    columns: dict[str, Any] = {
        "request_id": [str(number) for number in range(len(requests))],
        "arrival_time_us": [each["sent"] for each in requests],
        "send_time_us": [each["sent"] for each in requests],
        "connection_wait_us": [each["wait"] for each in requests],
        "content_first_time_us": [each["sent"] + each["ttft"] if each["ok"] else None for each in requests],
        "last_token_time_us": [
            each["sent"] + each["ttft"] + 1000 * MS if each["ok"] else None for each in requests
        ],
        "input_tokens": [each["prompt"] for each in requests],
        "output_tokens": [50] * len(requests),
        "status": ["ok" if each["ok"] else "error" for each in requests],
    }
    closed = None if loop is None else ClosedLoop(concurrency=loop)
    return make_trace(Header(tool="vtwin", mode="real", closed_loop=closed), columns)


def plain_cold_start(requests: Requests, loop: int | None) -> ColdStart | None:
    """Return how many of the first requests were slower than 90 % of the later ones with prompts as long."""
    run = sorted((each for each in requests if each["ok"]), key=lambda each: each["sent"])
    times = [max(each["ttft"] - each["wait"], 0) for each in run]
    half = len(run) // 2
    if len(run) < 20:
        return None

    def is_slow(number: int, factor: float) -> bool:
        alike = [
            us
            for us, each in zip(times[half:], run[half:], strict=True)
            if each["prompt"] >= 0.9 * run[number]["prompt"]
        ]
        if len(alike) < 5:
            return False
        usual = percentile(alike, 0.9)
        return usual > 0 and times[number] > usual + 5 * MS and times[number] / usual > factor

    num = 0
    if loop is not None:
        fastest = min(range(min(loop, half)), key=times.__getitem__)
        num = loop if loop <= half and is_slow(fastest, 2) else 0
    elif is_slow(0, 4) or (is_slow(0, 2) and is_slow(1, 2)):
        num = next((at for at in range(1, half) if not is_slow(at, 2)), half)
    if not num:
        return None
    middle = (
        percentile([float(each) for each in times[:num]], 0.5),
        percentile([float(each) for each in times[num:]], 0.5),
    )
    return ColdStart(num=num, of=len(run), ttft_us=middle[0], later_us=middle[1])


@pytest.mark.parametrize("loop", [None, 1, 3, 11])
def test_a_cold_start_is_judged_request_by_request(loop: int | None) -> None:
    found_any = 0
    for seed in range(few_or_all(60, 2000)):
        rng = random.Random(seed)
        usual, slow = (
            rng.choice([[10], [0], [4, 5], [10, 12]]),
            rng.choice([[21, 22], [9, 10], [40, 60], [100]]),
        )
        num_slow = rng.choice([0, 1, 2, 5, 12, 12])
        requests = [
            {
                "sent": number * 10 * MS,
                "ttft": rng.choice(slow if number < num_slow or rng.random() < 0.02 else usual) * MS,
                "wait": rng.choice([0, 0, 2 * MS, 50 * MS]),
                "prompt": rng.choice([100, 90, 89, rng.choice([100, 1000])]),
                "ok": rng.random() < 0.95,
            }
            for number in range(rng.choice([19, 20, 21, 30, 40, 40]))
        ]
        for each in requests:
            each["ttft"] += each["wait"] if rng.random() < 0.97 else 0
        rng.shuffle(requests)
        found = cold_start(trace_of(requests, loop=loop))
        assert found == plain_cold_start(requests, loop), seed
        found_any += found is not None
    assert found_any > 3


def plain_ceiling(requests: Requests, block: int) -> float | None:
    """Return the share of prompt tokens that came before, by sets of hashes and the longest prefix of each group."""
    known: set[str] = set()
    longest: dict[str, int] = {}
    found = 0
    for each in sorted(requests, key=lambda each: math.inf if each["sent"] is None else each["sent"]):
        leading = next((at for at, name in enumerate(each["path"]) if name not in known), len(each["path"]))
        known |= set(each["path"])
        prefix = 0
        if each["group"] is not None:
            prefix = min(each["prefix"], longest.get(each["group"], 0))
            longest[each["group"]] = max(each["prefix"], longest.get(each["group"], 0))
        said = each["prompt"] - each["new"] if each["new"] is not None and (each["round"] or 0) > 0 else 0
        each["said"] = said
        found += min(max(leading * block, prefix, said), each["prompt"])
    total = sum(each["prompt"] for each in requests)
    shares = any(each["path"] or each["group"] or each["said"] for each in requests)
    return found / total if total and shares else None


def drawn_prompts(rng: random.Random) -> Requests:
    has = {name: rng.random() < 0.5 for name in ("path", "group", "rounds")}
    requests = []
    for number in range(rng.randint(1, 8)):
        digits = "".join(rng.choice("01") for _ in range(rng.randint(0, 3) * has["path"]))
        group = rng.choice([None, "g", "h"]) if has["group"] else None
        requests.append(
            {
                "sent": rng.choice([None, rng.randint(0, 9)]) if has["rounds"] else rng.randint(0, 9),
                "path": [digits[: at + 1] for at in range(len(digits))],
                "group": group,
                "prefix": rng.randint(0, 30) if group else 0,
                "prompt": rng.choice([8, 30, 40]),
                "new": rng.choice([None, 1, 8]) if has["rounds"] else None,
                "round": rng.choice([0, 1, 2]) if has["rounds"] else None,
                "number": number,
            }
        )
    return requests


def prompts_trace(requests: Requests, block: int, **more: Any) -> Trace:  # noqa: ANN401
    columns: dict[str, Any] = {
        "request_id": [str(each["number"]) for each in requests],
        "arrival_time_us": [each["sent"] for each in requests],
        "input_tokens": [each["prompt"] for each in requests],
        "server_input_tokens": [each["prompt"] for each in requests],
        "output_tokens": [2] * len(requests),
        "prefix_group": [each["group"] for each in requests],
        "prefix_length": [each["prefix"] for each in requests],
        "prefix_hashes": [" ".join(each["path"]) or None for each in requests],
        "new_input_tokens": [each["new"] for each in requests],
        "round_index": [each["round"] for each in requests],
        **more,
    }
    return make_trace(Header(tool="vtwin", mode="real", hash_block_size=block), columns)


def test_what_an_unlimited_prefix_cache_would_find_is_counted_by_sets() -> None:
    for seed in range(few_or_all(120, 3000)):
        rng = random.Random(seed)
        requests, block = drawn_prompts(rng), rng.choice([4, 16])
        found = prefix_hit_ceiling_frac(prompts_trace(requests, block))
        assert found == (
            None if (plain := plain_ceiling(requests, block)) is None else pytest.approx(plain)
        ), seed


def test_a_warm_cache_is_what_was_found_beyond_what_the_load_repeats() -> None:
    found_any = 0
    for seed in range(few_or_all(120, 3000)):
        rng = random.Random(seed)
        requests = drawn_prompts(rng)
        for each in requests:
            each["ok"], each["attempt"] = rng.random() < 0.9, rng.choice([None, 1, 1, 2])
            each["cached"] = rng.choice([None, 0, 0, each["prompt"] // 2, each["prompt"]])
        if rng.random() < 0.5:
            requests = [
                each | {"cached": rng.choice([None, 0]), "attempt": None, "round": 0} for each in requests
            ]
        hits, queries, preempted = rng.randint(0, 40), rng.choice([0, 40]), rng.choice([0, 0, 0, 1])
        names = {"prefix_cache_hits": hits, "prefix_cache_queries": queries, "num_preemptions": preempted}
        deltas = {
            f'vllm:{name}_total{{engine="{engine}"}}': CounterReading(before=7, after=7 + by)
            for name, by in names.items()
            for engine in range(2)
        }
        trace = prompts_trace(
            requests,
            4,
            status=["ok" if each["ok"] else "error" for each in requests],
            attempt=[each["attempt"] for each in requests],
            cached_input_tokens=[each["cached"] for each in requests],
        ).with_header(client=ClientInfo(finished=True), metrics_delta=deltas)
        new = [each for each in requests if (each["round"] or 0) == 0 and (each["attempt"] or 1) == 1]
        chosen = [each for each in new if each["ok"]]
        prompt = sum(each["prompt"] for each in chosen)
        told = [each for each in chosen if each["cached"] is not None]
        share = sum(each["cached"] for each in told) / max(sum(each["prompt"] for each in told), 1)
        num, source = sum(each["cached"] > 0 for each in told), "usage"
        if num == 0 and len(new) == len(requests) and queries and hits <= queries and not preempted:
            share, num, source = hits / queries, len(chosen), "/metrics"
        shared = (plain_ceiling(chosen, 4) or 0.0) if chosen else 0.0
        own = sum(each["prompt"] + each["prefix"] for each in chosen)
        template = max(prompt - own, 0) / max(prompt, 1)
        is_warm = prompt > 0 and share - shared - template >= (MORE_OF_SHARED if shared else MORE)
        found = warm_cache(trace)
        assert (found is not None) == is_warm, seed
        if found is not None:
            assert (found.num, found.of, found.source) == (num, len(chosen), source)
            assert (found.found_frac, found.shared_frac) == pytest.approx((share, shared))
            found_any += 1
    assert found_any > 20


def scattered(values: NDArray[np.float64], level: float) -> float:
    """Return how much more the counts of largest values scatter over twenty batches than of independent values."""
    beyond = values > np.sort(values)[int(len(values) * (1 - level))]
    share = beyond.mean()
    if share == 0:
        return 1.0
    means = [float(part.mean()) for part in np.array_split(beyond, 20)]
    middle = sum(means) / 20
    return sum((each - middle) ** 2 for each in means) / 19 / 20 * len(values) / float(share * (1 - share))


def plain_precision(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the interval by the module's sources, with scipy's binomial distribution."""
    n, of_tail = len(values), scattered(values, 0.01)
    trust = min(n * 0.01 / max(of_tail, 1) / 20, 1)
    times = trust * of_tail + (1 - trust) * scattered(values, 0.1)
    worth = n / max(1 + (times - 1) * (2.093 / 1.96) ** 2, 1)
    chances = binom.cdf(np.arange(2000), max(round(worth), 1), 0.01)

    def at(chance: float) -> float:
        """Return the value of the rank from the top at which the chances pass this one."""
        rank = 1 + float(
            np.interp(
                chance,
                chances[: np.argmax(chances >= 1 - 1e-12) + 1],
                np.arange(np.argmax(chances >= 1 - 1e-12) + 1),
            )
        )
        share = 1 - (rank - 1) / max(worth - 1, 1)
        return percentile(values.tolist(), min(max(share, 0), 1))

    p99, is_open = percentile(values.tolist(), 0.99), chances[0] > 0.025
    low, high = at(0.95 if is_open else 0.975), None if is_open else at(0.025)
    number = None
    if p99 > 0:
        half = ((high - low) / 2 if high is not None else (p99 - low) * 1.96 / 1.645) / p99
        number = n * (half / 0.05) ** 2
        number = number if high is not None else max(number, n * 4 / (0.01 * worth))
    return {"n": n, "p99": p99, "low": min(low, p99), "high": None if high is None else max(high, p99),
            "num_effective": worth, "num_for_5_percent": number}  # fmt: skip


@pytest.mark.parametrize("n", [40, 200, 367, 500, 3000])
def test_a_p99_s_interval_is_that_of_the_binomial_distribution(n: int) -> None:
    for seed in range(few_or_all(8, 200)):
        rng = np.random.default_rng(seed)
        values = rng.exponential(100, n)
        if seed % 2:
            values = np.convolve(values, np.ones(8), "same")
        if seed % 4 == 3:
            values = np.round(values, -2) * (seed % 8 == 3)
        found, plain = tail_precision(np.insert(values, n // 2, np.nan)), plain_precision(values)
        assert found is not None
        number, needed = plain.pop("num_for_5_percent"), found["num_for_5_percent"]
        known = {name: value for name, value in plain.items() if value is not None}
        assert {name: found[name] for name in known} == pytest.approx(known, rel=1e-6), seed  # type: ignore[literal-required]
        assert (found["high"] is None) == (plain["high"] is None)
        assert (number is None) == (needed is None)
        if number is not None and needed is not None:
            digits = max(len(str(int(max(number, 1)))) - 2, 0)
            assert needed % 10**digits == 0
            assert number * (1 - 1e-9) <= needed <= number + 10**digits + 1


def test_the_interval_of_gaps_is_of_batches_in_the_order_of_sending() -> None:
    for seed in range(few_or_all(6, 100)):
        rng = random.Random(seed)
        num = rng.choice([40, 50, 75])
        times = [[0] for _ in range(num)]
        for row in times:
            for _ in range(rng.randint(1, 6)):
                row.append(row[-1] + rng.randint(5, 90) * MS)
        times[7].append(times[7][-1] + 9000 * MS * (seed % 2))
        sent = [number * 1000 * MS for number in range(num)]
        rng.shuffle(sent)
        events = [[us + at for at in row] for us, row in zip(sent, times, strict=True)]
        latencies = {name: np.zeros(num) for name in ("ttft_us", "tpot_us", "e2e_us")}
        found = precision_of(answers(*events, send_time_us=sent, arrival_time_us=sent), latencies)["itl_us"]
        gaps = {us: [float(b - a) for a, b in pairwise(row)] for us, row in zip(sent, times, strict=True)}
        every = [gap for row in gaps.values() for gap in row]
        batches: list[list[float]] = [[] for _ in range(20)]
        for place, us in enumerate(sorted(sent)):
            batches[place * 20 // num] += gaps[us]
        p99 = percentile(every, 0.99)
        off = sum((percentile(batch, 0.99) - p99) ** 2 for batch in batches)
        half = 2.093 * math.sqrt(off / 20 / 19)
        assert found is not None
        assert (found["n"], found["p99"]) == (len(every), pytest.approx(p99))
        assert (found["low"], found["high"]) == pytest.approx((max(p99 - half, 0), p99 + half))
        needed = num * (half / p99 / 0.05) ** 2
        assert found["num_for_5_percent"] == pytest.approx(needed, rel=0.1, abs=1)
