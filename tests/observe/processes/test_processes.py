"""Several processes that send one load: dealt beforehand, added up afterwards, one trace at the end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe import Observation, Settings, observe_with, parse_endpoint
from observe.plan.prompts import TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from observe.processes.partition import Share, partition_cap, partition_plan, split_evenly
from observe.processes.process_group import WorkerProcess
from observe.processes.progress_reports import ProgressTotals, Reporter, add_up, peak_in_flight
from observe.record.csv_appender import CsvAppender
from observe.record.recorder import AnswerCounts
from observe.response.reading import Reading
from observe.response.stream_reader import StreamReader
from observe.result.json_document import summarize_observed
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from tests.examples import examples
from tests.observe.plan.test_conversations import sessions
from tests.observe.servers import Behaviour, FakeServer, serving
from tests.observe.workloads import every, statuses, workload
from traces import ClosedLoop, ConfigError, Trace, TraceError, read_trace

# who sends what


def plan_of(trace: Trace) -> SendPlan:
    shape = BodyShape(api="completions", model="m")
    return make_plan(trace, prompts=TokenPrompts(1), shape=shape, prebuild_bytes=0)


def rows_of(share: Share) -> list[int]:
    return [row for chain in share.chains for row in chain]


def test_an_open_loop_is_dealt_round_robin_by_due_time() -> None:
    shares = partition_plan(plan_of(workload([50, 10, 30, 20, 40, 60, 70])), 3)
    assert [rows_of(share) for share in shares] == [[1, 4, 6], [3, 0], [2, 5]]


def test_a_session_stays_whole_and_weighs_what_it_has_rows() -> None:
    trace = workload(
        every(10, 6), session_id=["a", "a", None, "a", None, None], round_index=[0, 2, None, 1, None, None]
    )
    first, second = partition_plan(plan_of(trace), 2)
    assert (rows_of(first), rows_of(second)) == ([0, 3, 1], [2, 4, 5])


@examples(50)
@given(
    names=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40),
    processes=st.integers(1, 5),
    users=st.one_of(st.none(), st.integers(1, 7)),
)
def test_every_request_is_dealt_once_in_order_and_no_session_is_torn(
    names: list[str | None], processes: int, users: int | None
) -> None:
    number = len(names)
    arrivals = (
        every(10, number) if users is None else [0] * min(users, number) + [None] * max(number - users, 0)
    )
    header = None if users is None else {"closed_loop": ClosedLoop(concurrency=users)}
    plan = plan_of(workload(arrivals, header=header, session_id=names, round_index=[*range(number)]))
    shares = partition_plan(plan, processes)
    assert sorted(row for share in shares for row in rows_of(share)) == [*range(number)]
    for share in shares:
        assert share.chains
        assert list(share.chains) == sorted(share.chains, key=plan.chains.index)
        assert len(share.of(plan)) == len(rows_of(share))
    for name in {name for name in names if name is not None}:
        rows = {row for row, other in enumerate(names) if other == name}
        assert sum(bool(rows & set(rows_of(share))) for share in shares) == 1
    if users is not None:
        assert sum(share.users or 0 for share in shares) == users


@pytest.mark.parametrize(("users", "processes"), [(5, 2), (7, 3), (2, 4), (8, 8)])
def test_a_closed_loop_is_dealt_user_by_user_its_first_round_with_them(users: int, processes: int) -> None:
    loop = ClosedLoop(concurrency=users, think_time_us=10)
    plan = plan_of(workload(every(10, users) + [None] * 20, header={"closed_loop": loop}))
    shares = partition_plan(plan, processes)
    assert len(shares) == min(users, processes)
    for share in shares:
        part = share.of(plan)
        assert part.closed_loop == ClosedLoop(concurrency=share.users or 0, think_time_us=10)
        assert sum(row < users for row in rows_of(share)) == share.users
        assert part.trace.header.client == plan.trace.header.client
    assert {share.users for share in shares} <= set(split_evenly(users, len(shares)))


def test_waves_wait_for_each_other_and_are_not_dealt() -> None:
    loop = ClosedLoop(concurrency=2, in_waves=True)
    plan = plan_of(workload([0, 0, None, None], header={"closed_loop": loop}))
    assert len(partition_plan(plan, 1)) == 1
    with pytest.raises(ConfigError, match="--processes: got 2 for waves"):
        partition_plan(plan, 2)


def test_a_cap_is_dealt_too_and_must_reach_for_all() -> None:
    assert partition_cap(7, 3, option="--max-concurrency") == [3, 2, 2]
    assert partition_cap(None, 2, option="--max-concurrency") == [None, None]
    with pytest.raises(ConfigError, match="--max-concurrency: got 2, expected at least one per process"):
        partition_cap(2, 3, option="--max-concurrency")


# adding up


def ended(row: int, *, dispatched_ns: int) -> tuple[SentRequest, Reading]:
    exchange = Exchange(x_request_id="", dispatched_ns=dispatched_ns)
    request = SentRequest(row=row, exchange=exchange, end_ns=dispatched_ns + 1000)
    reader = StreamReader()
    reader.take(b'data: {"choices":[{"text":"a"}]}\n\n', dispatched_ns + 500)
    reader.take(b'data: {"choices":[{"text":"b","finish_reason":"stop"}]}\n\n', dispatched_ns + 900)
    return request, reader.finish(dispatched_ns + 900, whole=True)


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**9), st.booleans()), max_size=30))
def test_what_is_added_up_is_what_one_process_would_have_counted(
    events: list[tuple[int, int, bool]],
) -> None:
    whole, total = Progress(num_planned=9), Progress(num_planned=9)
    parts = [Progress(num_planned=3) for _ in range(3)]
    reporters = [Reporter(part) for part in parts]
    added = ProgressTotals(total, 3)
    for row, (place, dispatched_ns, report_now) in enumerate(events):
        request, reading = ended(row, dispatched_ns=dispatched_ns)
        for progress in (whole, parts[place]):
            progress.note_launch(held_back=row % 2 == 0)
            progress.note_end(request)
            progress.note_answer(request.exchange, reading, status="ok" if row % 3 else "error")
        if report_now:
            added.take(place, reporters[place].report())
    for place, reporter in enumerate(reporters):
        added.take(place, reporter.report())
    for name in ("num_launched", "num_held_back", "in_flight", "num_connections", "output_tokens", "status"):
        assert getattr(total, name) == getattr(whole, name), name
    for name in ("dispatched_ns", "ended_ns", "dispatch_lag_us", "own_lag_us"):
        assert sorted(getattr(total, name)) == sorted(getattr(whole, name)), name
    for name in ("ttft", "itl", "loop_lag"):
        assert list(getattr(total, name).counts) == list(getattr(whole, name).counts), name
        assert getattr(total, name).quantile(0.5) == getattr(whole, name).quantile(0.5)
    assert total.num_planned == 9


def test_intervals_that_only_touch_do_not_overlap() -> None:
    assert peak_in_flight([], []) == 0
    assert peak_in_flight([0, 10, 5], [10, 20, 15]) == 2


def test_tallies_add_up() -> None:
    one = AnswerCounts(counted_by_event=1, other_length=2, fingerprints=Counter(a=1))
    other = AnswerCounts(counted_by_event=3, fingerprints=Counter(a=1, b=1))
    total = add_up([one, other])
    assert (total.counted_by_event, total.other_length) == (4, 2)
    assert total.fingerprints == Counter(a=2, b=1)


def test_several_append_to_one_file_and_take_back_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    first = CsvAppender.begin(path, ["n", "text"])
    second = CsvAppender.join(path, ["n", "text"])
    first.append([[1, "a"]])
    with path.open("ab") as left:
        left.write(b"2,half of a li")
    second.append([[3, "c"]])
    first.append([[4, "d"]])
    assert path.read_text() == "n,text\n1,a\n3,c\n4,d\n"
    with pytest.raises(AssertionError, match="other columns"):
        CsvAppender.join(path, ["n", "words"])


# the whole


async def observed(
    requests: Trace, server: FakeServer, *, output: Path, processes: int, signals: bool = False
) -> Observation:
    how = Settings(endpoint=parse_endpoint(server.url), processes=processes, salt=7)
    return await observe_with(requests, how, output=output, handle_signals=signals)


async def test_two_processes_send_what_one_would_and_leave_one_trace(tmp_path: Path) -> None:
    requests = workload(every(10_000, 12), prefix_group=["g"] * 12, prefix_length=[3] * 12)
    async with serving(Behaviour(ttft_s=0.01)) as server:
        one = await observed(requests, server, output=tmp_path / "one", processes=1)
        alone = {request.headers["x-request-id"]: request.body for request in server.requests}
        server.requests.clear()
        two = await observed(requests, server, output=tmp_path / "two", processes=2)
        together = {request.headers["x-request-id"]: request.body for request in server.requests}
    assert together == alone
    trace = read_trace(tmp_path / "two")
    assert statuses(trace) == ["ok"] * 12
    assert list(trace.column("request_id")) == [str(row) for row in range(12)]
    assert list(two.trace.requests.columns) == list(one.trace.requests.columns)
    assert trace.events is not None
    assert len(trace.events) == 12 * 6
    client = two.trace.header.client
    assert client is not None
    assert (client.num_processes, client.num_sent, client.num_planned) == (2, 12, 12)
    assert [each.num_sent for each in client.processes] == [6, 6]
    assert {each.outcome for each in client.processes} == {"finished"}
    assert all(each.cpu_frac and each.loop_lag_us and each.own_lag_us for each in client.processes)
    assert client.scheduling is None  # it does not send itself
    alone = one.trace.header.client
    assert alone is not None
    assert {each.scheduling for each in client.processes} == {alone.scheduling}
    assert client.cpu_frac == max(each.cpu_frac or 0 for each in client.processes)
    assert trace.header == two.trace.header
    document = json.loads(json.dumps(summarize_observed(two.trace)))
    assert [each["num_sent"] for each in document["client"]["processes"]] == [6, 6]
    assert two.fault is None


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that the crew's processes come to stand in."""
    found: list[int] = []
    start = WorkerProcess.start

    async def hire_and_tell(member: WorkerProcess) -> None:
        await start(member)
        assert member.process is not None
        found.append(member.process.pid)

    monkeypatch.setattr(WorkerProcess, "start", hire_and_tell)
    return found


async def test_a_process_that_is_killed_is_said_what_it_had_finished_is_kept_and_the_rest_is_marked(
    tmp_path: Path, pids: list[int]
) -> None:
    async with serving() as server:
        server.on_request = lambda request: os.kill(pids[1], signal.SIGKILL) if request.number == 20 else None
        seen = await observed(workload(every(20_000, 40)), server, output=tmp_path / "run", processes=2)
    trace = read_trace(tmp_path / "run")
    assert list(trace.column("request_id")) == [str(row) for row in range(40)]
    assert set(statuses(trace)[::2]) == {"ok"}
    kept = statuses(trace)[1::2].count("ok")
    assert 2 <= kept < 12
    assert statuses(trace)[1::2] == ["ok"] * kept + ["aborted"] * (20 - kept)
    assert trace.column("error_message").iloc[39] == (
        "its sender was killed (SIGKILL): whether it was sent is not known"
    )
    assert seen.num_failed == 20 - kept
    assert seen.fault is not None
    assert seen.fault.startswith("process 2 of 2 was killed (SIGKILL)")
    assert seen.fault in seen.notes
    client = trace.header.client
    assert client is not None
    assert [each.outcome for each in client.processes] == ["finished", "was killed (SIGKILL)"]


async def test_an_interrupt_drains_all_and_a_second_one_drops_what_is_under_way(
    tmp_path: Path, pids: list[int]
) -> None:
    interrupts: list[int] = []

    def interrupt_twice(_: object) -> None:
        if len(server.requests) in (3, 4):
            interrupts.append(len(server.requests))
            os.kill(os.getpid(), signal.SIGINT)

    requests = workload([0, 0, 100_000, 100_001, 10_000_000, 10_000_001])
    async with serving(Behaviour(ttft_s=30)) as server:
        server.on_request = interrupt_twice
        seen = await observed(requests, server, output=tmp_path / "run", processes=2, signals=True)
    assert interrupts == [3, 4]
    assert seen.interrupted
    assert statuses(seen.trace) == ["aborted"] * 4
    assert len(pids) == 2


async def test_a_session_grows_by_its_own_answers_in_whichever_process(tmp_path: Path) -> None:
    async with serving() as server:
        seen = await observed(sessions([0, 1000, 2000], 3), server, output=tmp_path / "run", processes=2)
        answers = {r.headers["x-request-id"].rpartition("-")[2]: r for r in server.requests[1:]}
    assert statuses(seen.trace) == ["ok"] * 9
    assert list(seen.trace.column("server_input_tokens")) == [8, 21, 34] * 3
    for row in (1, 2, 4, 5, 7, 8):
        before, after = answers[str(row - 1)], answers[str(row)]
        prompt = before.body["prompt"] + before.token_ids
        assert after.body["prompt"][: len(prompt)] == prompt
    client = seen.trace.header.client
    assert client is not None
    assert sorted(each.num_sent or 0 for each in client.processes) == [3, 6]


@contextmanager
def most_bytes_per_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_refuses_one_process_ends_the_run_for_all(tmp_path: Path) -> None:
    async with serving() as server:
        with most_bytes_per_file(3000), pytest.raises(TraceError, match="File too large after"):
            await asyncio.wait_for(
                observed(workload(every(5_000, 500)), server, output=tmp_path / "run", processes=2), 60
            )
    assert 0 < len(read_trace(tmp_path / "run")) < 500
