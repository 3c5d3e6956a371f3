"""Gauges and engine steps, recorded during a run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import vtwin
from observe.server.engine_log import EngineLog
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, workload
from traces import ConfigError
from traces.steps import EngineStep, parse_engine_log

LOG = """\
(APIServer pid=1) INFO 11-21 01:03:51 [loggers.py:199] Engine 000: Iteration(0): 1 context requests, \
344 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 590.31 ms, \
CPU KV cache usage: 0.3%
INFO something else
INFO Iteration(7): 0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, \
iteration elapsed time: 51.30 ms
"""


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


@pytest.mark.parametrize(
    ("behaviour", "how", "is_recorded"),
    [
        (Behaviour(), {"scrapes_vllm": True}, True),
        (Behaviour(), {}, False),
        (Behaviour(is_vllm=False), {"scrapes_vllm": True}, False),
    ],
)
async def test_the_gauges_of_a_vllm_are_recorded_unless_told_not_to_and_the_note_names_the_file(
    tmp_path: Path, behaviour: Behaviour, how: dict[str, bool], is_recorded: bool
) -> None:
    async with serving(behaviour) as server:
        seen = await observed(server, workload([0]), output=tmp_path / "run", **how)
    assert (tmp_path / "run.gauges.csv").exists() is is_recorded
    notes = [note for note in seen.notes if "gauges" in note]
    assert notes == (
        ["the server's gauges were read once, for run.gauges.csv. --no-scrape leaves that out"]
        if is_recorded
        else []
    )


@pytest.mark.parametrize(("options", "is_recorded"), [([], True), (["--no-scrape"], False)])
def test_observe_records_gauges_by_itself_and_no_scrape_turns_it_off(
    tmp_path: Path, options: list[str], is_recorded: bool
) -> None:
    with serving_in_thread(Behaviour()) as server:
        load = ["--num-requests", "2", "--rate", "50", "--output-tokens", "2", "--prompt-tokens", "20"]
        command = ["observe", "--url", server.url, *load, "--output", str(tmp_path / "run"), *options]
        assert vtwin.main(command) == 0
        assert (tmp_path / "run.gauges.csv").exists() is is_recorded
        assert vtwin.main([*command, "--overwrite", "--no-scrape", "--scrape", "1s"]) == 2


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
    assert steps[0].end_unix_us is None


def test_a_log_with_full_times_says_when_each_step_was_done() -> None:
    line = (
        "(EngineCore pid=1057) 1795341598.207350 INFO 11-22 09:59:58 [core.py:452] Iteration(1000): "
        "5 context requests, 2964 context tokens, 228 generation requests, 228 generation tokens, "
        "iteration elapsed time: 33.56 ms"
    )
    (step,) = parse_engine_log([line])
    assert (step.num_prefill_tokens, step.end_unix_us) == (2964, 1_795_341_598_207_350)


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
