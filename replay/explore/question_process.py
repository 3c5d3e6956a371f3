"""A process that computes: the newest question takes the place of the one under way, between its parts or by force."""

from __future__ import annotations

import asyncio
import ctypes
import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from lazy_dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from replay.explore.asked_run import AskedRun
    from replay.explore.state_answers import Message

READY, COMPILING, BEGUN, DONE = "ready", "compiling", "begun", "done"
"""What a process says of itself, and of a question."""
NOTHING = "nothing"
"""The question that has no answer: what is under way is given up."""
PATIENCE_S = 0.4
"""A process that has not turned to a newer question after so long is ended, and another one begun."""
DEADLINE_S = 60.0
"""A question that takes longer is given up."""
TOO_LONG = f"time: got a question that takes more than {DEADLINE_S:g} s, expected fewer requests or instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a process begins with: the run that the page begins with, and a file of prices."""

    asked: AskedRun
    prices: Path | None = None


def compute(pipe: Connection, begun: Begun) -> None:
    """Answer questions of a pipe until it ends: ``{"id": …, "what": …, "state": …}``, each answered by messages.

    The last message of a question has the kind ``done``. A newer question ends the one under way.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal all get it; the server ends this process
    _end_with_parent()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        answers = _Answering(pipe, begun)
        asked = pipe.recv_bytes()
        while True:
            asked = _newest(pipe, asked)
            answers.answer(orjson.loads(asked))
            asked = pipe.recv_bytes()


def _end_with_parent() -> None:
    """Let the system end this process where its parent ends, however: one that rests would not hear of it."""
    if CAN_REST:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _newest(pipe: Connection, asked: bytes) -> bytes:
    while pipe.poll():
        asked = pipe.recv_bytes()
    return asked


CAN_REST = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
"""Of ``prctl`` (man 2 PR_SET_PDEATHSIG)."""
ENDED = "the process that computes has ended: got more than it can hold, expected a smaller load"


class _Answering:
    """One process' answers."""

    def __init__(self, pipe: Connection, begun: Begun) -> None:
        from replay.console.ready import TAKES
        from replay.explore.state_answers import StateAnswers
        from sim import when_compiled

        self.pipe = pipe
        self.answers = StateAnswers(begun.asked, begun.prices)
        sys.stderr = io.StringIO()  # notes stand in the answers
        self._at = 0
        when_compiled(lambda variant: self._say({"id": self._at, "kind": COMPILING, "text": TAKES[variant]}))
        self._say({"id": 0, "kind": READY})

    def answer(self, question: Mapping[str, Any]) -> None:
        """Send the messages that answer a question, until a newer one is there."""
        self._at = question["id"]
        self._say({"id": self._at, "kind": BEGUN})
        for message in self._messages(question):
            if self.pipe.poll():
                return
            if message is not None:
                self._say({"id": question["id"], **message})
        self._say({"id": question["id"], "kind": DONE})

    def _say(self, message: Mapping[str, object]) -> None:
        self.pipe.send_bytes(orjson.dumps(message))

    def _messages(self, question: Mapping[str, Any]) -> Iterator[Message | None]:
        from replay.explore.knobs import at_fault
        from traces import ConfigError, TraceError

        try:
            yield from self.answers.to(question["what"], question["state"])
        except (ConfigError, TraceError) as error:
            yield {"kind": "error", "text": str(error), "knob": at_fault(str(error))}
        except MemoryError:
            yield {"kind": "error", "text": "memory: got a load that does not fit, expected a smaller one"}
        except Exception as error:
            yield {"kind": "error", "text": _line_of(error, question)}


def _line_of(error: Exception, question: Mapping[str, Any]) -> str:
    """Return the line for a fault of vtwin itself, as a command has it: its traceback is kept in a file."""
    from traces.console.faults import line_and_code

    words = ["explore", "--state", urlencode(question["state"])]
    return line_and_code(error, words, own_way=lambda _word, _known: None)[0]


class QuestionProcess:
    """A process of ``compute`` and its questions, one at a time, the newest in place of the one before.

    ``tell`` gets each message of the newest question. The process begins with ``begin``, or with the first question.
    """

    def __init__(self, begun: Begun, tell: Callable[[Mapping[str, Any]], None]) -> None:
        """Prepare; nothing runs yet."""
        self._begun, self._tell = begun, tell
        self._newest: tuple[int, str, object] = (0, NOTHING, {})
        self._is_answered = True
        self._has_begun = False  # the process with the newest question
        self._is_resting = False
        self._timer: asyncio.TimerHandle | None = None
        self._running: _Running | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a question is not answered yet."""
        return not self._is_answered

    def begin(self) -> None:
        """Begin the process, if there is none."""
        if self._running is None:
            self._running = _Running(self._begun)
            self._listen()

    def ask(self, what: str, state: object) -> int:
        """Ask, in place of what is under way; return the question's number."""
        self._newest = (self._newest[0] + 1, what, state)
        self._is_answered = self._has_begun = False
        self.begin()
        self._send()
        return self._newest[0]

    def cancel(self) -> None:
        """Give up what is under way."""
        if self.is_busy:
            self.ask(NOTHING, {})

    def rest(self) -> None:
        """Let the process rest, whatever it does: what is asked meanwhile waits."""
        if self._running is None or self._is_resting or not CAN_REST:
            return
        self._is_resting = True
        self._wait(None)
        self._running.deaf()  # it may rest in the middle of a message
        self._running.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process go on."""
        if self._running is None or not self._is_resting:
            return
        self._is_resting = False
        self._running.signal(signal.SIGCONT)
        self._listen()
        self._expect()

    def close(self) -> None:
        """End the process."""
        self._wait(None)
        if self._running is not None:
            self._running.end()
        self._running, self._is_resting = None, False

    def _listen(self) -> None:
        if self._running is not None:
            self._running.listen(self._hear)

    def _send(self) -> None:
        number, what, state = self._newest
        if self._running is not None:
            self._running.pipe.send_bytes(orjson.dumps({"id": number, "what": what, "state": state}))
        self._expect()

    def _expect(self) -> None:
        """Wait for a question that is under way: for its beginning, or for its end."""
        if self._running is None or self._running.compiles or self._is_resting or self._is_answered:
            return
        if self._has_begun:
            self._wait(DEADLINE_S, lambda: self._give_up(TOO_LONG))
        elif self._running.is_ready:
            self._wait(PATIENCE_S, self._begin_anew)

    def _begin_anew(self) -> None:
        self.close()
        self.begin()
        self._send()

    def _wait(self, seconds: float | None, then: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, then)

    def _hear(self) -> None:
        """Take what the process has said."""
        try:
            while self._running is not None and not self._is_resting and self._running.pipe.poll():
                self._take(orjson.loads(self._running.pipe.recv_bytes()))
        except (EOFError, OSError):
            self._give_up(ENDED)

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if self._running is not None:
            self._running.is_ready |= kind == READY
            self._running.compiles = kind == COMPILING
            if kind == COMPILING:
                self._wait(None)  # however long that takes: it is once
        if message["id"] != self._newest[0] or kind == READY:
            return
        if kind == BEGUN:
            self._has_begun = True
            self._expect()
            return
        if kind == DONE:
            self._wait(None)
            self._is_answered = True
        self._tell(message)

    def _give_up(self, why: str) -> None:
        """Answer the newest question with why it has no answer, and end the process: the next one begins another."""
        number, is_busy = self._newest[0], self.is_busy
        self._is_answered = True
        self.close()
        for message in ({"id": number, "kind": "error", "text": why}, {"id": number, "kind": DONE}):
            if is_busy:
                self._tell(message)


class _Running:
    """A process that runs, and the pipe to it. ``is_ready``: it has said so; ``compiles``: the last that it said."""

    def __init__(self, begun: Begun) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=compute, args=(theirs, begun), daemon=True)
        # held back from the process' very start, as it imports first; this process gets it a moment later
        resource_tracker.ensure_running()  # which takes off what is held when it starts
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        theirs.close()
        self.is_ready = self.compiles = False

    def listen(self, hear: Callable[[], None]) -> None:
        """Call a function when the process has said something."""
        asyncio.get_running_loop().add_reader(self.pipe.fileno(), hear)

    def deaf(self) -> None:
        """Call none any more."""
        asyncio.get_running_loop().remove_reader(self.pipe.fileno())

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):  # it has just ended, which its pipe tells
                os.kill(self.process.pid, number)

    def end(self) -> None:
        """End the process, and close the pipe."""
        self.deaf()
        self.process.kill()
        self.process.join()
        self.pipe.close()
