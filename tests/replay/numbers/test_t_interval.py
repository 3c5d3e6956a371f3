"""The t interval against tables and against ``scipy.stats``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from replay.numbers.t_interval import LEVEL, half_width, students_t


@pytest.mark.parametrize(
    ("freedom", "table"), [(1, 6.314), (2, 2.920), (5, 2.015), (9, 1.833), (30, 1.697), (10**9, 1.645)]
)
def test_students_t_is_that_of_the_printed_tables(freedom: int, table: float) -> None:
    assert students_t(freedom) == pytest.approx(table, abs=0.0005)
    assert students_t(freedom) == pytest.approx(float(t.ppf(0.95, freedom)), rel=1e-12)


def test_the_interval_has_one_degree_of_freedom_less_than_values() -> None:
    values = np.log([9.0, 10.0, 10.5, 11.0])
    due = t.interval(LEVEL, df=3, loc=values.mean(), scale=values.std(ddof=1) / 2)
    assert half_width(values) == pytest.approx((due[1] - due[0]) / 2)
