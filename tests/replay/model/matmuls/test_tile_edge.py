"""The study of recorded steps around a tile edge finds a jump that is there, and none that is not."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from replay.model.matmuls.tiles import Tiles
from tests.examples import few_or_all
from tests.studies.validation import tile_edge
from tests.studies.validation.tile_edge import (
    BIN,
    EDGE,
    bins_of,
    jump_at,
    misses,
    picture,
    products_ms,
    tables,
)

STAIRS = Tiles(measured=((512, 9000.0), (1024, 18000.0), (1025, 20000.0), (1536, 27000.0), (3072, 54000.0)))


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_edge, "DRAWS", few_or_all(20, 60))


def steps(*, jump_ms: float, number: int = 900) -> pd.DataFrame:
    """Return steps of 832 to 1,280 tokens on a line with a jump; decodes, the clock and chance vary them."""
    generator = np.random.default_rng(3)
    tokens = generator.integers(833, 1281, size=number).astype(float)
    decodes = generator.integers(5, 60, size=number).astype(float)
    slower = generator.uniform(0, 0.3, size=number)
    ms = 8 + 0.0175 * tokens + jump_ms * (tokens > EDGE) + 0.04 * decodes + 12 * slower
    return pd.DataFrame(
        {
            "tokens": tokens,
            "decodes": decodes,
            "slower": slower,
            "ms": ms + 0.8 * generator.standard_t(3, size=number),
        }
    )


def test_a_jump_is_found_where_it_is_within_its_interval() -> None:
    found = jump_at(steps(jump_ms=2.0), EDGE)
    assert found.low < 2.0 < found.high
    assert found.low > 0
    assert found.ms == pytest.approx(2.0, abs=0.5)
    assert jump_at(steps(jump_ms=2.0), 1160).high < 1.0  # a window that ends short of the edge


def test_no_jump_is_found_where_there_is_none() -> None:
    found = jump_at(steps(jump_ms=0.0), EDGE)
    assert found.low < 0 < found.high
    assert abs(found.ms) < 0.5


def test_a_bin_ends_at_the_edge_and_the_table_has_the_products_there() -> None:
    assert EDGE % BIN == 0
    bins = bins_of(steps(jump_ms=0.0))
    assert EDGE in bins.index
    assert bins["number"].sum() == 900
    assert bins.loc[EDGE, "tokens"] <= EDGE < bins.loc[EDGE + BIN, "tokens"]
    table, curve = products_ms(STAIRS, np.array([1024.0, 1025.0]))
    np.testing.assert_allclose(table, [18.0, 20.0])
    assert 0 < curve[1] - curve[0] < 0.2


def test_steps_with_the_jump_are_nearer_to_the_products_than_to_their_smooth_curve() -> None:
    for jump_ms, is_nearer in ((2.0, True), (0.0, False)):
        made = steps(jump_ms=jump_ms)
        table, curve = (misses(made, each) for each in products_ms(STAIRS, made["tokens"].to_numpy()))
        assert (table < curve) is is_nearer


def test_tables_and_picture_hold_what_was_measured() -> None:
    made = steps(jump_ms=2.0)
    lines = list(tables(made, STAIRS))
    (row,) = (line for line in lines if line.startswith(f"| {EDGE:,} |"))
    assert row.endswith("| +2.00 |")
    root = ET.fromstring(picture(made, STAIRS))  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    classes = [each.get("class", "") for each in root.iter("{http://www.w3.org/2000/svg}path")]
    assert {"dots steps", "line table", "line smooth", "line median"} <= set(classes)


def test_steps_made_alike_have_lost_what_decodes_and_clock_made_of_them() -> None:
    made = tile_edge.shown_steps(steps(jump_ms=2.0))
    line = made["tokens"] * 0.0175 + 2.0 * (made["tokens"] > EDGE)
    for column, is_left in (("ms", True), ("alike_ms", False)):
        rest = made[column] - line
        assert bool(abs(np.corrcoef(rest, made["slower"])[0, 1]) > 0.3) is is_left
        assert bool(abs(np.corrcoef(rest, made["decodes"])[0, 1]) > 0.2) is is_left
