"""The core engine runs without its features: none of their code is there, and each question has its plain answer."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sim import Blackbox, EngineConfig, Record, Requests, simulate

ENGINE = Path(__file__).parents[3] / "sim" / "engine"
CORE = ("schedule", "jump", "run", "update", "preemption", "abort", "waiting", "log", "control", "deadlines")
DOORS = {"sim.engine.asked_features", "sim.engine.kv_cache.kv_cache_manager"}
MOST_IMPORTS_OF_SCHEDULE = 23

FEATURES = (
    "sim.engine.optional.",
    "sim.engine.kv_offload.",
    "sim.engine.kv_transfer.",
    "sim.engine.kv_cache.groups.",
    "sim.engine.kv_cache.session_kv",
    "sim.engine.kv_cache.cpu_tier",
    "sim.engine.kv_cache.partial_hashes",
)
"""Where code of features is."""

NOT_OF_ONE = {"sim.engine.kv_offload.waking"}
"""What wakes an engine: it asks features, and is asked by every engine."""

RUN_WITHOUT = '''
import importlib.abc, importlib.machinery, importlib.util, json, sys, types

FEATURES, NOT_OF_ONE = tuple(json.loads(sys.argv[1])), set(json.loads(sys.argv[2]))
NEVER = -1
reached = set()

def free_once_written(s, request):
    from sim.engine.kv_cache.kv_cache_manager import free
    free(s, request)

ANSWERS = {
    # at the beginning
    "apply_settings": lambda settings, config, rules: None,
    "asks_for_images": lambda requests, config: False,
    "longest_sequence": lambda config: config.max_model_len,
    # drafts
    "num_tokens_to_verify": lambda s, request: 0,
    "propose_tokens": lambda s, request, kind: None,
    "note_running": lambda s, request: None,
    "padding_of_admission": lambda s, request, num_found: 0,
    "mark_padding": lambda s, batch, padding: None,
    "drop_drafts": lambda s, request: None,
    # images, adapters, grammars
    "has_images": lambda s, request: False,
    "note_first_schedule": lambda s, request: None,
    "with_time_added_in_jump": lambda s, compute_us: compute_us,
    "has_new_grammar": lambda s: False,
    "next_grammar_us": lambda s: NEVER,
    # other schedulers
    "is_stopped_by_company": lambda s: False,
    "reserves_sequences": lambda s: False,
    "least_step_us": lambda s, num_entries: 0,
    "num_tokens_to_look_up": lambda s, request: s.requests[request].num_tokens - 1,
    "forget_outputs": lambda s, request: None,
    # KV elsewhere
    "is_on_cpu": lambda s, key: False,
    "local_tokens": lambda s, request: s.requests[request].num_computed_tokens,
    "keeps_blocks": lambda s, request: False,
    "free_once_written": free_once_written,
    "free_written": lambda s, batch: None,
    "take_states_back": lambda s, request: None,
}
NUMBERS = {"HAS_NONE", "HAS_NO_ROOM", "IS_ASIDE"}

class Absent(types.ModuleType):
    """A feature that is not there: its names are, and every question but the plain ones ends the run."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in NUMBERS:
            return sorted(NUMBERS).index(name)

        def answer(*args):
            reached.add(name)
            if name not in ANSWERS:
                raise AssertionError(f"a plain engine asked {self.__name__}.{name}")
            return ANSWERS[name](*args)

        return type(name, (), {}) if name[0].isupper() else answer

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name not in NOT_OF_ONE and (name + ".").startswith(FEATURES) and name + "." not in FEATURES:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
from tests.sim.engine.test_plain_core import outcomes_of_plain_runs
print(json.dumps({"outcomes": outcomes_of_plain_runs(), "unasked": sorted(set(ANSWERS) - reached)}))
'''


def some_requests() -> Requests:
    """Return sixty requests that share beginnings, and lack blocks at times."""
    rng = np.random.default_rng(1)
    prompt_tokens = rng.integers(20, 300, 60)
    num_hashes = prompt_tokens // 16
    return Requests(
        arrival_us=np.sort(rng.integers(0, 300_000, 60)),
        prompt_tokens=prompt_tokens,
        output_tokens=rng.integers(1, 60, 60),
        priority=np.zeros(60, np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum(num_hashes)]),
        hash_ids=rng.integers(0, 40, int(num_hashes.sum())),
    )


def outcomes_of_plain_runs() -> list[list[int]]:
    """Return what becomes of them in plain engines: sync and async, with few blocks and any number."""
    found = []
    for is_async in (False, True):
        for num_blocks in (40, 0):
            config = EngineConfig(
                num_gpu_blocks=num_blocks, max_num_seqs=16, async_scheduling=is_async, max_model_len=512
            )
            record: Record = "spans" if num_blocks else "none"
            run = simulate(some_requests(), config, Blackbox(beta0=3000, beta1=10, beta2=10), record=record)
            found.append([run.num_steps, run.num_preemptions, *run.outcomes.last_token_us.tolist()])
    return found


def imports_of(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ENGINE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)


def is_of_feature(name: str) -> bool:
    return name not in NOT_OF_ONE and f"{name}.".startswith(FEATURES)


def test_the_core_asks_features_through_two_modules() -> None:
    asked = {module: set(filter(is_of_feature, imports_of(module))) for module in CORE}
    assert {module: names for module, names in asked.items() if names} == {}
    assert {name for module in CORE for name in imports_of(module)} >= DOORS
    assert any(map(is_of_feature, imports_of("asked_features")))


def test_schedule_has_few_imports() -> None:
    assert len(set(imports_of("schedule"))) <= MOST_IMPORTS_OF_SCHEDULE


def test_a_plain_engine_runs_where_no_feature_can_be_imported() -> None:
    """Each answer of a feature that is not there is what an engine without it gets; any other question is an error."""
    with_features = outcomes_of_plain_runs()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN_WITHOUT, json.dumps(FEATURES), json.dumps([*NOT_OF_ONE])],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ENGINE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    without = json.loads(done.stdout)
    assert without["outcomes"] == with_features
    assert without["unasked"] == []
    assert any(preemptions > 0 for _, preemptions, *_ in with_features)
