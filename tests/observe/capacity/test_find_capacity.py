"""``observe --find-capacity`` on a served twin: the answer, its files, a search cut short, one that cannot be."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import observe
import vtwin
from observe.capacity.rate_search import MOST_STEPS
from observe.judged.criteria import criteria_of
from tests.observe.servers import Behaviour, serving_in_thread
from tests.twins import EIGHT_SEATS
from traces import ConfigError, read_trace
from traces.workload import WorkloadOptions

LOAD = "--prompt-tokens 40 --output-tokens 6 --num-requests 100"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a twin from a process of its own; yield its address."""
    (folder / "twin.yaml").write_text(EIGHT_SEATS)
    command = [sys.executable, "-m", "vtwin", "serve", "--config", str(folder / "twin.yaml"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        yield address.rstrip(".,")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def test_the_capacity_of_a_served_twin_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(tmp_path) as url:
        call = ["observe", "--url", url, "--find-capacity", "--slo", "ttft_p90=300ms", *LOAD.split()]
        assert vtwin.main([*call, "--rate", "120", "--output", "found", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert vtwin.main([*call, "--rate", "120", "--output", "found", "--resume", "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
    # How near to the twin's 170/s depends on how busy the machine is: test_rate_search knows, on a server without one.
    assert told["low"] < told["rate"] < told["high"]
    kept, broken = (
        [each["rate"] for each in told["evaluations"] if each["met"] is met] for met in (True, False)
    )
    assert min(kept) < told["high"] and told["low"] < max(broken)
    assert told["state"] in {"finished", "client limited"}
    assert 2 <= len(told["evaluations"]) <= MOST_STEPS
    assert told["sentence"].startswith("Within the SLO up to ")
    assert told == json.loads((tmp_path / "found" / "capacity.json").read_text())
    assert again == told
    page = (tmp_path / "found" / "report.html").read_text()
    assert told["sentence"] in page
    for each in told["evaluations"]:
        assert len(read_trace(tmp_path / "found" / each["trace"])) == each["num_requests"]


def test_a_search_that_was_cut_short_goes_on_and_the_function_answers_as_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    with serving_in_thread(Behaviour(itl_s=0.002)) as server:
        command = [
            sys.executable,
            "-m",
            "vtwin",
            "observe",
            "--url",
            server.url,
            "--find-capacity",
            "--rate",
            "80",
        ]
        command += [
            "--slo",
            "ttft=1us",
            "--num-requests",
            "150",
            "--output-tokens",
            "3",
            "--output",
            str(folder),
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert any("step 2, " in line for line in process.stderr)
        rows = folder / "step-02.csv"
        while not rows.is_file() or rows.read_text().count("\n") < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        told_last = "".join(process.communicate(timeout=60))
        assert process.returncode == 130
        assert "--resume goes on" in told_last
        told = json.loads((folder / "capacity.json").read_text())
        assert told["state"] in {"interrupted", "under way"}  # where it was told to end
        assert [each["trace"] for each in told["evaluations"]] == ["step-01"]
        found = asyncio.run(
            observe.find_capacity(
                WorkloadOptions(rate=80, num_requests=150, output_tokens=3),
                observe.Settings(endpoint=observe.parse_endpoint(server.url)),
                "ttft=1us",
                folder=folder,
                how=observe.FindSettings(resume=True),
            )
        )
    assert found.found.rate_per_s is None
    least = min(each.seen.rate_per_s for each in found.steps)
    assert found.sentence == f"Not within the SLO, down to {least:.3g}/s"
    assert [each.name for each in found.steps][:2] == ["step-01", "step-02"]
    assert found.document() == json.loads((folder / "capacity.json").read_text())
    assert found.document()["evaluations"][0] == told["evaluations"][0]  # type: ignore[index]


REFUSED = {
    "needs --slo": "--rate 5",
    "it sets the rate itself": "--slo ttft=1s --concurrency 4",
    "counts requests beyond a limit": "--slo ttft_mean=1s",
    "cannot be combined with --find-capacity": "--slo ttft=1s --sweep 1,2",
    "one process sends": "--slo ttft=1s --processes 2",
    "leave out their beginning": "--slo ttft=1s --keep-warmup --warmup 5",
    "a share of the rate": "--slo ttft=1s --precision 60%",
    "says its own share": "--slo ttft_p99=1s --fail-below 95%",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_asked_is_refused(
    said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"observe --url http://127.0.0.1:9 --find-capacity --output {tmp_path / 'o'} {REFUSED[said]}"
    assert vtwin.main(words.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_without_a_server_the_exit_code_says_so(tmp_path: Path) -> None:
    words = (
        f"observe --url http://127.0.0.1:9 --find-capacity --slo ttft=1s --rate 5 --output {tmp_path / 'o'}"
    )
    assert vtwin.main(words.split()) == 4
    assert not (tmp_path / "o" / "capacity.json").exists()


def test_a_folder_of_another_search_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "capacity.json").write_text('{"question": {"slo": "ttft=2s"}}')
    words = (
        f"observe --url http://127.0.0.1:9 --find-capacity --slo ttft=1s --rate 5 --output {tmp_path / 'o'}"
    )
    assert vtwin.main(words.split()) == 2
    assert "expected --resume to go on, --overwrite to begin anew" in " ".join(
        capsys.readouterr().err.split()
    )
    assert vtwin.main([*words.split(), "--resume"]) == 2
    assert "got another question" in " ".join(capsys.readouterr().err.split())


def test_limits_of_each_request_are_one_criterion_and_percentiles_one_each() -> None:
    found = {
        each.name: each.beyond_frac for each in criteria_of("ttft=1s,tpot=50ms,e2e_p95=9s", good_frac=0.98)
    }
    assert found == pytest.approx({"e2e_p95": 0.05, "goodput": 0.02, "failed": 0.01})
    with pytest.raises(ConfigError, match="got it twice"):
        criteria_of("ttft_p99=1s,ttft_p99=2s")
