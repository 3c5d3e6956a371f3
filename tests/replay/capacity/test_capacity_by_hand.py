"""The statistics of a capacity against a pencil and scipy: crossings, reach, seeds asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t

from replay.capacity import binding, capacity_by_pace
from replay.capacity.capacity import (
    BURSTS,
    NARROW,
    Sureness,
    _crossing,
    _interval,
    _of_parts,
    _ratio,
    num_drawn,
)
from replay.capacity.capacity_by_pace import GainAtPaces
from replay.numbers.t_interval import half_width
from replay.search.evaluation import GROWN, THROUGHPUT, Evaluation
from replay.search.highest import HighestRate
from replay.search.workload_draws import Drawing
from replay.tuning.candidate_search import Tuned
from replay.tuning.text import tried_text
from traces.run_slo import parse_run_slo

LIMITS = parse_run_slo("ttft_p99=100ms,tpot_p99=10ms")
TTFT, TPOT = (each.name for each in LIMITS)


def evaluation(
    rate: float, ttft_us: float, *, parts: list[float] | None = None, grown: float = 0.0
) -> Evaluation:
    own = [ttft_us] if parts is None else parts
    return Evaluation(
        rate_per_s=rate,
        values_us={TTFT: ttft_us, TPOT: 1000.0},
        parts_us={TTFT: own, TPOT: [1000.0] * len(own)},
        failed_frac=0.0,
        output_tokens_per_s=0.0,
        num_preemptions=0,
        curve_us={"ttft": (0.0, 0.0), "tpot": (0.0, 0.0), "e2e": (0.0, 0.0)},
        growths=(grown,) * len(own),
        waiting_frac=0.0,
        generations=1000,
        under_way_frac=0.0,
    )


class Known:
    """Rates whose evaluations are known: TTFT grows as the square of the rate, each part's by a factor of its own."""

    limits = LIMITS

    def __init__(self, rates: list[float], factors: list[float], capacity: float) -> None:
        self.factors, self.capacity = factors, capacity
        self.loads = [SimpleNamespace()] * len(factors)
        self.seen: dict[float, Evaluation] = {}
        for rate in rates:
            self.at(rate)

    @property
    def num_parts(self) -> int:
        return len(self.factors)

    def at(self, rate: float) -> Evaluation:
        whole = 100_000 * (rate / self.capacity) ** 2
        self.seen.setdefault(rate, evaluation(rate, whole, parts=[whole * each for each in self.factors]))
        return self.seen[rate]


def crossing(rates: list[float], ttft_us: list[float]) -> float:
    seen = {rate: evaluation(rate, value) for rate, value in zip(rates, ttft_us, strict=True)}
    return _crossing(SimpleNamespace(seen=seen), lambda each: _ratio(each, LIMITS, TTFT))  # type: ignore[arg-type]


def test_a_limit_is_crossed_on_the_line_between_logarithms() -> None:
    assert crossing([10, 20], [50_000, 200_000]) == pytest.approx(10 * 2**0.5)
    assert crossing([10, 20], [100_000 / 8, 200_000]) == pytest.approx(10 * 2**0.75)
    assert crossing([5, 10, 20, 40], [1, 50_000, 200_000, 1e9]) == pytest.approx(10 * 2**0.5)


def test_without_a_rate_on_one_side_there_is_no_crossing() -> None:
    assert crossing([10, 20], [50_000, 90_000]) == math.inf
    assert crossing([10, 20], [150_000, 190_000]) == 0.0
    assert crossing([10, 20], [50_000, math.nan]) == 10  # nothing was answered at 20
    assert crossing([10, 20], [100_000, 200_000]) == 10  # at the limit it is kept


def test_the_interval_is_around_where_all_break_and_as_wide_as_the_seeds_say() -> None:
    factors = [0.8, 1.0, 1.25, 1.0]
    known = Known([9.0, 10.05, 11.0], factors, capacity=10.0)
    found = HighestRate(low=9.0, broken=known.at(10.05), idle=known.at(9.0))
    parts = _of_parts(known, found)  # type: ignore[arg-type] # looks and walks like an evaluator
    assert parts == pytest.approx([10 / math.sqrt(each) for each in factors])
    low, high = _interval(known, found, parts)  # type: ignore[arg-type]
    reach = BURSTS * half_width(np.log(parts))
    assert high == pytest.approx(10 * math.exp(reach))
    assert low == pytest.approx(min(9.0, 10 * math.exp(-reach)))


def test_seeds_far_away_have_their_rates_simulated_and_none_is_made_up() -> None:
    known = Known([9.9, 10.05], [0.5, 1.0, 1.8], capacity=10.0)
    found = HighestRate(low=9.9, broken=known.at(10.05), idle=known.at(9.9))
    assert _of_parts(known, found) == pytest.approx([10 / math.sqrt(each) for each in (0.5, 1.0, 1.8)])  # type: ignore[arg-type]
    assert min(known.seen) < 10 / math.sqrt(1.8) < 10 / math.sqrt(0.5) < max(known.seen)
    never = Known([9.9, 10.05], [0.01, 1.0], capacity=10.0)
    assert _of_parts(never, found) == ()  # type: ignore[arg-type]


def test_what_piles_up_counts_where_throughput_breaks_first() -> None:
    each = evaluation(10, 50_000, grown=2.5 * GROWN)
    assert _ratio(each, LIMITS, THROUGHPUT) == pytest.approx(2.5)
    assert _ratio(each, LIMITS, TTFT) == pytest.approx(0.5)
    assert _ratio(evaluation(10, 300_000, grown=GROWN), LIMITS, THROUGHPUT) == pytest.approx(3)


def test_what_piles_up_is_the_mean_over_the_seeds() -> None:
    each = replace(evaluation(10, 50_000), growths=(0.0, 0.01, 0.05))
    assert each.growth_frac == pytest.approx(0.02)
    assert each.served_per_s == pytest.approx(9.8)
    assert not each.is_behind
    assert replace(each, growths=(0.0, 0.03, 0.05)).is_behind


@pytest.mark.parametrize(
    ("width", "seeds"),
    [(NARROW * 0.99, 8), (NARROW * 1.2, 12), (NARROW * 1.4, 16), (NARROW * 9, 16), (None, 8)],
)
def test_a_wide_interval_asks_for_as_many_seeds_as_make_it_narrow(width: float | None, seeds: int) -> None:
    sure = Sureness(asks=0, is_too_short=False, of_parts=(), low=None, high=None)
    if width is not None:
        sure = replace(sure, low=10.0, high=10 * math.exp(width))
    drawing = Drawing(draw=lambda _number, _seeds: [], seeds=8, most_seeds=16)
    assert sure.wanted_seeds(drawing) == seeds
    assert sure.wanted_seeds(replace(drawing, most_seeds=8)) == 8


def test_requests_are_shared_among_seeds_and_are_as_many_as_a_run_asks_for() -> None:
    assert num_drawn(0, seeds=8, least=150_000) == 18_750
    assert num_drawn(0, seeds=7, least=150_000) == 21_429
    assert num_drawn(50_000, seeds=8, least=150_000) == 60_000
    assert num_drawn(10_000_000, seeds=8) == 200_000


@pytest.mark.parametrize(
    ("seats", "kv_blocks", "all_three", "binds"),
    [
        (10.1, 10.5, 11.0, "kv_blocks"),
        (10.19, 10.15, 10.21, "all"),
        (10.18, 10.15, 10.19, "step_time"),
        (10.3, 10.2, 11.0, "seats"),
    ],
)
def test_twice_of_what_binds_gains_more_than_two_hundredths(
    monkeypatch: pytest.MonkeyPatch, seats: float, kv_blocks: float, all_three: float, binds: str
) -> None:
    gained = {("max_num_seqs",): seats, ("num_gpu_blocks",): kv_blocks, ("max_num_batched_tokens",): 10.0}
    monkeypatch.setattr(
        binding,
        "_changed",
        lambda _twin, settings, doubles: (
            settings if doubles and (settings in gained or len(settings) > 2) else None
        ),
    )
    monkeypatch.setattr(binding, "paced", lambda _twin, _factor: "faster")
    monkeypatch.setattr(
        binding,
        "_of_one",
        lambda _trace, twin, _limits, around: (
            10.0 if around is None else 20.0 if twin == "faster" else gained.get(twin, all_three)
        ),
    )
    found = binding.binding_of(None, None, LIMITS)  # type: ignore[arg-type] # nothing is simulated
    assert found.resource == binds
    assert found.base_per_s == 10.0


def test_the_interval_of_a_gain_is_that_of_the_ratios_as_wide_as_a_capacitys_and_two_searches_wider() -> None:
    """By pencil: 2 over 1 requests/s, and the ratios of three draws."""
    own, best = [1.0, 1.1, 0.9], [2.0, 2.3, 1.7]
    measured = [
        (SimpleNamespace(num_gpus=None), SimpleNamespace(rate_per_s=rate, of_parts=parts, is_by_seeds=True))
        for rate, parts in ((1.0, own), (2.0, best))
    ]
    tuned = Tuned(own=measured[0], best=(measured[1],), num_tried=2, num_alike=1, is_per_gpu=False)  # type: ignore[arg-type]
    logs = np.log(best) - np.log(own)
    reach = BURSTS * t.ppf(0.95, 2) * logs.std(ddof=1) / math.sqrt(3) + 0.005
    assert tuned.gain == pytest.approx(1.0)
    assert tuned.gain_interval == pytest.approx((2 * math.exp(-reach) - 1, 2 * math.exp(reach) - 1))
    wider = replace(tuned, at_paces=GainAtPaces(pace_frac=0.03, down=0.0, up=0.04)).gain_interval
    assert wider == pytest.approx((2 * math.exp(-reach) - 1, 2 * math.exp(math.hypot(reach, 0.04)) - 1))


def test_a_pace_moves_a_gain_by_what_it_does_to_one_server_more_than_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gain of 100 %, of 89 % with longer steps and 100 % with shorter ones."""
    rates = {("own", 1): 10.0, ("own", 1.1): 9.0, ("own", 0.9): 11.0}
    rates |= {("best", 1): 20.0, ("best", 1.1): 17.0, ("best", 0.9): 22.0}
    monkeypatch.setattr(capacity_by_pace, "paced", lambda twin, factor: (twin[0], round(factor, 2)))
    monkeypatch.setattr(capacity_by_pace, "_capacity", lambda _trace, twin, _limits, near: rates[twin])  # noqa: ARG005
    pair = [
        ((name, 1), SimpleNamespace(rate_per_s=rate, requests_to_last=0))
        for name, rate in (("own", 10.0), ("best", 20.0))
    ]
    found = capacity_by_pace.gain_at_paces(*pair, [()], (), delta=0.1, drawing=None)  # type: ignore[arg-type]
    assert found is not None
    assert (found.down, found.up) == pytest.approx((math.log(2 / (17 / 9)), 0.0))


@pytest.mark.parametrize(
    ("tried", "beyond", "refused", "unanswered", "text"),
    [
        (
            45,
            16,
            33,
            0,
            "78 combinations: 45 simulated (29 of the grid and 16 beyond its border), 33 vLLM would refuse",
        ),
        (10, 0, 0, 4, "14 combinations: 10 simulated, 4 have no answer"),
        (10, 0, 0, 0, "10 servers simulated"),
    ],
)
def test_the_counts_of_servers_add_up(
    tried: int, beyond: int, refused: int, unanswered: int, text: str
) -> None:
    tuned = SimpleNamespace(num_tried=tried, num_beyond=beyond)
    candidates = SimpleNamespace(impossible=range(refused), unanswered=range(unanswered))
    assert tried_text(tuned, candidates) == text  # type: ignore[arg-type]
