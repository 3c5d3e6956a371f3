"""What steps outside CUDA graphs take at least: by the twin's model, unless its file or a fit says otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.pipeline import fit
from replay import TwinConfig, simulate_trace
from replay.model.hf_config import read_model_config
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.start.from_serve import start_from_serve, twin_text
from sim.latency import Analytic
from tests.calibrate.known_servers import observed, workload

MODEL = "Qwen/Qwen3-14B"
LAYERS = 40
OTHER = "openai/gpt-oss-120b"
"""A model for whose graphs vLLM sets memory aside."""
TWIN = "hardware: {gpu: B200}\nengine: {KEYS}\nlatency: {model: LATENCY, model_config: Qwen/Qwen3-14B}\n"
BLACKBOX = "blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9000, beta1: 1, beta2: 1}"


def twin(folder: Path, keys: str = "", *, latency: str = "physics", model: str = MODEL) -> TwinConfig:
    path = folder / "twin.yaml"
    path.write_text(TWIN.replace("KEYS", keys).replace("LATENCY", latency).replace(MODEL, model))
    return load_config(path)


def ttft_us(config: TwinConfig, prompt: int) -> float:
    """Return the TTFT of a lone prompt of so many tokens."""
    lone = observed(workload(1, rate=1, seed=1, prompt=(prompt, 0.0), output=(8, 0.0)), config)
    run, _ = simulate_trace(lone, config, record="none")
    times = run.requests["content_first_time_us"] - run.requests["send_time_us"]
    return float(times.iloc[0])


@pytest.mark.parametrize("latency", ["physics", "roofline"])
def test_each_layer_s_launches_take_time_where_the_file_says_nothing(tmp_path: Path, latency: str) -> None:
    assert read_model_config(MODEL).num_layers == LAYERS
    assert twin(tmp_path, latency=latency).engine.launch_us == 700 * LAYERS
    assert twin(tmp_path, "launch_us: 0", latency=latency).engine.launch_us == 0
    assert twin(tmp_path, "launch_us: 9000", latency=latency).engine.launch_us == 9000


def test_a_mixture_of_experts_waits_for_its_launches_without_graphs_alone(tmp_path: Path) -> None:
    assert twin(tmp_path, model=OTHER).engine.launch_us == 0
    assert twin(tmp_path, "enforce_eager: true", model=OTHER).engine.launch_us == 700 * 36


def test_coefficients_that_somebody_fitted_have_it_in_them(tmp_path: Path) -> None:
    assert twin(tmp_path, latency=BLACKBOX).engine.launch_us == 0
    fitted = "physics, fitted_range: {rate_per_s: [1, 2]}"
    assert twin(tmp_path, latency=fitted).engine.launch_us == 0


def test_a_prompt_just_beyond_the_graphs_waits_for_the_launches_and_one_within_does_not(
    tmp_path: Path,
) -> None:
    with_launch, without = twin(tmp_path), twin(tmp_path, "launch_us: 0")
    assert ttft_us(with_launch, 500) == ttft_us(without, 500)
    assert 10_000 < ttft_us(with_launch, 600) - ttft_us(without, 600) < 700 * LAYERS
    assert ttft_us(with_launch, 8000) == ttft_us(without, 8000)  # computing takes longer than launching


def test_without_graphs_every_step_waits_and_their_memory_is_the_cache_s(tmp_path: Path) -> None:
    eager, graphs = twin(tmp_path, "enforce_eager: true", model=OTHER), twin(tmp_path, model=OTHER)
    assert eager.engine.num_gpu_blocks > graphs.engine.num_gpu_blocks
    lone = observed(workload(1, rate=1, seed=1, prompt=(100, 0.0), output=(50, 0.0)), eager)
    run, _ = simulate_trace(lone, eager, record="none")
    took = run.requests["last_token_time_us"] - run.requests["content_first_time_us"]
    assert float(took.iloc[0]) / 49 == pytest.approx(eager.engine.launch_us, rel=0.05)


@pytest.mark.parametrize("latency", ["physics", "roofline"])
def test_without_graphs_no_step_is_padded_to_a_captured_size_unless_the_file_says_so(
    tmp_path: Path, latency: str
) -> None:
    def takes(keys: str, of: str = latency) -> list[int]:
        tokens = np.array([9, 16, 257, 272])
        model = twin(tmp_path, keys, latency=of, model="Qwen/Qwen3-30B-A3B").latency
        assert isinstance(model, Analytic)
        return model.padded(tokens).tolist()  # type: ignore[no-any-return]

    assert takes("") == [16, 16, 272, 272]
    assert takes("enforce_eager: true") == [9, 16, 257, 272]
    written = f"{latency}, coefficients: {{max_capture_size: 128}}"
    assert takes("enforce_eager: true", written) == [16, 16, 257, 272]


@pytest.mark.parametrize(
    ("gpu", "keys", "latency", "told"),
    [
        (
            "H100",
            "enforce_eager: true",
            "physics",
            "28.0 ms at least (engine.launch_us), 700 µs of CPU for each",
        ),
        ("B200", "enforce_eager: true", "physics", "H100, L20, A800, not with B200"),
        (
            "H100",
            "enforce_eager: true",
            BLACKBOX,
            "engine.launch_us, what a step takes at least, is to be given",
        ),
        ("H100", "enforce_eager: true, launch_us: 9000", "physics", ""),
        ("H100", "enforce_eager: true", f"{BLACKBOX}, fitted_range: {{rate_per_s: [1, 2]}}", ""),
        ("H100", "", "physics", ""),
    ],
)
def test_a_run_without_graphs_is_told_how_long_its_steps_take_at_least(
    tmp_path: Path, gpu: str, keys: str, latency: str, told: str
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(TWIN.replace("B200", gpu).replace("KEYS", keys).replace("LATENCY", latency))
    notes = [note for note in load_config(path).notes if note.startswith("engine.enforce_eager")]
    assert [told in note for note in notes] == ([True] if told else [])


def test_what_a_model_takes_without_graphs_is_shown_before_there_is_a_twin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    documents = {}
    for flag in ("", "--enforce-eager"):
        asked = f"model info --model-config {OTHER} --gpu B200 --json {flag}"
        assert vtwin.main(asked.split()) == 0
        documents[flag] = json.loads(capsys.readouterr().out)
    graphs, eager = documents[""], documents["--enforce-eager"]
    assert graphs["memory"]["cuda_graph_bytes"] > eager["memory"]["cuda_graph_bytes"] == 0
    assert eager["num_gpu_blocks"] > graphs["num_gpu_blocks"]
    assert graphs["launch_us"] == {"beyond_graphs": 0, "enforce_eager": 700 * 36}
    assert vtwin.main(["model", "info", "--model-config", MODEL, "--gpu", "H100"]) == 0
    line = next(
        each for each in capsys.readouterr().out.splitlines() if each.startswith("without a CUDA graph")
    )
    assert "28.0 ms at least (beyond the graphs' tokens, or with --enforce-eager)" in line


def test_the_flag_of_vllm_serve_is_the_key(tmp_path: Path) -> None:
    text, notes = twin_text(start_from_serve(f"vllm serve {MODEL} --enforce-eager"))
    (tmp_path / "started.yaml").write_text(text)
    assert load_config(tmp_path / "started.yaml").engine.enforce_eager
    assert not any("enforce-eager" in note for note in notes)


def test_a_fit_takes_no_launches_for_granted_that_the_file_does_not_give(tmp_path: Path) -> None:
    given, derived = twin(tmp_path, "launch_us: 9000"), twin(tmp_path)
    for config, expected in ((given, 9000), (derived, 0)):
        seen = [fit_trace(observed(workload(40, rate=4, seed=2), config, noise=0.02), config, name="a")]
        found = fit(seen, config).config
        assert found.engine.launch_us == expected
        (tmp_path / "fitted.yaml").write_text(dump_config(found))
        assert f"launch_us: {expected}" in dump_config(found) or expected == 0
        assert np.isfinite(found.latency.engine_terms()).all()
