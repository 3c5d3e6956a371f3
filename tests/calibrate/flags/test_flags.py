"""The twin's flags against the server's: what a file leaves open is taken from traces, what it states is held to."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from replay import load_config
from tests.calibrate.known_servers import observed, workload
from traces import Header, Trace, write_trace

GUESS = """\
engine: {{max_num_seqs: 64, async_scheduling: false{more}}}
latency: {{model: blackbox, coefficients: {{alpha0: 4000, alpha1: 5, alpha2: 0, beta0: 12000, beta1: 60, beta2: 500}}}}
"""
SAID = {"num_gpu_blocks": 2588, "block_size": 128, "max_model_len": 4096, "enable_prefix_caching": True}
"""What a vLLM says of itself."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_trace(said(observed(workload(40, rate=3, seed=1)), **SAID), tmp_path / "low")
    return tmp_path


def said(trace: Trace, **flags: float | bool | str) -> Trace:
    return trace.with_header(server=trace.header.server.learn("/metrics", **flags))


def compared(*more: str, guess: str = "") -> int:
    Path("guess.yaml").write_text(GUESS.format(more=guess))
    return vtwin.main(["calibrate", "low", "--config", "guess.yaml", "--report", "report", *more])


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_what_the_file_leaves_open_is_as_the_header_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared("--fit", "--latency-model", "blackbox", "--write-config", "fitted.yaml") == 0
    assert (
        "note: engine.num_gpu_blocks is not in the configuration: 2588, as the header of low says of its server "
        "(/metrics)" in told(capsys)
    )
    engine = load_config(here / "fitted.yaml").engine
    assert {name: getattr(engine, name) for name in SAID} == SAID
    assert engine.max_num_seqs == 64


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "value"), [("num_gpu_blocks", 900), ("block_size", 16), ("max_model_len", 8192)]
)
def test_what_the_file_states_and_the_header_denies_is_an_error(
    name: str, value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(guess=f", {name}: {value}") == 2
    assert f"engine.{name}: got {value}, expected {SAID[name]}, which the header of low says" in told(capsys)


@pytest.mark.usefixtures("here")
def test_to_accept_other_flags_does_not_leave_the_kv_cache_unbounded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compared("--accept-flags", guess=", block_size: 16") == 0
    shown = told(capsys)
    assert "warning: engine.block_size: got 16, expected 128" in shown
    assert "engine.num_gpu_blocks is not in the configuration: 2588" in shown
    assert "unbounded" not in shown


def test_two_headers_that_say_different_things_are_an_error(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(
        said(observed(workload(40, rate=4, seed=2)), **{**SAID, "max_model_len": 2048}), here / "high"
    )
    assert compared("--holdout", "high") == 2
    assert "engine.max_model_len: got 4096, expected 2048, which the header of high says" in told(capsys)


@pytest.mark.usefixtures("here")
def test_models_of_a_table_are_compared_with_the_flags_of_the_header(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compared("--compare-latency", "blackbox") == 0
    assert "engine.num_gpu_blocks is not in the configuration: 2588" in told(capsys)


def test_a_command_line_and_a_trace_make_one_twin(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve org/m --max-num-seqs 32 --block-size 128"
    assert vtwin.main(["config", "from-serve", command, "--from-trace", "low"]) == 0
    shown = capsys.readouterr()
    (here / "both.yaml").write_text(shown.out)
    engine = load_config(here / "both.yaml").engine
    assert {name: getattr(engine, name) for name in SAID} == SAID
    assert engine.max_num_seqs == 32
    assert "unbounded" not in shown.out
    assert shown.out.startswith("# From a vllm serve command line and the header of low.\n")


@pytest.mark.usefixtures("here")
def test_a_command_line_that_contradicts_the_trace_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["config", "from-serve", "vllm serve m --block-size 16", "--from-trace", "low"]) == 2
    assert (
        "engine.block_size: got 16 in the command line, expected 128, which the header of low says"
        in told(capsys)
    )


def test_a_header_that_says_nothing_changes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = observed(workload(40, rate=3, seed=1))
    write_trace(trace.with_header(server=Header().server), here / "low")
    assert compared() == 0
    assert "the KV cache is taken as unbounded" in told(capsys)
