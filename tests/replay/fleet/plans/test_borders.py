"""An optimum at the end of what was tried is looked for further on, or told as a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import from_profile, shipped_profiles
from replay.fleet.plans.length_splits import splits_of
from replay.fleet.told.split_text import border_lines, split_document
from sim.fleet import GpuProfile, Lengths
from sim.fleet.disaggregated import sweep_disaggregated
from sim.fleet.sizing import Objective
from sim.fleet.split import Splits

A100 = from_profile("A100", shipped_profiles()["A100"], context=8192)
OBJECTIVE = Objective(ttft_p99_s=1.0)


def lengths_with(long_frac: float, *, number: int = 1000) -> Lengths:
    """Return requests of about 300 tokens, and a share of 6,000."""
    rng = np.random.default_rng(1)
    total = np.where(np.arange(number) < long_frac * number, 6000.0, np.rint(rng.uniform(250, 350, number)))
    return Lengths(input_tokens=total - 50, output_tokens=np.full(number, 50.0))


def found_of(lengths: Lengths, *, factors: tuple[float, ...] = (1.0,)) -> Splits:
    return splits_of(
        [A100], Need(lengths=lengths, rate_per_s=800.0, objective=OBJECTIVE, context=8192), factors=factors
    )


def test_a_best_threshold_at_the_end_of_the_first_ones_is_looked_for_beyond_it() -> None:
    """With 2 long requests of 1,000 the quantiles end among the short ones, and all long ones are beyond."""
    lengths = lengths_with(0.002)
    first_ones = np.quantile(lengths.total_tokens, 0.999)
    assert first_ones > 350
    found = found_of(lengths_with(0.0005, number=4000))
    best = found.cheapest
    assert best is not None
    inside = [each for each in found.splits if each.threshold <= 349]
    assert found.amount(best) <= min(found.amount(each) for each in inside)
    assert best.threshold not in (found.thresholds[0], found.thresholds[-1]) or border_lines(found)


def test_the_largest_factor_is_told_as_a_bound_where_it_is_the_best() -> None:
    rng = np.random.default_rng(2)
    total = np.rint(rng.uniform(200, 6000, 1000))
    lengths = Lengths(input_tokens=total - 50, output_tokens=np.full(1000, 50.0))
    found = found_of(lengths, factors=(1.0, 2.0))
    best = found.cheapest
    assert best is not None
    assert best.factor == 2
    (line,) = [each for each in border_lines(found) if "--compress" in each]
    assert line.startswith("2 is the largest factor that was tried")
    assert line in split_document(found)["border"]  # type: ignore[operator]
    assert not any("--compress" in each for each in border_lines(found_of(lengths)))


def test_without_prices_the_front_of_prefill_and_decode_pools_is_one_of_gpus() -> None:
    """With every cost at 0 the largest pools that were tried beat all others, which is no answer."""
    free = GpuProfile(w_s=0.008, h_s=0.00065, num_gpus=2)
    lengths = lengths_with(0.1)
    fleets = sweep_disaggregated((free, free), lengths, 100.0, OBJECTIVE, context=8192)
    best = [each for each in fleets if each.is_best]
    assert best[0] == fleets[0]
    assert fleets[0].gpus == 2 * (fleets[0].prefill + fleets[0].decode) == min(each.gpus for each in fleets)
    paid = replace(free, cost_per_hour=2.0)
    priced = sweep_disaggregated((paid, paid), lengths, 100.0, OBJECTIVE, context=8192)
    assert [(each.prefill, each.decode) for each in priced if each.is_best] == [
        (each.prefill, each.decode) for each in best
    ]
    assert any(each.is_border for each in best)
