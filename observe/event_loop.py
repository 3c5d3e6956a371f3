"""The event loop of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_on_fastest_loop(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine on uvloop where there is one, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(start())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(start())
