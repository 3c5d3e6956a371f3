"""Who sends when: open arrivals, or clients that wait for answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.requests import Int64s

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """Which of n requests arrive by themselves, and what lets the others go; columns of int64 and bool, in row order.

    ``arrives``: at its own time. ``held``: rows in the order in which a loop or a cap lets them go, one per answer;
    or, with ``wave``, wave after wave. ``due_us``: no sooner than this. ``successor``: the next row of a session, -1 at
    its end; it goes before anything held. ``think_us``: from the answer that lets a request go to its arrival.
    ``wave``: per row, its wave, waves being numbered from 0; the next begins ``wave_pause_us`` after the last answer.
    ``closed_loop``, ``max_concurrency``: of a plan that is nothing but one, as ``sim.simulate`` has it.
    """

    arrives: NDArray[np.bool_]
    held: Int64s
    due_us: Int64s
    think_us: Int64s
    successor: Int64s | None = None
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
    """Return a client that never has more than ``max_concurrency`` under way: first due, first sent."""
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

    ``session``, ``round_index``: int64 per row; a row without a session (-1) arrives by itself. First rounds arrive by
    themselves, or with ``concurrency`` the first so many of them, each further one when a conversation has ended.
    """
    n = len(session)
    order = np.lexsort((np.arange(n), round_index, session))
    is_same = (session[order[1:]] == session[order[:-1]]) & (session[order[1:]] >= 0)
    successor = np.full(n, NEVER, np.int64)
    successor[order[:-1][is_same]] = order[1:][is_same]
    arrives = np.ones(n, bool)
    arrives[order[1:][is_same]] = False
    first = np.flatnonzero(arrives)
    held = np.zeros(0, np.int64)
    if concurrency is not None:
        _check_counts(concurrency=concurrency)
        held = first[concurrency:]
        arrives[held] = False
    return ClientPlan(
        arrives=arrives,
        held=held,
        due_us=np.zeros(n, np.int64),
        think_us=think_us.astype(np.int64),
        successor=successor,
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
    """Raise InvalidConfig on clients that cannot be."""
    if concurrency < 1:
        raise InvalidConfig(f"concurrency: got {concurrency}, expected an integer >= 1")
    if think_time_us < 0:
        raise InvalidConfig(f"think_time_us: got {think_time_us}, expected an integer >= 0")
