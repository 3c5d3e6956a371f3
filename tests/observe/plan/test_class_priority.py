"""vLLM's priority by service class: what is sent is recorded, and what has none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from observe.plan.class_priority import parse_class_priorities, priority_notes
from tests.observe.servers import observed, serving, serving_in_thread
from tests.observe.workloads import workload
from traces import ConfigError, read_trace
from traces.priorities import PRIORITY_OF_CLASS

CLASSES = {"slo_class": ["critical", "batch", "mine", None], "vllm_priority": [None, 3, None, None]}


async def test_the_priority_that_was_sent_is_the_one_on_record() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0] * 4, **CLASSES), class_priority=PRIORITY_OF_CLASS)
        sent = {request.headers["x-request-id"]: request.body.get("priority") for request in server.requests}
    recorded = (
        seen.trace.column("vllm_priority")
        .astype(object)
        .where(seen.trace.column("vllm_priority").notna(), None)
    )
    assert list(recorded) == [0, 3, None, None]
    assert list(recorded) == [sent[name] for name in seen.trace.column("x_request_id")]
    client = seen.trace.header.client
    assert client is not None
    assert dict(client.class_priority) == PRIORITY_OF_CLASS
    assert "1 requests of class 'mine' are sent without a priority" in client.notes


async def test_without_the_option_only_the_traces_own_priority_is_sent() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0] * 4, **CLASSES))
    assert seen.trace.column("vllm_priority").fillna(-1).tolist() == [-1, 3, -1, -1]


def test_a_map_is_read_and_nonsense_refused() -> None:
    assert parse_class_priorities("critical=-1, mine=5") == {"critical": -1, "mine": 5}
    for text in ("critical", "=1", "a=1.5", "a=x", "", f"a={2**31}"):
        with pytest.raises(ConfigError, match=r"--class-priorities: got .*expected CLASS=INTEGER"):
            parse_class_priorities(text)


def test_priorities_that_cannot_matter_are_told() -> None:
    alike = workload([0, 0], slo_class=["critical", "critical"])
    assert priority_notes(alike, PRIORITY_OF_CLASS, scheduling_policy=None) == (
        "all requests have the same priority: a priority policy has nothing to choose by",
    )
    differ = workload([0, 0], vllm_priority=[0, 4])
    assert priority_notes(differ, None, scheduling_policy="fcfs") == (
        "the server's scheduling policy is fcfs: vLLM refuses priorities other than 0",
    )
    assert priority_notes(workload([0]), None, scheduling_policy="fcfs") == ()


def test_the_command_takes_priorities_of_its_own(tmp_path: Path) -> None:
    with serving_in_thread() as server:
        load = ["--rate", "100", "--num-requests", "2", "--prompt-tokens", "9", "--output-tokens", "4"]
        command = ["observe", "--url", server.url, *load, "--output", str(tmp_path / "run")]
        assert vtwin.main([*command, "--class-priorities", "standard=9"]) == 0
    client = read_trace(tmp_path / "run").header.client
    assert client is not None
    assert dict(client.class_priority) == {"standard": 9}
