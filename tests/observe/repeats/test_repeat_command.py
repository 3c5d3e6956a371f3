"""``observe --repeat`` on a live server: its files, its answer in each form, and the noise floor that is left."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtwin
from calibrate.run_to_run.server_pace import recorded_spreads
from observe import Settings, observe_repeats, parse_endpoint, report_runs
from tests.observe.servers import Behaviour, serving, serving_in_thread
from traces import read_trace, same_requests
from traces.atomic import MARKDOWN
from traces.workload import preset, synth

LOAD = ["--rate", "200", "--num-requests", "8", "--prompt-tokens", "20", "--output-tokens", "4"]


def observe(url: str, *words: str, folder: Path) -> int:
    return vtwin.main(["observe", "--url", url, "--output", str(folder), "--no-scrape", *words])


def test_each_run_has_new_prompts_and_the_noise_floor_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(Behaviour(ttft_s=0.004, itl_s=0.001)) as server:
        assert observe(server.url, *LOAD, "--repeat", "3", "--json", folder=tmp_path) == 0
        sent = [each.body["prompt"] for each in server.requests if "prompt" in each.body]
    told, said = capsys.readouterr()
    assert "fewer than 4 runs show no drift" in said
    document = json.loads(told)
    load = document["loads"]["run"]
    runs = [read_trace(tmp_path / name) for name in load["runs"]]
    assert load["runs"] == ["run-1", "run-2", "run-3"]
    assert all(same_requests(runs[0], each) for each in runs)
    assert len({each.header.client.prompt_salt for each in runs if each.header.client}) == 3
    assert len({json.dumps(each) for each in sent}) == 24
    means = [document["runs"][name]["ttft_us"]["mean"] for name in load["runs"]]
    figure = load["figures"]["ttft_us.mean"]
    assert figure["mean"] == pytest.approx(np.mean(means))
    assert figure["spread"] == pytest.approx(np.std(means, ddof=1))
    [floor] = recorded_spreads(runs)  # the same in each header
    assert floor.num_runs == 3
    assert floor.spread["ttft_us.mean"] == pytest.approx(figure["spread"] / figure["mean"], rel=1e-4)
    assert document["warnings"] == []


def test_resumed_with_more_repeats_it_goes_on_and_the_forms_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--sweep", "100,200", *LOAD[2:], "--slo", "ttft=1s"]
    with serving_in_thread(Behaviour()) as server:
        assert observe(server.url, *words, "--repeat", "2", folder=tmp_path) == 0
        first = (tmp_path / "rate-100-run-1.csv").read_bytes()
        capsys.readouterr()
        assert observe(server.url, *words, "--repeat", "4", "--resume", "--json", folder=tmp_path) == 0
        told, said = capsys.readouterr()
        assert said.count("already there") == 4
        assert (
            observe(server.url, *words, "--repeat", "4", "--resume", "--format", "csv", folder=tmp_path) == 0
        )
        table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert (
            observe(server.url, *words, "--repeat", "4", "--resume", "--format", "markdown", folder=tmp_path)
            == 0
        )
        pasted = capsys.readouterr().out
    assert (tmp_path / "rate-100-run-1.csv").read_bytes() == first
    document = json.loads(told)
    assert list(document["loads"]) == ["rate-100", "rate-200"]
    for row in table:
        figure: dict[str, Any] = document["loads"][row["load"]]["figures"][row["figure"]]
        assert {name: json.loads(row[name] or "null") for name in figure} == figure
    assert pasted.startswith("| load | runs | TTFT mean, ms |")
    assert MARKDOWN not in pasted
    assert pasted.count("100.0% ± 0.0% |") == 2
    floor = read_trace(tmp_path / "rate-200-run-4").header.noise_floor
    assert floor is not None
    assert floor.num_runs == 4


def test_a_disturbed_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread(
        Behaviour(ttft_s=0.1, num_cold=8)
    ) as server:  # the first run's requests, all of them
        assert observe(server.url, *LOAD, "--repeat", "4", "--json", folder=tmp_path) == 0
    document = json.loads(capsys.readouterr().out)
    [found] = [each for each in document["differences"] if each["figure"] == "ttft_us.mean"]
    assert (found["kind"], found["run"]) == ("first", 1)
    assert found["change"] == pytest.approx(9, abs=1.5)
    assert "the first run is apart from the others, TTFT mean" in document["warnings"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeat", "1"], "got 1, expected 2 to 1000"),
        (["--repeat", "2", "--prompt-salt", "3"], "each run has new prompts"),
        (["--repeat", "2", "--plan", "calibrate"], "--plan: cannot be combined with --repeat"),
        (["--repeat", "2", "--find-capacity"], "--repeat, --yes: cannot be combined with --find-capacity"),
        (["--format", "csv", "--find-capacity"], "--format: cannot be combined with --find-capacity"),
        (["--format", "csv", "--json"], "--format csv: cannot be combined with --json"),
    ],
)
def test_what_cannot_be_repeated_is_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert observe("http://127.0.0.1:9", *LOAD, *words, folder=tmp_path / "out") == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


async def test_ctrl_c_keeps_the_whole_runs_and_resume_goes_on(tmp_path: Path) -> None:
    load = ["--concurrency", "4", "--num-requests", "40", "--prompt-tokens", "20", "--output-tokens", "5"]
    async with serving(Behaviour(itl_s=0.01)) as server:
        words = ["observe", "--url", server.url, *load, "--repeat", "3", "--output", str(tmp_path)]

        async def start(*more: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "vtwin", *words, *more),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )

        process = await start()
        await asyncio.wait_for(server.received(60), 60)  # in the second run
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 130, err
        assert out.startswith(b"1 run ")
        assert not read_trace(tmp_path / "run-2").header.client.finished  # type: ignore[union-attr]
        assert read_trace(tmp_path / "run-1").header.noise_floor is None
        process = await start("--resume")
        out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err
    assert err.count(b"already there") == 1
    assert out.startswith(b"3 runs")
    floors = [read_trace(tmp_path / f"run-{number}").header.noise_floor for number in (1, 2, 3)]
    assert floors[0] is not None
    assert floors[0] == floors[1] == floors[2]


async def test_the_function_observes_and_says_the_same(tmp_path: Path) -> None:
    workload = synth(preset("chatbot", 200.0, num_requests=6), seed=1)
    async with serving(Behaviour()) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), scrapes_vllm=False)
        found = await observe_repeats({"mix": workload}, settings, folder=tmp_path, repeats=2)
        lines: list[str] = []
        again = await observe_repeats(
            {"mix": workload}, settings, folder=tmp_path, repeats=2, resume=True, tell=lines.append
        )
    assert list(found.loads[0].runs) == ["mix-run-1", "mix-run-2"]
    assert again == found
    assert sum("already there" in line for line in lines) == 2
    assert read_trace(tmp_path / "mix-run-2").header.noise_floor == found.loads[0].noise_floor()
    assert report_runs([tmp_path]).repeats.loads[0].name == "mix"
