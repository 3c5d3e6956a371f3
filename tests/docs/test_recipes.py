"""The recipes of CONTRIBUTING.md: each example works in a copy of the project, and needs every file of its list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.recipes import Change, Recipe, recipes, restore, write

COPIED = ("calibrate", "observe", "replay", "sim", "traces")
SIMULATED = """
from dataclasses import replace
import numpy as np
from sim import Blackbox, EngineConfig, Requests, simulate

def run(settings, adapters=(-1,), prompt=1, output=1, apart_us=10_000, version="0.33", model=None):
    n = len(adapters)
    zeros = np.zeros(n, np.int64)
    requests = Requests(
        arrival_us=apart_us * np.arange(n), prompt_tokens=zeros + prompt, output_tokens=zeros + output,
        priority=zeros, hash_offsets=np.zeros(n + 1, np.int64), hash_ids=np.zeros(0, np.int64),
        adapter=np.array(adapters, np.int64),
    )
    config = replace(EngineConfig.for_version(version), async_scheduling=False, **settings)
    return simulate(requests, config, model or Blackbox(beta0=1000))

def took_us(settings, **load):
    outcomes = run(settings, **load).outcomes
    return (outcomes.last_token_us - outcomes.scheduled_us).tolist()
"""
WORKS = {
    "Add a version of vLLM": SIMULATED
    + """
turns = (0, 1, 0)
assert took_us({"lora_load_us": 300}, adapters=turns) == [1300, 1300, 1000]
assert took_us({"lora_load_us": 300}, adapters=turns, version="0.34.1") == [1000, 1000, 1000]
""",
    "Add a setting of the engine": SIMULATED
    + """
from pathlib import Path
from replay import load_config
costs = {"max_loras": 1, "lora_load_us": 300}
assert took_us(costs, adapters=(0, 1, 0)) == [1300, 1300, 1300]
assert took_us(costs | {"lora_evict_us": 50}, adapters=(0, 1, 0)) == [1300, 1350, 1350]
twin = Path(tmp, "twin.yaml")
twin.write_text("engine: {max_num_seqs: 4, num_gpu_blocks: 99, lora_evict_us: 50}\\n"
                "latency:\\n  model: blackbox\\n"
                "  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 1, beta2: 1}\\n")
assert load_config(twin).engine.lora_evict_us == 50
""",
    "Add a feature of the engine": SIMULATED
    + """
tight = {"num_gpu_blocks": 8, "max_model_len": 96}
load = {"adapters": (-1, -1), "prompt": 40, "output": 50, "apart_us": 0}
free, costly = (run(tight | {"preemption_us": each}, **load) for each in (0.0, 70.4))
assert free.num_preemptions > 0
assert costly.duration_us - free.duration_us == 70 * free.num_preemptions
""",
    "Add a routing policy": """
from pathlib import Path
from replay import load_config, run
from traces import read_recorded
twin = Path(tmp, "twin.yaml")
twin.write_text("engine: {max_num_seqs: 4, num_gpu_blocks: 999}\\n"
                "latency:\\n  model: blackbox\\n"
                "  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 1, beta2: 1}\\n"
                "cluster: {instances: 3, routing: {policy: newest}}\\n")
found = run(read_recorded(Path("traces/samples/azure_code_200.csv")), load_config(twin)).trace
assert set(found.cells("instance").values.tolist()) == {"2"}
""",
    "Add a latency model": SIMULATED
    + """
from pathlib import Path
from replay import load_config
twin = Path(tmp, "twin.yaml")
twin.write_text("engine: {max_num_seqs: 4, num_gpu_blocks: 99}\\n"
                "latency: {model: even, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, step_us: 7000}}\\n")
model = load_config(twin).latency
assert model.step_us == 7000
assert took_us({}, adapters=(-1, -1), output=2, model=model) == [14_000, 14_000]
""",
    "Add a GPU": """
from replay.model.gpus import find_gpu
assert find_gpu("example 96gb").bandwidth_gb_per_s == 2400
""",
    "Add a family of models": """
from replay.model import read_model_config
assert read_model_config("example/example-lm-1b").num_layers == 16
""",
    "Add an importer": """
from pathlib import Path
from traces import read_recorded
file = Path(tmp, "requests.csv")
file.write_text("sent_ms,prompt_tokens,answer_tokens\\n5,100,10\\n7,200,20\\n")
trace = read_recorded(file)
assert trace.header.source.format == "examplelog"
assert trace.table["arrival_time_us"].values.tolist() == [0, 2000]
""",
    "Add a command": """
from pathlib import Path
import setuptools, vtwin
from traces import longest_request, read_recorded, write_trace
stem = Path(tmp, "own")
write_trace(read_recorded(Path("traces/samples/azure_code_200.csv")), stem)
assert vtwin.main(["longest", str(stem)]) == 0
assert "traces.longest" in setuptools.find_packages()  # so it is in the wheel
assert "longest" in vtwin.GROUPS["Files"]
assert longest_request(stem).num_tokens > 0
""",
}
"""By heading, Python that holds in a copy with the example; ``tmp`` is an empty folder."""


FORKING = """
import importlib, json, os, sys, traceback
import numba, numpy, pandas, pyarrow, typer, yaml

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        importlib.invalidate_caches()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
        try:
            exec(asked["code"], {"__name__": "__main__", "tmp": asked["tmp"]})
        except BaseException:
            with open(asked["said"], "w") as said:
                traceback.print_exc(file=said)
            code = 1
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A Python that has imported the libraries, none of the project, and runs each piece of code in a child of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The project's packages, with what Python made of them, and the Python that runs code there."""

    folder: Path
    forking: subprocess.Popen[str]

    def fails(self, code: str, changes: tuple[Change, ...], tmp: Path) -> str:
        """Return what Python says against a piece of code in the copy with some changes; empty if all is well."""
        assert self.forking.stdin is not None
        assert self.forking.stdout is not None
        said = tmp / "said"
        said.unlink(missing_ok=True)
        write(changes, self.folder)
        try:
            asked = {"code": code, "tmp": str(tmp), "said": str(said)}
            print(json.dumps(asked), file=self.forking.stdin, flush=True)
            ended = self.forking.stdout.readline().strip()
        finally:
            restore(changes, self.folder)
        return "" if ended == "0" else said.read_text() if said.exists() else f"exit code {ended}"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder, tmp = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("tmp")
    for package in COPIED:
        shutil.copytree(ROOT / package, folder / package)
    for module in ("vtwin.py", "lazy_dataclasses.py"):
        shutil.copy2(ROOT / module, folder)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", FORKING],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1", "TMPDIR": str(tmp)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as forking:
        yield Copy(folder=folder, forking=forking)


def test_every_recipe_has_an_example_and_code_that_shows_that_it_works() -> None:
    assert [recipe.heading for recipe in recipes()] == list(WORKS)


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.heading)
def test_an_example_changes_the_files_of_its_list(recipe: Recipe) -> None:
    assert recipe.unlisted() == []


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.heading)
def test_an_example_works_and_needs_every_file_of_its_list(
    recipe: Recipe, copy: Copy, tmp_path: Path
) -> None:
    said = copy.fails(WORKS[recipe.heading], recipe.changes, tmp_path)
    assert said == "", said
    idle = [
        without.path
        for without in recipe.changes
        if not copy.fails(
            WORKS[recipe.heading],
            tuple(change for change in recipe.changes if change != without),
            tmp_path,
        )
    ]
    assert idle == []
