"""Reading profiles: whatever the file's form, an operator, its features, its times; and what is wrong, in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.measured import MissingRows, OperatorTable, ProfileError, operator_table
from calibrate.predictor.profiles.kernel_tables import read_kernels
from calibrate.predictor.profiles.sources import read_profiles
from calibrate.predictor.profiles.vidur_profiles import read_vidur
from replay.model import Precision
from tests.calibrate.predictor import made_profiles as profiles
from tests.calibrate.predictor.made_profiles import wanted


def by_name(tables: list[OperatorTable]) -> dict[str, OperatorTable]:
    return {table.operator: table for table in tables}


def test_vidur_s_mlp_profile_is_ten_operators_by_tokens(tmp_path: Path) -> None:
    found = by_name(read_vidur(profiles.mlp_csv(tmp_path), wanted(tmp_path)))
    assert len(found) == 10
    up = found["mlp_up_proj"]
    assert up.features == ("tokens",)
    assert up.points[:, 0].tolist() == profiles.TOKENS
    np.testing.assert_allclose(up.time_us, 40.0 + 0.3 * np.array(profiles.TOKENS))
    assert found["mlp_norm"].time_us[0] == pytest.approx(4.02)


def test_vidur_s_attention_is_prefill_by_context_and_chunk_and_decode_by_batch_and_keys(
    tmp_path: Path,
) -> None:
    found = by_name(read_vidur(profiles.attention_csv(tmp_path), wanted(tmp_path)))
    prefill, decode = found["attn_prefill"], found["attn_decode"]
    assert (prefill.features, decode.features) == (("kv", "chunk"), ("batch", "keys"))
    np.testing.assert_allclose(prefill.time_us, [profiles.prefill_us(*point) for point in prefill.points])
    np.testing.assert_allclose(decode.time_us, [profiles.decode_us(*point) for point in decode.points])


def test_a_decode_s_own_token_is_one_of_the_keys_it_reads(tmp_path: Path) -> None:
    decode = by_name(read_vidur(profiles.attention_csv(tmp_path), wanted(tmp_path)))["attn_decode"]
    assert decode.domain[1] == (32.0, 1024.0)


def test_collectives_are_by_bytes_and_of_the_number_of_gpus_asked_for(tmp_path: Path) -> None:
    table = by_name(read_vidur(profiles.network_csv(tmp_path), wanted(tmp_path)))["tensor_parallel_comm"]
    assert table.features == ("bytes",)
    assert len(table.points) == 16
    assert read_vidur(profiles.network_csv(tmp_path), wanted(tmp_path, tp=1)) == []


@pytest.mark.parametrize("shout", [False, True], ids=["lower case", "capitals"])
def test_cpu_overheads_are_read_in_either_of_vidur_s_spellings(tmp_path: Path, shout: bool) -> None:
    file = profiles.cpu_csv(tmp_path, shout=shout)
    found = by_name(read_vidur(file, wanted(tmp_path, served_model="org/model")))
    assert sorted(found) == ["inter_process", "prepare_inputs", "process_outputs", "sampler", "schedule"]
    assert found["schedule"].time_us[0] == pytest.approx(108.0)
    assert found["schedule"].notes == ()


def test_without_a_served_model_cpu_overheads_are_the_median_over_models_and_say_so(tmp_path: Path) -> None:
    found = by_name(read_vidur(profiles.cpu_csv(tmp_path), wanted(tmp_path)))
    assert found["schedule"].notes == ("median over 2 models: none was named",)


def test_a_point_measured_twice_is_one_point_of_their_median() -> None:
    table = operator_table("x", {"tokens": [4, 4, 4, 8]}, [1.0, 2.0, 9.0, 5.0], source="s")
    assert table.points.tolist() == [[4.0], [8.0]]
    assert table.time_us.tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"n_embd": 4096}, r"mlp.csv: no rows of n_embd=512 \(nearest: n_embd=4096\)"),
        ({"num_tensor_parallel_workers": 4}, "no rows of num_tensor_parallel_workers=2"),
        (
            {"n_kv_head": 8, "n_head": 32},
            r"no rows of n_head=8, n_kv_head=2 \(nearest: n_head=32, n_kv_head=8\)",
        ),
    ],
)
def test_a_profile_without_the_model_s_shape_names_the_field_and_the_nearest(
    tmp_path: Path, changed: dict[str, object], complaint: str
) -> None:
    with pytest.raises(MissingRows, match=complaint):
        read_vidur(profiles.mlp_csv(tmp_path, **changed), wanted(tmp_path))


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = profiles.mlp_csv(tmp_path)
    pd.read_csv(path).rename(columns={"num_tokens": "num_token"}).to_csv(path, index=False)
    with pytest.raises(ProfileError, match=r"mlp.csv: no column 'num_tokens' \(nearest: 'num_token'\)"):
        read_vidur(path, wanted(tmp_path))


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("num_tokens", "many", "column 'num_tokens': got 'many', expected a whole number"),
        (
            "time_stats.mlp_act.median",
            -1.0,
            "column 'time_stats.mlp_act.median': got -1.0, expected a time of 0 to",
        ),
        (
            "time_stats.mlp_act.median",
            "soon",
            "column 'time_stats.mlp_act.median': got 'soon', expected a time of 0 to",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path: Path, column: str, value: object, complaint: str) -> None:
    path = profiles.mlp_csv(tmp_path)
    table = pd.read_csv(path, dtype=object)
    table.loc[3, column] = value
    table.to_csv(path, index=False)
    with pytest.raises(ProfileError, match=complaint):
        read_vidur(path, wanted(tmp_path))


def test_a_profile_without_rows_says_so(tmp_path: Path) -> None:
    path = profiles.mlp_csv(tmp_path)
    pd.read_csv(path).iloc[:0].to_csv(path, index=False)
    with pytest.raises(ProfileError, match=r"mlp\.csv: no rows, expected measurements"):
        read_vidur(path, wanted(tmp_path))


def test_kernel_tables_hold_the_products_of_a_layer(tmp_path: Path) -> None:
    found = by_name(read_kernels(profiles.gemm_parquet(tmp_path), wanted(tmp_path))[0])
    assert sorted(found) == ["attn_post_proj", "attn_pre_proj", "lm_head", "mlp_down_proj", "mlp_up_proj"]
    up = found["mlp_up_proj"]  # gate and up, 1024 wide, over two GPUs
    np.testing.assert_allclose(up.time_us, 2.0 + 1e-6 * up.points[:, 0] * 1024 * 512)
    assert found["lm_head"].features == ("sequences",)
    assert up.notes == ()


def test_a_product_that_was_not_measured_is_linear_between_its_neighbours_and_says_so(tmp_path: Path) -> None:
    found = by_name(
        read_kernels(profiles.gemm_parquet(tmp_path, sizes=(256, 512, 2048)), wanted(tmp_path))[0]
    )
    up = found["mlp_up_proj"]
    np.testing.assert_allclose(up.time_us, 2.0 + 1e-6 * up.points[:, 0] * 1024 * 512)
    assert up.notes == ("gemm_perf.parquet: mlp_up_proj with n=1024 of 512 and 2048",)


def test_beyond_the_largest_product_times_grow_in_proportion(tmp_path: Path) -> None:
    path = profiles.gemm_parquet(tmp_path, law=lambda m, n, k: 1e-6 * m * n * k, sizes=(256, 512))
    up = by_name(read_kernels(path, wanted(tmp_path))[0])["mlp_up_proj"]
    np.testing.assert_allclose(up.time_us, 1e-6 * up.points[:, 0] * 1024 * 512)


def test_attention_tables_give_prefills_their_tokens_and_mean_keys(tmp_path: Path) -> None:
    profiles.attention_parquets(tmp_path)
    prefill = read_kernels(tmp_path / "context_attention_perf.parquet", wanted(tmp_path))[0][0]
    assert prefill.features == ("keys", "tokens")
    np.testing.assert_allclose(prefill.time_us, 10.0 + 1e-3 * prefill.points.prod(axis=1))
    decode = read_kernels(tmp_path / "generation_attention_perf.parquet", wanted(tmp_path))[0][0]
    np.testing.assert_allclose(decode.time_us, [profiles.decode_us(*point) for point in decode.points])


def test_twice_the_heads_are_half_the_batch(tmp_path: Path) -> None:
    """8 heads and 2 KV heads on one GPU, of a table with 4 and 1: 16 sequences of it are 8 of ours."""
    profiles.attention_parquets(tmp_path)
    decode = read_kernels(tmp_path / "generation_attention_perf.parquet", wanted(tmp_path, tp=1))[0][0]
    times = {(b, k): t for (b, k), t in zip(decode.points.tolist(), decode.time_us, strict=True)}
    assert times[8, 256] == pytest.approx(profiles.decode_us(16, 256))
    assert "at 2 times the batch" in decode.notes[0]


def test_heads_that_no_table_has_are_named_with_the_nearest(tmp_path: Path) -> None:
    profiles.attention_parquets(tmp_path, heads=64, kv_heads=64)
    found, complaints = read_kernels(tmp_path / "context_attention_perf.parquet", wanted(tmp_path))
    assert not found
    assert "no rows of num_heads=4, num_key_value_heads=1 (nearest: num_heads=64" in complaints[0].text


def test_one_product_that_no_table_has_leaves_the_others(tmp_path: Path) -> None:
    """In a precision that was not measured; before, the whole table counted for nothing."""
    shape = wanted(tmp_path).shape
    odd = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
    query = replace(wanted(tmp_path), shape=replace(shape, mlp_precision=odd))
    found, complaints = read_kernels(profiles.gemm_parquet(tmp_path), query)
    assert sorted(by_name(found)) == ["attn_post_proj", "attn_pre_proj", "lm_head"]
    assert ["no rows of 'fp8' for mlp_up_proj" in each.text for each in complaints] == [True, False]


def test_a_product_that_some_layers_have_in_another_precision_is_their_mean(tmp_path: Path) -> None:
    path = profiles.gemm_parquet(tmp_path)
    rows = pd.read_parquet(path)
    quicker = rows.assign(gemm_dtype="fp8", latency=rows["latency"] / 2)
    pd.concat([rows, quicker]).to_parquet(path)
    shape = wanted(tmp_path).shape
    fp8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
    mixed = replace(shape, products=(("mlp_up_proj", ((fp8, 0.75), (shape.mlp_precision, 0.25))),))
    up = by_name(read_kernels(path, replace(wanted(tmp_path), shape=mixed))[0])["mlp_up_proj"]
    law = 2.0 + 1e-6 * up.points[:, 0] * 1024 * 512
    np.testing.assert_allclose(up.time_us, law * (0.75 / 2 + 0.25))
    assert up.notes[0].endswith("mlp_up_proj: 75% of it in fp8")


# -- which files count ----------------------------------------------------------------------------------------


def test_the_first_profile_that_has_an_operator_counts(tmp_path: Path) -> None:
    vidur = profiles.vidur_folder(tmp_path)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    gemm = profiles.gemm_parquet(kernels)
    first = read_profiles([vidur, gemm], wanted(tmp_path)).tables
    second = read_profiles([gemm, vidur], wanted(tmp_path)).tables
    assert first["mlp_up_proj"].source.endswith("mlp.csv")
    assert second["mlp_up_proj"].source.endswith("gemm_perf.parquet")
    assert first["lm_head"].source.endswith("gemm_perf.parquet")


def test_two_files_of_one_folder_with_the_same_operator_are_refused(tmp_path: Path) -> None:
    vidur = profiles.vidur_folder(tmp_path)
    (vidur / "again.csv").write_bytes((vidur / "mlp.csv").read_bytes())
    with pytest.raises(ProfileError, match=r"measured in .*again.csv and in .*mlp.csv, expected one of them"):
        read_profiles([vidur], wanted(tmp_path))


def test_a_folder_s_files_of_another_gpu_are_passed_over_and_a_file_of_one_is_refused(tmp_path: Path) -> None:
    vidur = profiles.vidur_folder(tmp_path)
    vidur.rename(tmp_path / "h100")
    with pytest.raises(ProfileError, match=r"no profile of A100"):
        read_profiles([tmp_path / "h100"], wanted(tmp_path))
    named = tmp_path / "h100_mlp.csv"
    named.write_bytes((tmp_path / "h100/mlp.csv").read_bytes())
    with pytest.raises(ProfileError, match=r"h100_mlp.csv: a profile of H100, expected A100"):
        read_profiles([named], wanted(tmp_path))


@pytest.mark.parametrize(("asked", "factor"), [(None, 3), ("0.20.0", 2), ("0.14.0", 1)])
def test_of_several_versions_the_newest_or_the_one_asked_for_counts(
    tmp_path: Path, asked: str | None, factor: int
) -> None:
    for number, version in enumerate(("0.14.0", "0.18.0", "0.24.0"), start=1):
        profiles.gemm_parquet(tmp_path / "gemm" / version, law=lambda m, _n, _k, x=number: float(m * x))
    found = read_profiles([tmp_path / "gemm"], wanted(tmp_path, vllm_version=asked)).tables
    assert found["mlp_up_proj"].time_us[0] == pytest.approx(factor)


def test_what_does_not_fit_is_told_only_where_nothing_else_does(tmp_path: Path) -> None:
    vidur = profiles.vidur_folder(tmp_path)
    profiles.mlp_csv(vidur, n_embd=4096)
    found = read_profiles([vidur], wanted(tmp_path))
    assert "mlp_up_proj" not in found.tables
    assert "no rows of n_embd=512" in found.complaints[0].text


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_profile_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProfileError, match=name):
        read_profiles([tmp_path / name], wanted(tmp_path))
