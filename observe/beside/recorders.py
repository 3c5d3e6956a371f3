"""What works beside the load: probes, the server's gauges over time, its log of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.beside.probes import Prober, ended
from observe.beside.scrape import USUAL_S, Scraper
from observe.server.engine_log import EngineLog
from observe.server.http_client import ServerClient
from observe.server.prometheus_text import Sample
from observe.server.server_metrics import speaks_vllm
from observe.settings import Settings

if TYPE_CHECKING:
    from observe.plan.send_plan import SendPlan
    from traces import Header


class Recorders:
    """The recorders of a run, as far as the settings request them. Made within a running loop.

    ``metrics``: the server's, None if it has none: a vLLM's gauges are recorded unless the settings say not to.
    Raises ConfigError for a log that does not exist.
    """

    def __init__(
        self,
        settings: Settings,
        client: ServerClient,
        *,
        plan: SendPlan,
        metrics: Sequence[Sample] | None = None,
    ) -> None:
        self._log = None if settings.engine_log is None else EngineLog(settings.engine_log)
        self._scraper = None
        if settings.scrape_s is not None:
            self._scraper = Scraper(client, period_s=settings.scrape_s)
        elif settings.scrapes_vllm and speaks_vllm(list(metrics or [])):
            self._scraper = Scraper(client, period_s=USUAL_S, is_asked_for=False)
        self._prober = None
        if settings.probe_rate is not None:
            self._prober = Prober(settings, prompts=plan.prompts, shape=plan.shape)
        self._working: list[asyncio.Task[None]] = []

    def start(self, start_ns: int) -> None:
        """Begin; times count from ``start_ns``."""
        for each in (self._scraper, self._prober):
            if each is not None:
                self._working.append(asyncio.create_task(each.work(start_ns)))

    async def stop(self) -> None:
        """End; may be called again."""
        while self._working:
            await ended(self._working.pop())
        if self._prober is not None:
            await self._prober.close()

    def write(self, stem: Path) -> tuple[str, ...]:
        """Write files beside the trace at ``stem``; return remarks. Raises TraceError where that fails."""
        if self._prober is not None:
            self._prober.write(stem)
        remarks = (
            None if self._scraper is None else self._scraper.write(stem),
            None if self._log is None else self._log.write_steps(stem),
        )
        return tuple(remark for remark in remarks if remark is not None)

    def told(self, header: Header) -> Header:
        """Return ``header`` with what the probes saw."""
        return header if self._prober is None else replace(header, probes=self._prober.info())
