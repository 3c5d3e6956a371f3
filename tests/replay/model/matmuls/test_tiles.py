"""Tiles of a model's products: their edges, their factors, and why there are none."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from replay.gpus.cli import model_app
from replay.model import find_gpu, read_model_config
from replay.model.matmuls.measured_times import UNITS_PER_E, measured_gpus, measured_products
from replay.model.matmuls.products import needed_matmuls
from replay.model.matmuls.tiles import READING, smooth, tiles_of
from tests.studies.validation.pack_matmuls import SOURCES

QWEN, LLAMA = "Qwen/Qwen3-14B", "meta-llama/Llama-3.1-8B"


def test_a_14b_model_on_an_h100_takes_a_quarter_longer_beyond_1024_tokens_and_an_8b_hardly() -> None:
    edges = {name: {edge.tokens: edge.rise for edge in tiles_of(read_model_config(name), find_gpu("H100")).edges()}
             for name in (QWEN, LLAMA)}  # fmt: skip
    assert max(edges[QWEN], key=lambda tokens: edges[QWEN][tokens]) == 1024
    assert edges[QWEN][1024] == pytest.approx(0.27, abs=0.02)
    assert edges[LLAMA][1024] == pytest.approx(0.06, abs=0.02)


def test_products_add_up_to_what_was_measured_of_each() -> None:
    """Two of the 14B's products are in the table by their very shapes, two lie between; the LM head is no layer's."""
    shape = read_model_config(QWEN)
    products = {each.operator: each for each in needed_matmuls(shape)}
    assert (products["attn_pre_proj"].n, products["attn_pre_proj"].k) == (7168, 5120)
    assert (products["mlp_up_proj"].n, products["mlp_down_proj"].k) == (34816, 17408)
    curves = measured_products("H100", ("bfloat16",))
    tokens, first = curves[7168, 5120]
    _, second = curves[5120, 5120]
    at = list(tokens).index(1025)
    n_share = (34816 - 16384) / (51200 - 16384)
    up = [curves[n, 5120][1][at] for n in (16384, 51200)]
    k_share = (17408 - 16384) / (51200 - 16384)
    down = [curves[5120, k][1][at] for k in (16384, 51200)]
    layer = first[at] + second[at]
    layer += up[0] * (1 - n_share) + up[1] * n_share + down[0] * (1 - k_share) + down[1] * k_share
    assert dict(tiles_of(shape, find_gpu("H100")).measured)[1025] == pytest.approx(40 * layer)


def test_factors_are_1_where_weights_are_read_and_lie_around_1_beyond() -> None:
    found = tiles_of(read_model_config(QWEN), find_gpu("H100"))
    factors = dict(found.factors)
    assert factors[1] == factors[READING] == 1.0
    logs = [math.log(factor) for tokens, factor in found.factors if tokens > READING]
    assert abs(np.mean(logs)) < 0.02
    assert all(one < other for (one, _), (other, _) in pairwise(found.factors))


def test_a_smooth_curve_through_points_of_one_is_that_one() -> None:
    tokens = np.array([300.0, 600, 1200, 5000, 16000])
    assert smooth(tokens, np.hypot(40, 0.1 * tokens)) == pytest.approx(np.hypot(40, 0.1 * tokens), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "gpu", "reason"),
    [
        (QWEN, "A100", "no measured products of A100-80 ship"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "H100", "how many tokens each expert gets"),
        ("deepseek-ai/DeepSeek-V3", "H100", "experts"),
    ],
)
def test_where_there_are_none_the_reason_is_told(model: str, gpu: str, reason: str) -> None:
    found = tiles_of(read_model_config(model), find_gpu(gpu))
    assert found.factors == ()
    assert reason in found.reason


def test_model_info_says_where_the_edges_are() -> None:
    asked = ["info", "--model-config", QWEN, "--gpu", "H100"]
    said = CliRunner().invoke(model_app, asked).stdout
    assert "27% beyond 1,024 tokens in a step" in said


@pytest.mark.skipif("VTWIN_DATA" not in os.environ, reason="needs the public tables (VTWIN_DATA)")
@pytest.mark.parametrize("gpu", measured_gpus())
def test_the_tables_that_ship_are_the_public_ones(gpu: str) -> None:
    table = pd.read_parquet(Path(os.environ["VTWIN_DATA"]) / "aiconfigurator_ops" / SOURCES[gpu])
    rows = table[(table["gemm_dtype"] == "fp8") & (table["n"] == 4096) & (table["k"] == 12288)]
    fastest = rows[rows["m"] <= 16_384].groupby("m")["latency"].min() * 1000
    tokens, times = measured_products(gpu, ("fp8",))[4096, 12288]
    assert tokens.tolist() == fastest.index.tolist()
    assert times == pytest.approx(fastest.to_numpy(), rel=1 / UNITS_PER_E)
