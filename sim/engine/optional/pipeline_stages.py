"""Pipeline stages: a batch passes one after the other, and each works on another batch of those in flight.

Stage i takes a batch up once it has done with the batch before and stage i - 1 with this one. A token is sampled at the
end of the last stage. Sync, a request whose token is in flight has nothing to compute. Async, it may be scheduled
again at once; then the first stage waits for the token, which the last one sends it. So a version lets a request
decode only every ``pipeline_parallel_size`` steps, or only once its token is back (``sim/versions.py``:
``async_pipeline``). A preempted request whose results are still in flight is passed over until they are in.
"""

from __future__ import annotations

from sim.engine.dtypes import SAMPLES
from sim.engine.state import State
from sim.engine.step_time.step_duration import stage_us
from sim.engine.step_time.step_sums import sums_of
from sim.engine.waiting import skip_head
from sim.jit.compile import part, phase


@phase
def is_out_of_turn(s: State, request: int) -> bool:
    """Return whether a running request has to sit the step in hand out, though it has something to compute."""
    settings, totals = s.engine[0].settings, s.engine[0].totals
    if settings.waits_for_output and s.requests[request].num_output_placeholders > 0:
        return True
    return settings.decode_stagger > 0 and totals.num_steps - 1 < s.next_decode_step[request]


@phase
def skips_for_stale_output(s: State, request: int) -> bool:
    """Pass over the head of the queue while results from before its preemption are in flight; return whether it was."""
    if s.requests[request].num_stale_output_tokens == 0:
        return False
    skip_head(s, request)
    return True


@phase
def first_stage_starts_us(s: State, batch: int) -> int:
    """Return when the first stage takes a batch up: once it is free, and the tokens that it is to read are there."""
    start_us = max(s.engine[0].clock.now_us, s.stage_free_us[0])
    for i in range(s.batches[batch].num_entries):
        entry = s.entries[batch, i]
        if (
            entry.computed + entry.num_tokens > s.requests[entry.request].num_tokens
        ):  # one of them is in flight
            start_us = max(start_us, s.token_us[entry.request])
    return start_us


@phase
def pass_through_stages(s: State, batch: int, start_us: int, duration_us: int) -> int:
    """Pass a batch that takes ``duration_us`` in all through the stages; return when the last one has done."""
    b, last = s.batches[batch], len(s.stage_free_us) - 1
    if b.num_entries == 0:
        return max(start_us, s.stage_free_us[last])
    each_us = stage_us(s, sums_of(s, batch), duration_us)
    end_us = start_us
    for i in range(last + 1):
        takes_us = each_us if i < last else duration_us - last * each_us
        end_us = max(end_us, s.stage_free_us[i]) + takes_us
        s.stage_free_us[i] = end_us
    return end_us


@part
def note_samples(s: State, batch: int) -> None:
    """Note when the tokens of a launched batch will be there, and from which step on their requests may go on."""
    b, stagger = s.batches[batch], s.engine[0].settings.decode_stagger
    for i in range(b.num_entries):
        entry = s.entries[batch, i]
        if entry.kind & SAMPLES:
            s.token_us[entry.request] = b.exec_end_us
            s.next_decode_step[entry.request] = b.step + stagger


@phase
def launch_in_stages(s: State, batch: int, start_us: int, duration_us: int) -> None:
    """Launch a batch that the first stage takes up at ``start_us``."""
    s.batches[batch].exec_end_us = pass_through_stages(s, batch, start_us, duration_us)
    note_samples(s, batch)
