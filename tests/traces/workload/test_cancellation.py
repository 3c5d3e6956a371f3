"""Which requests are cut, and when: drawn by seed and number, in columns of the workload."""

from __future__ import annotations

import numpy as np
import pytest

from traces import ConfigError
from traces.workload import Cancellation, CancelOptions, preset, synth, with_cancellations

TRACE = synth(preset("chatbot", 10.0, num_requests=2000), seed=1)


@pytest.mark.parametrize(
    ("after", "unit", "low", "high"),
    [
        ("2s", "us", 2_000_000, 2_000_000),
        ("1s:5s", "us", 1_000_000, 5_000_000),
        ("500ms", "us", 500_000, 500_000),
        ("50tokens", "tokens", 50, 50),
        ("20:80tokens", "tokens", 20, 80),
    ],
)
def test_a_time_or_a_number_of_tokens_is_drawn_from_its_whole_range(
    after: str, unit: str, low: int, high: int
) -> None:
    asked = CancelOptions(cancel_share="10%", cancel_after=after).asked()
    assert asked is not None
    assert (asked.unit, asked.low, asked.high, asked.share) == (unit, low, high, 0.1)
    trace = with_cancellations(TRACE, asked, seed=3)
    cut = trace.cells(f"cancel_after_{unit}")
    assert 160 < cut.is_known.sum() < 240
    values = cut.values[cut.is_known]
    assert values.min() >= low
    assert values.max() <= high
    assert np.mean(values) == pytest.approx((low + high) / 2, rel=0.06)
    assert f"cancel_after_{'tokens' if unit == 'us' else 'us'}" not in trace.table


def test_the_draw_is_the_seeds_and_more_requests_do_not_change_it() -> None:
    asked = Cancellation(share=0.3, unit="us", low=1, high=1000)
    first, again = (with_cancellations(TRACE, asked, seed=5).cells("cancel_after_us") for _ in range(2))
    assert (first.values == again.values).all()
    few = synth(preset("chatbot", 10.0, num_requests=100), seed=1)
    fewer = with_cancellations(few, asked, seed=5).cells("cancel_after_us")
    assert (fewer.is_known == first.is_known[:100]).all()
    other = with_cancellations(TRACE, asked, seed=6).cells("cancel_after_us")
    assert (other.is_known != first.is_known).any()


def test_a_share_of_none_takes_a_traces_own_cuts_away_and_of_all_cuts_each() -> None:
    all_cut = with_cancellations(TRACE, Cancellation(share=1.0, unit="tokens", low=3, high=3), seed=1)
    assert (all_cut.cells("cancel_after_tokens").values == 3).all()
    none = CancelOptions(cancel_share="0").asked()
    assert "cancel_after_tokens" not in with_cancellations(all_cut, none, seed=1).table
    assert with_cancellations(all_cut, None, seed=1) is all_cut


@pytest.mark.parametrize(
    ("share", "after"),
    [
        ("101%", "1s"), ("x", "1s"), ("nan", "1s"), ("-1", "1s"), ("10%", "0s"), ("10%", "2s:1s"), ("10%", "soon"),
        ("10%", "0tokens"), ("10%", "1:2:3s"), ("10%", "1.5tokens"), ("10%", "inf"), ("10%", "tokens"), ("10%", None),
        (None, "1s"),
    ],
)  # fmt: skip
def test_what_is_no_share_or_no_time_is_refused(share: str | None, after: str | None) -> None:
    with pytest.raises(ConfigError, match="--cancel-"):
        CancelOptions(cancel_share=share, cancel_after=after).asked()
