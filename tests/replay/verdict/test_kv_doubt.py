"""Where nobody told the size of the KV cache, an answer that hangs on it says so, and how far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import vtwin
from replay import load_config
from replay.twin.twin_config import TwinConfig
from replay.verdict.kv_doubt import KvDoubt, kv_doubt
from traces import ConfigError

OVERLOAD = float("inf")
HARDWARE = "hardware: {gpu: A100-40}\nlatency: {model: physics, model_config: Qwen/Qwen3-14B}\n"
PLAIN = "latency: {model: blackbox, coefficients: {alpha0: 1, alpha1: 0, alpha2: 0, beta0: 9, beta1: 1, beta2: 1}}"
LOAD = ("--num-requests", "300", "--prompt-tokens", "2000", "--output-tokens", "300")


def twin_of(tmp_path: Path, text: str = HARDWARE) -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize(
    ("text", "is_assumed"),
    [
        (HARDWARE, True),
        (HARDWARE.replace("A100-40", "A100-40, gpu_memory_utilization: 0.92"), False),
        (HARDWARE.replace("A100-40", "A100-40, kv_cache_memory_bytes: 9000000000"), False),
        (f"engine: {{num_gpu_blocks: 3000}}\n{HARDWARE}", False),
        (PLAIN, False),
    ],
)
def test_it_is_known_whether_somebody_told_the_size(tmp_path: Path, text: str, is_assumed: bool) -> None:
    assert twin_of(tmp_path, text).assumes_memory is is_assumed


def doubt_of(twin: TwinConfig, answers: Mapping[float, float | None]) -> tuple[KvDoubt | None, list[float]]:
    """Return the doubt where TTFT is ``answers`` by the share of the blocks (None: refused), and what was asked."""
    blocks, asked = twin.engine.num_gpu_blocks, []

    def measure(other: TwinConfig) -> dict[str, float]:
        asked.append(round(other.engine.num_gpu_blocks / blocks, 2))
        answer = answers[asked[-1]]
        if answer is None:
            raise ConfigError("does not fit")
        return {"TTFT p99": answer, "E2E p99": 2e6}

    own = answers[1.0]
    assert own is not None
    return kv_doubt(twin, {"TTFT p99": own, "E2E p99": 2e6}, measure), asked


@pytest.mark.parametrize(
    ("answers", "asked", "told"),
    [
        ({1.0: 1e6, 0.75: 1.01e6}, [0.75], None),
        ({1.0: 1e6, 0.75: 1.05e6, 1.25: 0.95e6}, [0.75, 1.25], None),
        (
            {1.0: 1e6, 0.75: 3e6, 1.25: 0.8e6},
            [0.75, 1.25],
            "TTFT p99 1 s, with 25% less of it 3 s (+200%), with 25% more of it 800 ms (-20%)",
        ),
        (
            {1.0: 1e6, 0.75: OVERLOAD, 1.25: 1e6},
            [0.75, 1.25],
            "TTFT p99 1 s, with 25% less of it overload (it does not keep up), with 25% more of it 1 s (+0%)",
        ),
        (
            {1.0: OVERLOAD, 0.75: OVERLOAD, 1.25: 1e6},
            [0.75, 1.25],
            "TTFT p99 overload, with 25% less of it overload (+0%), with 25% more of it 1 s (it keeps up)",
        ),
        (
            {1.0: 1e6, 0.75: None, 1.25: 0.5e6},
            [0.75, 1.25],
            "TTFT p99 1 s, with 25% more of it 500 ms (-50%)",
        ),
        ({1.0: 1e6, 0.75: None, 1.25: 1e6}, [0.75, 1.25], "with 25% less of it not every prompt fits"),
    ],
)
def test_what_moves_is_told_and_what_does_not_costs_one_run(
    tmp_path: Path, answers: Mapping[float, float | None], asked: list[float], told: str | None
) -> None:
    found, simulated = doubt_of(twin_of(tmp_path), answers)
    assert simulated == asked
    assert found is not None
    line = found.line()
    assert (line is None) == (told is None)
    if told is not None:
        assert line is not None
        assert line.startswith(f"nobody told the size of the KV cache: {told}")
        assert "give hardware.gpu_memory_utilization" in line


def test_where_somebody_told_it_nothing_is_simulated(tmp_path: Path) -> None:
    twin = twin_of(tmp_path, f"engine: {{num_gpu_blocks: 3000}}\n{HARDWARE}")
    assert doubt_of(twin, {1.0: 1e6}) == (None, [])


def test_run_tells_it_and_can_leave_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin_of(tmp_path)
    asked = ["run", "--config", str(tmp_path / "twin.yaml"), "--rate", "1.2", *LOAD, "--json"]
    assert vtwin.main(asked) in (0, 5)
    told = capsys.readouterr()
    document = json.loads(told.out)["kv_doubt"]
    assert document["less"]["TTFT p99"] > 1.1 * document["own"]["TTFT p99"]
    assert f"note: {document['line']}" in told.err.splitlines()
    assert vtwin.main([*asked, "--no-kv-check"]) in (0, 5)
    assert "kv_doubt" not in json.loads(capsys.readouterr().out)
    light = [*asked[:4], "0.05", *LOAD, "--num-requests", "40", "--json"]
    assert vtwin.main(light) in (0, 5)
    document = json.loads(capsys.readouterr().out)["kv_doubt"]
    assert (document["line"], document["more"]) == (None, None)


def test_compare_and_fleet_tell_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = [*LOAD, "--rate", "1.2", "--seeds", "1"]
    assert (
        vtwin.main(["model", "compare", "--model-config", "Qwen/Qwen3-14B", "--gpus", "A100-40,H200", *load])
        == 0
    )
    told = capsys.readouterr().out
    assert "A100-40: nobody told the size of the KV cache: " in told
    assert "H200: nobody told" not in told
    twin_of(tmp_path)
    (tmp_path / "cdf.json").write_text("[[1024, 0.5], [2048, 0.9], [4096, 1.0]]")
    asked = [
        "fleet",
        "size",
        "--workload",
        str(tmp_path / "cdf.json"),
        "--profile",
        str(tmp_path / "twin.yaml"),
    ]
    assert vtwin.main([*asked, "--slo", "ttft_p99=900ms", "--rate", "16", "--no-verify"]) == 0
    assert (
        "twin: nobody told the size of the KV cache: 7 engines by formula, with 25% less 8"
        in capsys.readouterr().out
    )


def test_capacity_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin_of(tmp_path)
    asked = ["capacity", "--config", str(tmp_path / "twin.yaml"), *LOAD, "--slo", "ttft_p99=20s", "--json"]
    assert vtwin.main([*asked, "--seeds", "1", "--no-binding"]) == 0
    told = [
        line for line in json.loads(capsys.readouterr().out)["warnings"] if "nobody told the size" in line
    ]
    assert len(told) == 1
    assert "ttft_p99 at " in told[0]
