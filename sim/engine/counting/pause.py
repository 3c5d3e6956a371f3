"""What an engine tells of itself at a pause, though blocks were only counted: those in use, and each request's tokens.

All of it follows from where the run stands; only the requests that run are looked at.
"""

from __future__ import annotations

from sim.engine.counting.blocks_in_use import blocks_in_use
from sim.engine.dtypes import NEVER
from sim.engine.run import add_arrivals
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def note_counted(s: State, ends_us: int, pause_us: int) -> None:
    """Note what the engine is like while the step that has just been scheduled runs, if a pause falls into it."""
    if ends_us >= pause_us:
        seen = s.engine[0].last_schedule
        seen.num_running = s.engine[0].queues.num_running
        seen.num_free_blocks = len(s.blocks) - 1 - blocks_in_use(s)


@part
def give_tokens(s: State, request: int) -> None:
    """Enter the tokens that a running request has been given by now."""
    totals, r = s.engine[0].totals, s.requests[request]
    if r.first_token_us != NEVER:
        r.num_tokens = r.num_prompt_tokens + totals.num_emissions - r.first_emission
        r.last_token_us = max(s.engine[0].clock.now_us, r.first_token_us)
        r.last_emission = totals.num_emissions - 1


@phase
def settle(s: State, until_us: int) -> None:
    """Bring all that is read of an engine up to the time at which it stands; those due before a pause wait."""
    clock, queues, c = s.engine[0].clock, s.engine[0].queues, s.engine[0].counting
    for i in range(c.num_ends):
        give_tokens(s, s.running[i])
    request = c.first_of_lasts
    while request != NEVER:
        give_tokens(s, request)
        request = s.requests[request].previous_waiting
    queues.num_free_blocks = len(s.blocks) - 1 - blocks_in_use(s)
    if clock.now_us >= until_us:
        add_arrivals(s, until_us - 1)
