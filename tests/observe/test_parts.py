"""The small parts: waiting, counting, judging the client, showing, hiding secrets."""

from __future__ import annotations

import asyncio
import io
import math
import threading
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.plan.prompts import TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from observe.record.live_trace import LiveTrace
from observe.record.recorder import Recorder
from observe.result.client_verdict import achieved_pace, asked_pace, due_pace, limiting_bounds, pace_of
from observe.run.in_flight_counts import InFlightCounter
from observe.run.pacer import LoopAlarm, Pacer, TimerfdAlarm
from observe.run.panel import Watcher, lines_of, show
from observe.run.progress import LogHistogram, Progress
from observe.run.sent_request import SentRequest
from observe.senders.endpoint import parse_endpoint, redact_command
from observe.senders.exchange import Exchange, monotonic_ns, one_line
from tests.observe.workloads import every, workload
from traces import ClosedLoop, ConfigError

MS = 1_000_000


def plan_of(arrivals_us: list[int | None], *, loop: ClosedLoop | None = None) -> SendPlan:
    trace = workload(arrivals_us, header={"closed_loop": loop} if loop else None)
    return make_plan(trace, prompts=TokenPrompts(1), shape=BodyShape(api="completions", model="m"))


# waiting


@pytest.mark.parametrize("precise", [True, False])
async def test_everyone_is_woken_in_the_order_of_their_moments_and_never_early(precise: bool) -> None:
    clock = monotonic_ns if precise else time.monotonic_ns.__call__
    pacer = Pacer(clock=clock)
    assert isinstance(pacer._alarm, TimerfdAlarm if precise else LoopAlarm)
    woken: list[int] = []
    start = monotonic_ns()

    async def wait(delay_ms: int) -> None:
        await pacer.until(start + delay_ms * MS)
        assert monotonic_ns() >= start + delay_ms * MS
        woken.append(delay_ms)

    await asyncio.gather(*(wait(delay) for delay in (30, 10, 20, 10, -5, 0)))
    pacer.close()
    assert woken == [-5, 0, 10, 10, 20, 30]


async def test_one_who_gives_up_waiting_holds_nobody_up() -> None:
    pacer = Pacer()
    now = monotonic_ns()
    first, second = (asyncio.create_task(pacer.until(now + delay * MS)) for delay in (5, 15))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 1)
    pacer.close()


async def test_closing_releases_those_who_wait() -> None:
    pacer = Pacer()
    waiting = asyncio.create_task(pacer.until(monotonic_ns() + 10_000 * MS))
    await asyncio.sleep(0)
    pacer.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# counting


@given(values=st.lists(st.floats(1, 1e9), min_size=1, max_size=200), q=st.floats(0, 1))
def test_a_histograms_quantile_is_right_to_two_percent(values: list[float], q: float) -> None:
    histogram = LogHistogram()
    for value in values:
        histogram.add(value)
    found = histogram.quantile(q)
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert found is not None
    assert found == pytest.approx(exact, rel=0.021)


def test_nothing_has_no_quantile_and_counts_weigh() -> None:
    histogram = LogHistogram()
    assert histogram.quantile(0.5) is None
    histogram.add(10, 99)
    histogram.add(1000, 1)
    assert histogram.quantile(0.5) == pytest.approx(10, rel=0.02)
    assert histogram.quantile(1.0) == pytest.approx(1000, rel=0.02)


def test_a_clients_own_lag_is_neither_the_caps_nor_the_connections() -> None:
    progress = Progress(num_planned=1)
    progress.note_launch(held_back=True)
    exchange = Exchange(ready_ns=40 * MS, x_request_id="x")
    exchange.dispatched_ns, exchange.connection_wait_ns = 50 * MS, 7 * MS
    progress.note_end(SentRequest(row=0, exchange=exchange))
    assert list(progress.dispatch_lag_us) == [50_000]
    assert list(progress.own_lag_us) == [3_000]
    assert (progress.num_held_back, progress.num_connections, progress.in_flight) == (1, 1, 0)


def test_the_first_round_of_a_closed_loop_says_nothing_of_how_the_client_keeps_up() -> None:
    progress = Progress(num_planned=3, num_at_once=2)
    for row in range(3):
        progress.note_launch(held_back=False)
        exchange = Exchange(x_request_id="x", dispatched_ns=(row + 1) * MS)
        progress.note_end(SentRequest(row=0, number=row, exchange=exchange))
    assert list(progress.dispatch_lag_us) == [1000, 2000, 3000]
    assert list(progress.own_lag_us) == [3000]


# judging the client


def ran(own_lag_us: int = 0, *, loop_lag_us: int = 0) -> Progress:
    progress = Progress(num_planned=100)
    progress.own_lag_us = array("q", [own_lag_us] * 100)
    progress.loop_lag.add(loop_lag_us, 100)
    return progress


def test_a_client_within_its_bounds_is_not_to_blame() -> None:
    assert limiting_bounds(plan_of(every(1000, 3)), ran(9_000, loop_lag_us=9_000), cpu_frac=0.5) is None


@pytest.mark.parametrize(
    ("progress", "cpu_frac", "named"),
    [
        (ran(11_000), 0.1, "send lag of the client, p99: 11 ms, more than 10 ms"),
        (ran(loop_lag_us=11_000), 0.1, "event-loop lag, p99: 11 ms, more than 10 ms"),
        (ran(), 0.95, "CPU use of its core: 95.0%, more than 90%"),
    ],
)
def test_a_client_beyond_one_bound_is_to_blame_by_its_name(
    progress: Progress, cpu_frac: float, named: str
) -> None:
    reason = limiting_bounds(plan_of(every(1000, 3)), progress, cpu_frac=cpu_frac)
    assert reason == named


def sent(times_ms: list[float], planned: int) -> Progress:
    progress = Progress(num_planned=planned)
    progress.num_launched = len(times_ms)
    progress.paced_ns = array("q", [round(time * MS) for time in times_ms])
    return progress


def test_a_rate_that_was_not_delivered_is_the_clients_fault() -> None:
    plan = plan_of(every(1000, 200))
    assert limiting_bounds(plan, sent([row * 1.0 for row in range(200)], 200), cpu_frac=0.1) is None
    slow = limiting_bounds(plan, sent([row * 1.02 for row in range(200)], 200), cpu_frac=0.1)
    assert slow is not None
    assert slow.startswith("rate differs from the schedule by: 2.0%, more than 1%")


def test_gaps_that_were_not_delivered_are_the_clients_fault() -> None:
    plan = plan_of(every(1000, 200))
    bursts = sent([row - row % 2 * 0.9 for row in range(200)], 200)
    assert (limiting_bounds(plan, bursts, cpu_frac=0.1) or "").startswith("variation of the gaps differs")


@pytest.mark.parametrize("why", ["cut short", "held back", "retried", "few"])
def test_a_run_that_did_not_send_its_plan_is_not_held_against_it(why: str) -> None:
    number = 20 if why == "few" else 200
    progress = sent([row * 2.0 for row in range(number)], number)
    progress.num_launched -= why == "cut short"
    progress.num_held_back, progress.num_retried = int(why == "held back"), int(why == "retried")
    assert limiting_bounds(plan_of(every(1000, number)), progress, cpu_frac=0.1) is None


def test_a_closed_loop_that_was_not_kept_full_is_the_clients_fault() -> None:
    plan = plan_of([0, 0, *[None] * 198], loop=ClosedLoop(concurrency=2))
    progress = Progress(num_planned=200)
    progress.num_launched = 200
    for row in range(100):  # two at once for 6 of every 10 ms
        progress.dispatched_ns.extend([row * 10 * MS] * 2)
        progress.ended_ns.extend([row * 10 * MS + 6 * MS] * 2)
    assert progress.mean_in_flight == pytest.approx(1.2)
    assert (limiting_bounds(plan, progress, cpu_frac=0.1) or "").startswith(
        "fewer requests in flight than users, by: 40.0%, more than 10%"
    )
    thinking = plan_of([0, 0, *[None] * 198], loop=ClosedLoop(concurrency=2, think_time_us=5))
    assert limiting_bounds(thinking, progress, cpu_frac=0.1) is None


def test_requests_all_due_at_once_are_late_by_no_fault_of_the_client() -> None:
    assert limiting_bounds(plan_of([0, 0, 0]), ran(50_000), cpu_frac=0.1) is None


def test_pace_is_rate_and_spread_of_the_gaps() -> None:
    constant = pace_of(np.array([0, 10_000, 20_000, 30_000]))
    assert (constant.rate_per_s, constant.gap_cv) == (100, 0)
    assert pace_of(np.array([5])).rate_per_s is None
    gaps = np.random.default_rng(1).exponential(10_000, 20_000).cumsum().astype(np.int64)
    assert pace_of(gaps).gap_cv == pytest.approx(1, abs=0.03)
    progress = Progress(num_planned=3)
    progress.dispatched_ns = array("q", [0, 10 * MS, 20 * MS])
    assert achieved_pace(plan_of([0, 5]), progress).rate_per_s == 100
    progress.paced_ns = array("q", [0, 20 * MS])
    assert achieved_pace(plan_of([0, 5]), progress).rate_per_s == 50
    assert asked_pace(plan_of([0, None], loop=ClosedLoop(concurrency=1))).rate_per_s is None


# showing


def test_the_panel_says_what_is_asked_and_what_is_done() -> None:
    progress = Progress(num_planned=10, start_ns=0)
    progress.num_launched, progress.in_flight, progress.peak_in_flight = 4, 2, 3
    progress.status.update(ok=1, error=1)
    progress.ttft.add(20_000)
    progress.itl.add(5_000)
    progress.dispatch_lag_us.append(1_500)
    watcher = Watcher(progress, plan_of(every(500_000, 10)), clock=lambda: 2_000 * MS)
    lines = lines_of(watcher.snapshot())
    assert lines[0] == "2 s, 2 s of sending left"
    assert lines[1] == "sent 4 of 10, 2.00/s (scheduled 2.50/s) · lag ≤ 1.5 ms"
    assert lines[2] == "done 2, 1 failed · in flight 2 (peak 3) · 0 tokens/s"
    assert lines[3].startswith("TTFT p50 20.")
    assert "ITL p50 5." in lines[3]


def test_the_panel_counts_answers_that_have_begun_before_they_end() -> None:
    progress = Progress(num_planned=1, start_ns=0)
    progress.num_launched = progress.in_flight = 1
    under_way = Exchange(x_request_id="x", dispatched_ns=10 * MS)
    counter = InFlightCounter(progress)
    watcher = Watcher(progress, plan_of([0]), clock=lambda: 2_000 * MS)
    for number in range(6):
        under_way.blobs.append(b'data: {"choices":[]}\n\n')
        under_way.stamps.append((30 + 20 * number) * MS)
        if number % 2:
            counter.count([under_way])
    lines = lines_of(watcher.snapshot())
    assert lines[2] == "done 0 · in flight 1 (peak 0), 1 streaming · 3 tokens/s"
    assert lines[3].startswith("TTFT p50 20.")
    assert progress.first_event.total == 1
    counter.count([])
    assert (progress.num_streaming, progress.tokens_under_way) == (0, 0)


def test_a_run_that_was_cut_short_is_held_against_what_was_due_of_it() -> None:
    plan = plan_of([0, 100_000, 200_000, 1_000_000, 2_000_000])
    assert asked_pace(plan).rate_per_s == pytest.approx(2)
    assert due_pace(plan, sent([0, 100, 200], planned=5)).rate_per_s == pytest.approx(10)


def test_a_panel_of_nothing_yet_is_well() -> None:
    progress = Progress(num_planned=2)
    closed = Watcher(progress, plan_of([0, None], loop=ClosedLoop(concurrency=1)), clock=lambda: 5)
    assert lines_of(closed.snapshot())[3] == "TTFT - · ITL -"
    assert closed.snapshot().left_s is None


def test_without_a_terminal_lines_are_written_and_the_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observe.run.panel._FIRST_LINE_S", 0.01)
    monkeypatch.setattr("observe.run.panel._LINE_EVERY_S", 0.01)
    out = io.StringIO()
    written = threading.Event()
    monkeypatch.setattr(out, "flush", written.set)
    with show(out)(Progress(num_planned=1), plan_of([0])):
        assert written.wait(5)
    assert out.getvalue().startswith("observe: 0 s")
    assert "observe-lines" not in [thread.name for thread in threading.enumerate()]


# hiding secrets, reading addresses


@pytest.mark.parametrize(
    "url",
    [
        "http://h:8",
        "h:8",
        "http://h:8/",
        "http://h:8/v1",
        "http://h:8/v1/completions",
        "http://h:8/v1/chat/completions/",
    ],
)
def test_an_address_may_be_given_in_any_usual_form(url: str) -> None:
    assert parse_endpoint(url).url("/v1/models") == "http://h:8/v1/models"


def test_a_path_before_v1_stays() -> None:
    assert parse_endpoint("https://gate/llm/v1").base == "https://gate/llm"


def test_the_key_comes_from_the_option_or_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("VLLM_API_KEY", "from-env")
    assert parse_endpoint("h").all_headers()["Authorization"] == "Bearer from-env"
    assert parse_endpoint("h", api_key="given").all_headers()["Authorization"] == "Bearer given"


@pytest.mark.parametrize("text", ["nothing", ": value", "bad name: x"])
def test_a_header_without_a_name_is_refused_and_its_value_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="--header"):
        parse_endpoint("h", headers=[text])


def test_a_command_line_is_shown_without_its_secrets() -> None:
    line = [
        "vtwin",
        "observe",
        "--api-key",
        "s1",
        "--api-key=s2",
        "--header",
        "Cookie: s3",
        "--header=X-A: b c",
    ]
    shown = redact_command(line)
    assert not any(secret in shown for secret in ("s1", "s2", "s3"))
    assert "X-A: b c" in shown


def test_messages_are_one_line_of_bounded_length() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert len(one_line("x" * 10_000)) == 500


async def test_answers_that_pile_up_are_read_faster_than_one_slice_a_turn(tmp_path: Path) -> None:
    """A client at its limit: 300 answers of 130 events wait. They are read in fewer turns of the loop than they are."""
    number, events = 300, 130
    plan = plan_of([0] * number)
    live = LiveTrace(tmp_path / "run", plan=plan, events=False)
    progress = Progress(num_planned=number, start_ns=0)
    recorder = Recorder(live, progress, max_tokens=[events] * number)
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    for row in range(number):
        exchange = Exchange(x_request_id="", dispatched_ns=0)
        exchange.blobs, exchange.stamps = [event] * events, list(range(events))
        recorder.put(SentRequest(row=row, exchange=exchange))
    recorder.close()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await recorder.work()
    counting.cancel()
    live.close()
    assert progress.num_done == number
    assert 5 < turns < number
