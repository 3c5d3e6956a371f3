"""Attention within a window, and products, put together of what was measured: by laws that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.profiles.kernel_tables import _connections, _experts, read_kernels
from calibrate.predictor.profiles.matmuls import curves_of
from calibrate.predictor.profiles.other_heads_windows import (
    FEWEST,
    _decode_factors,
    _prompt_factors,
    _surface,
    windowed_decodes,
    windowed_prompts,
)
from calibrate.predictor.profiles.vidur_profiles import read_vidur
from replay.model import read_model_config
from tests.calibrate.predictor import made_profiles as profiles
from tests.calibrate.predictor.made_profiles import wanted

WINDOW = 128
STEPS = (15, 63, 127, 255, 511)


def decodes(heads: int, window: int, factor: float = 1.0, *, steps: tuple[int, ...] = STEPS) -> pd.DataFrame:
    """A decode takes 1 µs for each sequence, KV head and key, within a window ``factor`` of what its keys take."""
    rows = [
        {
            "num_heads": 8 * heads,
            "num_key_value_heads": heads,
            "window_size": window,
            "batch_size": batch,
            "isl": 1,
            "step": step,
            "time_us": batch * heads * (min(step + 1, window) * factor if window else step + 1.0),
        }
        for batch in (1, 4)
        for step in steps
    ]
    return pd.DataFrame(rows)


def test_the_factor_of_a_window_is_what_longer_contexts_take_over_as_many_keys_as_it_holds() -> None:
    others = pd.concat([decodes(2, 0), decodes(2, WINDOW, 1.5), decodes(4, 0), decodes(4, WINDOW, 2.5)])
    factors = _decode_factors(others, WINDOW)
    assert factors.index.tolist() == [2, 4, 8, 16]
    assert factors.tolist() == [1.5, 2.5, 1.5, 2.5]
    own = decodes(4, 0)
    made = windowed_decodes(own, others, kv_heads=4, window=WINDOW)
    assert made is not None
    by = {(row.batch_size, row.step): row.time_us for row in made.itertuples()}
    assert by[1, 15] == 4 * 16  # what the window holds is all of it
    assert by[1, 127] == 4 * 128
    assert by[1, 255] == by[1, 511] == 4 * 128 * 2.5
    assert by[4, 511] == 16 * 128 * 2.5
    assert set(made["isl"]) == {1}


def test_heads_that_were_not_measured_up_to_the_window_tell_no_factor() -> None:
    short = decodes(2, 0, steps=(15, 63, 126))
    assert _decode_factors(pd.concat([short, decodes(2, WINDOW)]), WINDOW).empty
    just = decodes(2, 0, steps=(15, 127))
    assert len(_decode_factors(pd.concat([just, decodes(2, WINDOW)]), WINDOW)) == 2
    within = decodes(2, WINDOW, steps=(15, 127))  # none longer than the window
    assert _decode_factors(pd.concat([decodes(2, 0), within]), WINDOW).empty
    assert (
        windowed_decodes(decodes(4, 0), pd.concat([decodes(2, 0), within]), kv_heads=4, window=WINDOW) is None
    )


def prompts(heads: int, window: int, factor: float = 1.0) -> pd.DataFrame:
    """A prompt takes heads x tokens x keys that a query sees on average, half of it or what the window holds."""
    rows = [
        {
            "num_heads": heads,
            "num_key_value_heads": heads,
            "window_size": window,
            "batch_size": batch,
            "isl": isl,
            "time_us": heads
            * batch
            * isl
            * (min((isl + 1) / 2, window) * (factor if isl > window else 1) if window else (isl + 1) / 2),
        }
        for batch in (1, 4, 16)
        for isl in (32, 127, 128, 255, 512)
    ]
    return pd.DataFrame(rows)


def test_prompts_longer_than_the_window_take_its_keys_times_the_factor_of_other_heads() -> None:
    others = pd.concat([prompts(4, 0), prompts(4, WINDOW, 1.25)])
    factors = _prompt_factors(others, WINDOW)
    assert set(factors["isl"]) <= {255, 512}
    assert factors["factor"].to_numpy() == pytest.approx(1.25, rel=1e-6)
    made = windowed_prompts(prompts(2, 0), others, heads=2, window=WINDOW)
    assert made is not None
    for row in made.itertuples():
        keys = min((row.isl + 1) / 2, WINDOW)
        expected = 2 * row.batch_size * row.isl * keys * (1.25 if row.isl > WINDOW else 1)
        assert row.time_us == pytest.approx(expected, rel=1e-6)
    assert (made["isl"] <= WINDOW).sum() == 9
    assert (made["isl"] > WINDOW).any()


def test_a_surface_needs_four_points_of_two_lengths_and_two_batches() -> None:
    square = prompts(4, 0)[lambda rows: rows["isl"].isin([32, 512]) & rows["batch_size"].isin([1, 4])]
    assert len(square) == FEWEST
    assert _surface(square) is not None
    assert _surface(square[:3]) is None
    assert _surface(prompts(4, 0)[lambda rows: rows["isl"] == 32]) is None
    assert _surface(prompts(4, 0)[lambda rows: rows["batch_size"] == 1]) is None


def test_a_product_s_curve_is_of_its_own_shape_with_the_fastest_kernel() -> None:
    table = pd.DataFrame(
        [(8, 4, 2, 5.0), (8, 4, 1, 3.0), (8, 4, 1, 2.0), (8, 5, 1, 7.0), (9, 4, 1, 8.0), (9, 4, 3, 9.0)],
        columns=["n", "k", "m", "time_us"],
    )
    found = {shape: (m.tolist(), us.tolist()) for shape, (m, us) in curves_of(table).items()}
    assert found == {(8, 4): ([1, 2], [2, 5]), (8, 5): ([1], [7]), (9, 4): ([1, 3], [8, 9])}


@pytest.mark.parametrize(("pp", "names"), [(1, []), (2, ["pipeline_parallel_comm"])])
def test_what_stages_send_is_read_where_there_are_several(tmp_path: Path, pp: int, names: list[str]) -> None:
    sizes = 2048 * 2 ** np.arange(16)
    rows = pd.DataFrame({"time_stats.send_recv.median": 0.005 + 1e-7 * sizes, "size": sizes})
    path = tmp_path / "send_recv.csv"
    rows.assign(num_workers=2, devices_per_node=2, collective="send_recv").to_csv(path, index=False)
    assert [each.operator for each in read_vidur(path, wanted(tmp_path, tp=1, pp=pp))] == names
    reduced = [each.operator for each in read_vidur(profiles.network_csv(tmp_path), wanted(tmp_path, pp=pp))]
    assert reduced == ["tensor_parallel_comm"]


@pytest.mark.parametrize("name", ["context_attention", "generation_attention"])
def test_a_model_without_windows_takes_no_rows_within_one(name: str, tmp_path: Path) -> None:
    profiles.attention_parquets(tmp_path)
    path = tmp_path / f"{name}_perf.parquet"
    full = pd.read_parquet(path).assign(window_size=0)
    pd.concat([full, full.assign(window_size=WINDOW)]).to_parquet(path)
    assert len(read_kernels(path, wanted(tmp_path))[0]) == 1


def test_the_nearest_number_of_gpus_that_was_measured_is_named(tmp_path: Path) -> None:
    path = tmp_path / "custom_allreduce_perf.parquet"
    rows = pd.DataFrame({"num_gpus": [2, 4, 8] * 2, "message_size": [64] * 3 + [128] * 3, "latency": 0.01})
    rows.assign(op_name="all_reduce").to_parquet(path)
    (told,) = read_kernels(path, wanted(tmp_path, tp=16))[1]
    assert "no rows of 16 (nearest: 8)" in told.text


def test_several_hidden_states_are_mixed_as_long_as_was_measured_of_as_many(tmp_path: Path) -> None:
    asked, path = wanted(tmp_path), tmp_path / "mhc.parquet"
    streams = [1, 2, 2, 2, 3]
    table = pd.DataFrame({"hc_mult": streams, "num_tokens": [1, 1, 8, 1, 1], "time_us": [1.0, 2, 3, 4, 5]})
    table = table.assign(hidden_size=asked.shape.hidden_size, op_name=["a", "a", "a", "b", "b"])
    assert _connections(table, path, asked) == []
    two = replace(asked, shape=replace(asked.shape, residual_streams=2))
    found = {
        each.operator: (each.points.ravel().tolist(), each.time_us.tolist())
        for each in _connections(table, path, two)
    }
    assert found == {"connections_a": ([1, 8], [2, 3]), "connections_b": ([1], [4])}


def test_experts_take_as_long_as_the_fastest_kernel_of_the_first_distribution(tmp_path: Path) -> None:
    shape = read_model_config("Qwen/Qwen3-30B-A3B")
    rows = [
        (1, 9.0, "balanced"),
        (1, 5.0, "power_law_1.2"),
        (1, 4.0, "power_law_1.2"),
        (8, 7.0, "power_law_1.2"),
    ]
    table = pd.DataFrame(rows, columns=["num_tokens", "time_us", "distribution"]).assign(
        hidden_size=2048,
        inter_size=768,
        topk=8,
        num_experts=128,
        moe_tp_size=2,
        moe_ep_size=1,
        moe_dtype="bfloat16",
    )
    (found,) = _experts(table, tmp_path / "moe.parquet", replace(wanted(tmp_path), shape=shape))
    assert (found.points.ravel().tolist(), found.time_us.tolist()) == ([1, 8], [4, 7])
