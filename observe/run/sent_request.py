"""One request of the plan from its release to its last answer: its schedule, its attempts, its end."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from observe.senders.exchange import Exchange


@dataclass(slots=True, kw_only=True, eq=False)
class SentRequest:
    """A request that was released. Times in ns of the run's clock, None until it happens.

    ``row``: of the plan. ``number``: how many requests were released before it. ``due_ns``: when the load wanted it
    sent. ``is_paced``: the plan, not an answer, says when it is due. ``input_tokens``: of the prompt, where only the
    run knows them. ``exchange``: the current attempt. ``is_waiting_to_retry``: the last attempt failed, the next
    has not begun.
    """

    row: int
    exchange: Exchange
    due_ns: int = 0
    number: int = 0
    is_paced: bool = True
    input_tokens: int | None = None
    num_attempts: int = 1
    is_waiting_to_retry: bool = False
    end_ns: int | None = None

    def begin_retry(self, ready_ns: int) -> None:
        """Replace the failed attempt by a fresh one that is free to go at ``ready_ns``."""
        self.exchange = self.exchange.next_attempt(ready_ns)
        self.num_attempts += 1
        self.is_waiting_to_retry = False
