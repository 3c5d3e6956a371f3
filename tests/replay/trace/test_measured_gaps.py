"""Gaps between tokens of the requests that are measured: without a row per token, and the same as with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtwin import main

ENGINE = "{max_num_seqs: 8, max_num_batched_tokens: 256, num_gpu_blocks: 90, max_model_len: 2048MORE}"
LATENCY = """\
latency: {model: blackbox, coefficients: {alpha0: 800, alpha1: 1.0, alpha2: 3, beta0: 5000, beta1: 20, beta2: 31}}
"""
SERVERS = {
    "alone": f"engine: {ENGINE}\n",
    "sync": f"engine: {ENGINE}\n".replace("MORE", ", async_scheduling: false"),
    "cluster": f"engine: {ENGINE}\ncluster: {{instances: 2, routing: {{policy: least-loaded}}}}\n",
    "pools": f"engine: {ENGINE}\n"
    "cluster:\n  pools:\n    - {name: p, role: prefill}\n    - {name: d, role: decode}\n"
    "  disaggregation: {kv_bytes_per_token: 131072}\n",
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_window_s_gaps_are_those_of_its_tokens(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(SERVERS[name].replace("MORE", "") + LATENCY)
    load = ("--rate", "25", "--num-requests", "120", "--prompt-tokens", "150", "--output-tokens", "25")

    def gaps(*options: str) -> Any:  # noqa: ANN401 - JSON
        capsys.readouterr()
        assert main(["run", "--config", str(tmp_path / "twin.yaml"), *load, "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["itl_us"]

    window = ("--measure", "1s:3s")
    found = gaps(*window)
    assert found == pytest.approx(gaps(*window, "--itl", "--output", str(tmp_path / "out")))
    assert found != gaps()
    assert gaps() == pytest.approx(gaps("--itl", "--output", str(tmp_path / "out")))
