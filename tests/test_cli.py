"""The command line: light help, one line per fault, exit codes that scripts can rely on."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

import vtwin
from tests.docs.commands import commands_of
from traces import ExitCode
from traces.console.help import fold_long_words, plain_help
from traces.errors import ConfigError, ServerError, TraceError, VtwinError

HELP_CPU_S = 0.3  # of `vtwin --help`; as CPU time, which other work on the machine does not stretch
HEAVY = {"numba", "pandas", "scipy", "aiohttp", "numpy", "pyarrow", "matplotlib", "uvloop"}
SLOW = {
    "importlib.metadata",
    "yaml",
    "rich.markdown",
    "rich.traceback",
    "traces.header",
    "traces.workload.model",
}
"""What a help and a refusal need none of: together they took longer than all the rest."""
RICH = "typer.main\nfrom traces.console.help import fold_long_words\nfold_long_words()"
MODULES_AFTER_EACH = """
import json, os, sys, vtwin, {shared}  # what all of them need; each child imports the rest
for arguments in {each}:
    if (child := os.fork()) == 0:
        code = vtwin.main(arguments)
        sys.stdout.flush()
        sys.stderr.write("MODULES " + json.dumps([code, *sys.modules]) + "\\n")
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


def modules_after_each(
    lines: Sequence[Sequence[str]], *, shared: str, folder: Path | None = None
) -> list[tuple[int, set[str]]]:
    """Return the exit code of each command line and what a process that runs it has imported, ``shared`` included."""
    code = MODULES_AFTER_EACH.format(each=[list(line) for line in lines], shared=shared)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    told = [json.loads(line[8:]) for line in done.stderr.splitlines() if line.startswith("MODULES ")]
    assert len(told) == len(lines), done.stderr
    return [(code, set(modules)) for code, *modules in told]


def packages_of(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


def test_the_top_of_the_command_line_imports_nothing_heavy() -> None:
    lines = [["--help"], ["--version"], ["no-such-command"], []]
    for line, (_, modules) in zip(lines, modules_after_each(lines, shared="typer"), strict=True):
        assert packages_of(modules) & HEAVY == set(), line


def test_the_help_comes_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-m", "vtwin", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_CPU_S


def test_the_help_of_no_command_imports_anything_heavy() -> None:
    lines = [[command, "--help"] for command in vtwin.COMMANDS]
    told = modules_after_each(lines, shared=RICH)
    for line, (code, modules) in zip(lines, told, strict=True):
        assert code == 0, line
        assert (packages_of(modules) & HEAVY, modules & SLOW) == (set(), set()), line


MOONCAKE = '{"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n'
DRAWN = ("--config", "twin.yaml", "--rate", "9", "--num-requests", "5")
WRITES_NOTHING = (
    ("run", *DRAWN),
    ("replay", "mooncake.jsonl", "--config", "twin.yaml", "--slo", "ttft=1s"),
    ("replay", "mooncake.jsonl", "--config", "twin.yaml", "--instances", "2"),
)
ONE_SERVER = ("run", *DRAWN, "--output", "out")
READS_AND_WRITES = (
    ONE_SERVER,
    ("run", *DRAWN, "--output", "out1.parquet", "--json"),
    ("run", *DRAWN, "--report", "run.html"),
    ("replay", "text", "--config", "twin.yaml", "--output", "out2"),
    ("replay", "columns", "--config", "twin.yaml", "--output", "out2.parquet"),
    ("trace", "synth", *DRAWN[2:], "--output", "out3"),
    ("trace", "info", "text"),
    ("trace", "check", "columns"),
)
CLUSTER = (
    "replay",
    "mooncake.jsonl",
    "--config",
    "twin.yaml",
    "--instances",
    "2",
    "--output",
    "out4.parquet",
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], set[str]]:
    """What each of these command lines imports, with all code compiled; all of them simulate or read."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "twin.yaml").write_text(TWIN)
    (folder / "mooncake.jsonl").write_text(MOONCAKE)
    with contextlib.chdir(folder):
        for stem in ("text", "columns.parquet"):
            assert vtwin.main(["trace", "synth", *DRAWN[2:], "--output", stem]) == 0
    lines = [*WRITES_NOTHING, *READS_AND_WRITES, CLUSTER]
    with contextlib.chdir(folder):
        for line in (ONE_SERVER, CLUSTER):
            assert vtwin.main([*line[:-1], "compiled"]) == 0
    told = modules_after_each(lines, shared="llvmlite.binding", folder=folder)
    assert [line for line, (code, _) in zip(lines, told, strict=True) if code] == []
    assert (folder / "out.csv").is_file()
    return {line: modules for line, (_, modules) in zip(lines, told, strict=True)}


@pytest.mark.parametrize("line", WRITES_NOTHING)
def test_a_simulation_that_writes_nothing_imports_neither_pandas_nor_pyarrow(
    line: tuple[str, ...], imported: dict[tuple[str, ...], set[str]]
) -> None:
    assert packages_of(imported[line]) & {"pandas", "pyarrow", "aiohttp", "rich"} == set()


@pytest.mark.parametrize("line", READS_AND_WRITES)
def test_traces_are_read_simulated_and_written_without_pandas(
    line: tuple[str, ...], imported: dict[tuple[str, ...], set[str]]
) -> None:
    assert "pandas" not in imported[line]


def test_a_run_whose_code_is_compiled_imports_no_numba(imported: dict[tuple[str, ...], set[str]]) -> None:
    """The lines above have compiled what these need."""
    for line in (*WRITES_NOTHING, *READS_AND_WRITES, CLUSTER):
        assert "numba" not in imported[line], line


def test_a_run_imports_nothing_for_its_version_or_for_one_formula(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    """Together they took 15 ms: reading what is installed, a page's escapes, a normal distribution's function."""
    for line in (*WRITES_NOTHING, ONE_SERVER):
        assert imported[line] & {"importlib.metadata", "email", "html", "statistics"} == set(), line


def test_a_replay_imports_neither_what_draws_workloads_nor_arrow_s_functions_of_columns(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    listed = imported[CLUSTER]
    assert "pyarrow.parquet" in listed
    drawing = {"traces.workload.synthesis", "traces.workload.resolve", "traces.workload.spec"}
    assert listed & {"pyarrow.compute", "pyarrow.csv", "scipy.linalg", *drawing} == set()


def test_a_run_of_one_server_imports_neither_scipy_nor_clusters_nor_what_reads_models_and_draws_pages(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    loaded = imported[ONE_SERVER]
    assert "scipy" not in loaded
    assert {
        name
        for name in loaded
        if name.startswith(
            ("sim.cluster.run", "rich", "jinja2", "aiohttp", "traces.pages", "traces.workload.spec")
        )
        or name.startswith(("replay.model.hf_config", "replay.model.model_peak", "replay.model.quantized"))
    } == set()


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in vtwin.COMMANDS if f" {name} " not in listed] == []


@pytest.mark.parametrize("command", vtwin.COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([command, "--help"]) == 0
    assert f"vtwin {command}" in capsys.readouterr().out


def commands_under(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - typer's
    found = [(words, command)]
    for name, each in getattr(command, "commands", {}).items():
        found += commands_under(each, (*words, name))
    return found


def test_no_help_is_cut_at_80_columns_and_switches_have_no_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    root: Any = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    plain_help(root, vtwin.MOST_USED)
    fold_long_words()
    for words, command in commands_under(root)[1:]:
        options = command.get_params(typer.Context(command))
        has_more = any(each.name == "help_all" for each in options)
        root([*words, "--help-all" if has_more else "--help"], prog_name="vtwin", standalone_mode=False)
        shown = capsys.readouterr().out
        tables = shown[shown.index("╭") :]
        written = [text for each in options for text in (getattr(each, "help", ""), each.metavar)]
        assert tables.count("…") == sum((text or "").count("…") for text in written), words
        assert "<bool>" not in shown, words
        assert max(map(len, shown.splitlines())) <= 80, words


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["--version"]) == 0
    assert capsys.readouterr().out == f"vtwin {version('vtwin')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["--no-such-option"],
        ["demo", "--no-such-option"],
        ["observe"],
        ["replay"],
        ["calibrate"],
        ["serve"],
        ["trace", "no-such-command"],
        ["trace", "convert", "--from", "no-such-format", "file.csv", "--output", "out"],
        ["observe", "--url", "http://127.0.0.1:1", "--rate", "fast", "--output", "out"],
    ],
)
def test_a_usage_error_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1, shown.err


def test_the_command_line_without_a_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([]) == 2
    assert "Usage: vtwin" in capsys.readouterr().out


@pytest.mark.parametrize("error", [VtwinError, ConfigError, TraceError, ServerError])
def test_a_fault_of_the_user_is_one_line_with_its_exit_code(
    error: type[VtwinError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error("engine.max_num_seqs: got 0,\nexpected an integer >= 1 (twin.yaml)")

    monkeypatch.setattr(vtwin, "demo", fail)
    assert vtwin.main(["demo"]) == error.exit_code
    expected = f"{error.__name__}: engine.max_num_seqs: got 0, expected an integer >= 1 (twin.yaml)\n"
    assert capsys.readouterr().err == expected


def test_our_own_fault_is_exit_code_70_and_keeps_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(vtwin, "demo", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert vtwin.main(["demo"]) == 70
    assert capsys.readouterr().err.startswith("InternalError: ZeroDivisionError (test_cli.py:")
    (kept,) = tmp_path.iterdir()
    assert "Traceback (most recent call last)" in kept.read_text()


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(vtwin, "demo", interrupt)
    assert vtwin.main(["demo"]) == 130


def test_a_reader_that_goes_away_is_answered_with_silence() -> None:
    command = [sys.executable, "-P", "-m", "vtwin", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


TWIN = """\
engine: {max_num_seqs: 8, num_gpu_blocks: 100, block_size: 16, max_model_len: 1000}
latency: {model: blackbox, coefficients: {alpha0: 9, alpha1: 1, alpha2: 0, beta0: 5000, beta1: 10, beta2: 10}}
"""
UNKNOWN_KEY = TWIN.replace("max_num_seqs", "max_num_seq")
WRONG_TYPE = TWIN.replace("max_num_seqs: 8", "max_num_seqs: many")
TOO_FEW_BLOCKS = TWIN.replace("num_gpu_blocks: 100", "num_gpu_blocks: 2")
FILES = {
    "twin.yaml": TWIN,
    "unknown-key.yaml": UNKNOWN_KEY,
    "wrong-type.yaml": WRONG_TYPE,
    "too-few-blocks.yaml": TOO_FEW_BLOCKS,
    "not-yaml.yaml": "engine: {",
    "good.yaml": "trace_version: 2\ntime_unit: us\ntool: vtwin\n",
    "good.csv": "request_id,arrival_time_us,input_tokens,output_tokens\na,0,100,5\nb,1000,200,5\n",
    "others.yaml": "trace_version: 2\ntime_unit: us\ntool: vtwin\n",
    "others.csv": "request_id,arrival_time_us,input_tokens,output_tokens\nx,0,100,5\ny,1000,200,5\n",
    "negative.yaml": "trace_version: 2\ntime_unit: us\ntool: vtwin\n",
    "negative.csv": "request_id,arrival_time_us,input_tokens,output_tokens\na,0,-100,5\n",
}
BAD_INPUT = {
    "a missing trace": (["replay", "none", "--config", "twin.yaml"], 3, "none"),
    "a malformed trace": (["replay", "negative", "--config", "twin.yaml"], 3, "input_tokens"),
    "a missing configuration": (["replay", "good", "--config", "none.yaml"], 2, "none.yaml"),
    "a configuration that is not YAML": (["replay", "good", "--config", "not-yaml.yaml"], 2, "not-yaml.yaml"),
    "an unknown key": (["replay", "good", "--config", "unknown-key.yaml"], 2, "max_num_seqs"),
    "a wrong type": (["replay", "good", "--config", "wrong-type.yaml"], 2, "many"),
    "too few blocks for any prompt": (
        ["replay", "good", "--config", "too-few-blocks.yaml"],
        2,
        "num_gpu_blocks",
    ),
    "no workload": (["run", "--config", "twin.yaml"], 2, "--rate"),
    "two workloads": (
        ["run", "--rate", "1", "--concurrency", "2", "--config", "twin.yaml"],
        2,
        "--concurrency",
    ),
    "a server that is not there": (
        ["observe", "--url", "http://127.0.0.1:1", "--rate", "1"],
        4,
        "127.0.0.1:1",
    ),
    "a name that nobody has": (["observe", "--url", "http://none.invalid", "--rate", "1"], 4, "none.invalid"),
    "a URL that is none": (["observe", "--url", "ftp://x", "--rate", "1"], 2, "ftp://x"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_that_says_what_and_nothing_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, code, named = BAD_INPUT[case]
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert vtwin.main([*arguments, "--output", "out"]) == code
    complaints = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note:")]
    assert len(complaints) == 1, complaints
    assert named in complaints[0]
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


def test_traces_with_no_request_in_common_are_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert vtwin.main(["calibrate", "good", "--simulated", "others", "--report", "report"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "report").exists()


def test_no_line_of_the_help_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--rate", "abc"], "'--rate': got 'abc', expected a number ("),
        (["run", "--num-requests", "1.5"], "'--num-requests': got '1.5', expected an integer ("),
        (["serve", "--port", "99999"], "'--port': got 99999, expected 0 to 65535 ("),
        (["run", "--preset", "azur"], "'--preset': got 'azur', expected one of 'chatbot'"),
    ],
)
def test_a_usage_error_speaks_as_the_other_errors_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(arguments) == ExitCode.USAGE
    assert f"UsageError: Invalid value for {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runn"], "UsageError: No such command 'runn'. Did you mean 'run'? (see vtwin --help)"),
        (
            ["trace", "inf"],
            "UsageError: No such command 'inf'. Did you mean 'info'? (see vtwin trace --help)",
        ),
        (
            ["fleet", "flexx"],
            "UsageError: No such command 'flexx'. Did you mean 'flex'? (see vtwin fleet --help)",
        ),
    ],
)
def test_a_misspelt_command_is_told_the_right_one_once(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(arguments) == ExitCode.USAGE
    assert capsys.readouterr().err == f"{said}\n"


def test_a_refused_option_and_a_missing_file_cost_no_heavy_import(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    wrong = (
        ["--rate", "x"],
        ["--nope"],
        ["--rate", "5", "--sweep", "3"],
        ["--rate", "5", "--concurrency", "3"],
    )
    lines = [["run", "--config", "twin.yaml", *each] for each in wrong]
    lines += [
        ["run", "--config", "none.yaml", "--rate", "5"],
        ["capacity", "--config", "none.yaml", "--slo", "ttft=1s"],
    ]
    told = modules_after_each(lines, shared="typer", folder=tmp_path)
    for line, (code, modules) in zip(lines, told, strict=True):
        assert code == ExitCode.USAGE, line
        assert (packages_of(modules) & HEAVY, modules & SLOW) == (set(), set()), line


@pytest.mark.parametrize(
    "command", [name for name, (place, _) in vtwin.COMMANDS.items() if "_app" not in place]
)
def test_the_help_of_a_command_ends_with_an_example_whose_options_exist(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    example = vtwin.EXAMPLES[command]
    assert shown.endswith(f"Example: {example}")
    words = example.split()
    assert words[:2] == ["vtwin", command]
    before = shown.removesuffix(example)
    assert [word for word in words if word.startswith("--") and f"{word} " not in before] == []


def test_the_help_of_every_command_of_a_group_ends_with_an_example_whose_options_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    paths = [path.split()[1:] for path, _ in commands_of(root, "vtwin")]
    for path in (each for each in paths if len(each) == 2):
        assert vtwin.main([*path, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        before, mark, example = shown.rpartition(f"Example: vtwin {' '.join(path)} ")
        assert mark, path
        options = [word for word in example.split() if word.startswith("--")]
        # of a server's command line in quotes, vLLM's own
        assert [word for word in options if f"{word} " not in before] in ([], ["--max-num-seqs"]), path


def test_a_process_ends_without_a_last_look_at_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only as a process of its own: in this one, later tests' garbage would stay."""
    registered: list[object] = []
    monkeypatch.setattr("atexit.register", registered.append)
    monkeypatch.setattr("sys.argv", ["vtwin", "--version"])
    assert vtwin.main(["--version"]) == 0
    assert registered == []
    assert vtwin.main() == 0
    assert gc.freeze in registered


def test_an_interrupt_within_code_from_a_string_is_exit_130_too(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(
        "import sys, vtwin\n"
        "def command():\n"
        "    exec('raise KeyboardInterrupt')\n"
        "if __name__ == '__main__':\n"
        "    vtwin.COMMANDS['stopped'] = ('stopped:command', 'what a dataclass does while it is made')\n"
        "    sys.exit(vtwin.main(['stopped']))\n"
    )
    assert subprocess.run([sys.executable, "-m", "stopped"], cwd=tmp_path, check=False).returncode == 130
