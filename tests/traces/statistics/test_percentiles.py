"""Percentiles of sorted values are numpy's, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from traces.statistics.percentiles import median_of, percentile_of, quantile_of

VALUES = st.one_of(
    st.floats(-1e9, 1e9), st.integers(0, 9).map(float), st.floats(allow_nan=False, allow_infinity=False)
)


@examples(300)
@given(st.lists(VALUES, min_size=1, max_size=60), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    ordered = np.sort(np.array(values))
    with np.errstate(all="ignore"):
        np.testing.assert_equal(median_of(ordered), float(np.median(values)))
        np.testing.assert_equal(quantile_of(ordered, share), float(np.quantile(values, share)))
        for percent in (0, 25, 50, 99, 99.9, 100):
            np.testing.assert_equal(percentile_of(ordered, percent), float(np.percentile(values, percent)))
