"""Experts, engines in step and nodes: what they take of memory, of the link and of the step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replay.model import find_gpu, read_model_config
from replay.model.gpu_memory import weight_bytes
from replay.model.layout import Layout
from replay.model.model_peak import peak_times
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.start.from_serve import start_from_serve, twin_text
from sim import Physics, Roofline
from tests.sim.step_batches import batch_of
from traces.errors import ConfigError

MOE = read_model_config("Qwen/Qwen3-30B-A3B")
DENSE = read_model_config("Qwen/Qwen3-8B")
H100, A100 = find_gpu("H100"), find_gpu("A100-80")
STEP = batch_of([[(1, 1000, True)] * 64 + [(512, 0, False)]])


def test_experts_are_split_over_tensor_times_data_parallel_ranks() -> None:
    rest = weight_bytes(MOE, tp=2) - MOE.expert_parameters() / 2 * 2
    for layout in (Layout(dp=4), Layout(dp=4, enable_expert_parallel=True)):
        assert weight_bytes(MOE, tp=2, layout=layout) == pytest.approx(rest + MOE.expert_parameters() / 8 * 2)
    whole = weight_bytes(MOE, tp=2, layout=Layout(dp=3, enable_expert_parallel=True))
    assert whole == pytest.approx(
        rest + MOE.expert_parameters() * 22 / 128 * 2
    )  # 128 / 6 experts, rounded up


def test_engines_in_step_exchange_every_token_twice_per_layer_with_experts() -> None:
    one, four = (peak_times(MOE, H100, layout=Layout(dp=dp, enable_expert_parallel=dp > 1)) for dp in (1, 4))
    assert (one.all_to_all, one.num_all_to_alls, one.ep) == (0.0, 0, 1)
    assert (four.num_all_to_alls, four.ep) == (2 * MOE.num_moe_layers, 4)
    vectors = 2 * MOE.num_moe_layers * 3  # to and from three others
    assert four.all_to_all == pytest.approx(vectors * MOE.hidden_size * 2 / H100.link_bytes_per_us())
    deepep = Layout(dp=4, enable_expert_parallel=True, all2all_backend="deepep_high_throughput")
    to_experts = peak_times(MOE, H100, layout=deepep).all_to_all
    assert to_experts == pytest.approx(four.all_to_all / 3 * 8 * 3 / 4)  # to k = 8, a quarter of them its own


def test_expert_parallelism_without_engines_in_step_exchanges_nothing_more_as_in_vllm() -> None:
    slices, whole = (
        peak_times(MOE, H100, tp=4, layout=Layout(enable_expert_parallel=flag)) for flag in (False, True)
    )
    assert whole.num_all_to_alls == 0
    assert whole.all_reduce == slices.all_reduce
    tokens = np.array([1.0, 64.0, 4096.0])
    busier = whole.expert_imbalance(tokens)
    assert (np.diff(busier) < 0).all()
    assert 1 < busier[-1] < 1.05 < busier[0] <= 4
    assert (whole.experts_read_frac(tokens) >= slices.experts_read_frac(tokens)).all()


def test_the_busiest_gpu_is_as_busy_as_drawing_experts_makes_it() -> None:
    at_peak = peak_times(MOE, H100, tp=8, layout=Layout(enable_expert_parallel=True))
    rng = np.random.default_rng(1)
    for tokens in (16, 256):
        drawn = [
            np.bincount(
                np.concatenate([rng.choice(128, 8, replace=False) for _ in range(tokens)]) // 16, minlength=8
            )
            for _ in range(200)
        ]
        found = np.mean([loads.max() / loads.mean() for loads in drawn])
        expected = float(at_peak.expert_imbalance(np.array([float(tokens)]))[0])
        assert expected == pytest.approx(found, rel=0.12)


def test_a_group_beyond_a_node_talks_over_the_network() -> None:
    inside = peak_times(DENSE, A100, tp=8)
    between = peak_times(DENSE, A100, tp=8, layout=Layout(gpus_per_node=4))
    assert between.all_reduce / inside.all_reduce == pytest.approx(300 / 44)
    assert inside.waiting == 0
    # measured: 16 A100s on two nodes take 45 µs longer than 8 on one, in small messages
    assert between.waiting / between.num_all_reduces == pytest.approx(45, abs=2)


def test_pipeline_stages_pay_for_the_network_where_they_stand_on_two_nodes() -> None:
    layout = Layout(gpus_per_node=8)
    assert [layout.num_crossings(tp=tp, pp=pp) for tp, pp in ((4, 2), (8, 2), (4, 4), (8, 4), (1, 8))] == [
        0,
        1,
        1,
        3,
        0,
    ]
    one, two = peak_times(DENSE, H100, tp=4, pp=2), peak_times(DENSE, H100, tp=8, pp=2)
    assert two.send_recv > 5 * one.send_recv > 0
    assert (one.waiting, two.waiting) == (0.0, layout.network_us)


def test_skew_grows_with_the_group_as_vidur_has_it() -> None:
    two, eight = (peak_times(DENSE, H100, tp=tp, layout=Layout(nccl_skew_us=3.0)) for tp in (2, 8))
    assert two.waiting / two.num_all_reduces == pytest.approx(3 * 2**1.25)
    assert eight.waiting / eight.num_all_reduces == pytest.approx(3 * 8**1.25)


@pytest.mark.parametrize("model", [Roofline, Physics])
def test_what_gpus_wait_for_each_other_is_in_the_step(model: type[Roofline] | type[Physics]) -> None:
    plain = model(peak=peak_times(MOE, H100, tp=2))
    for layout in (Layout(nccl_skew_us=5.0), Layout(dp=2), Layout(dp=2, enable_expert_parallel=True)):
        other = model(peak=peak_times(MOE, H100, tp=2, layout=layout), all_reduce_us=plain.all_reduce_us)
        assert other.durations_us(STEP)[0] != plain.durations_us(STEP)[0]
    skewed = model(peak=peak_times(MOE, H100, tp=2, layout=Layout(nccl_skew_us=5.0)))
    more = 2 * MOE.num_layers * 5.0 * 2**1.25
    assert skewed.durations_us(STEP)[0] - plain.durations_us(STEP)[0] == pytest.approx(more, abs=1)


TWIN = "hardware: {gpu: H100, tp: 2, KEYS}\nlatency: {model: roofline, model_config: Qwen/Qwen3-30B-A3B}\n"


def test_pipeline_stages_are_the_engine_s_wherever_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    engine = "engine: {pipeline_parallel_size: 2}\n"
    for text in (TWIN.replace("KEYS", "pp: 2"), engine + TWIN.replace(", KEYS", "")):
        path.write_text(text)
        config = load_config(path)
        assert isinstance(config.latency, Roofline)
        assert (config.engine.pipeline_parallel_size, config.latency.peak.pp) == (2, 2)
        assert not any("stages" in note for note in config.notes)
        path.write_text(dump_config(config))
        assert load_config(path) == config
    path.write_text(engine + TWIN.replace("KEYS", "pp: 3"))
    with pytest.raises(
        ConfigError, match=r"hardware\.pp: got 3, expected engine\.pipeline_parallel_size's 2"
    ):
        load_config(path)


def test_a_fitted_model_s_time_is_divided_among_the_stages_and_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        "engine: {pipeline_parallel_size: 2}\n"
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    )
    assert any("divided evenly among them" in note for note in load_config(path).notes)


def test_the_keys_of_hardware_are_read_written_back_and_told(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    keys = "dp: 4, enable_expert_parallel: true, gpus_per_node: 4, network_gb_per_s: 25, nccl_launch_us: 9"
    keys += ", nccl_skew_us: 1"
    path.write_text(TWIN.replace("KEYS", keys))
    config = load_config(path)
    assert isinstance(config.latency, Roofline)
    at_peak = config.latency.peak
    assert (at_peak.dp, at_peak.ep, config.latency.all_reduce_us) == (4, 8, 9.0)
    assert at_peak.waiting > 0
    assert [note for note in config.notes if note.startswith("hardware.dp 4: one engine of 4 is simulated")]
    assert sum(config.num_gpus.values()) == config.gpus_of_pools[0][1] == 2, "those of the one engine: tp 2"
    for ranks, told in (
        (4, ""),
        (2, "cluster.lockstep: 2 instances in step, hardware.dp 4; expected the same number"),
    ):
        cluster = f"cluster: {{instances: {ranks}, lockstep: true}}\n"
        path.write_text(TWIN.replace("KEYS", keys) + cluster)
        notes = [note for note in load_config(path).notes if "hardware.dp" in note]
        assert len(notes) == bool(told)
        assert "".join(notes).startswith(told)
    path.write_text(TWIN.replace("KEYS", keys))
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert load_config(again) == config
    path.write_text(TWIN.replace("KEYS", "dp: 1"))
    assert load_config(path).engine.num_gpu_blocks < config.engine.num_gpu_blocks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWIN.replace("KEYS", "dp: 2").replace("30B-A3B", "8B"), "hardware.dp: got 2 for Qwen/Qwen3-8B, expected"),
        (TWIN.replace("KEYS", "enable_expert_parallel: true").replace("30B-A3B", "8B"), "a model with experts"),
        (TWIN.replace("KEYS", "dp: 65, enable_expert_parallel: true"), "= 130 GPUs, expected at most"),
        (TWIN.replace("KEYS", "expert_parallel_size: 2"), "did you mean enable_expert_parallel?"),
        (TWIN.replace("KEYS", "all2all_backend: carrier-pigeon"), "expected one of allgather_reducescatter"),
        (TWIN.replace("KEYS", "network_gb_per_s: 0"), "expected a number of GB/s > 0"),
        (TWIN.replace("KEYS", "nccl_launch_us: 3").replace("A3B}", "A3B, coefficients: {all_reduce_us: 4}}"),
         "all_reduce_us: cannot be combined with hardware.nccl_launch_us"),
    ],
)  # fmt: skip
def test_a_layout_that_does_nothing_or_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "twin.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "twin.yaml")
    assert message in str(refused.value)


def test_fitted_coefficients_have_the_layout_in_them_and_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(
        "hardware: {gpu: H100, pp: 2, nccl_skew_us: 1}\n"
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    )
    notes = load_config(tmp_path / "twin.yaml").notes
    said = "hardware.nccl_skew_us: in the latency's coefficients, if at all; here it has no effect"
    assert said in notes


def test_from_serve_maps_expert_and_data_parallelism(tmp_path: Path) -> None:
    command = "vllm serve Qwen/Qwen3-30B-A3B -tp 2 -dp 4 --enable-expert-parallel --all2all-backend deepep_low_latency"
    text, _ = twin_text(start_from_serve(command), gpu="H100")
    (tmp_path / "twin.yaml").write_text(text)
    latency = load_config(tmp_path / "twin.yaml").latency
    assert isinstance(latency, Physics)
    assert (latency.peak.tp, latency.peak.dp, latency.peak.ep) == (2, 4, 8)
    assert "  all2all_backend: deepep_low_latency\n" in text
