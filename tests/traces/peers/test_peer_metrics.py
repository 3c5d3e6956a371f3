"""Other tools' names of figures: what is named in their place exists, and messages say it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vtwin
from calibrate.gate.gate_file import read_gate
from replay.cluster.fitness import parse_weights
from tests.docs.reference import metric_names_page
from traces import ConfigError
from traces.peers.peer_metrics import FLEX, PEER_METRICS, RUN, SIZE, SPLIT, own_figure, own_limit
from traces.run_slo import parse_run_slo
from traces.slo import parse_slo

TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 2048, num_gpu_blocks: 2000, max_model_len: 4096}
latency: {model: roofline, model_config: Qwen/Qwen3-8B}
hardware: H100
"""
FLEET = "--profile twin.yaml --workload cdf.json --rate 20 --slo ttft_p99=2s"
ASKED = {
    RUN: "run --config twin.yaml --rate 8 --prompt-tokens 300 --output-tokens 30 --num-requests 50 --slo ttft=1s "
    "--instances 2 --operator-times",
    SIZE: f"fleet size {FLEET} --no-verify",
    SPLIT: f"fleet size --layout split {FLEET} --no-verify",
    FLEX: f"fleet flex {FLEET}",
}


def paths_of(value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - of a document
    """Yield the path of every value of a JSON document, and of every mapping in it; [] stands for a list's first."""
    yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from paths_of(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths_of(value[0], f"{path}[]")


@pytest.mark.parametrize("command", ASKED)
def test_what_stands_for_another_tools_figure_is_in_the_document(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "cdf.json").write_text(json.dumps([[128, 0.1], [512, 0.6], [1024, 1.0]]))
    assert vtwin.main([*ASKED[command].split(), "--json"]) == 0
    known = set(paths_of(json.loads(capsys.readouterr().out)))
    named = {each.path for each in PEER_METRICS.values() if each.command == command and each.path}
    assert named
    assert named <= known


def test_a_name_has_a_figure_or_says_what_there_is_instead() -> None:
    assert {each.command for each in PEER_METRICS.values()} == set(ASKED)
    for name, each in PEER_METRICS.items():
        assert each.path or each.note
        assert own_figure(name)
        if each.limit:
            (limit,) = parse_run_slo(f"{each.limit}=500ms")
            assert limit.name.startswith(each.limit)
    assert own_figure("ttft_us") == own_limit("ttft_us") == ""
    assert not {"ttft_p50_ms", "tpot_mean_ms", "tpot_p99_ms"} & set(PEER_METRICS)  # BLIS has no such names


def test_the_page_has_a_row_for_each_name_by_tool_and_by_name() -> None:
    table = [line for line in metric_names_page().splitlines() if line.startswith("| `")]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in table]
    assert [name for name, _ in rows] == sorted(
        PEER_METRICS, key=lambda name: (PEER_METRICS[name].whose.removeprefix("the "), name)
    )
    assert rows[0] == ["adapters", "BLIS"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("p99_ttft_ms", "p99_ttft_ms is vllm bench's name for ttft_p99"),
        ("e2e_mean_ms", "e2e_mean_ms is BLIS's name for e2e_mean"),
        ("request_e2e_time", "request_e2e_time is Vidur's name for e2e"),
        ("batch_size", "batch_size is Vidur's, and no limit here; it is steps.num_seqs of vtwin run --json"),
    ],
)
def test_a_limit_by_another_tools_name_is_answered_with_ours(name: str, says: str) -> None:
    for parse in (parse_slo, parse_run_slo):
        with pytest.raises(ConfigError) as caught:
            parse(f"{name}=500ms")
        assert str(caught.value).endswith(f"; {says}")


def test_weights_and_gates_answer_so_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is request_throughput of vtwin run --json"):
        parse_weights("responses_per_sec=1")
    gate = tmp_path / "gate.yaml"
    gate.write_text("metrics: {ttft_ms: {mape: {fail: 0.1}}}\n")
    with pytest.raises(ConfigError, match="unknown key, did you mean ttft_us"):
        read_gate(gate)
    gate.write_text("rates: {tokens_per_sec: {error: {fail: 0.1}}}\n")
    with pytest.raises(ConfigError, match="did you mean output_token_throughput"):
        read_gate(gate)
