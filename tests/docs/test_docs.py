"""The documentation holds: see tests/docs for how each kind of block is checked."""

from __future__ import annotations

import ast
import importlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from pathlib import Path

import pytest
import typer
import yaml

import vtwin
from replay.model.gpus import shipped_gpus
from replay.model.shipped_models import SAME_ARCHITECTURE, shipped_models
from sim import Step
from tests.docs.notebook_cells import sources
from tests.docs.pages import (
    LANGUAGES,
    ROOT,
    Block,
    anchors_of,
    blocks_of,
    commands_of,
    links_of,
    matches,
    named_tests,
    pages,
    paths_of,
    python_names_of,
    rows_below,
    script_of,
)
from tests.docs.reference import PAGES, Command
from tests.docs.warm import PYTHON, warm_vtwin
from tests.examples import THOROUGH
from tests.test_doors import past_a_door

PATIENCE_S = 240  # for a whole page, the first compilation of the engine included
PORTS = (8000, 8010, 8020)  # what the pages say; free ones stand in for them
MOST_PORTS = 3
ROOMS = ("traces", "sim", "observe", "replay", "calibrate")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


ALL_BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUN = [page for page in pages() if any(block.language in {"console", "python"} for block in blocks_of(page))]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a ``vtwin`` that begins at once: each page would import it some times over. Workers share it."""
    own = tmp_path_factory.getbasetemp()
    of_all = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with warm_vtwin(of_all / "warm") as folder:
        yield folder


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, programs: Path
) -> None:
    if THOROUGH:
        script, expected = script_of(page, blocks_of(page))
    else:
        blocks, lines = shortened(blocks_of(page))
        script, expected = script_of(page, blocks, python=PYTHON)
        expected = {file: text for file, text in expected.items() if file not in lines}
    (tmp_path / "traces").symlink_to(ROOT / "traces")  # pages say traces/samples, as in the project's folder
    code, shown = run_script(at_free_ports(script), tmp_path, programs=programs)
    at = (tmp_path / ".at").read_text().strip()
    assert code == 0, f"{at}: exit code {code}\n{shown}"
    for file, text in expected.items():
        printed = (tmp_path / file).read_text()
        assert matches(printed, text), f"{name_of(page)}:{Path(file).name} printed\n{printed}"


SHORTER = {
    "$ vtwin capacity --config twin.yaml --slo ttft_p99=500ms,tpot_p99=50ms": "--num-requests 2000 --seeds 3",
    "$ vtwin model compare --model-config meta-llama/Llama-3.1-8B-Instruct": "--num-requests 1000",
    "$ vtwin capacity --sessions --config twin.yaml --slo ttft_p99=1s,tpot_p99=30ms": "--num-requests 600",
}
"""Commands that take CPU seconds, and options with which they take less: nightly has them as the pages do.
What they print is compared then only."""


def shortened(blocks: list[Block]) -> tuple[list[Block], set[str]]:
    """Return the blocks with ``SHORTER``'s options, and the files of what those commands print."""
    made, lines = [], set()
    for block in blocks:
        text = block.text
        for command in commands_of(block) if block.language == "console" else []:
            for beginning, options in SHORTER.items():
                whole = f"$ {command.text}"
                if whole.startswith(beginning) and whole in text:
                    text = text.replace(whole, f"{whole} {options}")
                    lines.add(f".printed/{command.line}")
        made.append(replace(block, text=text))
    return made, lines


def at_free_ports(script: str) -> str:
    """Return a script whose servers listen where nothing else does; one with several ports has the next two, too."""
    for said in PORTS:
        ours = free_ports()
        for more in range(MOST_PORTS):
            script = re.sub(rf"(--port |:|-q ){said + more}\b", rf"\g<1>{ours + more}", script)
    return script


def run_script(script: str, folder: Path, *, programs: Path) -> tuple[int, str]:
    """Run a bash script in ``folder``, ``programs`` first on its path; end what it started; return code and stderr."""
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    errors = folder / ".stderr"
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            ["/bin/bash", "-c", script],
            cwd=folder,
            env=os.environ | {"PATH": path, "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
            start_new_session=True,
        )
        try:
            code = process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, errors.read_text()[-2000:]


def free_ports() -> int:
    """Return the first of several free ports in a row, below those that the system gives to others meanwhile."""
    while True:
        first = random.SystemRandom().randrange(10_000, 30_000)
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + MOST_PORTS):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [
        f"{file}#{anchor}"
        for file, anchor in links_of(page)
        if not file.exists() or (anchor and anchor not in anchors_of(file))
    ]
    assert broken == []


CURRENT = [page for page in pages() if page.name != "CHANGELOG.md"]  # which tells of the past, too
ARCHITECTURE = ROOT / "docs" / "architecture.md"


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert [path for path in paths_of(page) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [page for page in CURRENT if python_names_of(page)], ids=name_of)
def test_every_python_name_on_a_page_can_be_imported(page: Path) -> None:
    assert [name for name in python_names_of(page) if not resolves(name)] == []


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute) or bool(importlib.import_module(name))
    except ImportError:
        return False


def test_every_test_that_a_page_names_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [
        (name_of(page), test) for page in CURRENT for test in named_tests(page) if not re.search(test, tests)
    ]
    assert missing == []


def test_the_architecture_page_answers_the_twelve_questions_where_the_code_does() -> None:
    rows = rows_below(ARCHITECTURE, "Where is it?")
    wrong = []
    for question, file, names in rows:
        source = (ROOT / re.findall(r"`([^`]+)`", file)[0]).read_text()
        for name in re.findall(r"`(\w+)`", names):
            if not re.search(rf"^(?:async )?(?:def|class) {name}\b|^{name}(?::.*)? = ", source, re.MULTILINE):
                wrong.append((question, file, name))
    assert wrong == []
    assert len(rows) == 12


def test_the_page_on_steps_explains_every_key() -> None:
    rows = rows_below(ROOT / "docs" / "reference" / "steps.md", "Keys")
    explained = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(explained) == sorted(field.name for field in fields(Step))


def test_the_architecture_page_shows_every_room() -> None:
    rooms = {
        path.parent.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py")
    }
    shown = {path.rstrip("/") for path in paths_of(ARCHITECTURE)}
    assert rooms - shown == set()


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    tables = (index, ROOT / "docs/decisions/README.md", ROOT / "docs/validation.md")
    linked = {file.resolve() for page in tables for file, _ in links_of(page)}
    lost = [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page != index and page not in linked]
    assert lost == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    unknown = [(block.line, block.language) for block in blocks_of(page) if block.language not in LANGUAGES]
    assert unknown == []


def test_code_on_the_pages_and_in_notebooks_imports_by_doors() -> None:
    code = {f"{name_of(b.page)}:{b.line}": b.text for b in ALL_BLOCKS if b.language == "python"}
    code |= {source.name: source.read_text() for source in sources()}
    past = {
        place: [name for each in with_written(text) for name in past_a_door(each, package="docs")]
        for place, text in code.items()
    }
    assert {place: names for place, names in past.items() if names} == {}
    assert len(code) > len(sources()) > 0


def with_written(code: str) -> Iterator[str]:
    """Yield code, and the code in it that it writes into a file."""
    yield code
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\nimport " in node.value:
            yield node.value


@pytest.mark.parametrize("block", [b for b in ALL_BLOCKS if b.language == "yaml"], ids=str)
def test_yaml_is_yaml(block: Block) -> None:
    assert yaml.safe_load(block.text) is not None


def shell_lines() -> list[tuple[str, str]]:
    """Return the place and the text of every command line of the pages, continued lines joined."""
    lines = []
    for block in ALL_BLOCKS:
        if block.language == "sh":
            joined = re.sub(r"\\\n\s*", " ", block.text)
            lines += [
                (f"{name_of(block.page)}:{block.line}", line.split("#")[0].strip())
                for line in joined.splitlines()
            ]
        elif block.language == "console":
            joined_commands = (re.sub(r"\\\n\s*", " ", command.text) for command in commands_of(block))
            lines += [(f"{name_of(block.page)}:{block.line}", line) for line in joined_commands]
    return [(place, line) for place, line in lines if line]


def test_every_command_and_option_of_vtwin_on_the_pages_exists() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    wrong = []
    for place, line in shell_lines():
        other = r"'(?:vllm serve|docker run) [^']*'"  # another program's options, as one argument
        own = re.sub(other, "COMMAND", line)
        for words in (found.split() for found in re.findall(r"(?:^|\s|/)vtwin (.+?)(?= [|&>]|$)", own)):
            wrong += [f"{place}: {problem}" for problem in problems_of(words, root)]
    assert wrong == []


def problems_of(words: list[str], command: Command) -> list[str]:
    """Return what is wrong with the words after ``vtwin``: a command or an option that is not there."""
    children = getattr(command, "commands", {})
    name = words[0] if words else ""
    if children and (name in children or not command.invoke_without_command):
        if name.startswith("--"):
            return []
        return problems_of(words[1:], children[name]) if name in children else [f"no command {name!r}"]
    known = options_of(command)
    if command.context_settings.get("ignore_unknown_options"):  # what it does not know itself goes to observe
        known |= options_of(typer.main.get_command(vtwin.build_app(["observe"])).commands["observe"])  # type: ignore[attr-defined]
    return [
        f"no option {word}"
        for word in words
        if word.startswith("--") and word.split("=")[0] not in known | {"--help"}
    ]


def options_of(command: Command) -> set[str]:
    return {
        spelling for parameter in command.params for spelling in [*parameter.opts, *parameter.secondary_opts]
    }


def test_every_make_target_on_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {(place, found) for place, line in shell_lines() for found in re.findall(r"^make ([a-z]+)", line)}
    assert {(place, target) for place, target in asked if target not in targets} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_generated_page_is_current(page: Path) -> None:
    assert page.read_text() == PAGES[page](), "run `make docs`"


def test_a_failing_block_and_a_false_output_are_seen(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    block = Block(
        page=page, line=7, language="console", text="$ echo one two\none …\n$ echo two\nthree\n$ false\n"
    )
    script, expected = script_of(page, [block])
    code, _ = run_script(script, tmp_path, programs=tmp_path)
    assert code != 0
    assert (tmp_path / ".at").read_text() == "README.md:11\n"
    assert {file: matches((tmp_path / file).read_text(), text) for file, text in expected.items()} == {
        ".printed/7": True,
        ".printed/9": False,
    }


def test_the_page_on_sizing_leads_to_the_list_of_models_and_gpus_that_ship() -> None:
    assert "(../reference/models-and-gpus.md)" in (ROOT / "docs" / "how-to" / "size-a-model.md").read_text()
    page = (ROOT / "docs" / "reference" / "models-and-gpus.md").read_text()
    aliases = [name for others in SAME_ARCHITECTURE.values() for name in others]
    names = [f"`{name}`" for name in (*shipped_models(), *aliases)]
    names += [
        f"\n| {gpu.name} | {gpu.memory_gib:g} | {gpu.bandwidth_gb_per_s:,.0f} |" for gpu in shipped_gpus()
    ]
    assert [name for name in names if name not in page] == []
