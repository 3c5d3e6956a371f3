"""Step tables that ship: the servers that have one, found by model, GPU, tp and flags; equal to what is trained."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.profiled_table import StepTableFile, model_of, read_step_tables, write_step_tables
from replay.twin.step_tables.packed_table import read_packed, write_packed
from replay.twin.step_tables.shipped_tables import FOLDER, SERVERS, ShippedTable, shipped_tables, table_called
from sim import Physics, Profiled
from sim.latency.batch import StepBatch
from tests.traces.made import shared
from traces import ConfigError
from vtwin import main

H100 = "openai--gpt-oss-120b-H100-tp2"
NEAR = 2e-4
"""What times lose where they are packed."""
MOST_BYTES, MOST_BYTES_OF_ALL = 100_000, 1_500_000


def twin(folder: Path, latency: str, hardware: str = "", version: str = "0.24.0") -> Path:
    path = folder / "twin.yaml"
    lines = [
        f'vllm_version: "{version}"',
        "engine: {max_num_seqs: 64, max_num_batched_tokens: 4096, max_model_len: 8192, num_gpu_blocks: 9000}",
        *([f"hardware: {{{hardware}}}"] if hardware else []),
        f"latency: {{{latency}}}",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def steps() -> StepBatch:
    """Return steps of many kinds: prompts, decodes, both."""
    rng = np.random.default_rng(3)
    n = 400
    prefills, decodes = rng.integers(0, 4, n), rng.integers(0, 600, n)
    tokens = prefills * rng.integers(1, 4000, n)
    return StepBatch(
        num_prefill_tokens=tokens,
        num_decode_tokens=decodes,
        num_prefill_seqs=prefills,
        decode_context_tokens=decodes * rng.integers(1, 20_000, n),
        prefill_pairs=tokens * rng.integers(1, 9_000, n),
        prefill_context_tokens=tokens,
    )


def test_every_server_of_the_list_has_a_small_table_and_there_is_no_other() -> None:
    names = [each.name for each in shipped_tables()]
    files = {path.stem: path.stat().st_size for path in FOLDER.glob("*.npz")}
    assert sorted(names) == sorted(files)
    assert len(names) == len(set(names)) >= 20
    assert max(files.values()) <= MOST_BYTES
    assert sum(files.values()) <= MOST_BYTES_OF_ALL


@pytest.mark.parametrize("table", shipped_tables(), ids=lambda table: table.name)
def test_each_is_taken_by_a_twin_of_its_server_which_says_so(tmp_path: Path, table: ShippedTable) -> None:
    flags = f", quantization: {table.quantization}, kv_cache_dtype: {table.kv_cache_dtype}"
    path = twin(
        tmp_path,
        f"model: profiled, model_config: {table.model}{flags}",
        f"gpu: {table.gpu}, tp: {table.tp}",
        version="0.32.0",
    )
    config = load_config(path)
    assert isinstance(config.latency, Profiled)
    assert config.latency.origin == table.name
    assert config.latency == model_of(table.read())
    assert table.note in config.notes
    assert not any("in the KV cache's size alone" in note for note in config.notes)


def test_a_table_is_read_in_milliseconds() -> None:
    table = table_called(H100)
    assert table is not None
    best = min(_seconds(table.read) for _ in range(5))
    assert best < 0.05


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def test_a_twin_with_such_a_table_is_written_out_by_its_name_and_read_back(tmp_path: Path) -> None:
    config = load_config(
        twin(tmp_path, "model: profiled, model_config: openai/gpt-oss-120b", "gpu: H100, tp: 2")
    )
    text = dump_config(config)
    assert f'table: "{H100}"' in text
    (tmp_path / "again.yaml").write_text(text)
    assert load_config(tmp_path / "again.yaml").latency == config.latency


def test_a_fitted_twin_is_not_told_how_far_off_the_table_is_without_the_fit(tmp_path: Path) -> None:
    named = f"model: profiled, table: {H100}, coefficients: {{scale: 1.2}}"
    for fitted, told in (("", True), (", fitted_range: {rate_per_s: [1, 2]}", False)):
        notes = load_config(twin(tmp_path, named + fitted)).notes
        assert any("median errors" in note for note in notes) == told


def test_a_file_of_the_same_name_comes_first(tmp_path: Path) -> None:
    table = table_called(H100)
    assert table is not None
    file = table.read()
    write_step_tables(
        tmp_path / H100,
        StepTableFile(tables=file.tables, step_us=123.0, domain=file.domain, about={"components": []}),
    )
    latency = load_config(twin(tmp_path, f"model: profiled, table: {H100}")).latency
    assert isinstance(latency, Profiled)
    assert latency.step == 123.0
    (tmp_path / H100).unlink()
    latency = load_config(twin(tmp_path, f"model: profiled, table: {H100}")).latency
    assert isinstance(latency, Profiled)
    assert latency == model_of(file)


@pytest.mark.parametrize(
    "hardware",
    [
        "gpu: H100, tp: 8",
        "gpu: A100, tp: 2",
        "gpu: H100, tp: 2, pp: 2",
        "gpu: H100, tp: 2, dp: 2",
        "gpu: H100, tp: 2, enable_expert_parallel: true",
        "gpu: H100, tp: 2, memory_gib: 40",
    ],
)
def test_another_server_has_none_and_the_list_of_them_is_named(tmp_path: Path, hardware: str) -> None:
    path = twin(tmp_path, "model: profiled, model_config: openai/gpt-oss-120b", hardware)
    with pytest.raises(ConfigError, match=r"latency\.table: got nothing.*vtwin predictor list"):
        load_config(path)


@pytest.mark.parametrize("flag", ["kv_cache_dtype: fp8", "quantization: fp8_per_tensor"])
def test_a_server_in_other_numbers_has_none(tmp_path: Path, flag: str) -> None:
    path = twin(tmp_path, f"model: profiled, model_config: Qwen/Qwen3-32B, {flag}", "gpu: H100, tp: 2")
    with pytest.raises(ConfigError, match=r"latency\.table: got nothing"):
        load_config(path)


@pytest.mark.parametrize("table", shipped_tables(), ids=lambda table: table.name)
def test_auto_takes_no_table_that_nobody_named(tmp_path: Path, table: ShippedTable) -> None:
    path = twin(
        tmp_path,
        f"model: auto, model_config: {table.model}, quantization: {table.quantization}",
        f"gpu: {table.gpu}, tp: {table.tp}",
        version="0.32.0",
    )
    assert not isinstance(load_config(path).latency, Profiled)


def test_auto_takes_physics_where_a_table_ships(tmp_path: Path) -> None:
    path = twin(tmp_path, "model: auto, model_config: openai/gpt-oss-120b", "gpu: H100, tp: 2")
    assert isinstance(load_config(path).latency, Physics)


def test_packing_keeps_every_time_to_a_fifth_of_a_thousandth_and_the_operators(tmp_path: Path) -> None:
    table = table_called("moonshotai--Kimi-K2.5-B200-tp8")
    assert table is not None
    file = table.read()
    write_step_tables(tmp_path / "table.json", file)
    plain = read_step_tables(tmp_path / "table.json")
    write_packed(tmp_path / "packed.npz", plain)
    again = read_packed(tmp_path / "packed.npz")
    for name, times in plain.tables.items():
        np.testing.assert_allclose(again.tables[name], times, rtol=NEAR, atol=NEAR)
    batch = steps()
    before, after = (model_of(each).operators(batch) for each in (plain, again))
    assert set(before) == set(after) >= {"moe", "router_proj", "decode_attention"}
    for name, times in before.items():
        np.testing.assert_allclose(after[name], times, rtol=NEAR, atol=0.1)


def test_a_time_of_an_hour_is_not_packed(tmp_path: Path) -> None:
    endless = StepTableFile(
        tables={"tokens_us": np.array([1.0, 4e9])}, step_us=0, domain={}, about={"components": []}
    )
    with pytest.raises(ValueError, match="less than an hour"):
        write_packed(tmp_path / "packed.npz", endless)


def test_what_ships_is_what_is_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of them; ``python -m tests.studies.validation.pack_step_tables`` makes all."""
    data = shared("aiconfigurator_ops").parent
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from tests.studies.validation.pack_step_tables import trained

    table = table_called("Qwen--Qwen3-8B-H100-tp1")
    assert table is not None
    file, shipped = trained(table, data), table.read()
    assert shipped.step_us == file.step_us
    assert shipped.domain == dict(file.domain)
    assert shipped.about["warnings"] == file.about["warnings"]
    np.testing.assert_allclose(
        model_of(shipped).durations_us(steps()), model_of(file).durations_us(steps()), rtol=NEAR, atol=2
    )


def test_the_list_shows_servers_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predictor", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tables"]
    assert [each["table"] for each in told] == [each.name for each in shipped_tables()]
    assert main(["predictor", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SERVERS.read_text().splitlines())
    known = next(each for each in told if each["table"] == H100)
    (line,) = (line for line in lines if line.rstrip().endswith(H100))
    assert f"{known['ttft_error']:.0%}" in line
    assert known["points"] > 0
