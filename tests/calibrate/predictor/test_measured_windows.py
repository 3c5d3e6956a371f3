"""Layers with a window take what was measured with it; where that was not, what all keys take, as many as it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.build import train
from calibrate.predictor.component_tables import StepTables, all_axes
from calibrate.predictor.measured import ProfileQuery
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
