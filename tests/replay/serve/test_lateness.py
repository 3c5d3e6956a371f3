"""A server that was late says so when it ends: what clients measured is then not the twin's."""

from __future__ import annotations

import pytest

from replay.serve.prometheus import LAG_BUCKETS, BucketCounts, lateness


def seen(*lags_s: float) -> BucketCounts:
    counts = BucketCounts(LAG_BUCKETS)
    for each in lags_s:
        counts.observe(each)
    return counts


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([], None),
        ([0.0001] * 200, None),
        ([0.0001] * 99 + [0.3], None),  # one of a hundred
        ([0.0001] * 98 + [0.3] * 2, "100 ms"),
        ([0.004] * 100, None),
        ([0.006] * 100, "5 ms"),
        ([0.03] * 100, "20 ms"),
        ([7.0] * 100, "1000 ms"),
    ],
)
def test_more_than_one_of_a_hundred_late_by_more_than_5_ms_is_told(
    lags: list[float], told: str | None
) -> None:
    said = lateness([seen(*lags)])
    assert (said is None) is (told is None)
    if told is not None:
        assert said is not None
        assert said.startswith(f"1 token of 100 was sent more than {told} after its time")


def test_the_servers_of_a_fleet_are_taken_together() -> None:
    assert lateness([seen(*[0.0001] * 300), seen(0.3, 0.3, 0.3)]) is None
    assert lateness([seen(*[0.0001] * 100), seen(0.3, 0.3, 0.3)]) is not None
