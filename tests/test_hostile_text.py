"""A stranger's names through every command that reads or shows them: in a terminal and in a page they are text.

Traces, their headers and files' names have line ends, escape sequences and markup; the environment has the keys. Names
in YAML files have markup: what does not fit on a line is refused there.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer

import vtwin
from tests.calibrate.predictor import made_profiles as profiles
from tests.docs.commands import commands_of
from tests.observe.servers import Behaviour, serving_in_thread
from tests.twins import EIGHT_SEATS
from traces import ServerInfo, Trace, write_trace
from traces.schema import REQUEST_FIELDS
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions

NAME = "\"><script>alert(1)</script><img src=x onerror=alert(1)>' c"
"""What a name in a YAML file may be."""
NASTY = f"a\n::error::b\r\x1b[31m\x1b]52;c;aGk=\x07\u2028\u202e\x00{NAME}[/red]</title></style></svg>"
FILE = NAME.replace("/", "")
MOST_WORDS = 20
"""Of a page's title, and of the sentence below it, which answers; a name counts as one."""
MARKER = "hush-7f3a9c-marker"
SECRETS = {
    "OPENAI_API_KEY": MARKER,
    "VLLM_API_KEY": MARKER,
    "VTWIN_API_KEY": MARKER,
    "HTTPS_PROXY": f"http://me:{MARKER}@proxy:3128",
}
NAMING = {"prefix_hashes", "request_id", "session_id", "parent_request_id", "awaited_request_ids", "images"}
"""Columns whose text names requests, blocks or images: a name that is none is refused, and shown as text."""
CHOSEN = {"scheduling_policy", "dtype", "kv_cache_dtype"}
"""Fields of a header that take what is in a list."""
CLUSTER = """\
cluster:
  pools: [{name: N0, instances: 2, node_pool: N2}, {name: N1, instances: 1, node_pool: N2}]
  routing: {policy: CODE}
  node_pools: [{name: N2, gpus_per_node: 4, max_nodes: 2}]
  slo_priorities: {N4: 5}
  retries: {max_attempts: 2, on: [lost], backoff_us: 1000}
"""
POLICY = "def pick(*known):\n    return 0\n"
GRID = """\
configs: {N0: twin.yaml, N1: twin.yaml}
workloads:
  N2: {rate: 4, prompt_tokens: 5, output_tokens: 2, num_requests: 5}
"""
POOLS = """\
pools:
  - {name: N0, profile: A100, up_to: 1024}
  - {name: N1, profile: A100, up_to: 8192, failures: [{name: N2, per_node_day: 0.01, repair: 1h}]}
"""
FITTED = """}, held_out: {e2e: 0.01}, fitted_on: {
  model: N0, gpu: N1, vllm_version: N2, loads: [{name: N3}], carried_from: N4}}
"""
GATE = "metrics: {e2e_us: {mape: {fail: 0.5}}}\n"
FLEET = "--workload cdf.json --slo ttft_p99=500ms"
LOAD = "--rate 20 --num-requests 30 --prompt-tokens 9 --output-tokens 3"
SEARCHED = "--config twin.yaml --seeds 1 --num-requests 100 --slo ttft_p99=9s"
CALLS = {
    # what is walked: a call of it and its exit code; A and B are traces, TWIN a TWIN.yaml with a name like theirs
    "trace check": ("trace check A", 0),
    "trace info": ("trace info A", 0),
    "trace convert": ("trace convert A --from tracev2 --to mooncake --output m.jsonl", 0),
    "trace export": ("trace export A --output a.csv", 0),
    "replay": ("replay A --config TWIN --report r.html --output simulated", 0),
    "replay a cluster": ("replay A --config fleet.yaml --allow-code --report rc.html --trace-events e.json", 0),
    "replay variants": ("replay A --config twin.yaml --set engine.max_num_seqs=4,8 --report rv.html", 0),
    "run": ("run --config TWIN --like A --rate 5 --num-requests 3 --report l.html", 0),
    "run a cluster": (f"run --config fleet.yaml --allow-code {LOAD} --report rr.html", 0),
    "calibrate": ("calibrate A --simulated B --report report --thresholds gate.yaml --junit gate.xml", 1),
    "calibrate guided": ("calibrate guided A B --config TWIN --report guided", 3),
    "calibrate host": ("calibrate host A B --config TWIN --report host", 3),
    "calibrate models": ("calibrate models A --models blackbox --config TWIN --report models", 0),
    "compare": ("compare A B", 0),
    "report": ("report A B --output page.html", 0),
    "report of one": ("report A --output one.html", 0),
    "capacity": (f"capacity {SEARCHED} --like A --no-binding --report c.html", 0),
    "tune": (f"tune {SEARCHED.replace('100', '1000')} --like A --max-num-seqs 4,8 --max-num-batched-tokens 512 "
             "--chunked-prefill true", 0),
    "rollouts": ("rollouts --config TWIN --like A --batch 2 --samples 2 --batches 1", 0),
    "config from-serve": ("config from-serve --from-trace A", 0),
    "profiles list": ("profiles list fitted.yaml", 0),
    "profiles show": ("profiles show fitted.yaml", 0),
    "profiles check": ("profiles check fitted.yaml --gpu H200", 1),
    "config show": ("config show fleet.yaml --allow-code", 0),
    "trace synth": ("trace synth --like A --rate 5 --num-requests 3 --output drawn", 0),
    "sweep": ("sweep grid.yaml --jobs 1 --output table.parquet --report s.html", 0),
    "fleet size": ("fleet size --workload A --rate 1 --slo ttft_p99=2s --profile TWIN --no-verify --report f.html", 0),
    "fleet reserve": (f"fleet reserve {FLEET} --profile TWIN --diurnal 5:1 --burst-price 2x --report d.html", 0),
    "fleet size --layout pools": (f"fleet size pools.yaml {FLEET} --rate 5 --no-verify --report p.html", 0),
    "fleet profile": ("fleet profile --from TWIN", 0),
    "fleet size --layout split": (f"fleet size --layout split {FLEET} --rate 5 --profile TWIN", 0),
    "fleet routers": (f"fleet routers {FLEET} --rate 5 --profile TWIN --split 1024 --no-verify --num-requests 1000", 0),
    "fleet flex": (f"fleet flex {FLEET} --rate 5 --profile TWIN", 0),
    "fleet size --layout disagg": (f"fleet size --layout disagg {FLEET} --rate 5 --profile TWIN --no-verify", 0),
    "fleet size --compare": (f"fleet size --compare {FLEET} --rate 5,10 --profile A100,TWIN", 0),
    "predictor list": ("predictor list", 0),
    "predictor train": ("predictor train --profile a100 --model-config CONFIG --gpu A100 --tp 2 --estimator grid "
                        "--no-cache --output table.json", 0),
    "model info": ("model info --model-config CONFIG --gpu H100", 0),
    "model compare": ("model compare --model-config CONFIG --gpus H100 --like A --seeds 1 --num-requests 100", 0),
    "observe": ("observe --url URL --trace SHORT --output seen --json", 0),
    "observe loads": ("observe --url URL --sweep concurrency=1,2 --num-requests 2 --like A --output loads", 0),
    "observe repeats": ("observe --url URL --repeat 2 --concurrency 2 --num-requests 2 --like A --output again", 0),
    "validate": ("validate --url http://127.0.0.1:1 --config TWIN --rate 5 --output validated", 4),
    "explore": ("explore --config TWIN --like A --rate 1 --port 99999999", 2),
    "serve": ("serve --config TWIN --model A --port 99999999", 2),
    "receive": ("receive --output A --port 99999999", 2),
    "selfcheck": ("selfcheck --processes A", 2),
    "demo": ("demo --output CONFIG", 2),
}  # fmt: skip
SEVERAL = {
    "replay a cluster",
    "replay variants",
    "run a cluster",
    "report of one",
    "observe loads",
    "observe repeats",
} | {each for each in CALLS if each.startswith("fleet size --")}
"""Calls of a command that has another call."""


def test_every_command_is_called() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    names = {path.removeprefix("vtwin ") for path, _ in commands_of(root, "vtwin")}
    assert names == set(CALLS) - SEVERAL


def named(text: str) -> str:
    """Return YAML with a name of its own for each of N0 to N4."""
    return re.sub(r"\bN(\d)\b", lambda found: json.dumps(f"{found[1]}{NAME}"), text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with measured traces of nasty names, and what the calls read besides; a server answers meanwhile."""
    folder = tmp_path_factory.mktemp("nasty")
    drawn = trace_from_options(WorkloadOptions(rate=5, num_requests=40, prompt_tokens=20, output_tokens=5))
    for name, slower in (("A", 1), ("B", 2)):
        write_trace(
            nasty(drawn, slower=slower), folder / f"{name}{NASTY.replace('/', '').replace(chr(0), '')}"
        )
    (folder / "twin.yaml").write_text(EIGHT_SEATS)
    (folder / f"{FILE}.yaml").write_text(EIGHT_SEATS + "hardware: H100\n")
    policy = json.dumps(f"{FILE}.py:pick")
    (folder / "fleet.yaml").write_text(EIGHT_SEATS + named(CLUSTER).replace("CODE", policy))
    (folder / f"{FILE}.py").write_text(POLICY)
    (folder / "gate.yaml").write_text(GATE)
    (folder / "fitted.yaml").write_text(EIGHT_SEATS.rstrip("}\n") + named(FITTED))
    (folder / "grid.yaml").write_text(named(GRID))
    (folder / "pools.yaml").write_text(named(POOLS))
    (folder / "cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    profiles.vidur_folder(folder)
    profiles.config(folder).rename(folder / f"{FILE}.json")
    few = trace_from_options(WorkloadOptions(rate=500, num_requests=5, prompt_tokens=20, output_tokens=3))
    write_trace(nasty(few, slower=1), folder / "short")
    with serving_in_thread(Behaviour(model=NAME)) as server:
        (folder / "url").write_text(server.url)
        yield folder


def nasty(drawn: Trace, *, slower: int) -> Trace:
    """Return a measured trace with nasty text in every field that takes any."""
    number = np.arange(len(drawn))
    send = drawn.column("arrival_time_us").to_numpy(dtype=np.int64)
    first = send + slower * (9_000 + number % 7 * 100)
    free = {each.name for each in REQUEST_FIELDS if each.dtype == "string" and not each.choices}
    texts = {name: [NASTY] * len(drawn) for name in free - NAMING}
    trace = drawn.with_columns(
        **texts
        | {
            "request_id": [f"{NASTY}{i}" for i in number],
            "session_id": [f"{NASTY}{i}" for i in number],
            "tenant_id": [f"{i % 2}{NASTY}" for i in number],
            "slo_class": [f"{i % 2}{NASTY}" for i in number],
            "status": ["ok"] * (len(drawn) - 1) + ["error"],
            "send_time_us": send,
            "first_token_time_us": first,
            "last_token_time_us": first + slower * 40_000,
        }
    )
    told = {each.name for each in fields(ServerInfo) if each.type == "str | None"} - CHOSEN
    server = replace(ServerInfo(), **dict.fromkeys(told, NASTY))
    header = replace(trace.header, mode="real", tool=NASTY, command=NASTY, server=server)
    return replace(trace, header=header)


class Names(HTMLParser):
    """Every element and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.policies: list[str] = []
        self.said: dict[str, str] = {}
        self._in = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"@{name}" for name, _ in attrs)}
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policies.append(dict(attrs)["content"] or "")
        if tag == "h1" or dict(attrs).get("class") == "lead":
            self._in = "h1" if tag == "h1" else "lead"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h1", "p"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.said[self._in] = self.said.get(self._in, "") + data

    handle_startendtag = handle_starttag


USED = """
html head meta title style body header main section footer div span p h1 h2 ul li dl dt dd table caption thead tbody tr
th td small b i code pre details summary figure figcaption svg g path rect text
@lang @charset @name @content @http-equiv @class @id @style @scope @role @aria-label @aria-hidden @viewbox @width
@height @x @y @d @text-anchor @fill-opacity
"""
"""What a page is made of: what is not here came from a name."""


def check_page(page: str) -> None:
    found = Names(page)
    assert found.found - set(USED.split()) == set()
    assert len(found.policies) == 1
    assert "default-src 'none'" in found.policies[0]
    assert "script" not in found.policies[0]
    assert MARKER not in page
    assert found.said.keys() == {"h1", "lead"}
    for place, text in found.said.items():
        words = text.replace(NAME, "name").split()
        assert 0 < len(words) <= MOST_WORDS, (place, text)


class Outcome(NamedTuple):
    """What a call printed, and the files that it wrote by their path in the folder."""

    out: str
    err: str
    files: dict[str, bytes]


FIRST: dict[str, Outcome] = {}
"""Of each call that has been walked, for the test that walks it again."""


def outcome_of(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Outcome:
    """Make a call; what it wrote is removed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    line, code = CALLS[call]
    before = set(folder.rglob("*"))
    short = {
        **{name: str(next(folder.glob(f"{name}a*.csv")).with_suffix("")) for name in "AB"},
        "TWIN": f"{FILE}.yaml",
        "CONFIG": f"{FILE}.json",
        "URL": (folder / "url").read_text(),
        "SHORT": "short",
    }
    arguments = [short.get(word, word.replace("TWIN", short["TWIN"])) for word in shlex.split(line)]
    monkeypatch.setattr("sys.argv", ["vtwin", *arguments])
    assert vtwin.main(arguments) == code, capsys.readouterr().err
    said = capsys.readouterr()
    written = [path for path in sorted(set(folder.rglob("*")) - before) if path.is_file()]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in written}
    for path in written:
        path.unlink()
    return Outcome(said.out, said.err, files)


@pytest.mark.parametrize("call", CALLS)
def test_no_name_is_more_than_text(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = FIRST[call] = outcome_of(call, folder, monkeypatch, capsys)
    text = said.out + said.err
    lines = text.split("\n")
    assert [each for each in "".join(lines) if not each.isprintable() and each not in "\t\xa0"] == []
    assert [each for each in lines if each.startswith("::error::b")] == []
    assert MARKER not in text
    pages = [name for name in said.files if name.endswith(".html")]
    line, code = CALLS[call]
    has_page = "--report" in line and code in {0, 1}  # bad data has none
    assert bool(pages) == (has_page or call.startswith("report"))
    for name in pages:
        check_page(said.files[name].decode())
    for content in said.files.values():
        assert MARKER.encode() not in content


VARIES = re.compile(r'"(?:engine_cpu_s|wall_s|created_at)": [^,\n}]+')
"""What a document has of this machine at this hour: keys of their own."""


@pytest.mark.parametrize("call", [name for name in CALLS if not name.startswith("observe")])
def test_a_call_made_again_prints_and_writes_the_same_bytes(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = FIRST.get(call) or outcome_of(call, folder, monkeypatch, capsys)
    again = outcome_of(call, folder, monkeypatch, capsys)
    assert VARIES.sub("", again.out) == VARIES.sub("", first.out)
    assert again.files.keys() == first.files.keys()
    for name, content in first.files.items():
        if name.endswith(".json"):
            assert VARIES.sub("", again.files[name].decode()) == VARIES.sub("", content.decode()), name
        else:
            assert again.files[name] == content, name


UNPRINTABLE = {
    "\\n::error::PWNED": "a line end",
    "\\e]52;c;aGk=\\a": "an escape sequence",
    "\\u202e": "a change of direction",
}
SWEPT = "sweep x.yaml --output t.parquet"
READERS = {
    # what reads names from YAML: a call of it, and where in the text a name stands
    "a pool": ("run --config x.yaml --rate 5 --num-requests 3", EIGHT_SEATS + "cluster: {pools: [{name: N0}]}", "name"),
    "a service class": ("config show x.yaml", EIGHT_SEATS + "cluster: {slo_priorities: {N0: 5}}", "slo_priorities"),
    "a node pool": ("config show x.yaml", EIGHT_SEATS + "cluster: {node_pools: [{name: N0}]}", r"node_pools\[0\]"),
    "a version": ("config show x.yaml", EIGHT_SEATS + "vllm_version: N0", "vllm_version"),
    "a workload of a grid": (SWEPT, "{config: twin.yaml, workloads: {N0: {rate: 4}}}", "workloads"),
    "a configuration of a grid": (SWEPT, "configs: {N0: twin.yaml}", "configs"),
    "a fleet's pool": (f"fleet size x.yaml {FLEET} --rate 5", "pools: [{name: N0, profile: A100}]", "name"),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", UNPRINTABLE.values())
def test_a_name_in_yaml_that_does_not_fit_on_a_line_is_refused(
    reader: str, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    call, text, key = READERS[reader]
    ugly = next(name for name, told in UNPRINTABLE.items() if told == what)
    (folder / "x.yaml").write_text(text.replace("N0", f'"evil{ugly}"'))
    assert vtwin.main(shlex.split(call)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.isprintable()
    assert re.search(rf"{key}: got .*evil.*expected .*printable characters \(x\.yaml:\d+\)", line)


PRINTERS = {
    "traces/strict/tell.py": "the one way",
    "traces/console/help.py": "a command's help, as click writes it",
    "calibrate/report/terminal.py": "tables of rich, each cell through terminal",
    "observe/selfcheck/reference_server.py": "a port, to the process that started it",
}
CALLED = {"print", "typer.echo", "typer.secho", "click.echo", "click.secho"}


def test_nothing_prints_past_the_one_way_to_the_terminal() -> None:
    found = {}
    for room in ("traces", "observe", "replay", "calibrate"):
        found |= {str(path): prints(path) for path in Path(room).rglob("*.py")}
    found["vtwin.py"] = prints(Path("vtwin.py"))
    printers = {path for path, calls in found.items() if calls}
    assert printers == set(PRINTERS)


def prints(path: Path) -> list[str]:
    """Return the calls of a module that write to the terminal."""
    calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
    names = [ast.unparse(each.func) for each in calls]
    return [
        name
        for name in names
        if name in CALLED or re.fullmatch(r"sys\.std(out|err)\.write|.*console.*\.print", name)
    ]
