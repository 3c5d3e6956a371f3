"""Several pools searched together: against every combination, where what each fleet does is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from replay.fleet.check.engine_search import EngineSearch
from replay.fleet.check.fewest_engines import MOST_TIMES, Counts, FleetRuns
from replay.fleet.check.pool import Verification, verify
from replay.fleet.check.steady import BatchedMean, RunLength
from replay.fleet.inputs.profiles import from_profile, shipped_profiles
from sim.fleet import Lengths
from sim.fleet.sizing import Objective

LENGTHS = Lengths(input_tokens=np.array([400.0, 1500.0]), output_tokens=np.array([40.0, 60.0]))
A100 = from_profile("A100", shipped_profiles()["A100"], context=2048)


@pytest.fixture(scope="module")
def seen() -> Verification:
    return verify(A100, LENGTHS, 20.0, engines=1, service_s=1.0, seed=1, asked=RunLength(num_requests=1000))


def searched(
    seen: Verification,
    keeps: Callable[[Counts, int], bool],
    first: Counts,
    *,
    prices: tuple[float, ...] = (0.0, 0.0),
    is_smallest: bool = True,
) -> tuple[Counts | None, EngineSearch]:
    """Return what a search finds where a run of a fleet meets the objective as ``keeps`` says."""

    def tried_at(fleet: Counts, run: int) -> Verification:
        value = 0.1 if keeps(fleet, run) else 9.0
        return replace(seen, ttft_p99=BatchedMean(value=value, low=value, high=value))

    runs = FleetRuns(tried_at=tried_at, objective=Objective(ttft_p99_s=1.0))
    search = EngineSearch(runs=runs, prices=prices, is_smallest=is_smallest)
    return search.found(first), search


@pytest.mark.parametrize("first", [(1, 1), (2, 7), (9, 5)])
@pytest.mark.parametrize("least", [((3, 4), (3, 4)), ((2, 5), (2, 6)), ((1, 1), (2, 2)), ((12, 3), (12, 3))])
def test_pools_that_each_need_so_many_get_as_many_as_both_runs_ask_for(
    seen: Verification, first: Counts, least: tuple[Counts, Counts]
) -> None:
    def keeps(fleet: Counts, run: int) -> bool:
        return all(have >= need for have, need in zip(fleet, least[run], strict=True))

    found, _ = searched(seen, keeps, first)
    assert found == tuple(map(max, zip(*least, strict=True)))


@pytest.mark.parametrize("prices", [(1.0, 1.0), (1.0, 3.0), (2.0, 1.0), (0.0, 0.0)])
@pytest.mark.parametrize("worth", [(1.0, 1.0), (1.0, 2.4), (1.7, 1.0)])
def test_where_one_pools_engines_help_out_for_anothers_no_fleet_is_cheaper(
    seen: Verification, prices: tuple[float, float], worth: tuple[float, float]
) -> None:
    """As behind spillover: together they must be worth 10, and the second pool alone takes the long requests."""

    def keeps(fleet: Counts, _run: int) -> bool:
        return fleet[0] * worth[0] + fleet[1] * worth[1] >= 10 and fleet[1] >= 2

    found, search = searched(seen, keeps, (4, 3), prices=prices)
    every = [fleet for fleet in itertools.product(range(1, 13), repeat=2) if keeps(fleet, 0)]
    assert found is not None
    assert keeps(found, 0)
    assert search.cost(found) == pytest.approx(min(map(search.cost, every)))


def test_pools_grow_until_they_keep_it_and_never_below_the_formula_where_that_is_not_asked_for(
    seen: Verification,
) -> None:
    def keeps(fleet: Counts, _run: int) -> bool:
        return fleet[0] >= 2 and fleet[1] >= 9

    assert searched(seen, keeps, (4, 4), is_smallest=False)[0] == (4, 9)
    assert searched(seen, keeps, (4, 4))[0] == (2, 9)
    found, search = searched(seen, lambda *_: False, (4, 2))
    assert found is None
    assert list(search.runs.seen)[-1] == ((4 * MOST_TIMES, 2 * MOST_TIMES), 0)
