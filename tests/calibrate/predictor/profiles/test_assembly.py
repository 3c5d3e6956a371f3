"""What a step is put together of: products without disturbed points, routers, whole experts, norms over all heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.predictor.build import train
from calibrate.predictor.components import needed
from calibrate.predictor.measured import ProfileQuery
from calibrate.predictor.profiles.kernel_tables import read_kernels
from calibrate.predictor.profiles.matmuls import DISTURBED, undisturbed
from calibrate.predictor.profiles.sources import read_profiles
from replay.model import find_gpu, peak_times, read_model_config
from tests.calibrate.predictor import made_profiles as profiles

H200 = find_gpu("H200")
MINIMAX, QWEN, LLAMA = "MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3-235B-A22B-FP8", "meta-llama/Llama-3.1-70B"
TIMES = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12)


def asked(model: str, *, tp: int, has_whole_experts: bool = False) -> ProfileQuery:
    return ProfileQuery(
        shape=read_model_config(model), gpu="H200", tp=tp, has_whole_experts=has_whole_experts
    )


def runs(wanted: ProfileQuery) -> dict[str, float]:
    return {each.name: each.count(each.query(wanted)) for each in needed(wanted)}


@given(TIMES)
def test_a_point_is_kept_that_took_no_longer_than_more_work_by_a_quarter(times: list[float]) -> None:
    work, time_us = np.arange(1.0, len(times) + 1), np.array(times)
    kept, kept_us = undisturbed(work, time_us)
    expected = [n for n, took in enumerate(times) if all(took <= DISTURBED * later for later in times[n:])]
    assert kept.tolist() == work[expected].tolist()
    assert kept_us.tolist() == time_us[expected].tolist()


def test_disturbed_products_are_left_out_of_those_that_are_put_together(tmp_path: Path) -> None:
    """The law: 2 µs and 10⁻⁶ µs a multiplication; of 4 and 64 tokens the wider shape took 700 µs more."""

    def law(m: int, n: int, k: int) -> float:
        return 2.0 + 1e-6 * m * n * k + (700.0 if m in (4, 64) and n == 512 else 0.0)

    tables, _ = read_kernels(profiles.gemm_parquet(tmp_path, law), profiles.wanted(tmp_path))
    (found,) = (each for each in tables if each.operator == "attn_pre_proj")
    assert found.notes == ("gemm_perf.parquet: attn_pre_proj with n=384 of 256 and 512",)
    tokens = found.points[:, 0]
    assert tokens.tolist() == [1, 16, 256, 1024]
    assert found.time_us == pytest.approx(2.0 + 1e-6 * tokens * 384 * 512)


@pytest.mark.parametrize(
    ("model", "tp", "normed", "collectives"),
    [(MINIMAX, 4, 62, 62), (MINIMAX, 1, 62, None), (QWEN, 4, 94, None), (LLAMA, 4, None, None)],
)
def test_norms_of_queries_and_keys_over_all_heads_are_reduced_once_more(
    model: str, tp: int, normed: int | None, collectives: int | None
) -> None:
    found = runs(asked(model, tp=tp))
    assert (found.get("attn_qk_norm"), found.get("qk_norm_comm")) == (normed, collectives)
    assert peak_times(read_model_config(model), H200, tp=tp).norm_layers == (collectives or 0)


def test_a_norm_over_all_heads_sends_eight_bytes_a_token(tmp_path: Path) -> None:
    """The law of the table: 5 µs, and 10⁻⁴ µs a byte; a hidden state is 6,144 bytes."""
    rows = [
        {"num_gpus": 4, "message_size": 2.0**i, "latency": (5.0 + 2e-4 * 2**i) / 1e3} for i in range(4, 28)
    ]
    path = tmp_path / "all_reduce.parquet"
    pd.DataFrame(rows).assign(op_name="all_reduce").to_parquet(path)
    attention = tmp_path / "attention"
    attention.mkdir()
    profiles.attention_parquets(attention, heads=12, kv_heads=2)
    for table in attention.glob("*.parquet"):
        pd.read_parquet(table).assign(head_dim=128).to_parquet(table)
    made = train([path, attention], asked(MINIMAX, tp=4), H200, names=("polynomial",))[1]
    times = {each.component.name: each.time_us for each in made.components}
    assert times["qk_norm_comm"][16] == pytest.approx(5.0 + 1e-4 * 16 * 8, rel=1e-3)
    assert times["tensor_parallel_comm"][16] == pytest.approx(5.0 + 1e-4 * 16 * 6144, rel=1e-3)


def experts_parquet(folder: Path) -> Path:
    """Write experts of MiniMax-M2.5 in slices (10 µs a token) and whole on each of the GPUs (20, of 8 GPUs 40)."""
    common = {
        "hidden_size": 3072, "inter_size": 1536, "topk": 8, "num_experts": 256, "moe_dtype": "fp8_block",
        "distribution": "power_law_1.01", "op_name": "moe",
    }  # fmt: skip
    slices = {(4, 1): 10.0, (1, 4): 20.0, (1, 8): 40.0}
    rows = [
        {"num_tokens": n, "moe_tp_size": tp, "moe_ep_size": ep, "latency": us * n / 1e3, **common}
        for (tp, ep), us in slices.items()
        for n in (1, 4, 16, 64, 256)
    ]
    path = folder / "moe_perf.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("tp", "has_whole_experts", "us"), [(4, False, 10.0), (4, True, 20.0), (8, False, 40.0), (8, True, 40.0)]
)
def test_whole_experts_have_rows_of_their_own(
    tmp_path: Path, tp: int, has_whole_experts: bool, us: float
) -> None:
    """On 8 GPUs a slice would cut a block of FP8 weights: vLLM has whole experts there, asked or not."""
    wanted = asked(MINIMAX, tp=tp, has_whole_experts=has_whole_experts)
    found = read_profiles([experts_parquet(tmp_path)], wanted).tables["moe"]
    assert found.time_us == pytest.approx(us * found.points[:, 0])


def test_a_router_is_a_product_of_its_own(tmp_path: Path) -> None:
    gemm = profiles.gemm_parquet(tmp_path, sizes=(256, 3072))
    tables, _ = read_kernels(gemm, asked(MINIMAX, tp=1))
    (table,) = (each for each in tables if each.operator == "router_proj")
    assert table.time_us == pytest.approx(2.0 + 1e-6 * table.points[:, 0] * 256 * 3072)
    assert runs(asked(MINIMAX, tp=1))["router_proj"] == 62
    assert "router_proj" not in runs(asked(LLAMA, tp=1))
