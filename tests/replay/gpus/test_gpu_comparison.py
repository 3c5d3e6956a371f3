"""Comparing GPUs: against single simulations of the same configuration, against the docs, and as a user calls it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vtwin
from replay.gpus.comparison import AtLoad, GpuQuestion, GpuResult
from replay.gpus.text import _conclusion, gpus_parts
from replay.model.gpus import find_gpu
from replay.model.hf_config import read_model_config
from replay.model.model_peak import peak_times
from replay.model.prices import read_prices
from replay.profiles.known_errors import known_error, known_errors
from replay.twin.latency import usual_physics
from sim import Physics
from traces import ConfigError
from traces.facts import terminal_lines
from traces.run_slo import RunLimit

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LOAD = ("--prompt-tokens", "500", "--output-tokens", "60", "--num-requests", "4000", "--seeds", "1")
VALIDATION = Path(__file__).parents[3] / "docs" / "validation" / "unmeasured-servers.md"


def compared(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> list[dict[str, object]]:
    arguments = ["model", "compare", "--model-config", LLAMA, *LOAD, *options, "--json"]
    assert vtwin.main(arguments) == code
    told: list[dict[str, object]] = json.loads(capsys.readouterr().out)["gpus"]
    return told


def test_each_gpu_does_what_a_run_with_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first fifth of the requests is not measured, so the run leaves it out as well."""
    found = compared(capsys, "--gpus", "H100,L40S", "--tp", "1,2", "--rate", "5", "--arrival", "constant")
    assert [(each["gpu"], each["tp"]) for each in found] == [
        ("H100", 1),
        ("H100", 2),
        ("L40S", 1),
        ("L40S", 2),
    ]
    (tmp_path / "twin.yaml").write_text(
        f"latency: {{model: physics, model_config: {LLAMA}}}\nhardware: {{gpu: L40S, tp: 2}}\n"
    )
    run = ["run", "--config", str(tmp_path / "twin.yaml"), *LOAD[:-2], "--rate", "5", "--arrival", "constant"]
    assert vtwin.main([*run, "--warmup-frac", "0.2", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    for metric in ("ttft_us", "tpot_us"):
        told = found[3][metric]
        assert isinstance(told, dict)
        assert told["p50"] == pytest.approx(alone[metric]["p50"], rel=0.01)
    capacities = [float(str(each["capacity"])) for each in found]
    assert capacities[0] > capacities[2]
    assert capacities[1] > capacities[0]


def test_prices_say_what_a_token_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prices.yaml").write_text("h100: 2.5\nL40S: 0.5\n")
    found = compared(capsys, "--gpus", "H100", "--tp", "2", "--prices", str(tmp_path / "prices.yaml"))
    assert found[0]["price_per_hour"] == 5.0
    tokens = float(str(found[0]["capacity"])) * 60
    assert found[0]["output_tokens_per_price_unit"] == pytest.approx(tokens * 3600 / 5, rel=1e-9)


def result(name: str, *, rate: float | None, tp: int = 1, price: float | None = None) -> GpuResult:
    return GpuResult(
        gpu=find_gpu(name, where="here"),
        tp=tp,
        at_load=AtLoad(ttft_us=(1e4, 2e4), tpot_us=(5e3, 6e3), keeps_up=True),
        ceiling_per_s=rate or 0.0,
        output_tokens_per_request=100.0,
        price_per_hour=price,
        error=next(each for each in known_errors() if each.points == "dense" and each.model == "physics"),
    )


ASKED = GpuQuestion(
    model_config=LLAMA, latency_model="physics", engine={}, dtype="auto", kv_cache_dtype="auto", vllm_version=None,
    rate_per_s=1.0, limits=(),
)  # fmt: skip


def lines(results: list[GpuResult], asked: GpuQuestion) -> list[str]:
    return terminal_lines(gpus_parts(results, asked), width=80)


def test_the_comparison_draws_a_conclusion_and_has_prices_only_where_there_are_any() -> None:
    servers = [result("H100", rate=20.0), result("L40S", rate=6.0), result("L40S", rate=11.0, tp=2)]
    shown = lines(servers, ASKED)
    assert "serves most: H100, 20 requests/s" in shown
    assert "most per GPU: H100 (--prices says what is cheapest)" in shown
    assert not any("price per hour" in line or "no price" in line for line in shown)
    assert any(line.startswith("at 1 request/s: TTFT p50 ") for line in shown)
    assert max(map(len, shown[:16])) <= 80
    priced = lines([replace(servers[0], price_per_hour=2.5), replace(servers[1], price_per_hour=0.5)], ASKED)
    assert "cheapest per token: L40S" in priced
    assert any(line.startswith("price per hour ") for line in priced)


def test_servers_within_the_known_error_of_each_other_are_told_to_be() -> None:
    shown = lines([result("H100", rate=20.0), result("H200", rate=20.5), result("L40S", rate=6.0)], ASKED)
    assert "serves most: H200, 20.5 requests/s; the known error does not tell it from H100" in shown
    assert not any(line.startswith("serves most") for line in lines([result("H100", rate=20.0)], ASKED))


def test_two_servers_are_told_apart_only_beyond_both_their_errors() -> None:
    server = result("H100", rate=20.0)
    assert server.error is not None
    for errors, is_told in ((1.3, True), (1.5, False)):  # of two equal ones the square root of 2 counts
        other = result("H200", rate=20.0 * (1 + errors * server.error.tpot_p90 / 100))
        (line,) = [each for each in lines([server, other], ASKED) if each.startswith("serves most")]
        assert line.endswith("does not tell it from H100") is is_told


def test_a_winner_among_some_is_said_to_be_one() -> None:
    too_short: Any = SimpleNamespace(is_too_short=True, requests_to_last=500, rate_per_s=10.0)
    short = replace(result("B200", rate=None), capacity=too_short)
    shown = _conclusion([result("H100", rate=20.0), result("L40S", rate=6.0), short], ASKED)
    assert "serves most, of the 2 that are ranked: H100, 20 requests/s" in shown


def test_no_winner_is_told_where_one_with_too_short_runs_comes_out_before_it() -> None:
    for rate, is_told in ((30.0, False), (10.0, True)):
        too_short: Any = SimpleNamespace(is_too_short=True, requests_to_last=500, rate_per_s=rate)
        short = replace(result("B200", rate=None), capacity=too_short)
        shown = _conclusion([result("H100", rate=20.0), result("L40S", rate=6.0), short], ASKED)
        winner = [each for each in shown if each.startswith("serves most")]
        told = "serves most, of the 2 that are ranked: H100, 20 requests/s"
        unknown = "serves most: not known: B200 may be, before H100, but the runs are too short to tell"
        assert winner == [told if is_told else unknown]


def test_what_meets_the_slo_at_no_rate_is_named() -> None:
    limits = replace(ASKED, limits=(RunLimit(metric="ttft", percent=99, limit_us=1e5),))
    shown = lines([result("H100", rate=20.0), result("L40S", rate=None)], limits)
    assert "serves most within the SLO: H100, 20 requests/s" in shown
    assert "within the SLO at no rate: L40S" in shown


def test_nothing_is_ranked_by_runs_that_are_too_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Forty requests fill no H100; as many as it takes are drawn where nobody says how many."""
    few = [*LOAD[:4], "--gpus", "H100,L40S", "--seeds", "1", "--slo", "ttft_p99=200ms"]
    asked = ["model", "compare", "--model-config", LLAMA, *few]
    assert vtwin.main([*asked, "--num-requests", "40"]) == 0
    shown = capsys.readouterr().out
    assert "not ranked, since runs are too short: H100, L40S (--num-requests " in shown
    assert "serves most" not in shown
    assert vtwin.main(asked) == 0
    assert "serves most within the SLO: H100, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("", "got no price"), ("H100: 0", "expected a price"), ("H100: x", "expected"), ("H1000: 2", "H1000")],
)
def test_a_wrong_price_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_prices(tmp_path / "prices.yaml")


def test_a_model_that_fits_nowhere_is_exit_1_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, "--gpus", "A10G", "--dtype", "float32", code=1)
    assert found[0]["starts"] is False
    assert "GiB" in str(found[0]["reason"])


def test_where_the_kv_cache_is_small_sequences_are_shortened_unless_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        compared(capsys, "--gpus", "A10G")[0]["max_model_len"]
        == compared(capsys, "--gpus", "A10G")[0]["num_kv_tokens"]
    )
    asked = compared(capsys, "--gpus", "A10G", "--max-model-len", "100000", code=1)
    assert "vLLM would refuse to start" in str(asked[0]["reason"])


def test_the_known_errors_are_those_of_the_page() -> None:
    section = VALIDATION.read_text().split("\n## TTFT and TPOT of unmeasured servers\n")[1].split("\n## ")[0]
    first = section.split("Kimi-K2.5 is the only")[0]
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in first.splitlines()
        if re.match(r"\| (dense|MoE)[^|]*\| \d+ \| (roofline|physics|physics, silicon-2026) \|", line)
    ]
    page = {(row[0], int(row[1]), row[2], *map(float, row[3:7])) for row in rows}
    table = {
        (each.points, each.n, each.model, each.tpot_median, each.tpot_p90, each.ttft_median, each.ttft_p90)
        for each in known_errors()
    }
    assert len(table) == 26 + 9
    assert table == page


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--gpus", "H100,H100"], "--gpus: got 'H100,H100', expected each GPU once"),
        (["--gpus", "H100", "--tp", "0"], "--tp: got '0', expected different numbers of 1 to 65,536"),
        (["--gpus", "H100", "--tp", "two"], "--tp: got 'two', expected numbers"),
        (["--gpus", "Z9"], "--gpus"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert vtwin.main(["model", "compare", "--model-config", LLAMA, *options]) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("model", "is_known"),
    [
        ("Qwen/Qwen3-14B", True),
        ("deepseek-ai/DeepSeek-V3", True),
        ("openai/gpt-oss-120b", True),
        ("deepseek-ai/DeepSeek-V3.2", False),
        ("deepseek-ai/DeepSeek-V4-Pro", False),
        ("Qwen/Qwen3.5-397B-A17B", False),
    ],
)
def test_no_error_is_told_of_layers_that_no_measured_server_had(model: str, is_known: bool) -> None:
    shape, gpu = read_model_config(model), find_gpu("H100", where="here")
    peak = peak_times(shape, gpu, tp=8)
    physics = Physics(peak=peak, **usual_physics(peak))  # type: ignore[arg-type]
    assert (known_error(shape, "H100", "physics", physics) is not None) == is_known


@pytest.mark.parametrize(("gpu", "figures"), [("H200", "8 / 40 %"), ("A100-80", "19 / 38 %")])
def test_experts_that_nobody_measured_on_a_gpu_have_the_errors_of_their_own(gpu: str, figures: str) -> None:
    shape = read_model_config("Qwen/Qwen3-235B-A22B-FP8")
    peak = peak_times(shape, find_gpu(gpu, where="here"), tp=8)
    found = known_error(shape, gpu, "physics", Physics(peak=peak, **usual_physics(peak)))  # type: ignore[arg-type]
    assert found is not None
    assert found.text("tpot") == figures
