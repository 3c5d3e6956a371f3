"""Experts take what was measured of their shape, precision, GPU and version; where nothing was, the formula holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from replay.model import find_gpu, read_model_config
from replay.model.kernels.expert_kernels import SHIPPED, _slices, expert_curve
from replay.model.layout import Layout
from replay.model.matmuls.measured_times import unpacked
from replay.model.model_peak import peak_times
from replay.model.shape import ModelShape
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.latency import physics_sets
from sim import InvalidConfig, Physics, StepBatch

QWEN = "Qwen/Qwen3-30B-A3B"
MINIMAX = "MiniMaxAI/MiniMax-M2.5"
KIMI = "moonshotai/Kimi-K2.5"


SIZES = (2048, 768, 8, 128)
"""Of Qwen's experts: the hidden size, their width, how many a token takes, how many there are."""


def shape(name: str = MINIMAX) -> ModelShape:
    return read_model_config(name)


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "version", "source"),
    [
        (MINIMAX, "H100", 4, "0.32.0", "h100, vLLM 0.24, fp8_block"),
        (MINIMAX, "H200", 4, "0.22.0", "h200, vLLM 0.22, fp8_block"),
        (MINIMAX, "H200", 4, "0.16.0", "h200, vLLM 0.22, fp8_block"),
        (MINIMAX, "H200", 4, "0.15.0", "h200, vLLM 0.14, fp8_block"),
        (MINIMAX, "H200", 4, "0.23.0", "h200, vLLM 0.24, fp8_block"),
        (MINIMAX, "H200", 4, "nightly", "h200, vLLM 0.24, fp8_block"),
        (MINIMAX, "B300", 2, "0.19.0", "b200, vLLM 0.24, fp8_block"),
        ("openai/gpt-oss-120b", "H100", 1, "0.12.0", "h100, vLLM 0.24, w4a16_mxfp4"),
        (KIMI, "B200", 8, "0.32.0", "b200, vLLM 0.24, int4_wo"),
        (QWEN, "H100", 1, "0.32.0", "h100, vLLM 0.24, bfloat16"),
    ],
)
def test_the_nearest_version_of_the_gpu_s_generation_is_taken(
    model: str, gpu: str, tp: int, version: str, source: str
) -> None:
    found = expert_curve(shape(model), find_gpu(gpu), tp=tp, version=version)
    assert found is not None
    assert found.source == source
    assert list(found.tokens) == sorted(found.tokens)


@pytest.mark.parametrize(
    ("model", "gpu"), [(QWEN, "A10G"), (QWEN, "H20"), (QWEN, "MI300X"), ("Qwen/Qwen3-14B", "H100")]
)
def test_where_nothing_like_it_was_measured_there_is_no_table(model: str, gpu: str) -> None:
    assert expert_curve(shape(model), find_gpu(gpu), tp=1) is None
    assert peak_times(shape(model), find_gpu(gpu)).experts_us == ()


def test_experts_of_other_sizes_have_no_table() -> None:
    known = shape(QWEN)
    assert known.experts is not None
    other = replace(known, experts=replace(known.experts, intermediate_size=801))
    assert expert_curve(other, find_gpu("H100"), tp=1) is None


def test_a_slice_that_was_not_measured_is_the_nearest_scaled_by_width() -> None:
    known = expert_curve(shape(KIMI), find_gpu("H200"), tp=32)
    wider = expert_curve(shape(KIMI), find_gpu("H200"), tp=128)
    assert known is not None
    assert wider is not None
    assert wider.source == known.source
    assert wider.time_us == pytest.approx([each / 4 for each in known.time_us], abs=2e-3)
    assert wider.time_us == tuple(round(each, 3) for each in wider.time_us)


def test_a_slice_is_of_its_width_and_of_its_whole_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five numbers of tokens one slice was measured at four, one at three, and one, of whole experts, at all."""
    table = {
        "gpus": np.array(["h100"]),
        "versions": np.array(["0.24"]),
        "precisions": np.array(["bfloat16"]),
        "tokens": np.array([1, 2, 4, 8, 16]),
        "slices": np.array([[0, 0, 0, *SIZES, tp, ep] for tp, ep in ((1, 1), (2, 1), (1, 2))]),
        "units": np.array([[9, 9, 0, 9, 9], [9, 0, 0, 9, 9], [7, 7, 7, 7, 7]], np.uint16),
    }
    monkeypatch.setattr("replay.model.kernels.expert_kernels._table", lambda: table)
    monkeypatch.setattr("replay.model.kernels.expert_kernels._slices", _slices.__wrapped__)
    found = _slices.__wrapped__("h100", "0.24", "bfloat16", SIZES)
    assert {key: each[0].tolist() for key, each in found.items()} == {
        (1, 1): [1, 2, 8, 16],
        (1, 2): [1, 2, 4, 8, 16],
    }
    qwen = shape(QWEN)
    times = [unpacked(np.array(unit, np.uint16)).item() for unit in (9, 7)]
    for tp, ep, time_us in ((1, 1, times[0]), (4, 1, times[0] / 4), (2, 2, times[1])):
        curve = expert_curve(qwen, find_gpu("H100"), tp=tp, ep=ep)
        assert curve is not None
        assert curve.time_us[0] == round(time_us, 3)


def test_between_points_time_is_a_line_of_logs_and_beyond_the_last_it_grows_as_tokens_do() -> None:
    at_peak = replace(
        peak_times(shape(QWEN), find_gpu("H100")),
        num_moe_layers=3,
        experts_tokens=(1.0, 4.0, 16.0),
        experts_us=(10.0, 20.0, 80.0),
    )
    found = at_peak.measured_experts(np.array([0.0, 1.0, 2.0, 8.0, 16.0, 32.0]))
    assert found == pytest.approx([0, 30, 30 * 2**0.5, 120, 240, 480])


def test_a_step_takes_the_table_s_time_in_place_of_the_formula_s() -> None:
    at_peak = peak_times(shape(QWEN), find_gpu("H100"))
    none = np.array([0])
    batch = StepBatch(
        num_prefill_tokens=none,
        num_decode_tokens=np.array([8]),
        decode_context_tokens=np.array([800]),
        prefill_pairs=none,
        num_prefill_seqs=none,
        prefill_context_tokens=none,
    )
    bare = replace(at_peak, expert_matmul=0.0, expert_weights=0.0, experts_tokens=(), experts_us=())
    whole, rest = (Physics(peak=each).durations_us(batch)[0] for each in (at_peak, bare))
    eight = dict(zip(at_peak.experts_tokens, at_peak.experts_us, strict=True))[8.0]
    assert whole - rest == pytest.approx(eight * at_peak.num_moe_layers, abs=2)


def test_engines_that_share_experts_keep_the_formula() -> None:
    both = Layout(dp=2, enable_expert_parallel=True)
    assert peak_times(shape(QWEN), find_gpu("H100"), layout=both).experts_us == ()


def test_blocks_that_a_slice_would_cut_make_experts_whole() -> None:
    assert peak_times(shape(), find_gpu("H200"), tp=4).ep == 1
    assert peak_times(shape(), find_gpu("H200"), tp=8).ep == 8
    assert peak_times(shape("deepseek-ai/DeepSeek-V3"), find_gpu("H200"), tp=8).ep == 1
    assert peak_times(shape(QWEN), find_gpu("H200"), tp=4).ep == 1  # 192 columns, but not of FP8 blocks


def test_layers_that_cut_inputs_in_blocks_or_are_latent_are_counted() -> None:
    assert peak_times(shape(), find_gpu("H200")).block_layers == 62
    assert peak_times(shape(QWEN), find_gpu("H200")).block_layers == 0
    assert peak_times(shape(KIMI), find_gpu("H200"), tp=8).latent_layers == 61
    assert peak_times(shape(), find_gpu("H200")).latent_layers == 0


def twin(
    folder: Path, *, model: str = QWEN, tp: int = 1, coefficients: str = "{}", gpu: str = "H100"
) -> Path:
    path = folder / "twin.yaml"
    path.write_text(
        f"hardware: {{gpu: {gpu}, tp: {tp}}}\n"
        f"latency: {{model: physics, model_config: {model}, coefficients: {coefficients}}}\n"
    )
    return path


def test_a_twin_with_a_table_is_the_same_when_it_is_written_out(tmp_path: Path) -> None:
    config = load_config(twin(tmp_path))
    assert isinstance(config.latency, Physics)
    assert config.latency.peak.experts_us
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert load_config(again).latency == config.latency


def test_coefficients_are_those_that_were_learned_beside_the_table(tmp_path: Path) -> None:
    measured = load_config(twin(tmp_path)).latency
    dense = load_config(twin(tmp_path, model="Qwen/Qwen3-14B")).latency
    named = load_config(twin(tmp_path, coefficients="silicon-2026")).latency
    sets = physics_sets()
    assert isinstance(measured, Physics)
    assert isinstance(dense, Physics)
    assert isinstance(named, Physics)
    assert measured.moe_layer_us == sets["experts-2026"]["moe_layer_us"]
    assert dense.layer_us == sets["dense-2026"]["layer_us"]
    assert named.layer_us == sets["silicon-2026"]["layer_us"]
    assert named.peak.experts_us == ()  # that set was learned with the formula


def test_whole_experts_that_nobody_asked_for_are_told(tmp_path: Path) -> None:
    told = [
        note
        for note in load_config(twin(tmp_path, model=MINIMAX, tp=8, gpu="H200")).notes
        if "whole experts" in note
    ]
    assert len(told) == 1
    assert "hardware.tp 8" in told[0]
    assert not [note for note in load_config(twin(tmp_path, model=MINIMAX, tp=4)).notes if "whole" in note]


@pytest.mark.parametrize(
    ("tokens", "times", "message"),
    [
        ((1.0, 2.0), (3.0,), "experts_us: got 1 times, expected one for each of the 2 experts_tokens"),
        ((2.0, 1.0), (3.0, 4.0), "experts_tokens: got numbers that do not rise"),
        ((1.0, 2.0), (3.0, 0.0), "experts_us: got 0, expected times > 0"),
        ((1.0, 2.0), (3.0, float("nan")), "experts_us: got .*expected a finite number"),
    ],
)
def test_a_table_that_is_none_is_refused(
    tokens: tuple[float, ...], times: tuple[float, ...], message: str
) -> None:
    at_peak = peak_times(shape(QWEN), find_gpu("H100"))
    with pytest.raises(InvalidConfig, match=message):
        replace(at_peak, experts_tokens=tokens, experts_us=times)


def test_the_table_is_small() -> None:
    assert SHIPPED.stat().st_size < 300_000
