"""Goodput, early stop, whole answers, gateways, and what the server tells beside the answers."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

import vtwin
from observe import Settings, observe_with, parse_endpoint
from observe.observation import Observation
from observe.result.goodput import goodput
from observe.run.early_stop import ErrorRateStop
from observe.server.engine_log import EngineLog, EngineStep, parse_engine_log
from tests.observe.servers import Behaviour, FakeServer, serving, serving_in_thread
from tests.observe.workloads import every, statuses, workload
from traces import ConfigError, Trace, check_trace, request_metrics
from traces.slo import parse_slo

LOG = """\
(APIServer pid=1) INFO 11-21 01:03:51 [loggers.py:199] Engine 000: Iteration(0): 1 context requests, \
344 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 590.31 ms, \
CPU KV cache usage: 0.3%
INFO something else
INFO Iteration(7): 0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, \
iteration elapsed time: 51.30 ms
"""


async def observed(
    server: FakeServer, trace: Trace, *, output: Path | None = None, **how: object
) -> Observation:
    settings = dataclasses.replace(Settings(endpoint=parse_endpoint(server.url)), **how)  # type: ignore[arg-type]
    return await observe_with(trace, settings, output=output)


# goodput


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tfft=1s", "--slo: got 'tfft', expected one of ttft"),
        ("ttft=fast", "--slo ttft: got 'fast'"),
        ("ttft=0", "--slo ttft: got '0', expected a time > 0"),
        ("ttft=500", "--slo ttft: got '500' without a unit, expected 500ms or 500s"),
    ],
)
def test_a_promise_that_is_none_is_a_configuration_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        parse_slo(text)


def test_goodput_counts_requests_that_keep_every_promise() -> None:
    columns = {
        "status": ["ok", "ok", "ok", "error"],
        "send_time_us": [0, 0, 0, 0],
        "content_first_time_us": [100, 300, 100, None],
        "last_token_time_us": [500, 700, 2000, None],
    }
    trace = workload(every(0, 4), **columns)  # type: ignore[arg-type]
    promises = parse_slo("ttft=200us, e2e=1ms")
    assert promises == pytest.approx({"ttft": 200, "e2e": 1000})
    good = goodput(trace, promises, duration_us=500_000)
    assert (good["num_good"], good["good_frac"], good["good_per_s"]) == (1, 0.25, 2.0)
    assert goodput(trace, {"ttft": 200}, duration_us=0)["good_per_s"] is None


# early stop


def test_the_brake_needs_enough_outcomes_and_looks_at_the_last_ones() -> None:
    said: list[str] = []
    brake = ErrorRateStop(0.5, said.append)
    for ok in [False] * 19:
        brake.note(ok)
    assert said == []
    brake.note(False)
    brake.note(False)
    assert said == ["stopped early: 20 of the last 20 requests failed (--max-error-rate)"]
    late = ErrorRateStop(0.5, said.append)
    for ok in [True] * 200 + [False] * 25:
        late.note(ok)
    assert len(said) == 1
    late.note(False)
    assert said[1:] == ["stopped early: 26 of the last 50 requests failed (--max-error-rate)"]


async def test_a_server_that_mostly_fails_is_left_early_with_a_readable_trace(tmp_path: Path) -> None:
    async with serving(Behaviour(fault="status 500")) as server:
        seen = await observed(server, workload(every(5000, 400)), max_error_frac=0.2, output=tmp_path / "run")
    assert 20 <= len(seen.trace) < 400
    assert seen.fault is not None
    assert seen.fault in seen.notes
    assert not seen.interrupted
    assert check_trace(tmp_path / "run") == []


# a server that changes


def test_a_changed_fingerprint_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread(Behaviour(new_fingerprint_from=2)) as server:
        arguments = [
            "--rate",
            "100",
            "--num-requests",
            "4",
            "--output-tokens",
            "3",
            "--output-tokens-stdev",
            "0",
        ]
        assert (
            vtwin.main(["observe", "--url", server.url, *arguments, "--output", str(tmp_path / "run")]) == 1
        )
    assert "the server changed during the run: system_fingerprint fp-1 then fp-2" in capsys.readouterr().err


# answers in one piece


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_an_answer_in_one_piece_has_no_first_token_but_an_end(api: str, tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.05, tokenize=True)) as server:
        seen = await observed(server, workload([0, 0]), streaming=False, api=api, output=tmp_path / "run")
        assert "stream_options" not in server.requests[0].body
    trace = seen.trace
    assert statuses(trace) == ["ok", "ok"]
    assert list(trace.column("output_tokens")) == [5, 5]
    assert list(trace.column("streaming")) == [False, False]
    metrics = request_metrics(trace)
    assert metrics["ttft_us"].isna().all()
    assert metrics["tpot_us"].isna().all()
    assert (metrics["e2e_us"] > 49_000).all()
    assert check_trace(tmp_path / "run") == []


@pytest.mark.parametrize(("fault", "message"), [("html", "body: got '<html>"), ("status 500", "HTTP 500")])
async def test_a_fault_in_one_piece_is_an_error(fault: str, message: str) -> None:
    async with serving(Behaviour(fault=fault)) as server:  # type: ignore[arg-type]
        seen = await observed(server, workload([0]), streaming=False)
    assert statuses(seen.trace) == ["error"]
    assert message in str(seen.trace.column("error_message").iloc[0])


# what a gateway is told


@pytest.mark.parametrize("plain", [True, False])
async def test_a_gateway_hears_of_tenant_class_and_target(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.senders.choose_sender.is_direct_http", lambda _: plain)
    columns = {"tenant_id": ["a\r\nb", None], "slo_class": ["batch", "mine"], "slo_target_us": [1500, None]}
    async with serving() as server:
        await observed(server, workload([0, 30_000], **columns), class_priority=True)  # type: ignore[arg-type]
        first, second = server.requests
    assert first.headers["x-gateway-inference-fairness-id"] == "a b"
    assert first.headers["x-gateway-inference-objective"] == "batch"
    assert first.headers["x-slo-ttft-ms"] == "2"
    assert "x-gateway-inference-fairness-id" not in second.headers
    assert first.body["priority"] == 5
    assert "priority" not in second.body


# beside the answers


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


async def test_gauges_are_recorded_over_time(tmp_path: Path) -> None:
    async with serving() as server:
        seen = await observed(server, workload(every(50_000, 6)), scrape_s=0.05, output=tmp_path / "run")
    rows = rows_of(tmp_path / "run.gauges.csv")
    assert {row["gauge"] for row in rows} == {'vllm:num_requests_running{engine="0"}'}
    times = [int(row["time_us"]) for row in rows]
    assert times == sorted(times)
    assert len(times) >= 4
    assert times[-1] - times[0] > 100_000
    assert seen.fault is None


async def test_a_server_without_gauges_is_remarked_on(tmp_path: Path) -> None:
    async with serving(Behaviour(is_vllm=False)) as server:
        seen = await observed(server, workload([0]), scrape_s=0.05, output=tmp_path / "run")
    assert "--scrape: no gauges at /metrics" in seen.notes
    assert not (tmp_path / "run.gauges.csv").exists()


def test_steps_are_read_as_vllm_words_them() -> None:
    steps = parse_engine_log(LOG.splitlines())
    assert steps[0] == EngineStep(
        engine=0,
        step=0,
        num_prefill_requests=1,
        num_prefill_tokens=344,
        num_decode_requests=0,
        num_decode_tokens=0,
        duration_us=590_310,
        kv_cache_usage_frac=0.003,
    )
    assert (steps[1].step, steps[1].kv_cache_usage_frac) == (7, None)


def test_only_steps_logged_since_the_start_are_written(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    log = EngineLog(path)
    assert "no engine steps in it" in (log.write_steps(tmp_path / "run") or "")
    with path.open("a") as file:
        file.write(LOG)
    assert log.write_steps(tmp_path / "run") is None
    rows = rows_of(tmp_path / "run.steps.csv")
    assert [(row["step"], row["duration_us"]) for row in rows] == [("0", "590310"), ("7", "51300")]
    assert rows[1]["kv_cache_usage_frac"] == ""
    with pytest.raises(ConfigError, match="--engine-log: got No such file"):
        EngineLog(tmp_path / "none")


def test_the_summary_shows_goodput(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread() as server:
        arguments = ["--rate", "100", "--num-requests", "4", "--slo", "ttft=10s"]
        assert not vtwin.main(
            ["observe", "--url", server.url, *arguments, "--output", str(tmp_path / "run"), "--json"]
        )
    out, err = capsys.readouterr()
    assert json.loads(out)["goodput"]["good_frac"] == 1
    assert "goodput" in err
    assert "(ttft ≤ 10000 ms)" in err
