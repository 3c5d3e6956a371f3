"""What a command refuses names the cure, what it prints is the same each time, and its own files are safe from it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.model.hf_config import read_model_config
from replay.twin.recorded_coefficients import lookup_defaults
from tests.traces.made import small_trace
from tests.twins import SHORT_OF_BLOCKS
from traces import ConfigError, read_trace, write_trace
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions

RUN = ("run", "--config", "twin.yaml", "--prompt-tokens", "20", "--output-tokens", "5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(SHORT_OF_BLOCKS)
    return tmp_path


@pytest.mark.parametrize("more", [(), ("--instances", "2"), ("--set", "engine.max_num_seqs=4,8")])
def test_the_same_command_prints_the_same_bytes(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for _ in range(2):
        assert vtwin.main([*RUN, "--rate", "20", "--num-requests", "30", *more]) == 0
        shown.append(capsys.readouterr())
    assert shown[0].out == shown[1].out
    assert "CPU" not in shown[0].out
    if "--set" not in more:
        assert re.search(r"^simulated [\d.]+ s in [\d.]+ s of CPU", shown[0].err, re.MULTILINE)


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("output", ["twin", "./twin.yaml", "sub/../twin"])
def test_a_run_does_not_replace_its_own_configuration(
    output: str, overwrite: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sub").mkdir()
    write_trace(small_trace(), folder / "w")
    for command in ([*RUN, "--rate", "20"], ["replay", "w", "--config", "twin.yaml"]):
        assert vtwin.main([*command, "--output", output, *overwrite]) == 2
        assert "twin.yaml is the configuration that is simulated" in capsys.readouterr().err
    assert (folder / "twin.yaml").read_text() == SHORT_OF_BLOCKS


def test_nor_does_one_of_several_variants(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "max_num_seqs-8.yaml").write_text(SHORT_OF_BLOCKS)
    arguments = ["run", "--config", "max_num_seqs-8.yaml", "--rate", "20", "--set", "engine.max_num_seqs=4,8"]
    assert vtwin.main([*arguments, "--output", ".", "--overwrite"]) == 2
    assert "is the configuration that is simulated" in capsys.readouterr().err
    assert (folder / "max_num_seqs-8.yaml").read_text() == SHORT_OF_BLOCKS


CURES = {
    "--rate 5 --concurrency 3": "--rate: cannot be combined with --concurrency: with --concurrency "
    "answers set the pace and --num-requests the end, with --rate requests come at their own times",
    "--rate 20,25": "expected a number; one run per value: --sweep 20,25 in place of --rate (see vtwin run --help)",
    "--concurrency 2,4": "expected an integer; one run per value: --sweep concurrency=2,4 in place of --concurrency",
    "--rate 5 --num-requests 1e6": "'--num-requests': got '1e6', expected an integer: 1000000 (see",
    "--rate 5 --num-requests 1.5": "got '1.5', expected an integer (see",
    "--rate fast": "got 'fast', expected a number (see",
    "--rate 5 --routing random,least-loaded": "side by side: --set cluster.routing.policy=random,least-loaded",
}


@pytest.mark.parametrize("asked", CURES)
def test_what_is_refused_names_the_cure(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*RUN, *asked.split()]) == 2
    error = capsys.readouterr().err
    assert CURES[asked] in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "cure", ["--rate 5 --sweep concurrency=2,4", "--sweep 20,25", "--rate 5 --num-requests 1000"]
)
def test_the_cures_cure(cure: str) -> None:
    asked = cure.removeprefix("--rate 5 ") if "--sweep" in cure else cure
    assert vtwin.main([*RUN, *asked.split()]) == 0


def test_a_model_that_nobody_knows_needs_its_config_json() -> None:
    with pytest.raises(ConfigError, match=r"expected the path of a Hugging Face config\.json"):
        read_model_config("nobody/Nothing-8B")
    with pytest.raises(ConfigError, match=r"latency: \{model: physics, model_config: CONFIG\.json\}"):
        lookup_defaults("nobody/Nothing-8B", "H100", tp=1)


def test_python_users_may_write_paths_as_text(folder: Path) -> None:
    write_trace(small_trace(), folder / "w")
    texts = WorkloadOptions(rate=5.0, num_requests=4, like="w")  # type: ignore[arg-type]
    assert texts == WorkloadOptions(rate=5.0, num_requests=4, like=Path("w"))
    assert len(trace_from_options(texts)) == 4


@pytest.mark.parametrize("more", [(), ("--instances", "2")])
def test_a_request_that_is_not_answered_says_why(
    more: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = {"input_tokens": [0, 299, 300, 20, 20], "output_tokens": [5, 5, 5, 301, 5]}
    trace = small_trace(
        request_id=list("abcde"),
        arrival_time_us=[0, 1000, 2000, 3000, 4000],
        send_time_us=[0, 1000, 2000, 3000, 4000],
        first_chunk_time_us=5000,
        last_chunk_time_us=6000,
        **lengths,
    )
    write_trace(trace, folder / "w")
    twin = folder / "twin.yaml"
    twin.write_text(SHORT_OF_BLOCKS.replace("num_gpu_blocks: 20", "num_gpu_blocks: 40"))
    command = ["replay", "w", "--config", "twin.yaml", "--output", "s", "--overwrite", *more]
    assert vtwin.main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    reasons = {
        "a": "the prompt is empty",
        "b": None,
        "c": "the prompt is too long for engine.max_model_len 300, which must hold a token of output, too",
        "d": "it asks for more output than engine.max_model_len 300",
        "e": None,
    }
    simulated = read_trace("s")
    told = simulated.cells("error_message")
    assert dict(zip(reasons, np.where(told.is_known, told.values, None), strict=True)) == reasons
    assert found["num_by_status"] == {"ok": 2, "rejected": 3}
    assert found["num_by_reason"] == {text: 1 for text in reasons.values() if text}
    assert vtwin.main(command) == 0
    shown = capsys.readouterr().out
    assert all(f"1: {text}\n" in shown for text in found["num_by_reason"])


def test_a_request_that_the_cache_never_holds_says_so(folder: Path) -> None:
    write_trace(small_trace(input_tokens=[10, 290, 30]), folder / "w")
    (folder / "twin.yaml").write_text(SHORT_OF_BLOCKS.replace("num_gpu_blocks: 20", "num_gpu_blocks: 6"))
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "s"]) == 0
    told = read_trace("s").cells("error_message").values.tolist()
    assert "engine.num_gpu_blocks 6, 80 tokens" in str(told[1])
    status = read_trace("s").cells("status").values.tolist()
    assert [bool(text) for text in told] == [each == "stuck" for each in status]
