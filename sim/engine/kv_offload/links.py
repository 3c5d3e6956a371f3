"""Transfers between the GPU and host memory: two links, one a direction, each with its jobs in order.

A job starts when it is handed over and its link is free, and n blocks take n times as long as one, rounded half to
even. Loads are handed over when the step that orders them begins, stores when the next step is scheduled, so that they
do not delay tokens. What a step must wait for is handed over before it. A step's end tells of what has ended by then.

With async scheduling a step is launched while the one before is on the device. Stores read what that one writes, and
loads come behind the step that orders them, as both wait for what was launched before; a step tells of what had ended
when it was launched (vllm 0.32.0 distributed/kv_transfer/kv_connector/v1/offloading/worker.py,
v1/kv_offload/cpu/gpu_worker.py:transfer_async, v1/worker/gpu/kv_connector.py:post_forward).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_offload.shared_store import note_load_end, note_store_end
from sim.engine.records.offload_records import LOAD, STORE
from sim.engine.state import State
from sim.engine.step_time.step_duration import half_even
from sim.engine.waiting import earlier
from sim.jit.compile import part, phase


@phase
def new_job(s: State, direction: int, request: int, num_blocks: int, first_chunk: int) -> int:
    """Return a new transfer, noted among those that the step in hand orders; it stands on no link yet."""
    kv = s.engine[0].kv_offload
    job = kv.first_free_job
    if job == 0:
        kv.num_jobs += 1
        job = kv.num_jobs
    else:
        kv.first_free_job = s.kv_jobs[job].next
    j = s.kv_jobs[job]
    j.is_load, j.is_departed = direction == LOAD, 0
    j.request, j.num_blocks, j.first_chunk = request, num_blocks, first_chunk
    j.ordered_us, j.end_us, j.flush_step = s.engine[0].clock.now_us, NEVER, NEVER
    j.next = j.next_new = 0
    if kv.first_new == 0:
        kv.first_new = job
    else:
        s.kv_jobs[kv.last_new].next_new = job
    kv.last_new = job
    if direction == LOAD:
        kv.num_new_loads += 1
        s.engine[0].totals.num_kv_loads += 1
        s.engine[0].totals.num_kv_reloads += num_blocks
    else:
        kv.num_new_stores += 1
        s.engine[0].totals.num_kv_stores += 1
        s.engine[0].totals.num_kv_offloads += num_blocks
    return job


@part
def put_on_link(s: State, direction: int, job: int) -> None:
    """Put a transfer behind all others of its direction; it is handed over later."""
    link = s.kv_links[direction]
    if link.last_job == 0:
        link.first_job = job
    else:
        s.kv_jobs[link.last_job].next = job
    link.last_job = job
    if link.first_waiting == 0:
        link.first_waiting = job


@part
def start(s: State, direction: int, job: int, now_us: int) -> None:
    """Hand a transfer over."""
    link, j = s.kv_links[direction], s.kv_jobs[job]
    j.end_us = max(now_us, link.free_us) + half_even(link.block_cost * j.num_blocks)
    link.free_us = j.end_us
    link.last_handed_over = job
    if s.engine[0].settings.has_shared_store:
        if direction == STORE:
            note_store_end(s, j.first_chunk, j.end_us)
        else:
            note_load_end(s, j.request, j.end_us)


@phase
def hand_over(s: State, direction: int, now_us: int) -> None:
    """Hand all transfers of a direction over that are not yet."""
    link = s.kv_links[direction]
    while link.first_waiting != 0:
        start(s, direction, link.first_waiting, now_us)
        link.first_waiting = s.kv_jobs[link.first_waiting].next


@phase
def hand_over_at_once(s: State, job: int, now_us: int) -> None:
    """Put a store behind those that were handed over, before those that wait, and hand it over."""
    link, j = s.kv_links[STORE], s.kv_jobs[job]
    j.next = link.first_waiting
    if link.last_handed_over == 0:
        link.first_job = job
    else:
        s.kv_jobs[link.last_handed_over].next = job
    if j.next == 0:
        link.last_job = job
    start(s, STORE, job, now_us)


@part
def written_us(s: State) -> int:
    """Return when the device has written all that was launched so far: now, where nothing is in flight."""
    return max(s.engine[0].clock.now_us, s.engine[0].clock.device_free_us)


@part
def first_untold(s: State, direction: int) -> int:
    """Return the first transfer on a link that no batch tells of, 0 where there is none."""
    link = s.kv_links[direction]
    job = link.first_job
    for _ in range(link.num_told - link.num_taken):
        job = s.kv_jobs[job].next
    return job


@phase
def tell(s: State, batch: int, by_us: int) -> None:
    """Make a batch's results tell of all transfers that have ended by a time."""
    for direction in (LOAD, STORE):
        link, job = s.kv_links[direction], first_untold(s, direction)
        while job != 0 and s.kv_jobs[job].end_us != NEVER and s.kv_jobs[job].end_us <= by_us:
            link.num_told += 1
            job = s.kv_jobs[job].next
    s.batches[batch].num_told_loads = s.kv_links[LOAD].num_told
    s.batches[batch].num_told_stores = s.kv_links[STORE].num_told


@part
def tells_of(s: State, batch: int, direction: int) -> bool:
    """Return whether the results of a batch in flight tell of a transfer in a direction."""
    b = s.batches[batch]
    num_told = b.num_told_loads if direction == LOAD else b.num_told_stores
    return num_told > s.kv_links[direction].num_taken


@part
def tells(s: State, batch: int) -> bool:
    """Return whether the results of a batch in flight tell of any transfer."""
    return tells_of(s, batch, LOAD) or tells_of(s, batch, STORE)


@part
def has_jobs(s: State) -> bool:
    """Return whether any transfer is ordered or under way, or has ended and the engine does not know it yet."""
    return s.kv_links[LOAD].first_job != 0 or s.kv_links[STORE].first_job != 0


@phase
def take_ended(s: State, direction: int, batch: int) -> int:
    """Take the first transfer off a link if a batch tells of its end; return it, 0 where there is none."""
    link = s.kv_links[direction]
    job = link.first_job
    if not tells_of(s, batch, direction):
        return 0
    link.num_taken += 1
    link.first_job = s.kv_jobs[job].next
    if link.first_job == 0:
        link.last_job = 0
    if link.last_handed_over == job:
        link.last_handed_over = 0
    return job


@part
def drop_job(s: State, job: int) -> None:
    """Free a transfer's row."""
    kv = s.engine[0].kv_offload
    s.kv_jobs[job].next = kv.first_free_job
    kv.first_free_job = job


@part
def end_of_first(s: State, direction: int) -> int:
    """Return when the first transfer on a link ends that no batch tells of, NEVER where none is under way."""
    job = first_untold(s, direction)
    return NEVER if job == 0 else s.kv_jobs[job].end_us


@phase
def next_end_us(s: State) -> int:
    """Return when the next transfer under way ends, NEVER where there is none."""
    return earlier(end_of_first(s, LOAD), end_of_first(s, STORE))


@part
def only_waits_to_store(s: State) -> bool:
    """Return whether stores are ordered and no transfer is under way: the next step hands them over."""
    return s.kv_links[STORE].first_waiting != 0 and next_end_us(s) == NEVER


# -- steps that wait ------------------------------------------------------------------------------------------


@part
def flush(s: State, job: int, step: int) -> None:
    """Make a step wait for a store that was handed over."""
    kv, j = s.engine[0].kv_offload, s.kv_jobs[job]
    if j.flush_step != step:
        j.flush_step = step
        kv.num_flushed += 1
        kv.flushed_us = max(kv.flushed_us, j.end_us)


@phase
def flush_request(s: State, request: int, step: int) -> None:
    """Make a step wait for all stores of a request."""
    job = s.kv_links[STORE].first_job
    while job != 0:
        if s.kv_jobs[job].request == request and not s.kv_jobs[job].is_departed:
            flush(s, job, step)
        job = s.kv_jobs[job].next
