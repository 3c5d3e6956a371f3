"""Every option that writes, where nothing can be written and on a full disk: one line, and nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import typer

import vtwin
from tests.calibrate.predictor import made_profiles as profiles
from tests.docs.commands import commands_of
from tests.observe.servers import serving_in_thread
from tests.twins import EIGHT_SEATS

GRID = """\
config: twin.yaml
workloads: {one: {rate: 4, prompt_tokens: 5, output_tokens: 2, num_requests: 5}}
"""
POOLS = "pools: [{name: one, profile: A100, up_to: 8192}]"
LOAD = "--rate 20 --num-requests 3 --prompt-tokens 9 --output-tokens 3"
SIMULATED = f"run --config twin.yaml {LOAD}"
REPLAYED = "replay drawn --config twin.yaml"
COMPARED = "calibrate drawn --simulated drawn --report report"
FITTED = "calibrate drawn --config twin.yaml --fit --report report"
FLEET = "--workload cdf.json --slo ttft_p99=500ms --profile A100"
SEARCHED = "--config twin.yaml --slo ttft_p99=1s --like drawn --seeds 1 --num-requests 200"
SENT = f"--url {{url}} {LOAD} --no-probe"
TRAINED = "--profile a100 --model-config config.json --gpu A100 --tp 2 --estimator grid --no-cache"
WRITERS = {
    # command, option: a call of it; OUT is a folder
    ("observe", "--output"): f"observe {SENT} --output OUT/t",
    ("receive", "--output"): "receive --port 0 --output OUT/prod",
    ("replay", "--output"): f"{REPLAYED} --output OUT/t",
    ("replay", "--steps"): f"{REPLAYED} --steps OUT/steps.jsonl",
    ("replay", "--series"): f"{REPLAYED} --series OUT/series.csv",
    ("replay", "--trace-events"): f"{REPLAYED} --trace-events OUT/events.json",
    ("replay", "--report"): f"{REPLAYED} --report OUT/run.html",
    ("replay", "--decisions"): f"{REPLAYED} --instances 2 --decisions OUT/decisions.jsonl",
    ("run", "--output"): f"{SIMULATED} --output OUT/t.parquet",
    ("run", "--steps"): f"{SIMULATED} --steps OUT/steps.jsonl",
    ("run", "--series"): f"{SIMULATED} --series OUT/series.csv",
    ("run", "--trace-events"): f"{SIMULATED} --trace-events OUT/events.json",
    ("run", "--report"): f"{SIMULATED} --report OUT/run.html",
    ("run", "--decisions"): f"{SIMULATED} --instances 2 --decisions OUT/decisions.jsonl",
    ("calibrate", "--report"): "calibrate drawn --simulated drawn --report OUT/report",
    ("calibrate", "--write-config"): f"{FITTED} --write-config OUT/fitted.yaml",
    ("calibrate", "--write-defaults"): f"{FITTED} --write-defaults OUT/defaults.yaml",
    ("calibrate", "--junit"): f"{COMPARED} --thresholds gate.yaml --junit OUT/gate.xml",
    (
        "calibrate models",
        "--report",
    ): "calibrate models drawn --config twin.yaml --models blackbox --report OUT/report",
    ("report", "--output"): "report drawn --output OUT/page.html",
    ("capacity", "--report"): f"capacity {SEARCHED} --no-binding --report OUT/capacity.html",
    ("sweep", "--output"): "sweep grid.yaml --jobs 1 --output OUT/table.parquet",
    ("sweep", "--report"): "sweep grid.yaml --jobs 1 --output table.parquet --report OUT/sweep.html",
    (
        "tune",
        "--output",
    ): f"tune {SEARCHED} --max-num-seqs 4,8 --max-num-batched-tokens 512 --chunked-prefill true "
    "--serve false --url http://127.0.0.1:1 --output OUT/live",
    ("validate", "--output"): f"validate {SENT} --output OUT/all",
    ("demo", "--output"): "demo --output OUT/demo",
    ("fleet size", "--report"): f"fleet size {FLEET} --rate 5 --no-verify --report OUT/fleet.html",
    (
        "fleet reserve",
        "--report",
    ): f"fleet reserve {FLEET} --diurnal 5:1 --burst-price 2x --report OUT/day.html",
    (
        "fleet size --layout pools",
        "--report",
    ): "fleet size --layout pools pools.yaml --workload cdf.json --rate 5 --slo ttft_p99=2s --no-verify "
    "--report OUT/pools.html",
    ("trace convert", "--output"): "trace convert m.jsonl --from mooncake --output OUT/t",
    ("trace synth", "--output"): f"trace synth {LOAD} --output OUT/t",
    ("trace export", "--output"): "trace export drawn --output OUT/t.csv",
    ("predictor train", "--output"): f"predictor train {TRAINED} --output OUT/table.json",
}
ANSWERS = {
    "capacity": f"capacity {SEARCHED}",
    "sweep": "sweep grid.yaml",
    "tune": f"tune {SEARCHED}",
    "rollouts": "rollouts --config twin.yaml --batch 2 --samples 2 --batches 1 --output-tokens 9",
    "run": SIMULATED,
    "replay": REPLAYED,
    "predictor list": "predictor list",
    "profiles list": "profiles list fitted.yaml",
    "profiles show": "profiles show fitted.yaml",
    "model info": "model info --model-config Qwen/Qwen3-8B --gpu H100",
    "model compare": "model compare --model-config Qwen/Qwen3-8B --gpus H100",
    "fleet size": f"fleet size {FLEET} --rate 5",
    "fleet profile": "fleet profile --from A100",
    "fleet size --layout split": f"fleet size --layout split {FLEET} --rate 5",
    "fleet routers": f"fleet routers {FLEET} --rate 5 --split 512",
    "fleet size --layout disagg": f"fleet size --layout disagg {FLEET} --rate 5",
    "fleet size --compare": "fleet size --compare --workload cdf.json --slo ttft_p99=500ms --profile A100 --rate 5",
    "fleet flex": f"fleet flex {FLEET} --rate 5",
    "fleet reserve": f"fleet reserve {FLEET} --diurnal 5:1 --burst-price 2x",
    "fleet size --layout pools": "fleet size --layout pools pools.yaml --workload cdf.json --rate 5 --slo ttft_p99=2s",
}
"""Commands whose answer can be written as Markdown: a place is refused before anything is simulated."""
WRITERS |= {(name, "--markdown"): f"{call} --markdown OUT/answer.md" for name, call in ANSWERS.items()}
READ = {
    *(
        "--workload",
        "--after",
        "--trace",
        "--like",
        "--config",
        "--from",
        "--simulated",
        "--holdout",
        "--repeat",
        "--defaults",
    ),
    *(
        "--thresholds",
        "--baseline",
        "--like",
        "--prices",
        "--labels",
        "--api-key-file",
        "--tokenizer",
        "--guided",
    ),
    *("--engine-log", "--from-trace", "--profile", "--model-config", "--fit-guided", "--fit-host", "--twin"),
}
"""Options with a path that is read."""
READ_HERE = {("calibrate", "--steps"), ("observe", "--texts"), ("observe", "--tools")}
"""The same, of commands whose namesakes write theirs."""
OF_COSTS = {
    (f"calibrate {name}", option) for name in ("guided", "host") for option in ("--report", "--write-config")
}
"""Options whose calls take a fit of many runs: tests/calibrate/fit/test_paired_runs.py looks at their places."""


def test_the_table_has_every_option_with_a_path_that_is_not_read() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    found = {
        (path.removeprefix("vtwin "), parameter.opts[0])
        for path, command in commands_of(root, "vtwin")
        for parameter in command.params
        if parameter.opts[0].startswith("--") and isinstance(parameter.type, click.Path)
    }
    written = {each for each in WRITERS if " --" not in each[0]}
    assert {each for each in found if each[1] not in READ and each not in READ_HERE} == written | OF_COSTS


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the calls read."""
    folder = tmp_path_factory.mktemp("inputs")
    texts = {
        "twin.yaml": EIGHT_SEATS,
        "fitted.yaml": EIGHT_SEATS.replace("20}}", "20}, held_out: {e2e: 0.02}}"),
        "grid.yaml": GRID,
        "pools.yaml": POOLS,
        "cdf.json": "[[512, 0.4], [2048, 1.0]]",
    }
    texts["gate.yaml"] = "metrics: {e2e_us: {mape: {fail: 0.5}}}\n"
    texts["m.jsonl"] = (
        json.dumps({"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": [0]}) + "\n"
    )
    for name, text in texts.items():
        (folder / name).write_text(text)
    profiles.vidur_folder(folder)
    profiles.config(folder)
    assert vtwin.main(shlex.split(f"run --config {folder}/twin.yaml {LOAD} --output {folder}/drawn")) == 0
    return folder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_in_thread() as server:
        yield server.url


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond 64 bytes: what is written after them is refused, as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def read_only(folder: Path) -> Path:
    """Return a folder in which nobody can make a file; root can in any that is not the kernel's."""
    if os.geteuid() == 0:
        return Path("/sys/kernel")
    (folder / "closed").mkdir(mode=0o500)
    return folder / "closed"


def refusal(call: str, out: Path, *, url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a call, which must end in one line about a place that cannot be written; return the line."""
    capsys.readouterr()
    code = vtwin.main(shlex.split(call.format(url=url).replace("OUT", str(out))))
    errors = [line for line in capsys.readouterr().err.splitlines() if "Error: " in line]
    assert len(errors) == 1, errors
    assert code in (2, 3), errors  # 3: rows of a measured trace
    assert ", expected a place that can be" in errors[0]
    return errors[0]


@pytest.mark.parametrize("writer", WRITERS, ids=" ".join)
def test_what_cannot_be_written_is_one_line_and_leaves_nothing(
    writer: tuple[str, str],
    inputs: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(inputs)
    closed, full = read_only(tmp_path), tmp_path / "full"
    assert str(closed) in refusal(WRITERS[writer], closed, url=url, capsys=capsys)
    full.mkdir()
    with full_disk():
        refusal(WRITERS[writer], full, url=url, capsys=capsys)
    assert [path for path in full.rglob("*") if path.is_file()] == []


def test_an_answer_as_markdown_replaces_an_answer_and_nothing_else(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inputs)
    place = tmp_path / "answer.md"
    call = [*shlex.split(ANSWERS["fleet size --layout split"]), "--markdown", str(place)]
    assert vtwin.main(call) == vtwin.main(call) == 0
    assert place.read_text().count("| up to | cut |") == 1
    capsys.readouterr()
    assert vtwin.main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "analytic"
    place.write_text("# My notes\n")
    assert vtwin.main(call) == 2
    assert "is there and no page of vtwin's" in capsys.readouterr().err
    assert place.read_text() == "# My notes\n"
    assert vtwin.main([*call[:-1], str(tmp_path / "answer.txt")]) == 2
    assert "expected a name that ends in .md" in capsys.readouterr().err


def test_a_full_standard_output_is_one_line_too(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inputs)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert vtwin.main(["trace", "info", "drawn"]) == 2
        assert (
            capsys.readouterr().err
            == "FileError: got No space left on device, expected a place that can be read and written\n"
        )
