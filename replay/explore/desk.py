"""Who asks and who is answered: one computation at a time, of each page's newest question, and what follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from lazy_dataclasses import dataclass, field
from typing import Any

import orjson

from replay.explore.question_process import DONE, Begun, QuestionProcess

FOLLOWS_AFTER_S = 0.25
"""A setting that nobody turns for so long is looked at further."""

Send = Callable[[str], Awaitable[None]]


@dataclass(slots=True, kw_only=True, eq=False)
class OpenPage:
    """A page: how it is told something, and what is on its way to it."""

    send: Send
    sending: set[asyncio.Task[None]] = field(default_factory=set)
    last: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """A page's newest question: whose it is, its number there, its state."""

    page: OpenPage
    what: str
    turn: int
    state: Mapping[str, str]


class Desk:
    """Two processes: one answers turns, one looks further once nobody turns anything."""

    def __init__(self, begun: Begun) -> None:
        """Prepare; the processes begin with the loop (``begin``)."""
        self._turns = QuestionProcess(begun, self._tell_turn)
        self._further = QuestionProcess(begun, self._tell_further)
        self._asked: PageQuestion | None = None
        self._waiting: dict[OpenPage, PageQuestion] = {}
        self._to_follow: dict[OpenPage, PageQuestion] = {}  # the turns that were answered last, in order
        self._followed: PageQuestion | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin the processes, so that the first question does not wait for them."""
        self._turns.begin()
        self._further.begin()

    def join(self, send: Send) -> OpenPage:
        """Return a page that is told answers by ``send``."""
        return OpenPage(send=send)

    def leave(self, page: OpenPage) -> None:
        """Forget a page, and give up what it asked."""
        for task in list(page.sending):
            task.cancel()
        self._waiting.pop(page, None)
        self._to_follow.pop(page, None)
        if self._followed is not None and self._followed.page is page:
            self._stop_following()
            self._follow_soon()
        if self._asked is not None and self._asked.page is page:
            self._turns.cancel()
            self._go_on()

    def ask(self, page: OpenPage, what: str, turn: int, state: Mapping[str, str]) -> None:
        """Ask for a page, in place of its own question before; those of other pages are answered first.

        A turn also ends what follows a turn; that of another page begins anew once there is time.
        """
        asked = PageQuestion(page=page, what=what, turn=turn, state=state)
        if what == "turn":
            self._to_follow.pop(page, None)
            self._stop_following()
        self._further.rest()
        if self._asked is None or (self._asked.page is page and not self._waiting):
            self._begin(asked)
            return
        self._waiting[page] = asked
        if self._asked.page is page:  # whose question before is out of date: it is another page's turn
            self._go_on()

    def close(self) -> None:
        """End the processes."""
        self._stop_following()
        self._turns.close()
        self._further.close()

    def _begin(self, asked: PageQuestion) -> None:
        self._asked = asked
        self._turns.ask(asked.what, asked.state)

    def _go_on(self) -> None:
        """Begin the question that has waited longest; where none waits, look further."""
        self._asked = None
        if self._waiting:
            self._begin(self._waiting.pop(next(iter(self._waiting))))
            return
        self._further.go_on()
        self._follow_soon()

    def _stop_following(self) -> None:
        self._followed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._further.cancel()

    def _follow_soon(self) -> None:
        """Look further at the newest turn that was not yet, unless one is under way."""
        if self._followed is None and self._timer is None and self._to_follow:
            self._timer = asyncio.get_running_loop().call_later(FOLLOWS_AFTER_S, self._follow)

    def _follow(self) -> None:
        self._timer = None
        self._followed = next(reversed(self._to_follow.values()), None)
        if self._followed is not None:
            self._further.ask("further", self._followed.state)

    def _tell_turn(self, message: Mapping[str, Any]) -> None:
        asked = self._asked
        if asked is None:
            return
        self._say(asked, message)
        if message["kind"] == "answer":
            self._to_follow.pop(asked.page, None)
            self._to_follow[asked.page] = asked
        if message["kind"] == DONE:
            self._go_on()

    def _tell_further(self, message: Mapping[str, Any]) -> None:
        followed = self._followed
        if followed is None:
            return
        is_done = message["kind"] == DONE
        self._say(followed, {**message, "kind": "complete"} if is_done else message)
        if is_done:
            self._followed = None
            self._to_follow.pop(followed.page, None)
            self._follow_soon()

    def _say(self, asked: PageQuestion, message: Mapping[str, Any]) -> None:
        """Send a message to the page that asked, in order, with the number of its question there."""
        text = orjson.dumps({**message, "turn": asked.turn}).decode()
        page, before = asked.page, asked.page.last

        async def send() -> None:
            if before is not None:
                await asyncio.wait([before])
            await page.send(text)

        page.last = asyncio.get_running_loop().create_task(send())
        page.sending.add(page.last)
        page.last.add_done_callback(lambda task: _forget(page, task))


def _forget(page: OpenPage, task: asyncio.Task[None]) -> None:
    """Take a message that was sent off a page's list; one to a page that has gone is lost."""
    page.sending.discard(task)
    if not task.cancelled():
        task.exception()
