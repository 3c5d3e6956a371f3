"""Layers with a window take what was measured with it; where that was not, what all keys take, as many as it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.build import train
from calibrate.predictor.component_tables import StepTables, all_axes
from calibrate.predictor.measured import ProfileQuery
from calibrate.predictor.profiles.other_heads_windows import windowed_decodes
from replay.model import find_gpu, read_model_config
from tests.calibrate.predictor import made_profiles as profiles

WINDOW, LAYERS = 128, 4


def tables(folder: Path, *, windows: tuple[int, ...]) -> Path:
    """Write attention at tp 2; a window of its own law: 30 µs whatever the context, and 0.01 µs per token of a step."""
    profiles.gemm_parquet(folder)
    profiles.attention_parquets(folder)
    for kind in ("context", "generation"):
        path = folder / f"{kind}_attention_perf.parquet"
        full = pd.read_parquet(path).assign(window_size=0)
        cut = [
            full.assign(window_size=each, latency=(30.0 + 0.01 * full["batch_size"] * full["isl"]) / 1e3)
            for each in windows
            if each
        ]
        pd.concat([full, *cut]).to_parquet(path)
    return folder


def step_of(folder: Path, **changed: object) -> StepTables:
    given = {"model_type": "mistral", "sliding_window": WINDOW, **changed}
    wanted = ProfileQuery(shape=read_model_config(profiles.config(folder, **given)), gpu="H100", tp=2)
    assert wanted.shape.num_windowed_layers == LAYERS
    return train([folder], wanted, find_gpu("H100"), names=("grid",))[1]


def decode_of(made: StepTables, sequences: int, keys: int) -> float:
    axes = all_axes()
    row, column = np.searchsorted(axes.sequences, sequences), np.searchsorted(axes.keys, keys)
    return float(made.decode_us[row, column])


def test_a_window_that_was_measured_is_taken_at_the_whole_context(tmp_path: Path) -> None:
    made = step_of(tables(tmp_path, windows=(WINDOW,)))
    assert decode_of(made, 8, 1024) == pytest.approx(LAYERS * (30 + 0.08))
    prompt = int(np.searchsorted(all_axes().tokens, 1024)), int(np.searchsorted(all_axes().keys, 512))
    assert made.prefill_us[prompt] == pytest.approx(LAYERS * (30 + 10.24), rel=0.02)


@pytest.mark.parametrize("windows", [(), (64,)])
def test_else_it_is_all_keys_attention_to_as_many_as_it_holds(
    windows: tuple[int, ...], tmp_path: Path
) -> None:
    made = step_of(tables(tmp_path, windows=windows))
    assert decode_of(made, 8, 1024) == pytest.approx(LAYERS * profiles.decode_us(8, WINDOW), rel=0.01)


# -- measured with other heads -------------------------------------------------------------------------------------

FACTOR = 1.3


def other_heads(folder: Path, *, width: int = 64) -> Path:
    """Write attention at tp 2; other heads besides, whose window takes FACTOR times as many keys without one."""
    profiles.gemm_parquet(folder)
    profiles.attention_parquets(folder)
    for kind in ("context", "generation"):
        path = folder / f"{kind}_attention_perf.parquet"
        own = pd.read_parquet(path).assign(window_size=0)
        others = own.assign(num_heads=16, num_key_value_heads=2, head_dim=width)
        keys = (others["step"] + 1) if kind == "generation" else (others["isl"] + 1) / 2
        within = np.minimum(keys, WINDOW)
        if kind == "generation":
            us = profiles.decode_us(1, 0) + 0.002 * others["batch_size"] * within
        else:
            us = 10 + 1e-3 * others["batch_size"] * others["isl"] * within
        is_cut = keys > WINDOW if kind == "generation" else others["isl"] > WINDOW
        cut = others.assign(window_size=WINDOW, latency=us * np.where(is_cut, FACTOR, 1.0) / 1e3)
        pd.concat([own, others, cut]).to_parquet(path)
    return folder


def test_a_window_that_other_heads_were_measured_with_takes_as_much_more_as_theirs(tmp_path: Path) -> None:
    made = step_of(other_heads(tmp_path))
    assert decode_of(made, 8, 1024) == pytest.approx(
        LAYERS * FACTOR * profiles.decode_us(8, WINDOW), rel=0.01
    )
    assert decode_of(made, 8, 64) == pytest.approx(LAYERS * profiles.decode_us(8, 64), rel=0.01)
    prompt = int(np.searchsorted(all_axes().tokens, 1024)), int(np.searchsorted(all_axes().keys, 512))
    assert made.prefill_us[prompt] == pytest.approx(LAYERS * FACTOR * (10 + 1e-3 * 1024 * WINDOW), rel=0.05)


def test_heads_of_another_width_say_nothing_of_a_window(tmp_path: Path) -> None:
    made = step_of(other_heads(tmp_path, width=128))
    assert decode_of(made, 8, 1024) == pytest.approx(LAYERS * profiles.decode_us(8, WINDOW), rel=0.01)


def rows_of(*, heads: int, kv_heads: int, window: int, us: float) -> pd.DataFrame:
    """Return decodes of 1 to 8 sequences that take so long beyond 128 keys, 10 µs before."""
    rows = pd.DataFrame(
        [(b, s) for b in (1, 2, 4, 8) for s in (63, 127, 255, 511)], columns=["batch_size", "step"]
    )
    return rows.assign(
        isl=1,
        num_heads=heads,
        num_key_value_heads=kv_heads,
        window_size=window,
        time_us=np.where(rows["step"] + 1 > 128, us, 10.0),
    )


def test_factors_are_by_sequences_times_kv_heads() -> None:
    own = rows_of(heads=8, kv_heads=4, window=0, us=50.0)
    others = [rows_of(heads=8, kv_heads=kv, window=0, us=50.0) for kv in (1, 8)]
    others += [
        rows_of(heads=8, kv_heads=kv, window=128, us=10.0 * factor) for kv, factor in ((1, 1.2), (8, 1.5))
    ]
    made = windowed_decodes(own, pd.concat(others), kv_heads=4, window=128)
    assert made is not None
    told = made.set_index(["batch_size", "step"])["time_us"]
    assert told[1, 127] == 10
    assert told[1, 511] == pytest.approx(12)  # 4 blocks, as one sequence of 4 heads, or four of one
    assert told[8, 511] == pytest.approx(15)  # 32 blocks: of the eight heads alone
    assert windowed_decodes(own, pd.concat(others[:2]), kv_heads=4, window=128) is None
