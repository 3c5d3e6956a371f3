"""What the self-check makes of the loads that it ran: figures, where a climb ends, and whose fault that was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from observe.selfcheck import measure, report
from observe.selfcheck.measure import Checked, RunCost, start_reference_server
from observe.selfcheck.report import examine
from traces import ServerError, make_trace
from traces.header import ClientInfo, Header

SENT = 4


def checked(
    *,
    num_ok: int = SENT,
    client_limited: bool = False,
    lag_us: float = 0.0,
    first_error_us: Sequence[float] = (0.0,),
    cpu_s: float = 1.0,
    wall_s: float = 2.0,
    num_events: int = 100_000,
    grown_bytes: int = 0,
    client: ClientInfo | None = None,
) -> Checked:
    """Return a run of four requests as the reference server's client would have seen it."""
    trace = make_trace(
        Header(mode="generated", tool="vtwin", client=client),
        {
            "request_id": [str(row) for row in range(SENT)],
            "arrival_time_us": [0] * SENT,
            "input_tokens": [1] * SENT,
            "output_tokens": [1] * SENT,
        },
    )
    errors = np.array(first_error_us, np.float64)
    observation: Any = SimpleNamespace(trace=trace, num_ok=num_ok, client_limited=client_limited, cpu_s=cpu_s)
    return Checked(
        observation=observation,
        stretch=RunCost(wall_s=wall_s, grown_bytes=grown_bytes),
        num_events=num_events,
        first_error_us=errors,
        last_error_us=2 * errors,
        server_lag_us=np.array([lag_us]),
    )


class Canned:
    """A reference server's client that answers with runs made beforehand, and notes what it was asked."""

    def __init__(self, answer: Callable[[int], Checked]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def check(self, workload: Any, **how: Any) -> Checked:  # noqa: ANN401 - as the real one
        self.asked.append({"number": len(workload), **how})
        return self.answer(len(workload))


async def climbed(fails_at: int, **how: Any) -> tuple[float, str | None]:  # noqa: ANN401 - of ``checked``
    """Return what a climb over 10, 20 and 40 comes to when a rung is not kept up with."""

    async def load(_: Any, rung: int) -> Checked:  # noqa: ANN401 - no server is asked
        return checked(**how) if rung == fails_at else checked()

    server: Any = None
    return await report._climb(server, (10, 20, 40), load=load, tell=lambda _: None, unit="streams")


async def test_a_climb_ends_before_the_rung_at_which_the_client_is_the_limit() -> None:
    assert await climbed(40, client_limited=True) == (20, None)
    assert await climbed(10, client_limited=True) == (0, None)


async def test_a_climb_ends_where_an_answer_is_lost() -> None:
    assert await climbed(20, num_ok=SENT - 1) == (10, None)


async def test_a_server_that_is_late_is_not_the_client_s_limit() -> None:
    best, note = await climbed(20, lag_us=10_001.0, client_limited=True)
    assert best == 10
    assert note == "at 20 streams the reference server was late: the client may be capable of more"
    assert await climbed(20, lag_us=9_999.0) == (40, "40 streams is the highest that was tried")


def test_a_stamp_that_is_too_early_is_as_wrong_as_one_that_is_too_late() -> None:
    early = checked(first_error_us=(-400.0, -400.0, float("nan"), 100.0))
    figures = {figure.name: figure for figure in report._stamp_errors(early)}
    half = figures["first-token timestamp error, p50"]
    assert (half.value, half.unit, half.met) == (0.4, "ms", False)
    assert figures["last-token timestamp error, p50"].value == 0.8
    nothing = report._stamp_errors(checked(first_error_us=(float("nan"),)))
    assert nothing[0].met is False  # what was not seen meets no bar


def test_costs_count_cpu_and_not_the_time_that_the_server_took() -> None:
    packets, whole = (
        checked(cpu_s=0.5, wall_s=20.0, num_events=25_000),
        checked(cpu_s=0.5, wall_s=4.0, num_events=80_000),
    )
    each, per_cpu, per_wall = report._costs(packets, whole, names=("a", "b"))
    assert (each.value, each.met) == (20.0, True)
    assert (per_cpu.value, per_cpu.met) == (160_000.0, True)
    assert (per_wall.value, per_wall.met) == (20_000.0, None)


async def test_memory_is_what_a_longer_run_adds_and_not_what_the_first_run_took() -> None:
    sizes = iter((90_000_000, 1_000_000, 3_400_000))
    server: Any = Canned(lambda _: checked(grown_bytes=next(sizes)))
    figure = await report._memory(server, quick=True, tell=lambda _: None)
    assert [asked["number"] for asked in server.asked] == [300, 300, 1500]
    assert (figure.value, figure.met) == (2000.0, False)
    sizes = iter((0, 5000, 0))
    assert (await report._memory(server, quick=True, tell=lambda _: None)).value == 0


def test_pacing_is_off_by_requests_that_were_not_sent_and_by_gaps_that_are_not_as_asked() -> None:
    client = ClientInfo(num_sent=98, gap_cv_asked=1.0, gap_cv_achieved=0.95, own_lag_us={"p99": 12_000})
    sent, gaps, lag = report._pacing(checked(client=client), number=100, load="5/s")
    assert (round(sent.value, 9), sent.met) == (2.0, False)
    assert (round(gaps.value, 9), gaps.met) == (5.0, False)
    assert (lag.value, lag.met) == (12.0, False)


async def test_several_processes_are_measured_only_where_they_are_asked_for() -> None:
    client = ClientInfo(num_sent=600, gap_cv_asked=1.0, gap_cv_achieved=1.0, own_lag_us={"p99": 1})
    for processes in (1, 3):
        server: Any = Canned(lambda _: checked(client=client))
        told: list[str] = []
        found = await examine(server, quick=True, tell=told.append, processes=processes)
        together = [figure.name for figure in found.figures if figure.name.startswith("3 processes")]
        assert bool(together) == (processes == 3)
        assert [asked["processes"] for asked in server.asked if "processes" in asked] == [3] * (processes - 1)
        assert len(told) == len(set(told))
        assert "8,000 requests/s is the highest that was tried" in found.notes


async def test_a_reference_server_that_says_no_port_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.sys, "executable", "/bin/echo")
    with pytest.raises(ServerError, match=r"^selfcheck: got .* from its own server, expected a port$"):
        async with start_reference_server():
            raise AssertionError("it has no port")


async def test_texts_audio_and_images_are_paced_and_stamped_as_the_rest() -> None:
    client = ClientInfo(num_sent=40, gap_cv_asked=1.0, gap_cv_achieved=0.98, own_lag_us={"p99": 12_000})
    server: Any = Canned(lambda _: checked(client=client, first_error_us=(200.0, 4000.0)))
    found = await report._kinds(server, number=40, tell=lambda _: None)
    assert [each["number"] for each in server.asked] == [40, 10, 10]
    assert server.asked[0]["texts"] is True
    assert server.asked[1]["audio_seconds"] == 0.04
    assert server.asked[2]["image_side"] == 28
    names = [each.name for each in found]
    assert names[:5] == [
        "texts, 200 requests/s: number sent off by",
        "  texts: gap CV off by",
        "  texts: dispatch lag, p99",
        "  texts: first-token timestamp error, p50",
        "  texts: first-token timestamp error, p99",
    ]
    assert names[5] == "audio, 50 requests/s: number sent off by"
    assert names[10] == "images, 50 requests/s: number sent off by"
    assert len(set(names)) == len(names) == 15
    assert [each.met for each in found[:3]] == [True, True, False]
    assert (found[3].value, found[3].unit, found[3].bar) == (2.1, "ms", 0.3)
    assert found[5].value == 300  # 40 sent of 10
    assert {each.peers for each in found} == {""}


async def test_without_the_library_that_draws_images_there_is_no_row_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda _: None)
    server: Any = Canned(lambda _: checked(client=ClientInfo(num_sent=4, gap_cv_asked=1.0)))
    told: list[str] = []
    found = await report._kinds(server, number=4, tell=told.append)
    assert ["image_side" in asked for asked in server.asked] == [False, False]
    assert told[-1] == "no images: they need the extra, pip install 'vtwin[images]'"
    assert not any("images" in each.name for each in found)
