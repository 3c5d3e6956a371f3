"""Layers with a state: convolution and recurrence together, heads that nobody measured, what a step makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.build import train
from calibrate.predictor.measured import ProfileError, ProfileQuery
from calibrate.predictor.profiles.kernel_tables import read_kernels
from calibrate.predictor.profiles.state_profiles import rows_of_heads
from replay.model import find_gpu, read_model_config
from replay.model.matmuls import DELTA_NETS, KIMI_DELTA
from replay.twin.profiled_table import model_of
from sim.latency import StepBatch
from tests.calibrate.predictor import made_profiles as profiles

HYBRID = {
    "model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 4, "attn_output_gate": True,
    "linear_num_value_heads": 8, "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_key_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip


def prompt_us(heads: float, batch: float, length: float) -> float:
    return 20.0 + 0.001 * heads * batch * length + 0.01 * length


def decode_us(heads: float, batch: float) -> float:
    return 5.0 + 0.1 * heads * batch


def state_parquet(folder: Path, *, heads: tuple[int, ...] = (4,), name: str = "gdn") -> Path:
    """Write a table whose convolution takes a quarter and the faster of two recurrences three quarters of the law."""
    common = {"head_k_dim": 64, "head_v_dim": 64, "d_conv": 4}
    kernels = (("causal_conv1d_fn", 0.25), ("recurrence", 0.75), ("slower", 2.0))
    rows = [
        {"phase": "context", "kernel_source": kernel, "num_k_heads": h // 2, "num_v_heads": h, "batch_size": b,
         "seq_len": s, "latency": share * prompt_us(h, b, s) / 1e3, **common}
        for h in heads for b in (1, 2, 4, 8) for s in (16, 64, 256, 1024) for kernel, share in kernels
    ] + [
        {"phase": phase, "kernel_source": kernel, "num_k_heads": h // 2, "num_v_heads": h, "batch_size": b,
         "seq_len": s, "latency": share * decode_us(h, b) / 1e3, **common}
        for h in heads for b in (1, 2, 4, 8, 16) for phase, s in (("generation", 1), ("verify", 4))
        for kernel, share in kernels
    ]  # fmt: skip
    path = folder / f"{name}_perf.parquet"
    pd.DataFrame(rows).assign(op_name=name).to_parquet(path)
    return path


def query(folder: Path, *, tp: int = 2, **changed: object) -> ProfileQuery:
    shape = read_model_config(profiles.config(folder, **{**HYBRID, **changed}))
    return ProfileQuery(shape=shape, gpu="H100", tp=tp)


def test_a_recurrence_is_its_convolution_and_the_fastest_kernel(tmp_path: Path) -> None:
    prompts, decodes = read_kernels(state_parquet(tmp_path), query(tmp_path))[0]
    assert (prompts.operator, prompts.features) == ("state_prefill", ("batch", "length"))
    np.testing.assert_allclose(prompts.time_us, [prompt_us(4, *point) for point in prompts.points])
    assert (decodes.operator, decodes.features) == ("state_decode", ("batch",))
    np.testing.assert_allclose(decodes.time_us, [decode_us(4, *point) for point in decodes.points])
    assert prompts.notes == ()


def test_half_the_heads_are_twice_the_batch(tmp_path: Path) -> None:
    prompts, decodes = read_kernels(state_parquet(tmp_path), query(tmp_path, tp=1))[0]
    assert prompts.points[:, 0].max() == 4
    np.testing.assert_allclose(decodes.time_us, [decode_us(4, 2 * batch) for batch in decodes.points[:, 0]])
    assert "num_v_heads=4 at 2 times the batch for num_k_heads=4, num_v_heads=8" in decodes.notes[0]


def test_heads_between_two_that_were_measured_lie_on_a_line(tmp_path: Path) -> None:
    path = state_parquet(tmp_path, heads=(4, 16))
    wanted = query(tmp_path, tp=1, linear_num_value_heads=6, linear_num_key_heads=3)
    decodes = read_kernels(path, wanted)[0][1]
    np.testing.assert_allclose(decodes.time_us, [decode_us(6, *point) for point in decodes.points])
    assert decodes.notes[0].endswith("num_v_heads=6 between 4 and 16")


def test_heads_of_which_only_a_part_of_the_kernels_was_measured_lie_between_others(tmp_path: Path) -> None:
    table = pd.read_parquet(state_parquet(tmp_path, heads=(4, 6, 16)))
    table = table.assign(time_us=table["latency"] * 1e3)
    table = table[(table["num_v_heads"] != 6) | (table["kernel_source"] != "causal_conv1d_fn")]
    found = rows_of_heads(table, tmp_path, {"num_k_heads": 3.0, "num_v_heads": 6.0}, name=KIMI_DELTA)
    assert found is not None
    assert found[1][0].endswith("num_v_heads=6 between 4 and 16")
    assert len(found[0]) > 0


def test_kimi_s_heads_lie_on_a_line_even_where_half_as_many_were_measured(tmp_path: Path) -> None:
    table = pd.read_parquet(state_parquet(tmp_path, heads=(4, 16)))
    table = table.assign(time_us=table["latency"] * 1e3)
    heads = {"num_k_heads": 4.0, "num_v_heads": 8.0}
    for name, said in ((KIMI_DELTA, "num_v_heads=8 between 4 and 16"), (DELTA_NETS, "at 2 times the batch")):
        found = rows_of_heads(table, tmp_path, heads, name=name)
        assert found is not None
        assert said in found[1][0]


def test_heads_that_no_table_has_are_named(tmp_path: Path) -> None:
    found, complaints = read_kernels(state_parquet(tmp_path, heads=(16,)), query(tmp_path))
    assert not found
    assert (
        "no rows of num_k_heads=2, num_v_heads=4 (nearest: num_k_heads=8, num_v_heads=16)"
        in complaints[0].text
    )


def test_a_table_of_another_recurrence_has_nothing(tmp_path: Path) -> None:
    assert read_kernels(state_parquet(tmp_path, name="kda"), query(tmp_path)) == ([], [])


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., int]:
    """Return what tells the duration of a step, of a hybrid that was trained on laws."""
    state_parquet(tmp_path)
    profiles.attention_parquets(tmp_path)
    profiles.gemm_parquet(tmp_path)
    file, _ = train([tmp_path], query(tmp_path), find_gpu("H100"), names=("grid",), step_overhead_us=0.0)
    model = model_of(file)

    def duration(**sums: int) -> int:
        zero = dict.fromkeys(StepBatch.__dataclass_fields__, 0)
        batch = StepBatch(**{name: np.array([value]) for name, value in {**zero, **sums}.items()})
        return int(model.durations_us(batch)[0])

    return duration


def test_a_chunk_takes_a_state_as_long_whatever_its_context(step: Callable[..., int]) -> None:
    """Two chunks of 512 and one of 1,024 have the law's difference in three layers; attention is one layer's."""
    two = {"num_prefill_tokens": 1024, "num_prefill_seqs": 2, "prefill_pairs": 2 * 512 * 513 // 2}
    one = {**two, "num_prefill_seqs": 1}  # the same pairs: attention and products are the same
    longer = 3 * (prompt_us(4, 1, 1024) - prompt_us(4, 2, 512))
    sampled = step(num_decode_tokens=0, **two) - step(num_decode_tokens=0, **one)
    assert -sampled == pytest.approx(longer, abs=3.0)


def test_without_the_table_of_states_the_layers_are_named(tmp_path: Path) -> None:
    profiles.attention_parquets(tmp_path)
    profiles.gemm_parquet(tmp_path)
    kind = r"3 layers of gated delta nets \(8 heads of 64 x 64\): not in .*; expected gdn for .* at tp 2"
    with pytest.raises(ProfileError, match=f"{kind}; latency.model roofline or physics knows such layers"):
        train([tmp_path], query(tmp_path), find_gpu("H100"))


def test_mamba_2_is_in_no_table(tmp_path: Path) -> None:
    profiles.gemm_parquet(tmp_path)
    shape = read_model_config("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    wanted = replace(query(tmp_path), shape=shape)
    with pytest.raises(
        ProfileError, match=r"23 layers of Mamba-2 .*: no table of measured kernels has such layers"
    ):
        train([tmp_path], wanted, find_gpu("H100"))
