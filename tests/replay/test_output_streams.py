"""Results go to stdout, narration to stderr; with --json stdout is one JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin

COMMANDS: dict[str, list[str]] = {
    "replay": ["replay", "w", "--config", "twin.yaml", "--output", "s"],
    "run": ["run", "--rate", "9", "--num-requests", "5", "--config", "twin.yaml", "--output", "s"],
    "trace info": ["trace", "info", "w"],
    "trace check": ["trace", "check", "w"],
    "model info": ["model", "info", "--model-config", "meta-llama/Llama-3.1-8B", "--gpu", "H100"],
}
SHOWS = {"replay": "TTFT, ms", "run": "TTFT, ms", "trace info": "prompt tokens", "model info": "KV"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1000, beta1: 1, beta2: 1}}\n"
    )
    assert vtwin.main(["trace", "synth", "--rate", "9", "--num-requests", "5", "--output", "w"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("name", COMMANDS)
def test_with_json_stdout_is_one_document(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*COMMANDS[name], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", SHOWS)
def test_the_table_is_on_stdout_and_the_notes_are_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(COMMANDS[name]) == 0
    shown = capsys.readouterr()
    assert SHOWS[name] in shown.out
    assert SHOWS[name] not in shown.err
    assert "note:" not in shown.out


def test_a_shown_configuration_is_yaml_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["config", "show", "twin.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("vllm_version:")
    assert "note: " in shown.err
