"""Recorders besides the requests': the server's gauges over time and its log of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from observe.server.engine_log import EngineLog
from observe.server.http_client import ServerClient
from observe.server.prometheus_text import Sample
from observe.server.scrape import USUAL_S, Scraper, stop
from observe.server.server_metrics import speaks_vllm
from observe.settings import Settings


class ServerRecorders:
    """The recorders of a run, as far as the settings request them.

    ``metrics``: the server's, None if it has none: a vLLM's gauges are recorded unless the settings say not to.
    Raises ConfigError for a log that does not exist.
    """

    def __init__(
        self, settings: Settings, client: ServerClient, *, metrics: Sequence[Sample] | None = None
    ) -> None:
        self._log = None if settings.engine_log is None else EngineLog(settings.engine_log)
        self._scraper = None
        if settings.scrape_s is not None:
            self._scraper = Scraper(client, period_s=settings.scrape_s)
        elif settings.scrapes_vllm and speaks_vllm(list(metrics or [])):
            self._scraper = Scraper(client, period_s=USUAL_S, is_asked_for=False)
        self._scraping: asyncio.Task[None] | None = None

    def start(self, start_ns: int) -> None:
        """Begin; times count from ``start_ns``."""
        if self._scraper is not None:
            self._scraping = asyncio.create_task(self._scraper.work(start_ns))

    async def stop(self) -> None:
        """End; may be called again."""
        scraping, self._scraping = self._scraping, None
        await stop(scraping)

    def write(self, stem: Path) -> tuple[str, ...]:
        """Write files beside the trace at ``stem``; return remarks. Raises TraceError where that fails."""
        remarks = (
            None if self._scraper is None else self._scraper.write(stem),
            None if self._log is None else self._log.write_steps(stem),
        )
        return tuple(remark for remark in remarks if remark is not None)
