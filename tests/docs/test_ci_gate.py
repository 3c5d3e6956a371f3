"""The action for GitHub and the component for GitLab: their own scripts, run in a clean folder against a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.observe.servers import Behaviour, serving_in_thread
from tests.test_imports import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
COMPONENT: dict[str, Any] = list(yaml.safe_load_all((ROOT / "templates" / "gate.yml").read_text()))[1]
TWIN = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 512, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 1, alpha2: 0, beta0: 4000, beta1: 20, beta2: 30}}
"""
WIDE = "min_samples: 20\nrequire_kv_capacity: false\nmetrics:\n  e2e_us:\n    mape: {fail: 100.0}\n"
NARROW = WIDE.replace("100.0", "0.0001")
LOAD = {"load": "--rate 40 --num-requests 40 --prompt-tokens 50 --output-tokens 8"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that answers in some 20 ms."""
    with serving_in_thread(Behaviour(ttft_s=0.01, itl_s=0.004)) as server:
        yield server.url


def run_script(script: str, folder: Path, variables: Mapping[str, str]) -> int:
    """Run a step as a runner does, vtwin on the path and the step's summary in ``folder``; return its exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "step.md")} | dict(variables)
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=env, check=False).returncode


def value_of(text: str, inputs: Mapping[str, str]) -> str:
    """Return a step's variable as the runner has it: the input that it names."""
    name = re.fullmatch(r"\$(?:\{\{ inputs\.(\S+) \}\}|\[\[ inputs\.(\S+) \]\])", text)
    assert name is not None, text
    return inputs[name[1] or name[2]]


def run_action(folder: Path, *, names: tuple[str, ...] = ("Observe", "Gate"), **given: str) -> dict[str, int]:
    """Run the action's own steps Observe and Gate; return the exit code of each that ran."""
    inputs = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | LOAD | given
    codes = {}
    for step in ACTION["runs"]["steps"]:
        if step.get("name") not in names or (step["name"] == "Gate" and not inputs["config"]):
            continue
        variables = {name: value_of(text, inputs) for name, text in step["env"].items()}
        codes[step["name"]] = run_script(step["run"], folder, variables)
        if codes[step["name"]]:
            break
    return codes


def test_without_a_twin_the_slo_decides(tmp_path: Path, url: str) -> None:
    assert run_action(tmp_path, url=url, slo="ttft=10s") == {"Observe": 0}
    assert "TTFT, ms" in (tmp_path / "step.md").read_text()
    assert (tmp_path / "vtwin-gate" / "now.csv").exists()
    assert run_action(tmp_path, url=url, slo="ttft=1ms") == {"Observe": 1}


def test_with_a_twin_its_limits_decide(tmp_path: Path, url: str) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "wide.yaml").write_text(WIDE)
    (tmp_path / "narrow.yaml").write_text(NARROW)
    assert run_action(tmp_path, url=url, config="twin.yaml", thresholds="wide.yaml") == {
        "Observe": 0,
        "Gate": 0,
    }
    summary = (tmp_path / "vtwin-gate" / "summary.md").read_text()
    assert "TTFT, ms" in summary
    assert "## Verdict: PASS" in summary
    assert (tmp_path / "step.md").read_text() == summary
    assert (tmp_path / "vtwin-gate" / "junit.xml").exists()
    judged = run_action(tmp_path, names=("Gate",), url=url, config="twin.yaml", thresholds="narrow.yaml")
    assert judged == {"Gate": 1}
    assert "## Verdict: FAIL" in (tmp_path / "vtwin-gate" / "summary.md").read_text()


def test_a_server_that_is_not_there_fails_the_job(tmp_path: Path) -> None:
    assert run_action(tmp_path, url="http://127.0.0.1:9")["Observe"] != 0
    assert (tmp_path / "vtwin-gate" / "summary.md").exists()


@pytest.mark.parametrize(("limits", "code"), [(WIDE, 0), (NARROW, 1)])
def test_gitlab_s_script_ends_with_the_gate_s_code(tmp_path: Path, url: str, limits: str, code: int) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "gate.yaml").write_text(limits)
    inputs = {"url": url, "slo": "", "config": "twin.yaml", "thresholds": "gate.yaml", "baseline": "", **LOAD}
    job = COMPONENT["vtwin-gate"]
    variables = {name: value_of(text, inputs) for name, text in job["variables"].items()}
    script = "\n".join(job["script"])
    assert run_script(script, tmp_path, variables) == code


def test_every_input_of_the_action_is_used() -> None:
    text = (ROOT / "action.yml").read_text()
    assert [name for name in ACTION["inputs"] if f"inputs.{name}" not in text] == []
    assert set(COMPONENT["vtwin-gate"]["artifacts"]["paths"]) == {"vtwin-gate/"}
