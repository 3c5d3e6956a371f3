"""Every option that takes a number, at the ends of numbers: a result, or one line with a documented exit code."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import typer.main

import replay.console.ready
import vtwin
from tests.calibrate.few_resamples import draw_few_resamples
from tests.calibrate.predictor import made_profiles as profiles
from tests.traces.made import small_trace
from tests.twins import SIXTEEN_SEATS
from traces import write_trace
from traces.console.help import METAVARS
from traces.console.values import refuse_impossible

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
SIZED = ["--workload", "cdf.json", "--slo", "ttft_p99=500ms"]
AT_RATE = [*SIZED, "--rate", "10", "--profile", "A100"]
LOAD = ["--config", "twin.yaml", "--rate", "5", "--num-requests", "3"]
SEARCH = ["--config", "twin.yaml", "--slo", "ttft_p99=500ms"]
BASES: dict[str, list[str]] = {
    "run": LOAD,
    "replay": ["t", "--config", "twin.yaml"],
    "capacity": SEARCH,
    "tune": [
        *SEARCH,
        *("--set", "engine.max_num_seqs=8,16", "--set", "engine.max_num_batched_tokens=512"),
        *("--set", "engine.enable_chunked_prefill=true"),
    ],
    "rollouts": ["--config", "twin.yaml", "--batch", "2", "--samples", "2", "--output-tokens", "5"],
    "sweep": ["grid.yaml", "--output", "table.parquet"],
    "calibrate": ["t", "--config", "twin.yaml", "--report", "report"],
    "calibrate guided": ["t", "t", "--config", "twin.yaml", "--report", "report"],
    "calibrate host": ["t", "t", "--config", "twin.yaml", "--report", "report"],
    "calibrate models": ["t", "--config", "twin.yaml", "--report", "report", "--models", "blackbox"],
    "compare": ["t", "t"],
    "explore": [*LOAD, "--no-open"],
    "serve": ["--config", "twin.yaml", "--port", "0"],
    "observe": [
        "--url",
        "http://127.0.0.1:9",
        "--model",
        "m",
        "--rate",
        "5",
        "--num-requests",
        "3",
        "--output",
        "seen",
    ],
    "trace info": ["azure.csv"],
    "trace check": ["azure.csv"],
    "trace convert": ["azure.csv", "--from", "azure", "--output", "converted", "--overwrite"],
    "model compare": ["--model-config", "Qwen/Qwen2.5-7B-Instruct", "--gpus", "H100"],
    "trace synth": ["--rate", "5", "--num-requests", "3", "--output", "drawn", "--overwrite"],
    "model info": ["--model-config", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100"],
    "config from-serve": ["vllm serve m", "--gpu", "H100", "--model-config", "Qwen/Qwen2.5-7B-Instruct"],
    "profiles check": ["fitted.yaml"],
    "fleet size": [*AT_RATE, "--no-verify"],
    "fleet profile": ["--from", "A100"],
    "fleet routers": [*AT_RATE, "--split", "1024", "--no-verify", "--num-requests", "1000"],
    "fleet flex": AT_RATE,
    "fleet reserve": [*SIZED, "--diurnal", "20:4", "--profile", "A100", "--burst-price", "1.8x"],
    "validate": ["--url", "http://127.0.0.1:9", "--rate", "5", "--output", "validated"],
    "receive": ["--output", "prod"],
    "selfcheck": ["--quick"],
    "predictor train": [
        *("--profile", "a100", "--model-config", "config.json", "--gpu", "A100", "--tp", "2"),
        *("--estimator", "grid", "--no-cache", "--output", "table.json"),
    ],
}
"""Commands that can be asked for something cheap, and how; of those that simulate, all up to the simulation."""
ENDS = {"integer": ("0", "-1", str(10**18)), "float": ("0", "-1", "inf", "1e18", "1e-300")}
DOCUMENTED = (0, 1, 2, 3, 4, 5)
MOST_S = 20
"""A command of an end of numbers takes a fraction of it; a hang would take the suite's whole time."""


LAYOUTS: dict[str, list[str]] = {
    "fleet size --layout pools": ["pools.yaml", *SIZED, "--rate", "10", "--no-verify"],
    "fleet size --layout split": AT_RATE,
    "fleet size --layout disagg": [*AT_RATE, "--no-verify"],
    "fleet size --compare": [*SIZED, "--rate", "10", "--profile", "A100"],
}
"""Forms of ``fleet size``, each with what it is given."""
FIRST_REFUSED = {("observe", 4), ("validate", 4), ("calibrate guided", 3), ("calibrate host", 3)}
"""Commands that end before they simulate: no server answers, or a pair of runs has too few requests for a cost."""


USERS = (
    *("capacity.question", "capacity.session_command", "fleet.demand", "gpus.question", "rollouts.rollouts"),
    *(
        "simulation.command",
        "simulation.variants.command",
        "sweeps.one_run",
        "sweeps.question",
        "tuning.question",
    ),
)
"""Modules that name what compiles the engine: one that a test is the first to import would keep the stubs of `here`."""


class HungError(BaseException):
    """The command did not end."""


class SimulatedError(BaseException):
    """The command was about to simulate: it took what it was given."""


def folder_with_files(folder: Path) -> None:
    (folder / "twin.yaml").write_text(SIXTEEN_SEATS)
    (folder / "fitted.yaml").write_text(f"{SIXTEEN_SEATS}  fitted_range: {{rate_per_s: [1, 4]}}\n")
    (folder / "cdf.json").write_text(json.dumps([[128, 0.2], [1024, 0.7], [4096, 1.0]]))
    (folder / "grid.yaml").write_text("config: twin.yaml\nworkloads: {a: {rate: 2, num_requests: 5}}\n")
    (folder / "pools.yaml").write_text("pools: [{profile: A100, up_to: 2048}, {name: long, profile: A100}]\n")
    (folder / "azure.csv").write_text(AZURE)
    write_trace(small_trace(), folder / "t")
    profiles.vidur_folder(folder)
    profiles.config(folder)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files of every kind, in which nothing is simulated token by token."""
    folder_with_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    draw_few_resamples(monkeypatch)

    def stop(*_: object, **__: object) -> None:
        raise SimulatedError

    for module in USERS:
        import_module(f"replay.{module}")
    for name in ("load_engine", "prepare_engine"):
        real = getattr(replay.console.ready, name)
        for module in [each for each in sys.modules.values() if getattr(each, name, None) is real]:
            monkeypatch.setattr(module, name, stop)
    monkeypatch.setattr("observe.receive.question.run_receiver", stop)
    monkeypatch.setattr("observe.selfcheck.question.start_reference_server", stop)
    monkeypatch.setattr("calibrate.predictor.build.build_tables", stop)
    return tmp_path


@cache
def app() -> Any:  # noqa: ANN401  the library's own
    command = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    refuse_impossible(command)  # type: ignore[arg-type]
    return command


def commands_under(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield name, command
    for word, each in inner.items():
        yield from commands_under(each, f"{name} {word}".strip())


def numeric_options(command: Any) -> list[Any]:  # noqa: ANN401
    return [each for each in command.params if each.type.name in METAVARS and each.opts[0].startswith("-")]


def kind_of(option: Any) -> str:  # noqa: ANN401
    return str(option.type.name).split()[0]


def outcome(words: list[str]) -> int | str:
    """Return the exit code of a command, or that it came to simulate. Raises HungError where it hangs."""

    def give_up(*_: object) -> None:
        raise HungError(" ".join(words))

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(MOST_S)
    try:
        return vtwin.main(words)
    except SimulatedError:
        return "simulates"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_no_option_of_any_command_takes_what_is_no_number() -> None:
    every = [(name, option) for name, command in commands_under(app()) for option in numeric_options(command)]
    assert len(every) > 150
    taken = []
    for name, option in every:
        for value in ("nan", "", "x", str(10**30) if kind_of(option) == "integer" else "-nan"):
            try:
                option.type(value, option, None)
            except click.exceptions.UsageError:
                continue
            except Exception as error:
                if type(error).__name__ != "BadParameter":  # the library's own copy of that class
                    raise
                continue
            taken.append(f"{name} {option.opts[0]} {value!r}")
    assert taken == []


@pytest.mark.parametrize("name", BASES | LAYOUTS)
@pytest.mark.usefixtures("here")
def test_ends_of_numbers_are_answered_or_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (BASES | LAYOUTS)[name]
    ended = outcome([*name.split(), *asked])
    assert ended in (0, "simulates") or (name, ended) in FIRST_REFUSED
    faults = []
    for option in numeric_options(dict(commands_under(app()))[name.partition(" --")[0]]):
        for value in ENDS[kind_of(option)]:
            given = f"{option.opts[0]}={value}"
            capsys.readouterr()
            ended = outcome([*name.split(), *asked, given])
            said = [line for line in capsys.readouterr().err.splitlines() if "Error: " in line]
            if ended not in (*DOCUMENTED, "simulates") or (ended in (2, 3) and len(said) != 1):
                faults.append((given, ended, said))
    assert not faults, "\n".join(map(str, faults))


def test_every_command_with_a_number_among_its_options_is_tried() -> None:
    assert {name for name, command in commands_under(app()) if numeric_options(command)} == set(BASES)


REFUSED = {
    "fleet size": [
        *(["--rate", value] for value in ("0", "inf", "1e300", "nan", "")),
        *(["--slo", f"ttft_p99={value}"] for value in ("0s", "-1s", "nans", "infs", "1e300s", "1e-300s", "")),
        *(["--failures", value] for value in ("1e300:1h", "1:1e300h", "nan:1h", "-1:1h", "inf:1h", "9:8000h")),
        *(["--measure", value] for value in ("nan:", "0:inf", "0:1e300s", "-5:10", "1e300:")),
        *(["--profile", value] for value in ("/dev/zero", "chunk.yaml", "power.yaml", "a" * 5000, "")),
        *(["--context", str(10**18)], ["--output-frac", "nan"], ["--utilization-cap", "nan"]),
    ],
    "fleet size --compare": [
        ["--rate", value] for value in ("1e-300,1e300", "inf", "nan", "0", "-1", "", "1,,2", "1e18")
    ],
    "fleet size --layout split": [["--compress", value] for value in ("0.5", "1e300", "nan", "inf", "", "-1")],
    "fleet reserve": [
        *(["--diurnal", value] for value in ("1e300:40", "20:1e-300", "nan:1", "4:20", "/dev/zero", "", ":")),
        *(["--burst-price", value] for value in ("1e308", "1e300x", "nan", "0", "-1x", "", "x", "inf")),
    ],
    "fleet size --layout disagg": [["--kv-bytes-per-token", str(10**15)], ["--beta-ttft", "inf"]],
    "fleet flex": [["--engines", str(10**18)], ["--engines", "0"]],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_figure_that_cannot_be_is_refused_in_one_line(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "chunk.yaml").write_text("w_s: 0.01\nh_s: 0.001\nchunk_tokens: 1000000000000\n")
    (here / "power.yaml").write_text("w_s: 0.01\nh_s: 0.001\npower_k: 1e300\n")
    for words in REFUSED[name]:
        assert outcome([*name.split(), *(BASES | LAYOUTS)[name], *words]) == 2, words
        said = capsys.readouterr()
        assert said.out == ""
        assert len([line for line in said.err.splitlines() if "Error: " in line]) == 1, (words, said.err)


def test_a_fleet_of_more_engines_than_there_are_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "slow.yaml").write_text("w_s: 100\nh_s: 100\nmax_slots: 1\n")
    (here / "cdf.json").write_text(json.dumps([[100, 1.0]]))
    words = ["--rate", "1e6", "--profile", "slow.yaml", "--slo", "ttft_p99=1e6s"]
    assert outcome(["fleet", "size", *BASES["fleet size"], *words]) == 2
    assert "of at most 1,000,000" in capsys.readouterr().err
