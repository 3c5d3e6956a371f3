"""Whether an engine has anything to do, and what it waits for where it has not."""

from __future__ import annotations

from sim.engine.deadlines import next_deadline_us
from sim.engine.dtypes import NEVER
from sim.engine.kv_offload.links import has_jobs, next_end_us
from sim.engine.kv_transfer.delivery import has_news, next_kv_event_us
from sim.engine.optional.added_time import next_grammar_us
from sim.engine.state import State
from sim.engine.waiting import earlier, next_queued_us
from sim.jit.compile import part


@part
def has_unfinished(s: State) -> bool:
    """Return whether any request runs or waits."""
    queues = s.engine[0].queues
    return queues.num_running + queues.num_waiting + s.engine[0].kv_transfers.num_holding > 0


@part
def watches_links(s: State) -> bool:
    """Return whether the end of a transfer to or from host memory wakes the engine.

    vLLM takes steps until all have ended, also when no request is left; the recordings of sync engines do not.
    """
    settings = s.engine[0].settings
    if settings.has_kv_offloading == 0 or s.engine[0].queues.is_blocked == 2:
        return False  # what is preempted for ever may be loaded for ever, too
    return settings.async_scheduling == 1 or has_unfinished(s)


@part
def hears_news(s: State) -> bool:
    """Return whether a step now would hear of a transfer of KV that has ended."""
    if watches_links(s):
        end_us = next_end_us(s)
        return end_us != NEVER and end_us <= s.engine[0].clock.now_us
    return s.engine[0].settings.has_kv_transfers == 1 and has_news(s)


@part
def has_requests(s: State) -> bool:
    """Return whether a batch is to be scheduled behind one in flight, even if nothing can be computed in it."""
    if has_unfinished(s) or s.engine[0].queues.has_finished_ids != 0:
        return True
    if s.engine[0].settings.has_kv_offloading and has_jobs(s):
        return True
    return s.engine[0].kv_transfers.num_delayed > 0


@part
def has_work(s: State) -> bool:
    """Return whether an engine with nothing in flight takes another step."""
    settings = s.engine[0].settings
    is_kept_going = settings.has_kv_offloading == 1 and settings.async_scheduling == 1
    return has_requests(s) if is_kept_going else has_unfinished(s)


@part
def next_event_us(s: State) -> int:
    """Return when a request joins, a client gives up, a grammar comes or a step would hear of a transfer; or NEVER."""
    event_us = earlier(next_queued_us(s), next_deadline_us(s))
    event_us = earlier(event_us, next_grammar_us(s))
    if s.engine[0].settings.has_kv_transfers:
        event_us = earlier(event_us, next_kv_event_us(s))
    return earlier(event_us, next_end_us(s)) if watches_links(s) else event_us
