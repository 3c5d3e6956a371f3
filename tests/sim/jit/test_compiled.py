"""Compiling the engine: all of it at once, and an answer that is true to the question whether it is done."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from sim.cluster.cluster_ready import entries as cluster_entries
from sim.engine_ready import entries
from sim.jit.compile import is_compiled_source

ROOT = Path(__file__).parents[3]
needs_compiler = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT"
)


def python(source: str, *, cwd: Path = ROOT, **environment: str) -> str:
    """Return what a Python process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd), **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_every_function_of_the_engine_that_python_calls_is_in_the_list_of_entries() -> None:
    decorated = {
        f"{path.relative_to(ROOT).with_suffix('').as_posix().replace('/', '.')}.{node.name}"
        for folder in ("engine", "latency", "records")
        for path in (ROOT / "sim" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and {"engine_entry"} & {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
    }
    listed = (*entries("whole"), *entries("plain"))  # only a plain engine counts blocks
    assert decorated == {f"{entry.__module__}.{entry.__name__}" for entry in listed}


def test_every_function_of_the_cluster_that_the_product_calls_is_compiled_with_everything() -> None:
    """Else the wheel would lack it; entries that only tests call need not be in it."""
    entries, imported = set(), set()
    for path in (ROOT / "sim").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and path.is_relative_to(ROOT / "sim" / "cluster"):
                names = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
                entries |= {(module, node.name)} if "engine_entry" in names else set()
            elif isinstance(node, ast.ImportFrom) and module != "sim.cluster.cluster_ready":
                imported |= {(node.module, each.name) for each in node.names}
    called = entries & imported | {("sim.cluster.arrays", "copy_pairs")}  # more_pairs, beside it, calls it
    assert len(called) > 10
    assert called == {(function.__module__, function.__name__) for function, _ in cluster_entries()}


USE_EVERYTHING = """
import numpy as np
from sim import Blackbox, Engine, EngineConfig, Extended, compile_engine
from sim.jit.compile import is_compiled_source
from sim.engine_ready import entries, is_compiled
from tests.sim.strategies import requests_of
from sim import simulate

def compilations():
    return {entry.__name__: entry.num_compiled for entry in entries()}

compile_engine()
assert is_compiled()
before = compilations()
rows = [{"arrival_us": 10 * i, "prompt": 20, "output": 5, "hash_ids": [0, i]} for i in range(6)]
requests = requests_of(rows)
config = EngineConfig(num_gpu_blocks=8, max_num_seqs=4, max_model_len=64)
for record in ("none", "spans", "steps", "blocks", "tokens"):
    for latency in (Blackbox(beta0=5), Extended(beta0=5, kappa=0.1)):
        simulate(requests, config, latency, record=record)
simulate(requests, config, latency, record="spans").inter_token_latencies()
simulate(requests, config, latency, closed_loop=(2, 10))
simulate(requests, config, latency, max_concurrency=2)
engine = Engine(requests, config, latency, record="tokens")
engine.advance(7)
engine.view(), engine.outcomes(), engine.written().tokens()
after = compilations()
assert after == before, {name: (before[name], after[name]) for name in after if after[name] != before[name]}
print("nothing more was compiled")
"""


@needs_compiler
def test_after_compile_engine_nothing_of_the_engine_is_compiled_any_more() -> None:
    assert python(USE_EVERYTHING) == "nothing more was compiled"


@needs_compiler
def test_who_finds_all_compiled_writes_nothing(tmp_path: Path) -> None:
    """A cache that cannot be written, and an installed vtwin's machine code, are as good as any other."""
    python("from sim import compile_engine; compile_engine()")
    cache = Path(python("from sim.jit.compile import cache_folder; print(cache_folder(of_cluster=False))"))
    copy = shutil.copytree(cache, tmp_path / cache.name, ignore=shutil.ignore_patterns("compiling-*"))
    python("from sim import compile_engine; compile_engine()", VTWIN_CACHE_DIR=str(tmp_path))
    assert not list(copy.glob("compiling-*"))


HEARD_OF = """
import gc, sys
from sim import compile_engine
from sim.engine.run_variants import run_plain, run_plain_counted
from sim.jit.lazily import Uncompiled
compile_engine()
inner = [each for each in gc.get_objects() if type(each) is Uncompiled]
print(len(inner) > 500, sum("_dispatcher" in vars(each) for each in inner))
print(run_plain_counted.num_loaded, run_plain.num_loaded, {"scipy", "numba"} & set(sys.modules))
"""


@needs_compiler
def test_a_process_that_loads_the_engine_takes_what_most_runs_call_and_does_not_import_numba() -> None:
    python("from sim import compile_engine; compile_engine()")
    assert python(HEARD_OF) == "True 0\n1 0 set()"


ASK = "from sim.engine_ready import is_compiled; print(is_compiled())"


@needs_compiler
def test_what_another_checkout_compiled_need_not_be_compiled_again(tmp_path: Path) -> None:
    """The same sources at another place, the same cache: code is filed by a digest of all sources."""
    python("from sim import compile_engine; compile_engine()")
    assert python(ASK) == "True"
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "sim", checkout / "sim", ignore=shutil.ignore_patterns("__pycache__"))
    assert python(ASK, cwd=checkout) == "True"
    source = checkout / "sim" / "engine" / "schedule.py"
    source.write_text(source.read_text() + "# another\n")
    assert python(ASK, cwd=checkout) == "False"


@needs_compiler
def test_a_cache_in_which_one_function_lacks_is_not_said_to_be_complete(tmp_path: Path) -> None:
    """All entries but one are in a copy of the cache."""
    python("from sim import compile_engine; compile_engine()")
    source = "from sim.jit.compile import cache_folder; print(cache_folder(of_cluster=False))"
    cache = Path(python(source))
    copy = shutil.copytree(cache, tmp_path / cache.name)
    assert python(ASK, VTWIN_CACHE_DIR=str(tmp_path)) == "True"
    (file,) = copy.rglob("hold_requests.*.code")
    file.unlink()
    assert python(ASK, VTWIN_CACHE_DIR=str(tmp_path)) == "False"


def _imports_of(path: Path, sources: dict[str, Path]) -> set[str]:
    """Return the modules of ``sim`` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found & set(sources)


def test_no_machine_code_depends_on_a_file_that_is_left_out_of_its_digest() -> None:
    package = ROOT / "sim"
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    imports = {name: _imports_of(path, sources) for name, path in sources.items()}
    reached: set[str] = {"sim.jit.compile"}  # what it imports says where code is kept, not what it does
    ahead = [name for name in sources if "sim.jit.compile" in imports[name]]
    ahead.remove("sim.engine_ready")  # it asks whether code is compiled
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += imports[name]
    left_out = {
        name for name, path in sources.items() if not is_compiled_source(path.relative_to(package).as_posix())
    }
    assert len(left_out) > 15
    assert not left_out & reached
    assert "sim.engine.run" in reached
    laid_out = {
        "sim.cluster.run.beginning.prepare",
        "sim.cluster.run.beginning.shared_engines",
        "sim.cluster.run.beginning.loop_settings",
        "sim.cluster.results.attempts",
        "sim.engine.initial_state",
        "sim.engine.beginning.first_of_features",
        "sim.engine.records.features",
        "sim.requests",
    }
    assert (
        not left_out & laid_out
    )  # compiled code trusts their arrays to be of the types that it was compiled for
