"""vLLM's own scheduler with its KV offloading to host memory, and the transfers that it orders, in virtual time.

Runs under a Python that has vLLM. The scheduler, its connector (``OffloadingConnector``) and the tier's manager are
vLLM's, untouched but for the tier's size in blocks. Ours is the worker: two links, and when jobs start and are told of.
README.md has the conventions, which follow v1/kv_offload/cpu/gpu_worker.py and offloading/worker.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.outputs import KVConnectorOutput

from tests.conformance.vllm_engine import Batch, VllmEngine, leads_nowhere, number_of


@dataclass(slots=True, kw_only=True)
class Job:
    """A transfer. ``end_us``: None before it is handed over."""

    number: int
    request: str
    num_blocks: int
    is_load: bool
    end_us: int | None = None
    is_told: bool = False


def connector_of(settings: dict[str, Any]) -> KVTransferConfig:
    """Return the configuration that ``--kv-offloading-size`` becomes; its size is set later, in blocks."""
    return KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={
            "cpu_bytes_to_use": 1 << 30,
            "store_threshold": settings["store_threshold"],
        },
    )


class InOrder(dict[str, None]):
    """Requests that have finished, in their order: vLLM has a set, whose order is another in every process."""

    def add(self, request: str) -> None:
        self[request] = None


@dataclass(slots=True)
class OffloadEngine(VllmEngine):
    """``jobs``: ordered and not told of, in order; ``news``: per step the jobs that its results tell of."""

    free_us: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    jobs: list[Job] = field(default_factory=list)
    news: dict[int, list[Job]] = field(default_factory=dict)
    flushed_us: int = 0

    def __post_init__(self) -> None:
        self.settings = {"store_threshold": 0} | self.settings
        self.settings |= {"kv_transfer_config": connector_of(self.settings)}
        VllmEngine.__post_init__(self)
        self.scheduler.finished_req_ids = InOrder()
        manager = self.scheduler.connector.connector_scheduler.manager
        manager._num_chunks = self.settings["num_cpu_blocks"]
        manager._policy = type(manager._policy)(cache_capacity=self.settings["num_cpu_blocks"])

    # -- the links -------------------------------------------------------------------------------------------

    def hand_over(self, is_load: bool, earliest_us: int) -> None:
        """Hand over what waits in a direction: each job starts when the one before has ended."""
        cost = Fraction(str(self.settings["load_us_per_block" if is_load else "store_us_per_block"]))
        for job in self.jobs:
            if job.is_load == is_load and job.end_us is None:
                job.end_us = max(earliest_us, self.free_us[is_load]) + round(cost * job.num_blocks)
                self.free_us[is_load] = job.end_us

    def tell(self, step: int, by_us: int) -> None:
        """Let a step's results tell of what has ended."""
        told = [
            job for job in self.jobs if job.end_us is not None and job.end_us <= by_us and not job.is_told
        ]
        for job in told:
            job.is_told = True
        self.news[step] = told

    @property
    def next_end_us(self) -> int | None:
        ends = [job.end_us for job in self.jobs if job.end_us is not None and not job.is_told]
        return min(ends) if ends else None

    @property
    def is_async(self) -> bool:
        return bool(self.settings["async_scheduling"])

    # -- a step ----------------------------------------------------------------------------------------------

    def schedule(self, now_us: int) -> Batch:
        """Let the scheduler decide, and take its orders up to what must be done before the step."""
        batch = VllmEngine.schedule(self, now_us)
        self.scheduler.finished_req_ids = InOrder()  # the step has taken them along
        orders = batch.output.kv_connector_metadata
        flushed = set(orders.jobs_to_flush or ())
        ordered = {
            name: [
                Job(
                    number=number,
                    request=job.req_id,
                    num_blocks=len(spec_of(job).block_ids),
                    is_load=name == "loads",
                )
                for number, job in jobs.items()
            ]
            for name, jobs in (("loads", orders.load_jobs), ("stores", orders.store_jobs))
        }
        for name, jobs in ordered.items():
            batch.line[name] = [[number_of(job.request), job.num_blocks] for job in jobs]
        self.jobs += [job for job in ordered["stores"] if job.number in flushed]
        free_us = (
            self.stages_free_us[0] if self.is_async else now_us
        )  # a store reads what the device has written
        self.hand_over(False, max(now_us, free_us))
        ends = [job.end_us for job in self.jobs if job.number in flushed and job.end_us is not None]
        self.flushed_us = max([now_us, *ends])
        if self.is_async:
            self.tell(batch.line["step"], self.flushed_us)
        self.jobs += ordered["loads"] + [job for job in ordered["stores"] if job.number not in flushed]
        batch.line["flushed"] = len(flushed)
        return batch

    def more_results(self, batch: Batch) -> dict[str, Any]:
        """Return what a step's results tell of transfers."""
        told = self.news.pop(batch.line["step"])
        batch.line["reported"] = len(told)
        self.jobs = [job for job in self.jobs if job not in told]
        if not told:
            return {}
        worker = OffloadingWorkerMetadata()
        for job in told:
            worker.mark_completed(job.number)
        loaded = [job.request for job in told if job.is_load]  # a list: in the order in which they ended
        return {
            "kv_connector_output": KVConnectorOutput(finished_recving=loaded, kv_connector_worker_meta=worker)
        }

    # -- the loops -------------------------------------------------------------------------------------------

    def _wait(self, now_us: int, *, for_transfers: bool) -> int | None:
        """Return when something next happens, None when nothing will.

        What is preempted for ever may be loaded for ever, too: then only who arrives can end it.
        """
        times = [] if self.all_added else [self.next_arrival_us]
        if for_transfers and self.next_end_us is not None:
            times.append(self.next_end_us)
        return max(now_us, min(times)) if times else None

    def _run_sync(self) -> None:
        now_us = 0
        while True:
            self.add_arrived(now_us)
            if not self.scheduler.has_unfinished_requests():
                if self.all_added:
                    return
                now_us = max(now_us, self.next_arrival_us)
                continue
            batch = self.schedule(now_us)
            batch.line["exec"] = self.flushed_us
            self.hand_over_loads(self.flushed_us)
            now_us = self.flushed_us + batch.line["dur"]
            self.tell(batch.line["step"], now_us)
            self.update(batch, now_us)
            has_moved = batch.line["reported"] or batch.line["loads"]
            if leads_nowhere(batch, []) and (batch.goes_in_circles or not has_moved):
                then_us = self._wait(now_us, for_transfers=not batch.goes_in_circles)
                if (
                    then_us is None
                    and not batch.goes_in_circles
                    and any(job.end_us is None for job in self.jobs)
                ):
                    continue
                if then_us is None:
                    return
                now_us = then_us

    def hand_over_loads(self, earliest_us: int) -> None:
        self.hand_over(True, earliest_us)

    def _run_with_batch_queue(self, depth: int) -> None:
        now_us = 0
        in_flight: list[Batch] = []  # oldest first
        while True:
            self.add_arrived(now_us)
            if not in_flight and not self.scheduler.has_requests():
                if self.all_added:
                    return
                now_us = max(now_us, self.next_arrival_us)
                continue
            if self.scheduler.has_requests():
                batch = self.schedule(now_us)
                if self._nothing_comes_of(batch, in_flight):
                    if batch.goes_in_circles:
                        self._launch(batch, now_us)
                    for useless in [*in_flight, batch]:
                        now_us = max(now_us, useless.line.get("exec_end", now_us))
                        self.update(useless, now_us)
                    in_flight = []
                    then_us = self._wait(now_us, for_transfers=not batch.goes_in_circles)
                    if then_us is None:
                        return
                    now_us = then_us
                    continue
                self._launch(batch, now_us)
                in_flight.append(batch)
                if len(in_flight) < depth and (batch.has_tokens or self.scheduler.has_requests()):
                    continue
            oldest = in_flight.pop(0)
            now_us = max(now_us, oldest.line["exec_end"])
            self.update(oldest, now_us)

    def _nothing_comes_of(self, batch: Batch, in_flight: list[Batch]) -> bool:
        """Return whether nothing comes of what is under way before a transfer ends, or somebody arrives."""
        has_news = any(self.news[each.line["step"]] for each in [*in_flight, batch])
        has_orders = bool(batch.line["loads"] or batch.line["stores"])
        return leads_nowhere(batch, in_flight) and (batch.goes_in_circles or not (has_news or has_orders))

    def _launch(self, batch: Batch, now_us: int) -> None:
        """Put a batch behind those on the device and what it waits for; the loads that it orders come behind it."""
        start_us = max(now_us, self.stages_free_us[0], self.flushed_us)
        batch.line["exec_start"], batch.line["exec_end"] = start_us, start_us + batch.line["dur"]
        if batch.has_tokens:
            self.stages_free_us[0] = batch.line["exec_end"]
        self.hand_over_loads(batch.line["exec_end"])


def spec_of(job: Any) -> Any:  # noqa: ANN401 - vLLM's
    """Return the GPU's side of a transfer."""
    return job.dst_spec if hasattr(job.dst_spec, "group_sizes") else job.src_spec
