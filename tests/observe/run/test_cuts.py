"""Requests that the workload cuts: when, what is recorded, and what is not counted against the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtwin
from observe.observation import Observation
from observe.senders.aiohttp_sender import AiohttpSender
from observe.settings import WarmUp
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, statuses, workload
from traces import ClosedLoop, read_trace

LATE_US = 100_000
"""A cut is at most so late on a busy machine, half of what its answer would have taken; on an idle one 1,000."""


def late_us(seen: Observation) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how late each cut by time was."""
    trace = seen.trace
    cut = trace.cells("status").values == "cancelled"
    at = trace.cells("cancel_time_us").values - trace.cells("send_time_us").values
    return np.asarray((at - trace.cells("cancel_after_us").values)[cut], np.int64)


async def test_a_cut_by_time_closes_the_connection_then_and_is_no_failure(tmp_path: Path) -> None:
    after = [60_000 if row % 2 else None for row in range(12)]
    load = workload(every(20_000, 12), output_tokens=20, cancel_after_us=after)
    async with serving(Behaviour(itl_s=0.01)) as server:
        seen = await observed(server, load, output=tmp_path / "run")
    assert statuses(seen.trace) == ["ok", "cancelled"] * 6
    assert (seen.num_ok, seen.num_failed) == (6, 0)
    assert seen.trace.column("error_message").isna().all()
    late = late_us(seen)
    assert late.min() >= 0
    assert late.max() < LATE_US
    tokens = seen.trace.cells("output_tokens").values[1::2]
    assert (tokens >= 1).all()
    assert (tokens < 20).all()
    again = read_trace(tmp_path / "run")
    assert again.cells("cancel_after_us").values[1] == 60_000


async def test_a_cut_by_tokens_comes_once_so_many_were_there() -> None:
    load = workload(every(20_000, 6), output_tokens=30, cancel_after_tokens=[5, None, 5, 9, None, 40])
    async with serving(Behaviour(itl_s=0.01)) as server:
        seen = await observed(server, load)
    assert statuses(seen.trace) == ["cancelled", "ok", "cancelled", "cancelled", "ok", "ok"]
    assert seen.trace.cells("output_tokens").values.tolist() == [5, 30, 5, 9, 30, 30]


async def test_an_answer_that_is_whole_before_its_cut_is_no_cancellation() -> None:
    load = workload(every(10_000, 4), output_tokens=4, cancel_after_us=[2_000_000] * 2 + [None] * 2)
    load = load.with_columns(cancel_after_tokens=[None, None, 4, 4])
    async with serving(Behaviour()) as server:
        seen = await observed(server, load)
    assert statuses(seen.trace) == ["ok"] * 4
    assert seen.trace.cells("cancel_time_us").is_known.sum() == 0


async def test_a_user_of_a_closed_loop_goes_on_after_a_cut_and_a_session_on_what_came() -> None:
    users = {"closed_loop": ClosedLoop(concurrency=2)}
    after = [50_000] * 6
    async with serving(Behaviour(itl_s=0.02)) as server:
        seen = await observed(
            server,
            workload([0, 0, None, None, None, None], header=users, output_tokens=50, cancel_after_us=after),
        )
        assert statuses(seen.trace) == ["cancelled"] * 6
        assert late_us(seen).max() < LATE_US
        rounds = workload(
            [0, None, None],
            output_tokens=30,
            session_id=["a"] * 3,
            round_index=[0, 1, 2],
            think_time_us=[None, 1000, 1000],
            new_input_tokens=[8, 8, 8],
            cancel_after_tokens=[None, 6, None],
        )
        server.requests.clear()
        seen = await observed(server, rounds)
    assert statuses(seen.trace) == ["ok", "cancelled", "ok"]
    lengths = [len(each.body["prompt"]) for each in server.requests]
    assert lengths[-1] - lengths[-2] == 6 + 8


async def test_a_cut_request_that_failed_before_is_a_failure_and_one_that_never_got_a_byte_is_cut() -> None:
    async with serving(Behaviour(fault="status 500", fault_on=frozenset({0}))) as server:
        seen = await observed(server, workload([0, 20_000], cancel_after_us=[500_000, None]))
    assert statuses(seen.trace) == ["error", "ok"]
    async with serving(Behaviour(fault="stall before the head")) as server:
        seen = await observed(server, workload([0, 10_000], cancel_after_us=[80_000, 80_000]))
    assert statuses(seen.trace) == ["cancelled"] * 2
    assert late_us(seen).max() < LATE_US


@pytest.mark.parametrize("after", [{"cancel_after_us": [60_000]}, {"cancel_after_tokens": [6]}])
async def test_the_other_sender_cuts_as_well(
    monkeypatch: pytest.MonkeyPatch, after: dict[str, list[int]]
) -> None:
    monkeypatch.setattr("observe.executor.open_sender", AiohttpSender)
    async with serving(Behaviour(itl_s=0.01)) as server:
        seen = await observed(server, workload([0], output_tokens=40, **after))
    assert statuses(seen.trace) == ["cancelled"]
    assert seen.trace.cells("output_tokens").values[0] in range(4, 8)


async def test_a_cut_request_is_not_sent_again() -> None:
    from observe import Limits

    async with serving(Behaviour(fault="stall before the head")) as server:
        await observed(server, workload([0], cancel_after_us=[50_000]), limits=Limits(max_retries=3))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("processes", "share", "numbers"),
    [(1, "0", (0, 0)), (1, "50%", (8, 32)), (1, "100%", (40, 40)), (3, "50%", (8, 32))],
)
def test_the_share_is_drawn_before_the_run_and_counted_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], processes: int, share: str, numbers: tuple[int, int]
) -> None:
    with serving_in_thread(Behaviour(itl_s=0.01)) as server:
        load = ["--num-requests", "40", "--rate", "100", "--output-tokens", "25", "--prompt-tokens", "9"]
        cuts = ["--cancel-share", share, "--cancel-after", "20ms:60ms", "--json"]
        more = ["--output", str(tmp_path / "run"), "--processes", str(processes)]
        assert vtwin.main(["observe", "--url", server.url, *load, *cuts, *more]) == 0
    out, err = capsys.readouterr()
    counts = json.loads(out)["num_by_status"]
    found = counts.get("cancelled", 0)
    assert numbers[0] <= found <= numbers[1]
    assert counts.get("ok", 0) == 40 - found
    assert ("cancelled as asked" in err) == (found > 0)
    assert json.loads(out)["errors"] == {}


def test_cuts_need_both_options_and_no_search(tmp_path: Path) -> None:
    command = ["observe", "--url", "http://127.0.0.1:9", "--rate", "1", "--output", str(tmp_path / "run")]
    assert vtwin.main([*command, "--cancel-share", "10%"]) == 2
    assert vtwin.main([*command, "--cancel-after", "1s"]) == 2
    tokens = ["--cancel-share", "10%", "--cancel-after", "5tokens", "--no-streaming"]
    assert vtwin.main([*command, *tokens]) == 2
    both = ["--cancel-share", "10%", "--cancel-after", "1s"]
    for several in (["--find-capacity", "--slo", "e2e=1s"], ["--plan", "calibrate", "--yes"]):
        assert vtwin.main([*command, *both, *several]) == 2


async def test_a_warm_up_is_not_cut() -> None:
    load = workload(every(20_000, 3), output_tokens=20, cancel_after_us=[30_000] * 3)
    async with serving(Behaviour(itl_s=0.005)) as server:
        await observed(server, load, warmup=WarmUp(num_requests=2))
        whole = [each for each in server.requests if each.headers["x-request-id"].startswith("vtwin-warmup")]
    assert len(whole) == 2
    assert all(each.last_token_ns is not None for each in whole)
