"""Quantiles of the normal against printed tables and ``scipy.stats``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import median_abs_deviation, norm

from calibrate.run_to_run.normal_quantiles import deviation_of_median, half_width, normal_quantiles


@pytest.mark.parametrize(("level", "table"), [(0.5, 0.6745), (0.8, 1.2816), (0.9, 1.6449), (0.95, 1.96)])
def test_a_share_of_a_normal_lies_within_the_deviations_of_printed_tables(level: float, table: float) -> None:
    assert half_width(level) == pytest.approx(table, abs=0.00005)
    assert half_width() == half_width(0.9)


def test_quantiles_are_those_of_scipy_stats() -> None:
    shares = np.array([0.001, 0.05, 0.5, 0.975])
    assert normal_quantiles(shares) == pytest.approx(norm.ppf(shares), rel=1e-12)


def test_a_median_of_deviations_stands_for_a_standard_deviation() -> None:
    assert deviation_of_median(1.0) == 1.4826
    values = np.array([-3.0, -1.0, 0.0, 2.0, 7.0])
    assert deviation_of_median(2.0) == pytest.approx(
        float(median_abs_deviation(values, scale="normal")), rel=1e-5
    )
