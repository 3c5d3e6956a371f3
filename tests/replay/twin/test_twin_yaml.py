"""TWIN.yaml names a model and a GPU; what they amount to can be written out, and auto says what it took and why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.latency import physics_sets
from sim import Blackbox, Physics, Roofline
from traces.errors import ConfigError

ROOFLINE = "hardware: {gpu: H100, tp: 2}\nlatency: {model: roofline, model_config: Qwen/Qwen3-32B}\n"


def twin(folder: Path, text: str) -> Path:
    path = folder / "twin.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("model", ["roofline", "physics"])
def test_a_configuration_written_out_is_the_same_again(tmp_path: Path, model: str) -> None:
    text = ROOFLINE.replace("roofline", model) + "seed: 7\n"
    first = load_config(twin(tmp_path, text))
    again = load_config(twin(tmp_path, dump_config(first)))
    assert again == first
    assert isinstance(first.latency, Roofline | Physics)
    assert first.latency.peak.tp == 2
    np.testing.assert_array_equal(first.latency.engine_terms(), again.latency.engine_terms())


def test_the_kv_cache_is_what_the_gpu_leaves_room_for_and_the_notes_say_so(tmp_path: Path) -> None:
    config = load_config(twin(tmp_path, ROOFLINE))
    assert 15_000 < config.engine.num_gpu_blocks < 25_000
    assert any("left by Qwen/Qwen3-32B on H100, tp 2" in note for note in config.notes)
    told = load_config(twin(tmp_path, ROOFLINE + "engine: {num_gpu_blocks: 100, max_model_len: 512}\n"))
    assert told.engine.num_gpu_blocks == 100
    measured = "hardware: H100\nlatency: {model: blackbox, model_config: Llama-3.1-8B, coefficients: "
    measured += "{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    assert load_config(twin(tmp_path, measured)).engine.num_gpu_blocks > 20_000


def test_hardware_is_a_name_or_numbers(tmp_path: Path) -> None:
    by_name = load_config(twin(tmp_path, ROOFLINE.replace("{gpu: H100, tp: 2}", "h100")))
    slower = ROOFLINE.replace("{gpu: H100, tp: 2}", "{gpu: h100, bandwidth_gb_per_s: 1676}")
    assert isinstance(by_name.latency, Roofline)
    by_numbers = load_config(twin(tmp_path, slower)).latency
    assert isinstance(by_numbers, Roofline)
    assert by_numbers.peak.weights == pytest.approx(2 * by_name.latency.peak.weights)
    assert by_numbers.peak.matmul == by_name.latency.peak.matmul


def test_coefficients_are_those_given_and_the_model_s_own(tmp_path: Path) -> None:
    text = ROOFLINE.replace("}\n", "}\n", 1).replace(
        "Qwen3-32B}", "Qwen3-32B, coefficients: {layer_us: 3, alpha0: 5}}"
    )
    latency = load_config(twin(tmp_path, text)).latency
    assert isinstance(latency, Roofline)
    assert (latency.layer_us, float(latency.alpha0)) == (3.0, 5.0)
    assert latency.step_us == Roofline(peak=latency.peak).step_us


def test_the_peer_s_published_coefficients_ship_under_a_name(tmp_path: Path) -> None:
    text = ROOFLINE.replace("roofline", "physics").replace(
        "Qwen3-32B}", "Qwen3-32B, coefficients: blis-iter29}"
    )
    latency = load_config(twin(tmp_path, text)).latency
    assert isinstance(latency, Physics)
    assert (latency.weights, latency.decode_kv, latency.layer_us) == (1.36252915, 1.94710771, 32.09546717)
    assert float(latency.alpha0) == 15563.199579
    for coefficients in physics_sets().values():
        Physics(peak=latency.peak, **coefficients)  # type: ignore[arg-type]


AUTO = "latency: {model: auto, model_config: MODEL}\nhardware: {gpu: H100, tp: 1}\n"


@pytest.mark.parametrize(
    ("text", "model", "reason"),
    [
        ("latency: {model: auto, defaults: {model: meta-llama/llama-3.1-8b-instruct, gpu: H100, tp: 1}}\n", Blackbox,
         "blackbox, since coefficients of meta-llama/llama-3.1-8b-instruct on H100 tp=1 vLLM 0.11.0 are on record"),
        (AUTO.replace("MODEL", "Qwen/Qwen3-32B"), Physics,
         "physics, since no coefficients of Qwen/Qwen3-32B on H100 tp=1 are on record"),
        (AUTO.replace("MODEL", "Llama-3.1-8B"), Physics,
         "physics, since the coefficients of meta-llama/llama-3.1-8b-instruct on H100 tp=1 vLLM 0.11.0 on record are "
         "weakly identified"),
        (AUTO.replace("MODEL", "Llama-3.1-8B").replace("H100", "RTX 4090"), Blackbox,
         "blackbox, since coefficients of meta-llama/Llama-3.1-8B on RTX 4090 tp=1 vLLM 0.19.0 are on record"),
        (AUTO.replace("MODEL", "Qwen/Qwen3-32B").replace("H100, tp: 1", "RTX PRO 6000, tp: 2"), Blackbox,
         "blackbox, since coefficients of Qwen/Qwen3-32B on RTX PRO 6000 tp=2 vLLM 0.19.0 are on record"),
        ("latency: {model: auto, defaults: {model: meta-llama/llama-3.1-8b-instruct, gpu: H100, tp: 1}, "
         'model_config: Llama-3.1-8B}\nhardware: H100\nvllm_version: "0.32.0"\n', Physics,
         "on record are of vLLM 0.11.0"),
    ],
)  # fmt: skip
def test_auto_takes_the_best_at_hand_and_says_why(
    tmp_path: Path, text: str, model: type, reason: str
) -> None:
    config = load_config(twin(tmp_path, text))
    assert type(config.latency) is model
    assert reason in config.latency_reason
    assert config.latency_reason in config.notes


@pytest.mark.parametrize(
    ("gpu", "model", "expected"),
    [
        ("RTXPRO6000", "Qwen/Qwen3-30B-A3B", Roofline),
        ("RTXPRO6000", "Qwen/Qwen3-14B", Physics),
        ("RTX4090", "Qwen/Qwen3-30B-A3B", Physics),
    ],
)
def test_auto_takes_roofline_where_measured_servers_say_that_it_is_nearer(
    tmp_path: Path, gpu: str, model: str, expected: type
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(f"hardware: {{gpu: {gpu}, tp: 4}}\nlatency: {{model: auto, model_config: {model}}}\n")
    config = load_config(path)
    assert type(config.latency) is expected
    assert any("nearer than physics to a server" in note for note in config.notes) == (expected is Roofline)


def test_auto_takes_roofline_for_what_physics_was_not_learned_on(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt_neox", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, '
        '"num_attention_heads": 8, "vocab_size": 32000}'
    )
    config = load_config(twin(tmp_path, AUTO.replace("MODEL", "config.json")))
    assert type(config.latency) is Roofline
    assert "roofline" in config.latency_reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latency: {model: roofline, model_config: Qwen/Qwen3-32B}\n",
         r"hardware: got nothing, expected a GPU's name"),
        ("latency: {model: roofline}\nhardware: H100\n",
         r"latency\.model_config: got nothing, expected a Hugging Face"),
        ("latency: {model: roofline, model_config: nowhere.json}\nhardware: H100\n",
         r"model config: got nothing at nowhere"),
        (ROOFLINE.replace("H100", "H1000"),
         r"hardware \(.*twin\.yaml:1\): got 'H1000', expected a GPU .*nearest: H100"),
        (ROOFLINE.replace("tp: 2", "tensor_parallel_size: 2"), r"did you mean tp\?"),
        (ROOFLINE.replace("tp: 2", "tp: 3"), r"tp: got 3, expected a divisor"),
        (ROOFLINE.replace("Qwen3-32B}", "Qwen3-32B, coefficients: {layer: 3}}"),
         r"latency\.coefficients\.layer: unknown key"),
        (ROOFLINE.replace("Qwen3-32B}", "Qwen3-32B, coefficients: {compute_efficiency: 2}}"),
         r"latency\.coefficients\.compute_efficiency: got 2\.0, expected a share"),
        (ROOFLINE.replace("roofline", "physics").replace("Qwen3-32B}", "Qwen3-32B, coefficients: blis}"),
         r"latency\.coefficients: got blis, expected one of silicon-2026, experts-2026, dense-2026, blis-iter29"),
        ("latency: {model: auto}\n", r"latency\.model_config: got nothing"),
        (ROOFLINE.replace("{gpu: H100, tp: 2}", "{tp: 2, memory_gib: 80}"),
         r"bandwidth_gb_per_s: got nothing, expected"),
        ("latency: {model: roofline, peak: {matmul: 1, hops: 2}}\n", r"latency\.peak\.hops: unknown key"),
        ("latency: {model: roofline, peak: {matmul: 1}}\n", r"latency\.peak: .*missing"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_one_line_that_says_what_would_do(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(twin(tmp_path, text))
    assert "\n" not in str(caught.value)


OWN = """
from dataclasses import dataclass
import numpy as np
from sim import LatencyModel
from sim.latency.latency_model import TABULATED
from sim.latency.tabulated import StepTable

@dataclass(frozen=True, slots=True, kw_only=True)
class Flat(LatencyModel):
    step_us: float = 10.0
    engine_kind = property(lambda self: TABULATED)

    def engine_terms(self):
        line = np.full(3, self.step_us)
        return StepTable(compute=0 * line, reading=0 * line, rest=line).terms()

class NoModel:
    pass
"""


def test_a_model_of_one_s_own_is_taken_from_a_file_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTWIN_ALLOW_CODE", "1")
    (tmp_path / "own.py").write_text(OWN)
    first = load_config(
        twin(tmp_path, 'latency: {model: "own.py:Flat", coefficients: {step_us: 25, alpha0: 3}}\n')
    )
    assert (first.latency.step_us, float(first.latency.alpha0)) == (25.0, 3.0)  # type: ignore[attr-defined]
    assert "own.py:Flat" in dump_config(first)
    again = load_config(twin(tmp_path, dump_config(first)))
    np.testing.assert_array_equal(again.latency.engine_terms(), first.latency.engine_terms())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("own.py:Flatt", "expected a dataclass in own.py that derives from sim.LatencyModel"),
        ("own.py:NoModel", "expected a dataclass in own.py"),
        ("nowhere.py:Flat", "got nowhere.py:Flat .no file .*expected FILE.py:Class"),
        ("no_such_module:Flat", "got no_such_module:Flat"),
    ],
)
def test_a_model_of_one_s_own_that_is_none_is_refused_in_one_line(
    tmp_path: Path, model: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTWIN_ALLOW_CODE", "1")
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ConfigError, match=rf"latency\.model: .*{message}"):
        load_config(twin(tmp_path, f'latency: {{model: "{model}"}}\n'))


def test_the_result_says_which_model_was_taken_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = twin(tmp_path, AUTO.replace("MODEL", "Qwen/Qwen2.5-7B-Instruct"))
    asked = [
        "run",
        "--config",
        str(path),
        "--rate",
        "4",
        "--num-requests",
        "5",
        "--output",
        str(tmp_path / "out"),
    ]
    assert vtwin.main([*asked, "--json"]) == 0
    shown = capsys.readouterr()
    latency = json.loads(shown.out)["latency"]
    assert latency["model"] == "physics"
    assert "on record are weakly identified" in latency["reason"]
    assert latency["reason"] in shown.err
