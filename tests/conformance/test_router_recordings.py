"""The routing policies decide as the real routers did whose decisions are recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conformance.routers import cases_in, compare_case, main

RECORDINGS = Path(__file__).parent / "router_recordings"
NUM_DECISIONS = {
    "sglang-cache-aware": 400,
    "sglang-cache-aware-5": 200,
    "vllm-dp": 4000,
    "vllm-dp-0.24.0": 2000,
    "vllm-dp-0.26.0": 2000,
    "vllm-dp-0.27.0": 2000,
    "vllm-router-cache-aware": 400,
    "vllm-router-cache-aware-5": 150,
    "vllm-router-least-loaded": 400,
}


@pytest.mark.parametrize(("case", "number"), NUM_DECISIONS.items())
def test_every_decision_is_the_real_router_s(case: str, number: int) -> None:
    assert compare_case(RECORDINGS / case) == (number, number)


def test_every_recording_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert [case.name for case in cases_in([RECORDINGS])] == sorted(NUM_DECISIONS)
    assert main([str(RECORDINGS / "vllm-router-least-loaded")]) == 0
    assert capsys.readouterr().out == "vllm-router-least-loaded: 400 of 400 decisions identical\n"


def test_another_owner_rule_gives_other_decisions(tmp_path: Path) -> None:
    copy = shutil.copytree(RECORDINGS / "vllm-router-cache-aware", tmp_path / "case")
    config = json.loads((copy / "config.json").read_text())
    config["routing"]["owner"] = "creator"
    (copy / "config.json").write_text(json.dumps(config))
    identical, total = compare_case(copy)
    # 69 differ, as was found with the real router, when each is compared on its own
    assert (total - identical, total) == (69, 400)
    assert main([str(tmp_path)]) == 1


@pytest.mark.parametrize("version", ["0.24.0", "0.26.0"])
def test_each_version_s_balancer_decides_by_a_rule_of_its_own(tmp_path: Path, version: str) -> None:
    copy = shutil.copytree(RECORDINGS / f"vllm-dp-{version}", tmp_path / "case")
    for other in {"0.24.0", "0.26.0", "0.27.0"} - {version}:  # its own decides as recorded: the test above
        (copy / "config.json").write_text(
            json.dumps({"routing": {"policy": "vllm-dp", "vllm_version": other}})
        )
        identical, total = compare_case(copy)
        assert identical < total


def test_nothing_to_compare_and_what_cannot_be_read_are_exit_3(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 3
    copy = shutil.copytree(RECORDINGS / "sglang-cache-aware", tmp_path / "case")
    (copy / "decisions.json").write_text("[0, 1]")
    assert main([str(tmp_path)]) == 3
