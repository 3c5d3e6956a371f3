"""production-stack's routers, as a page writes them: the decisions that its own code makes, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "how-to" / "write-a-router.md"


@pytest.fixture
def routers() -> dict[str, Any]:
    """The page's module, its memory empty."""
    (block,) = (each for each in blocks_of(PAGE) if each.text.startswith("# production_stack.py"))
    module: dict[str, Any] = {}
    exec(block.text, module)  # noqa: S102 - a page of our own
    return module


def fleet(*candidates: int) -> SimpleNamespace:
    return SimpleNamespace(candidates=np.array(candidates))


def request(*hash_ids: int, session: int = -1) -> SimpleNamespace:
    return SimpleNamespace(hash_ids=np.array(hash_ids, np.int64), session=session)


def test_a_known_prefix_goes_where_it_went_and_all_that_begins_alike_with_it(routers: dict[str, Any]) -> None:
    choose, four = routers["prefixaware"], fleet(0, 1, 2, 3)
    home = choose(four, request(1, 2, 3, 4, 5, 6), 0)
    alike = [(1, 2), (1, 2, 9, 9), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)]
    assert {choose(four, request(*ids), 0) for ids in alike for _ in range(8)} == {home}
    others = {choose(four, request(100 + n, 200 + n), 0) for n in range(40)}
    assert others == {0, 1, 2, 3}  # unknown: any
    assert len({choose(four, request(1, 7 + n), 0) for n in range(40)}) > 1  # half a chunk is none


def test_the_deepest_chunk_that_a_candidate_was_sent_decides_and_gone_instances_are_passed_over(
    routers: dict[str, Any],
) -> None:
    choose = routers["prefixaware"]
    assert choose(fleet(2), request(1, 2, 3, 4), 0) == 2
    assert (
        choose(fleet(0), request(1, 2, 5, 6), 0) == 0
    )  # 2 is gone: the only one that is left, entered beside it
    both = fleet(0, 2)
    assert {choose(both, request(1, 2, 3, 4), 0) for _ in range(10)} == {2}
    assert {choose(both, request(1, 2, 5, 6), 0) for _ in range(10)} == {0}
    assert {choose(both, request(1, 2, 40 + n, 50 + n), 0) for n in range(40)} == {0, 2}


def test_a_session_stays_and_one_in_some_as_many_as_instances_moves_where_one_comes(
    routers: dict[str, Any],
) -> None:
    choose, n = routers["session"], 2000
    before = [choose(fleet(0, 1, 2), request(session=s), 0) for s in range(n)]
    assert before == [choose(fleet(0, 1, 2), request(session=s), 9) for s in range(n)]
    shares = np.bincount(before) / n
    assert shares == pytest.approx([1 / 3] * 3, rel=0.35)
    after = [choose(fleet(0, 1, 2, 3), request(session=s), 9) for s in range(n)]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {3}
    assert len(moved) / n == pytest.approx(1 / 4, rel=0.35)


def test_without_a_session_the_fewest_requests_of_the_last_minute_decide(routers: dict[str, Any]) -> None:
    choose, three = routers["session"], fleet(0, 1, 2)
    minute = 60_000_000
    assert [choose(three, request(), at) for at in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    busy = [choose(three, request(session=s), 10) for s in range(30)]
    assert choose(three, request(), 11) == int(np.argmin(np.bincount([0, 0, 0, 1, 1, 2, 2, *busy])))
    assert choose(three, request(), 20 + minute) == 0  # all is forgotten; the first in a tie
