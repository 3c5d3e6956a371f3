"""Sessions of several rounds, as columns: which requests belong together, and the length of each round's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from traces.tables.cells import Cells, cells_where
from traces.workload.model import Client

Ints = npt.NDArray[np.int64]


class Drawn(Protocol):
    """The drawn columns from which sessions are made (see ``traces.workload.synthesis.Draws``)."""

    @property
    def client(self) -> Ints: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> Ints: ...  # noqa: D102
    @property
    def output_tokens(self) -> Ints: ...  # noqa: D102
    @property
    def session(self) -> Ints: ...  # noqa: D102
    @property
    def round_index(self) -> Ints: ...  # noqa: D102
    @property
    def think_us(self) -> Ints: ...  # noqa: D102


def grows(client: Client) -> bool:
    """Return whether the client's prompts grow from round to round."""
    return client.rounds.number > 1 and client.rounds.accumulate


def begin_and_place(rounds: Ints, *, most: int | None) -> tuple[Ints, Ints]:
    """Return each request's session, by its place in ``rounds``, and its round; ``most`` requests, None: all."""
    session = np.repeat(np.arange(rounds.size), rounds)
    begins = np.cumsum(rounds) - rounds
    return session[:most], (np.arange(session.size) - begins[session])[:most]


def context_tokens(clients: Sequence[Client], draws: Drawn) -> Ints:
    """Return each prompt's length: the round's addition and, if rounds build on each other, all text before it.

    Earlier answers are assumed to have their requested length.
    """
    said = draws.prompt_tokens + draws.output_tokens
    before = np.cumsum(said) - said
    first = np.arange(said.size) - draws.round_index
    growing = np.array([grows(client) for client in clients])[draws.client]
    return draws.prompt_tokens + np.where(growing, before - before[first], 0)


def later_arrivals(clients: Sequence[Client], draws: Drawn, *, begin_us: Cells) -> Cells:
    """Return arrivals: of a later round empty or, where it waits for no answer, a think time after the one before."""
    paused = np.cumsum(draws.think_us)
    first = np.arange(paused.size) - draws.round_index
    waits = np.array([client.rounds.waits for client in clients])[draws.client] & (draws.round_index > 0)
    return cells_where(begin_us.values + (paused - paused[first]), begin_us.is_known & ~waits)


def session_columns(clients: Sequence[Client], draws: Drawn) -> dict[str, object]:
    """Return the columns of sessions, none where no client has any."""
    many = np.array([client.rounds.number > 1 for client in clients])[draws.client]
    if not many.any():
        return {}
    names = np.array([f"s{number}" for number in draws.session.tolist()], dtype=object)
    waits = np.array([client.rounds.waits for client in clients])[draws.client]
    columns: dict[str, object] = {
        "session_id": cells_where(names, many),
        "round_index": cells_where(draws.round_index, many),
        "think_time_us": cells_where(draws.think_us, many & waits & (draws.round_index > 0)),
    }
    growing = np.array([grows(client) for client in clients])[draws.client]
    if growing.any():
        columns["new_input_tokens"] = cells_where(draws.prompt_tokens, growing)
    return columns
