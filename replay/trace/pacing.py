"""What decides when a trace's requests reach the engine: their recorded times, or the answers before them."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from replay.numbers.argument_ranges import CONCURRENCY, LOOKAHEAD, TIME_US, TOKENS, USERS
from replay.trace.request_columns import At, requests_from_trace
from sim import Requests
from traces import ConfigError, has_tree, quoted, sent_or_due, waits_for_named
from traces.strict.arguments import TRACE, check_argument, check_fields, takes

if TYPE_CHECKING:
    from traces import Trace

Loop = Literal["auto", "closed", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """What decides when a trace's requests reach the engine: their times alone, or the engine's answers, too.

    ``closed_loop``: (concurrency, think_time_us) of users who wait for answers. ``max_concurrency``: the cap of a
    client that sends a due request once fewer are in flight. ``users``: rounds of sessions wait for the answers before
    them; there are this many users, 0: each conversation begins at its own time. ``waves``: (requests in each, pause in
    µs) of a client that sends the next when all of one are answered. At most one of the four; ``at``: which of a row's
    times counts.
    """

    at: At = "auto"
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None
    users: int | None = None
    waves: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, max_concurrency=CONCURRENCY, users=USERS)
        for name in ("closed_loop", "waves"):
            if (pair := getattr(self, name)) is not None:
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise ConfigError(f"{name}: got {quoted(pair)}, expected how many, and µs between them")
                check_argument(name, pair[0], CONCURRENCY)
                check_argument(name, pair[1], TIME_US)

    @property
    def leaves_times_open(self) -> bool:
        """Whether rows may have no time, since an answer decides it."""
        return self.closed_loop is not None or self.users is not None or self.waves is not None

    @property
    def has_rounds(self) -> bool:
        """Whether rounds, or waves, wait for answers, so that a gateway must be told of every answer."""
        return self.users is not None or self.waves is not None

    @property
    def is_by_answers(self) -> bool:
        """Whether answers decide when requests are sent."""
        return self.leaves_times_open or self.max_concurrency is not None

    def note(self) -> str | None:
        """Return how answers set the pace, None where they do not."""
        if self.closed_loop is not None:
            return f"a closed loop of {self.closed_loop[0]}, simulated as such"
        if self.max_concurrency is not None:
            return (
                f"sent with at most {self.max_concurrency} in flight, simulated as such: from due times, "
                "the next ones released by simulated answers"
            )
        if self.users is not None:
            return "sessions, each round sent its think time after the simulated answer to the one before it"
        if self.waves is not None:
            return f"waves of {self.waves[0]}, each sent when the one before it is answered"
        return None


@takes(trace=TRACE, max_concurrency=CONCURRENCY)
def pacing_of(
    trace: Trace,
    loop: Loop = "auto",
    *,
    at: At = "auto",
    max_concurrency: int | None = None,
    simulates_rounds: bool = False,
) -> Pacing:
    """Return how a trace is to be replayed; ``max_concurrency``: the client's cap, in place of the header's.

    ``auto``: as its header says it was run: a closed loop, a client with a cap, or neither; ``at="send"`` selects the
    recorded times of a capped run, which the real answers determined. ``open``: by the rows' times alone. ``closed``
    needs a header that says how many were in flight. Waves and users with sessions are replayed as they were sent; with
    ``simulates_rounds``, which a cluster does, those that were not sent yet wait for simulated answers, and so does
    every request that names the one it follows.
    """
    if simulates_rounds and max_concurrency is None and (waiting := _by_answers(trace, loop)) is not None:
        return waiting
    _refuse_what_has_no_times(trace)
    recorded, client = trace.header.closed_loop, trace.header.client
    if max_concurrency is not None:
        return _capped(trace, loop, at=at, max_concurrency=max_concurrency)
    cap = None if client is None else client.max_concurrency
    if loop == "open" or (loop == "auto" and recorded is None and (cap is None or at == "send")):
        return Pacing(at=at)
    capped_prefill = (
        client is not None and client.prefill_concurrency is not None and client.num_held_back != 0
    )
    if capped_prefill or (recorded is not None and (recorded.in_waves or has_rounds(trace))):
        return _as_sent(trace, loop, at=at)
    if recorded is not None:
        return Pacing(at=at, closed_loop=(recorded.concurrency, recorded.think_time_us))
    if cap is None:
        raise ConfigError(
            "--closed-loop: the trace's header has neither closed_loop nor client.max_concurrency, "
            "expected how many were in flight"
        )
    has_due = bool(trace.cells("arrival_time_us").is_known.all())
    never_bound = client is not None and client.num_held_back == 0
    if at == "auto" and has_due and not never_bound:
        at = "arrival"
    return Pacing(at=at, max_concurrency=cap)


def _by_answers(trace: Trace, loop: Loop) -> Pacing | None:
    """Return the pacing of sessions and waves whose times answers decide; None for anything else."""
    untimed = ~sent_or_due(trace).is_known
    recorded = trace.header.closed_loop
    is_in_waves = recorded is not None and bool(recorded.in_waves)
    if not (has_rounds(trace) or is_in_waves):
        return None
    waits = untimed.any() or loop == "closed" or (has_tree(trace.table) and loop == "auto")
    if not waits:
        return None
    if loop == "open":
        raise ConfigError(
            "--open-loop: got requests without times of their own, expected a trace that has them"
        )
    if has_rounds(trace):
        return Pacing(at="arrival", users=0 if recorded is None else recorded.concurrency)
    assert recorded is not None  # noqa: S101 - it says that there are waves
    return Pacing(at="arrival", waves=(recorded.concurrency, recorded.think_time_us))


def _capped(trace: Trace, loop: Loop, *, at: At, max_concurrency: int) -> Pacing:
    """Return the pacing of a client that sends a due request once fewer than the cap are in flight."""
    for given, name in (
        (trace.header.closed_loop is not None, "a trace of a closed loop"),
        (loop == "open", "--open-loop"),
        (has_rounds(trace), "a trace of sessions"),
    ):
        if given:
            raise ConfigError(
                f"--max-concurrency: cannot be combined with {name}, expected requests with due times"
            )
    has_due = bool(trace.cells("arrival_time_us").is_known.all())
    return Pacing(at="arrival" if at == "auto" and has_due else at, max_concurrency=max_concurrency)


def _refuse_what_has_no_times(trace: Trace) -> None:
    untimed = ~sent_or_due(trace).is_known
    if has_rounds(trace) and untimed.any():
        raise ConfigError(
            f"sessions: got {int(untimed.sum())} rounds whose times are the answers' doing, expected a trace that was "
            "observed, or rounds with times of their own (closed_loop: false)"
        )


def _as_sent(trace: Trace, loop: Loop, *, at: At) -> Pacing:
    """Return the pacing of waves, users with sessions and a cap on prefill: by the times at which they were sent.

    A single wave that was not sent yet waits for nothing: all its requests arrive when they are due.
    """
    sent, recorded = trace.cells("send_time_us"), trace.header.closed_loop
    is_one_wave = recorded is not None and bool(recorded.in_waves) and len(trace) <= recorded.concurrency
    if is_one_wave and loop != "closed" and not sent.is_known.any():
        return Pacing(at="arrival")
    if loop == "closed" or not trace.cells("send_time_us").is_known.all():
        raise ConfigError(
            "closed_loop: got waves, users with sessions, or a cap on requests in prefill, to be paced by simulated "
            "answers, expected a trace that was observed, taken at the times it was sent"
        )
    return Pacing(at="send" if at == "auto" else at)


@takes(trace=TRACE, block_size=TOKENS, hash_lookahead=LOOKAHEAD)
def paced_requests(trace: Trace, pacing: Pacing, *, block_size: int, hash_lookahead: int = 0) -> Requests:
    """Return a trace's requests as the engine's columns, with arrivals by the pacing.

    ``hash_lookahead``: how many tokens behind a block belong to its content (``prefix_hashes``).
    """
    return requests_from_trace(
        trace,
        block_size=block_size,
        hash_lookahead=hash_lookahead,
        at=pacing.at,
        closed_loop=pacing.leaves_times_open,
    )


def has_rounds(trace: Trace) -> bool:
    """Return whether any request waits for the answer to another of its session."""
    return num_later_rounds(trace) > 0


def num_later_rounds(trace: Trace) -> int:
    """Return how many requests wait for the answer to another of their session."""
    is_later = (trace.cells("round_index").values > 0) & trace.cells("session_id").is_known
    return int((is_later | waits_for_named(trace.table)).sum())
