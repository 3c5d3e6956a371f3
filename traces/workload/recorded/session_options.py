"""The options that say when the sessions of a recorded trace start: ``observe`` and ``replay`` share them.

Nothing heavy is imported: a command's ``--help`` needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from traces.errors import ConfigError
from traces.strict.option_table import option_table
from traces.units import parse_seconds
from traces.workload.recorded.session_priority import SessionPriority

if TYPE_CHECKING:
    from traces.workload.recorded.session_starts import SessionStarts
    from traces.workload.recorded.warm_start import WarmStart


MOST_AT_ONCE = 1_000_000


@option_table
class SessionOptions:
    """Sessions of a recorded trace."""

    sessions: Annotated[
        str | None,
        typer.Option(
            "--sessions",
            metavar="N[,N…]",
            help="Number of sessions at once: the next one starts when all of a session is answered. Several numbers "
            "are simulated side by side (2,4,8).",
        ),
    ] = None
    session_rate: Annotated[
        float | None, typer.Option(metavar="R", help="Sessions started per second, at random by the seed.")
    ] = None
    think_time_scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="Multiply the pauses between rounds by this: 0 leaves none."),
    ] = None
    max_think_time: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=parse_seconds,
            help="Cut pauses between rounds to this (60s, 5m), scaled ones, too.",
        ),
    ] = None

    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|FROM:TO",
            help="Begin sessions midway, with a warm cache: at this share of their requests (0.5), or one drawn for "
            "each (0.25:0.75). The prompt before is sent once, for one token, and not counted. With --sessions only "
            "the first N.",
        ),
    ] = None
    session_priority: Annotated[
        SessionPriority | None,
        typer.Option(
            metavar="[first-started|running]",
            help="Priorities sent to a server with --scheduling-policy priority: first-started, the order in which "
            "sessions start; running, requests that continue a session before those that begin one.",
        ),
    ] = None

    def numbers(self) -> list[int]:
        """Return the numbers of sessions at once, none where they start as recorded. Raises ConfigError."""
        if self.sessions is None:
            return []
        found = []
        for text in self.sessions.split(","):
            number = int(text) if text.strip().isdecimal() else 0
            if not 1 <= number <= MOST_AT_ONCE:
                raise ConfigError(
                    f"--sessions: got {text.strip()!r}, expected a whole number >= 1 (2, or 2,4,8)"
                )
            found.append(number)
        if len(set(found)) < len(found):
            raise ConfigError(f"--sessions: got {self.sessions}, expected each number once")
        return found

    def starts_of_each(self, *, seed: int) -> list[tuple[str, SessionStarts]]:
        """Return the options for each number of sessions, with the number. Raises ConfigError on invalid ones."""
        numbers = self.numbers()
        if len(numbers) < 2:
            return [("", self.starts(seed=seed))]
        return [(str(each), replace(self, sessions=str(each)).starts(seed=seed)) for each in numbers]

    def starts(self, *, seed: int) -> SessionStarts:
        """Return the options, checked. Raises ConfigError on invalid ones."""
        from traces.workload.recorded.session_starts import SessionStarts

        if self.sessions is not None and self.session_rate is not None:
            raise ConfigError("--sessions: cannot be combined with --session-rate, expected one of them")
        if self.session_rate is not None and not 1e-9 <= self.session_rate <= 1e6:
            raise ConfigError(f"--session-rate: got {self.session_rate:g}, expected a number > 0")
        if self.think_time_scale is not None and not 0 <= self.think_time_scale <= 1e6:
            raise ConfigError(f"--think-time-scale: got {self.think_time_scale:g}, expected a number >= 0")
        if self.max_think_time is not None and not 0 <= self.max_think_time <= 1e9:
            raise ConfigError(f"--max-think-time: got {self.max_think_time:g}, expected seconds >= 0")
        if self.warm_start is not None and self.session_rate is not None:
            raise ConfigError(
                "--warm-start: cannot be combined with --session-rate: its sessions begin one by one"
            )
        numbers = self.numbers()
        if len(numbers) > 1:
            raise ConfigError(f"--sessions: got {self.sessions}, expected one number")
        return SessionStarts(
            at_once=numbers[0] if numbers else None,
            rate_per_s=self.session_rate,
            think_scale=1.0 if self.think_time_scale is None else self.think_time_scale,
            most_think_us=None if self.max_think_time is None else round(self.max_think_time * 1e6),
            warm_start=_warm_start(self.warm_start),
            priority=self.session_priority,
            seed=seed,
        )


def _warm_start(text: str | None) -> WarmStart | None:
    """Return the shares of ``--warm-start``. Raises ConfigError on anything but a share or two in order."""
    if text is None:
        return None
    from traces.workload.recorded.warm_start import WarmStart

    low, colon, high = text.partition(":")
    try:
        shares = (float(low), float(high if colon else low))
    except ValueError:
        shares = (-1.0, -1.0)
    if not 0 <= shares[0] <= shares[1] < 1:
        raise ConfigError(
            f"--warm-start: got {text!r}, expected a share below 1, or two in order (0.25:0.75)"
        )
    return WarmStart(low=shares[0], high=shares[1])
