"""When each request is sent: open arrivals, or clients that wait for answers."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.requests import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """Which of n requests arrive by themselves, and what releases the others; columns of int64 and bool, in row order.

    ``arrives``: at its own time. ``held``: rows in the order in which a loop or a cap releases them, one per answer;
    or, with ``wave``, wave after wave. ``due_us``: no sooner than this. ``think_us``: from the answer that releases a
    request to its arrival. ``waiting``, ``awaited``: pairs of rows: ``waiting[i]`` is not sent before the answer to
    ``awaited[i]``; a row may wait for several, and several for one. ``session``: per row, its number from 0, -1 none;
    the next held row is released when all of a session is answered. ``wave``: per row, its wave, waves being numbered
    from 0; the next begins ``wave_pause_us`` after the last answer. ``closed_loop``, ``max_concurrency``: set where the
    plan is only that, as arguments of ``sim.simulate``.
    """

    arrives: NDArray[np.bool_]
    held: Int64s
    due_us: Int64s
    think_us: Int64s
    waiting: Int64s | None = None
    awaited: Int64s | None = None
    session: Int64s | None = None
    wave: Int64s | None = None
    wave_pause_us: int = 0
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None


def closed_loop(num_requests: int, *, concurrency: int, think_time_us: int = 0) -> ClientPlan:
    """Return ``concurrency`` clients: the first rows arrive by themselves, each further one after an answer."""
    _check_counts(concurrency=concurrency, think_time_us=think_time_us)
    rows = np.arange(num_requests)
    return ClientPlan(
        arrives=rows < concurrency,
        held=rows[concurrency:],
        due_us=np.zeros(num_requests, np.int64),
        think_us=np.full(num_requests, think_time_us, np.int64),
        closed_loop=(concurrency, think_time_us),
    )


def capped(arrival_us: Int64s, *, max_concurrency: int) -> ClientPlan:
    """Return a client that never has more than ``max_concurrency`` in flight: first due, first sent."""
    _check_counts(concurrency=max_concurrency)
    order = np.argsort(arrival_us, kind="stable")
    arrives = np.zeros(len(arrival_us), bool)
    arrives[order[:max_concurrency]] = True
    return ClientPlan(
        arrives=arrives,
        held=order[max_concurrency:],
        due_us=arrival_us.astype(np.int64),
        think_us=np.zeros(len(arrival_us), np.int64),
        max_concurrency=max_concurrency,
    )


def sessions(
    session: Int64s, round_index: Int64s, *, think_us: Int64s, concurrency: int | None = None
) -> ClientPlan:
    """Return users who hold conversations: a round arrives a think time after the answer to the one before it.

    ``session``, ``round_index``: int64 per row; a row without a session (-1) arrives by itself. ``concurrency`` as in
    ``trees``.
    """
    order = np.lexsort((np.arange(len(session)), round_index, session))
    is_same = (session[order[1:]] == session[order[:-1]]) & (session[order[1:]] >= 0)
    return trees(
        session,
        waiting=order[1:][is_same],
        awaited=order[:-1][is_same],
        think_us=think_us,
        concurrency=concurrency,
    )


def trees(
    session: Int64s, *, waiting: Int64s, awaited: Int64s, think_us: Int64s, concurrency: int | None = None
) -> ClientPlan:
    """Return sessions whose requests wait for answers: a request arrives a think time after the last that it waits for.

    ``session``: int64 per row, -1 none. ``waiting``, ``awaited``: pairs of rows, without a circle. A request that waits
    for none arrives by itself; with ``concurrency`` only in the first ``concurrency`` sessions, and the next session
    starts when one is answered in full. A row without a session is a session of its own. Raises InvalidConfig.
    """
    n = len(session)
    arrives = np.ones(n, bool)
    arrives[waiting] = False
    held = np.zeros(0, np.int64)
    if concurrency is not None:
        _check_counts(concurrency=concurrency)
        first = np.flatnonzero(arrives)
        begun = np.where(
            session[first] >= 0, session[first], -1 - first
        )  # a row without a session is a session of its own
        names, at = np.unique(begun, return_index=True)
        place = np.empty(len(names), np.int64)
        place[np.argsort(at)] = np.arange(len(names))  # sessions in the order of their first rows
        order = place[np.searchsorted(names, begun)]
        held = first[order >= concurrency]
        if len(held) != len(np.unique(order[order >= concurrency])):
            raise InvalidConfig(
                "concurrency: got sessions that begin with several requests, expected one each"
            )
        arrives[held] = False
    return ClientPlan(
        arrives=arrives,
        held=held,
        due_us=np.zeros(n, np.int64),
        think_us=think_us.astype(np.int64),
        waiting=waiting.astype(np.int64),
        awaited=awaited.astype(np.int64),
        session=session.astype(np.int64),
    )


def waves(wave: Int64s, *, pause_us: int = 0) -> ClientPlan:
    """Return requests in waves: the next begins when the last answer of the one before it is in."""
    _check_counts(concurrency=1, think_time_us=pause_us)
    numbers, dense = np.unique(wave, return_inverse=True)
    dense = dense.astype(np.int64)
    return ClientPlan(
        arrives=dense == 0,
        held=np.argsort(dense, kind="stable").astype(np.int64),
        due_us=np.zeros(len(wave), np.int64),
        think_us=np.zeros(len(wave), np.int64),
        wave=dense if len(numbers) else np.zeros(0, np.int64),
        wave_pause_us=pause_us,
    )


def _check_counts(*, concurrency: int, think_time_us: int = 0) -> None:
    """Raise InvalidConfig on numbers that are not valid."""
    if concurrency < 1:
        raise InvalidConfig(f"concurrency: got {concurrency}, expected an integer >= 1")
    if think_time_us < 0:
        raise InvalidConfig(f"think_time_us: got {think_time_us}, expected an integer >= 0")
