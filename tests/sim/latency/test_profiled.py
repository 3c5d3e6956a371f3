"""Profiled: what its tables say at their knots, between them and beyond; and that a place is found without search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import InvalidConfig, Profiled
from sim.latency.profiled import axis_knots, knot_value, look_up, look_up_both, place
from tests.examples import examples
from tests.sim.step_batches import batch_of
from tests.sim.strategies import Pick, picks, profiled

KNOTS = axis_knots(1_000_000)


def test_an_axis_has_every_integer_to_16_and_sixteen_parts_of_each_doubling() -> None:
    assert axis_knots(16).tolist() == list(range(17))
    assert axis_knots(70).tolist() == [*range(33), *range(34, 65, 2), 68, 72]
    assert axis_knots(1).tolist() == [0, 1]
    assert [knot_value(number) for number in range(len(KNOTS))] == KNOTS.tolist()


@pytest.mark.parametrize("most", [1, 15, 16, 17, 33, 2048, 131_072])
def test_an_axis_reaches_its_end_and_no_further_than_a_knot(most: int) -> None:
    knots = axis_knots(most)
    assert knots[-1] >= most
    assert knots[-2] < most


@examples(300)
@given(st.floats(0, 1_000_000))
def test_a_place_is_the_one_that_a_search_finds(value: float) -> None:
    knot, share = (each[0] for each in place(np.array([value])))
    found = int(np.searchsorted(KNOTS, value, side="right")) - 1
    assert knot == found
    assert share == pytest.approx((value - KNOTS[found]) / (KNOTS[found + 1] - KNOTS[found]), abs=1e-12)


def test_a_table_says_at_its_knots_what_is_in_it() -> None:
    knots = axis_knots(500)
    table = np.sqrt(knots)
    np.testing.assert_array_equal(look_up(table, knots), table)
    both = np.add.outer(table, table[:40])
    rows, columns = (each.ravel() for each in np.meshgrid(knots, knots[:40], indexing="ij"))
    np.testing.assert_allclose(look_up_both(both, rows, columns), both.ravel(), rtol=1e-15)


@examples(100)
@given(st.floats(0, 608), st.floats(0, 304))
def test_between_knots_a_plane_stays_a_plane(row: float, column: float) -> None:
    """Axes end at 608 and 304."""
    rows, columns = axis_knots(600), axis_knots(300)
    table = np.add.outer(3.0 * rows, 0.5 * columns) + 7.0
    found = look_up_both(table, np.array([row]), np.array([column]))[0]
    assert found == pytest.approx(3.0 * row + 0.5 * column + 7.0, rel=1e-12)


@examples(100)
@given(st.floats(0, 5000), st.floats(0, 3000))
def test_between_knots_and_beyond_them_a_product_stays_a_product(row: float, column: float) -> None:
    rows, columns = axis_knots(600), axis_knots(300)
    found = look_up_both(np.multiply.outer(3.0 * rows, 0.5 * columns), np.array([row]), np.array([column]))
    assert found[0] == pytest.approx(1.5 * row * column, rel=1e-12)
    assert look_up(3.0 * rows, np.array([row]))[0] == pytest.approx(3.0 * row, rel=1e-12)


@examples(60)
@given(picks(), st.integers(1, 500), st.integers(1, 500))
def test_a_step_is_the_sum_of_its_tables(pick: Pick, tokens: int, before: int) -> None:
    model = profiled(pick)
    step = [(tokens, before, False), (1, before, True), (1, 3 * before, True)]
    pairs = tokens * before + tokens * (tokens + 1) / 2
    p, d = np.array([float(tokens)]), np.array([2.0])
    expected = (
        look_up(model.tokens_us, p + d, model.tokens_after_us)
        + look_up(model.sequences_us, d + 1)
        + look_up_both(model.decode_us, d, np.array([(4 * before + 2) / 2])) * (1 + model.decode_batching)
        + look_up_both(model.prefill_us, p, np.array([pairs / tokens]))
    )
    if model.chunks_us is not None:
        expected = expected + look_up_both(model.chunks_us, np.ones(1), p)
    launches = model.num_collectives * (model.nccl_launch + model.nccl_skew * model.tp**1.25)
    assert model.durations_us(batch_of([step]))[0] == pytest.approx(
        model.step + launches + model.scale * expected[0], abs=0.5 + 1e-6
    )


def test_a_step_without_prefills_or_without_decodes_asks_only_what_it_has() -> None:
    knots = axis_knots(4)
    heavy = np.full((5, 5), 1000.0)
    model = Profiled(tokens_us=knots, sequences_us=0 * knots, decode_us=heavy, prefill_us=3 * heavy)
    steps = [[(1, 1, True)], [(1, 0, False)], [(1, 1, True), (1, 0, False)]]
    assert model.durations_us(batch_of(steps)).tolist() == [1001, 3001, 4002]


def test_chunks_are_known_by_their_number_and_mean_length_and_not_by_their_context() -> None:
    knots, nothing = axis_knots(64), np.zeros((2, 2))
    law = np.add.outer(100.0 * knots, knots)
    model = Profiled(
        tokens_us=0 * knots, sequences_us=0 * knots, decode_us=nothing, prefill_us=nothing, chunks_us=law
    )
    steps = [
        [(32, 0, False)],
        [(32, 900, False)],
        [(24, 0, False), (8, 5, False), (1, 40, True)],
        [(1, 40, True)],
    ]
    assert model.durations_us(batch_of(steps)).tolist() == [132, 132, 216, 0]
    assert model.operators(batch_of(steps))["state_prefill"].tolist() == [132.0, 132.0, 216.0, 0.0]


@pytest.mark.parametrize(
    ("name", "table", "complaint"),
    [
        ("tokens_us", np.array([1.0, -1.0]), "tokens_us: got a time that is negative or endless"),
        (
            "decode_us",
            np.array([[1.0, np.nan], [1.0, 1.0]]),
            "decode_us: got a time that is negative or endless",
        ),
        ("prefill_us", np.array([1.0, 2.0]), r"prefill_us: got shape \(2,\), expected 2 axes"),
        ("chunks_us", np.ones(3), r"chunks_us: got shape \(3,\), expected 2 axes"),
        ("sequences_us", np.array([1.0]), r"sequences_us: got shape \(1,\), expected 1 axes"),
    ],
)
def test_a_table_that_cannot_be_times_is_refused(name: str, table: np.ndarray, complaint: str) -> None:
    tables = {"tokens_us": np.ones(2), "sequences_us": np.ones(2), "decode_us": np.ones((2, 2))}
    tables |= {"prefill_us": np.ones((2, 2)), name: table}
    with pytest.raises(InvalidConfig, match=complaint):
        Profiled(**tables)


def test_vidurs_terms_are_its_formulas() -> None:
    """By hand: tp 4, 81 all-reduces, 20 + 1.5 * 4^1.25 µs each; attention a tenth and a fifth longer in batches."""
    knots = axis_knots(64)
    model = Profiled(
        tokens_us=knots,
        sequences_us=0 * knots,
        decode_us=np.full((len(knots), len(knots)), 1000.0),
        prefill_us=np.full((len(knots), len(knots)), 3000.0),
        scale=2.0,
        decode_batching=0.1,
        prefill_batching=0.2,
        nccl_launch=20.0,
        nccl_skew=1.5,
        tp=4,
        num_collectives=81,
    )
    launches = 81 * (20 + 1.5 * 5.656854249492381)
    steps = [[(1, 1, True)], [(1, 1, True)] * 2, [(2, 0, False)], [(2, 0, False)] * 2, []]
    expected = [
        2 * (1 + 1000) + launches,
        2 * (2 + 1100) + launches,
        2 * (2 + 3000) + launches,
        2 * (4 + 3600) + launches,
        0,
    ]
    batch = batch_of(steps)
    assert model.durations_us(batch).tolist() == [round(each) for each in expected]
    parts = model.operators(batch)
    assert parts["tensor_parallel_comm"] == pytest.approx([launches] * 4 + [0])
    assert np.sum(list(parts.values()), axis=0) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["decode_batching", "prefill_batching", "nccl_launch", "nccl_skew"])
def test_a_term_that_shortens_a_step_is_refused(name: str) -> None:
    tables = {"tokens_us": np.ones(2), "sequences_us": np.ones(2), "decode_us": np.ones((2, 2))}
    with pytest.raises(InvalidConfig, match=f"{name}: got -0.1, expected a number >= 0"):
        Profiled(**tables, prefill_us=np.ones((2, 2)), **{name: -0.1})  # type: ignore[arg-type]


def test_a_table_that_jumps_does_so_just_after_its_knot() -> None:
    """9 µs up to 64 tokens, 100 from 65 on, rising by 1 to the next knot, which is 68."""
    knots = axis_knots(128)
    tokens = np.where(knots <= 64, 9.0, 103.0 + (knots - 68) / 100)
    after = np.where(knots == 64, 100.0, tokens)
    found = look_up(tokens, np.array([63.0, 64.0, 65.0, 67.0, 68.0]), after)
    assert found == pytest.approx([9.0, 9.0, 100.75, 102.25, 103.0])


@pytest.mark.parametrize("has_chunks", [False, True])
def test_the_engine_s_steps_jump_as_the_model_s_do(has_chunks: bool) -> None:
    from sim import EngineConfig, Requests, simulate

    knots = axis_knots(2048)
    tokens = 1000.0 + knots
    after = tokens + 5000.0 * (knots == 1024)
    nothing = np.zeros((2, 2))
    model = Profiled(
        tokens_us=tokens,
        tokens_after_us=after,
        sequences_us=np.zeros(2),
        decode_us=nothing,
        prefill_us=nothing,
        chunks_us=np.full((3, 3), 7.0) if has_chunks else None,
    )
    lengths = np.array([1023, 1024, 1025, 1088], np.int64)
    zeros = np.zeros(4, np.int64)
    requests = Requests(
        arrival_us=np.arange(4, dtype=np.int64) * 1_000_000,
        prompt_tokens=lengths,
        output_tokens=zeros + 1,
        priority=zeros,
        hash_offsets=np.zeros(5, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    engine = EngineConfig(max_num_seqs=4, max_num_batched_tokens=2048, max_model_len=4096)
    done = simulate(requests, engine, model).outcomes
    took = (done.first_token_us - done.scheduled_us).tolist()
    batch = batch_of([[(int(each), 0, False)] for each in lengths])
    without = [2023, 2024, round(7024 - 4936 / 64), 2088]
    more = [7.0 * each / 2 if has_chunks else 0.0 for each in lengths]  # in proportion beyond the last knot
    assert took == model.durations_us(batch).tolist()
    assert took == pytest.approx([a + b for a, b in zip(without, more, strict=True)], abs=1)
