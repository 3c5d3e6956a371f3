"""The table's own arithmetic, on measurements that are made up, and the answers that are recorded."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from replay.model import read_model_config
from replay.profiles.known_errors import known_errors
from replay.twin.latency import ROOFLINE_NEARER
from tests.studies.validation.scoreboard import inferencex, published_servers
from tests.studies.validation.scoreboard.__main__ import section
from tests.studies.validation.scoreboard.board import FAR, Board, losses, markdown
from tests.studies.validation.scoreboard.bounds import coverage
from tests.studies.validation.scoreboard.points import CHOSEN, broken, noise
from tests.studies.validation.scoreboard.tools.recorded import ANSWERS, Answers
from tests.studies.validation.servers import SERVERS, peer_errors
from tests.studies.validation.silicon import Point, prepare
from tests.traces.made import shared


def point(name: str, *, users: int = 4, ttft: float = 100.0, tpot: float = 10.0) -> Point:
    return Point(
        model="nvidia/Llama-3.1-8B-Instruct-FP8", gpu="H200", fp8=True, tp=1, isl=1000, osl=100,
        concurrency=users, ttft_ms=ttft, tpot_ms=tpot, id=name,
    )  # fmt: skip


POINTS = [point(str(number)) for number in range(6)]


def said(ttft: float, tpot: float, *, of: int = 6) -> Answers:
    return {each.id: (ttft, tpot) for each in POINTS[:of]}


def board(**answers: Answers) -> Board:
    return Board(points=POINTS, answers=answers, everywhere=("one", "two"))


def test_the_smallest_error_of_points_that_all_answered_is_first() -> None:
    found = board(one=said(130, 11), two=said(80, 9.5), few=said(100, 10, of=5))
    (row,) = (line for line in markdown(found).splitlines() if line.startswith("| dense, H200 "))
    assert row == "| dense, H200 | 6 | 30.0 / 10.0 | **20.0** / **5.0** | 0.0 / 0.0 (5) |"
    told = losses(found).splitlines()
    assert told[0].startswith(
        "- **one**: first in 0 of 6 cells; clearly behind: TTFT of all (30.0; two 20.0)"
    )
    assert told[1] == "- **two**: first in 6 of 6 cells; clearly behind: none."


def test_points_that_a_tool_did_not_answer_are_nobodys() -> None:
    assert "| all | 5 |" in markdown(board(one=said(130, 11), two=said(80, 9.5, of=5)))


def test_a_point_is_broken_by_a_rule_and_not_by_its_name() -> None:
    fine, idle, read = point("fine"), point("idle", users=256, tpot=6.0), point("read", tpot=1.0)
    crowded = point("crowded", users=16, ttft=400.0, tpot=8.0)
    measured = [fine, idle, read, crowded]
    found = broken(prepare(measured), measured)
    assert found == {
        "idle": "does not hold its load: faster than the GPU at its peaks",
        "read": "TPOT below the time in which the weights are read",
        "crowded": "TPOT below that of the same server with fewer users",
    }


def test_noise_is_how_far_a_repetition_lies_from_the_first() -> None:
    again = [point("a"), point("b", ttft=125.0, tpot=8.0), point("other", users=8)]
    assert noise(again) == {("dense", "H200"): (1, pytest.approx(20.0), pytest.approx(25.0))}


def test_a_bound_is_of_what_was_not_left_out() -> None:
    others = [
        Point(
            model="Qwen/Qwen3-32B", gpu="H100", fp8=False, tp=1, isl=1, osl=1, concurrency=1,
            ttft_ms=100.0, tpot_ms=10.0, id=f"q{number}",
        )
        for number in range(2)
    ]  # fmt: skip
    answers = said(110, 12) | {"q0": (105, 11), "q1": (150, 11)}
    number, share = coverage(answers, [*POINTS, *others])["families"]
    assert number == 8
    assert share.tolist() == [
        7 / 8,
        2 / 8,
    ]  # TTFT of q1 is over the six's 10 %; TPOT of the six over q's 10 %


@pytest.mark.parametrize(
    "tool", ["aisimulate", "aiconfigurator", "profiled", "profiled_family_unseen", "profiled_gpu_unseen"]
)
def test_answers_are_of_points_that_there_are(tool: str) -> None:
    chosen = CHOSEN.read_text().split()
    assert len(chosen) == len(set(chosen))
    recorded = json.loads((ANSWERS / f"{tool}.json").read_text())
    assert len(recorded.keys() & set(chosen)) > len(FEW)
    assert all(row["ttft_ms"] > 0 and row["tpot_ms"] > 0 for row in recorded.values())


def rows_of(title: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return the errors of TTFT and TPOT in a table of the page, by row and tool that answered all of its points."""
    _, _, after = section("scoreboard")[1].partition(title)
    lines = after.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    tools, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        name: {
            tool: tuple(map(float, cell.replace("*", "").split("/")))
            for tool, cell in zip(tools[2:], cells, strict=True)
            if "/" in cell and "(" not in cell
        }
        for name, _, *cells in rows
    }


@pytest.mark.parametrize(
    ("title", "others"),
    [("\nSound points", ("roofline",)), ("\nPoints that profiled reaches", ("roofline", "profiled"))],
)
def test_nowhere_is_a_model_clearly_nearer_than_the_one_that_auto_takes(
    title: str, others: tuple[str, ...]
) -> None:
    rows = rows_of(title)
    assert {"all", "dense", "MoE", "dense, H100", "MoE, H200"} <= rows.keys()
    for name, found in rows.items():
        for other in others:
            assert min(np.array(found["physics"]) / found[other]) <= FAR, (name, other)


def test_auto_takes_roofline_where_it_is_clearly_nearer_to_servers_of_a_gpu_that_physics_has_not_learned_from() -> (
    None
):
    head, _, *lines = section("llmservingsim")[1].splitlines()[:6]
    tools = [cell.strip() for cell in head.strip("|").split("|")]
    errors: dict[tuple[str, str], list[list[list[float]]]] = {}
    for server, line in zip(SERVERS, lines, strict=True):
        cells = dict(zip(tools, (cell.replace("*", "") for cell in line.strip("|").split("|")), strict=True))
        assert cells["server"].strip() == server.folder
        kind = "dense" if read_model_config(server.model).experts is None else "MoE"
        both = [[float(error) for error in cells[tool].split("/")[1:]] for tool in ("physics", "roofline")]
        errors.setdefault((kind, server.folder.split("/")[0]), []).append(both)
    assert len(errors) == 3
    medians = {where: np.median(both, axis=0) for where, both in errors.items()}
    assert {where for where, (ours, other) in medians.items() if min(ours / other) > FAR} == ROOFLINE_NEARER


def test_a_table_is_nearer_where_nobody_measured_the_experts() -> None:
    (known,) = (
        each for each in known_errors() if (each.points, each.model) == ("MoE", "physics, silicon-2026")
    )
    ttft, tpot = rows_of("\nPoints that profiled reaches")["MoE"]["profiled"]
    assert ttft < known.ttft_median
    assert tpot < known.tpot_median


@pytest.mark.parametrize(
    ("name", "table"), [("inferencex", inferencex.markdown), ("llmservingsim", published_servers.markdown)]
)
def test_a_table_of_the_page_is_what_the_kept_answers_give(name: str, table: Callable[[], str]) -> None:
    assert section(name)[1] == table()


def test_an_error_is_the_median_over_points_that_were_all_answered() -> None:
    points = inferencex.loops()[:3]
    half = {each.name: [value / 2 for value in each.medians] for each in points}
    assert inferencex.errors(half, points) == pytest.approx((50, 50, 50))
    half[points[0].name][0] = 1e9
    assert inferencex.errors(half, points) == pytest.approx((50, 50, 50))
    missing = [each.medians[1] / 2 for each in points]
    added = inferencex.errors(half, points[1:], added_ms=sum(missing[1:]) / 2)
    assert added[1] == pytest.approx(
        100 * np.mean([abs(sum(missing[1:]) / 2 - each) / each / 2 for each in missing[1:]])
    )
    assert added[2] == pytest.approx(50)
    assert inferencex.errors(half, inferencex.loops()) == ()


def test_the_fixed_part_is_what_the_lightest_load_takes_beyond_physics() -> None:
    loop = next(
        each for each in inferencex.loops() if not each.is_ranks and (each.users, each.prompt) == (4, 1024)
    )
    said = inferencex.answers()["physics"][loop.name]
    assert loop.medians[1] - said[1] == pytest.approx(inferencex.FIXED_MS, rel=0.1)


def test_a_rank_has_its_share_of_the_users() -> None:
    loops = inferencex.loops()
    assert len(loops) == 72
    for each in (next(loop for loop in loops if loop.is_ranks and loop.users == users) for users in (4, 16)):
        point = inferencex.prepared(each).point
        assert (point.tp, point.dp, point.concurrency) == (1, 8, max(each.users // 8, 1))


def test_the_published_errors_are_those_of_the_published_answers() -> None:
    bench = shared("llmservingsim_bench")
    for server in SERVERS:
        kept = published_servers.errors()[server.folder]["LLMServingSim"]
        found = peer_errors(server, bench)
        assert kept == [pytest.approx(found[key], abs=1e-3) for key in published_servers.METRICS.values()]


FEW = range(5)
"""Answers below which a tool would not be in the table."""
