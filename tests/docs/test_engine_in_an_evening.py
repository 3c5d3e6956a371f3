"""The scheduler of ``docs/explanation/engine-in-an-evening.md`` is vLLM's, and the compiled engine's.

Its code is taken from the page, as a reader would copy it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Requests, simulate
from tests.conformance.conventions import DEFAULTS, output_token_id, prompt_token_ids
from tests.conformance.recording import dense_hashes, find, read_json_lines
from tests.docs.pages import MODULE_NAME, ROOT, blocks_of
from tests.examples import THOROUGH

PAGE = ROOT / "docs" / "explanation" / "engine-in-an-evening.md"
RECORDINGS = ROOT / "tests" / "conformance" / "recordings"
MOST_LINES = 300
ELSEWHERE = ("21_", "22_", "23_", "24_", "25_", "26_")
"""What the page leaves out: async scheduling, requests that preempt each other for ever, too long prompts."""
CASES = [case for case in sorted(RECORDINGS.glob("[0-9][0-9]_*")) if not case.name.startswith(ELSEWHERE)]


def modules_of_page() -> dict[str, str]:
    """Return the page's modules in order, by file name; the last one only compares both engines."""
    named = [(MODULE_NAME.match(block.text), block.text) for block in blocks_of(PAGE)]
    modules = {name[1]: text.removeprefix(name[0]) for name, text in named if name}
    assert list(modules)[-1] == "both_engines.py"
    return dict(list(modules.items())[:-1])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The names of the page's modules, imported from files that contain nothing else."""
    folder, modules = tmp_path_factory.mktemp("page"), modules_of_page()
    for name, text in modules.items():
        (folder / name).write_text(text)
    names = [name.removesuffix(".py") for name in modules]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        found: dict[str, Any] = {}
        for name in names:
            found |= vars(importlib.import_module(name))
        yield SimpleNamespace(**found)
        for name in names:
            del sys.modules[name]


def test_it_is_read_in_an_evening() -> None:
    assert sum(text.count("\n") for text in modules_of_page().values()) <= MOST_LINES


def requests_of(page: SimpleNamespace, rows: list[dict[str, Any]], given: dict[str, Any]) -> list[Any]:
    """Return a recording's requests as vLLM's front end lets them through."""
    requests = []
    for i, row in enumerate(rows):
        prompt = prompt_token_ids(row, i)
        num_outputs, most = row["output_len"], given["max_model_len"]
        if given["frontend"] == "openai":
            if max(len(prompt) + 1, num_outputs) > most:
                continue
            num_outputs = min(num_outputs, most - len(prompt))
        answer = [output_token_id(i, j) for j in range(num_outputs)]
        requests.append(page.Request(i, row["arrival_us"], prompt, answer, row.get("priority") or 0))
    return requests


def settings_of(page: SimpleNamespace, given: dict[str, Any]) -> Any:  # noqa: ANN401 - a class of the page
    """Return the page's settings for a recording's."""
    known = {name: given[name] for name in [field.name for field in fields(page.Settings)] if name in given}
    return page.Settings(**known, scheduling_policy=given["policy"])


def as_recorded(scheduler: Any, step: Any, duration_us: int) -> dict[str, Any]:  # noqa: ANN401 - classes of the page
    """Return what a recording says of a step before its results are in."""
    return {
        "step": step.number,
        "t": step.start_us,
        "dur": duration_us,
        "sched": [
            [request.number, n, request.num_computed, "d" if request.decodes(n) else "p"]
            for request, n in step.shares.items()
        ],
        "preempted": [request.number for request in step.preempted],
        "hits": [[request.number, num_tokens] for request, num_tokens in step.hits.items()],
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "free": len(scheduler.pool.free),
        "free_queue": list(scheduler.pool.free),
        "block_ids": {str(request.number): list(request.blocks) for request in step.shares},
    }


def steps_of_page(page: SimpleNamespace, requests: list[Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every step that the page's engine takes."""
    scheduler = page.Scheduler(settings_of(page, given))
    step_time = page.StepTime(*(Fraction(given[name]) for name in ("beta0", "beta1", "beta2")))
    rows, steps = [], []
    for step, duration_us in page.run(requests, scheduler, step_time):
        rows.append(as_recorded(scheduler, step, duration_us))
        steps.append(step)
    for row, step in zip(rows, steps, strict=True):
        row["finished"] = [request.number for request in step.finished]
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_step_is_vllm_s(page: SimpleNamespace, case: Path) -> None:
    given = DEFAULTS | json.loads((case / "config.json").read_text())
    trace, recorded = find(case, "trace.jsonl"), find(case, "steps.jsonl")
    assert trace is not None
    assert recorded is not None
    theirs = read_json_lines(recorded)
    ours = steps_of_page(page, requests_of(page, read_json_lines(trace), given), given)
    assert len(ours) == len(theirs)
    for mine, step in zip(ours, theirs, strict=True):
        known = mine.keys() & step.keys()
        assert {"sched", "preempted", "hits", "finished", "free"} <= known
        assert {name: mine[name] for name in known} == {name: step[name] for name in known}


def test_there_are_twenty_recordings() -> None:
    assert len(CASES) == 20


def drawn_case(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return settings and requests that share prompts, run out of blocks, and differ in urgency."""
    draws = np.random.default_rng(seed)
    given = DEFAULTS | {
        "block_size": int(draws.choice([4, 16])),
        "num_gpu_blocks": int(draws.integers(60, 200)),
        "max_num_seqs": int(draws.integers(2, 40)),
        "max_num_batched_tokens": int(draws.integers(64, 500)),
        "long_prefill_token_threshold": int(draws.choice([0, 30])),
        "long_prefill_token_threshold_adaptive": bool(draws.integers(2)),
        "enable_prefix_caching": bool(draws.integers(2)),
        "policy": str(draws.choice(["fcfs", "priority"])),
        "watermark": float(draws.choice([0.0, 0.1])),
    }
    longest = (given["num_gpu_blocks"] - 1) * given["block_size"] // 2
    rows = [
        {
            "arrival_us": int(draws.integers(0, 20)) * 20_000,  # some at once
            "prompt_len": int(draws.integers(1, longest)),
            "output_len": int(draws.integers(1, 40)),
            "prefix_group": int(draws.integers(0, 4)),
            "prefix_len": int(draws.integers(0, longest)),
            "priority": int(draws.integers(0, 3)),
        }
        for _ in range(40)
    ]
    return given, sorted(rows, key=lambda row: row["arrival_us"])


@pytest.mark.parametrize("seed", range(20 * THOROUGH or 20))
def test_the_compiled_engine_is_the_same(page: SimpleNamespace, seed: int) -> None:
    given, rows = drawn_case(seed)
    ours = requests_of(page, rows, given)
    steps = steps_of_page(page, ours, given)
    offsets, ids = dense_hashes(rows, given["block_size"])
    names = {field.name for field in fields(page.Settings)} - {"scheduling_policy"}
    compiled = simulate(
        Requests(
            arrival_us=np.array([row["arrival_us"] for row in rows]),
            prompt_tokens=np.array([row["prompt_len"] for row in rows]),
            output_tokens=np.array([row["output_len"] for row in rows]),
            priority=np.array([row["priority"] for row in rows]),
            hash_offsets=offsets,
            hash_ids=ids,
        ),
        EngineConfig(
            **{name: given[name] for name in names}, scheduling_policy=given["policy"], async_scheduling=False
        ),
        Blackbox(beta0=given["beta0"], beta1=given["beta1"], beta2=given["beta2"]),
    )
    assert compiled.num_steps == len(steps)
    assert compiled.outcomes.first_token_us.tolist() == [request.first_token_us for request in ours]
    assert compiled.outcomes.last_token_us.tolist() == [request.last_token_us for request in ours]
    assert compiled.outcomes.num_preemptions.tolist() == [request.num_preemptions for request in ours]
