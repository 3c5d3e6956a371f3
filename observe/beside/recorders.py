"""What works beside the load: probes, the server's gauges over time, its log of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.beside.scrape import (
    USUAL_S,
    GaugeRow,
    Scraper,
    remark_on_endpoint,
    remark_on_server,
    scraper_of,
    write_rows,
)
from observe.server.http_client import ServerClient
from observe.server.prometheus_text import Sample
from observe.server.server_metrics import speaks_vllm
from observe.settings import Settings
from traces import companion_file, stem_of

if TYPE_CHECKING:
    from observe.beside.probes import Prober
    from observe.plan.send_plan import SendPlan
    from observe.server.engine_log import EngineLog
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
        self._log: EngineLog | None = None
        if settings.engine_log is not None:
            from observe.server.engine_log import EngineLog

            self._log = EngineLog(settings.engine_log)
        self._is_asked_for = settings.scrape_s is not None
        period_s = settings.scrape_s or USUAL_S
        speaks = settings.scrapes_vllm and speaks_vllm(list(metrics or []))
        self._own = Scraper(client, period_s=period_s) if self._is_asked_for or speaks else None
        urls = settings.scrape_urls
        self._others = {
            url: scraper_of(url, globs=settings.scrape_keep, period_s=period_s, is_alone=len(urls) == 1)
            for url in urls
        }
        self._prober: Prober | None = None
        if settings.probe_rate is not None:
            from observe.beside.probes import Prober

            self._prober = Prober(settings, prompts=plan.prompts, shape=plan.shape)
        self._working: list[asyncio.Task[None]] = []

    def start(self, start_ns: int) -> None:
        """Begin; times count from ``start_ns``."""
        for each in (self._own, *self._others.values(), self._prober):
            if each is not None:
                self._working.append(asyncio.create_task(each.work(start_ns)))

    async def stop(self) -> None:
        """End; may be called again."""
        while self._working:
            task = self._working.pop()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for each in (*self._others.values(), self._prober):
            if each is not None:
                await each.close()

    def write(self, stem: Path) -> tuple[str, ...]:
        """Write files beside the trace at ``stem``; return remarks. Raises TraceError where that fails."""
        if self._prober is not None:
            self._prober.write(stem)
        if rows := self._rows():
            write_rows(stem, rows)
        file = companion_file(stem_of(stem), ".gauges.csv").name
        remarks = (
            self._own and remark_on_server(self._own, file, is_asked_for=self._is_asked_for),
            *(remark_on_endpoint(scraper, url) for url, scraper in self._others.items()),
            None if self._log is None else self._log.write_steps(stem),
        )
        return tuple(remark for remark in remarks if remark)

    def _rows(self) -> list[GaugeRow]:
        return [row for each in (self._own, *self._others.values()) if each is not None for row in each.rows]

    def told(self, header: Header, *, duration_us: float, output_tokens: int) -> Header:
        """Return ``header`` with what the probes saw, and the energy of a run that brought ``output_tokens``."""
        period_s = max((each.period_s for each in self._others.values()), default=USUAL_S)
        power = None
        if self._others:
            from observe.beside.power import power_of

            power = power_of(
                self._rows(), duration_us=duration_us, period_s=period_s, output_tokens=output_tokens
            )
        return replace(header, power=power, probes=None if self._prober is None else self._prober.info())
