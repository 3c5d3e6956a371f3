"""Single HTTP requests to the server, before and after the run."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from observe.senders.aiohttp_sender import describe, open_session, read_some
from observe.senders.endpoint import Endpoint
from observe.senders.exchange import one_line
from traces import ServerError, cut

_TIMEOUT_S = 30.0
"""For any single request before or after the run: a busy server answers late."""

_LONGEST_ANSWER = 64 << 20
_QUOTED_FROM = 1 << 16
"""The most bytes of an answer that are read, and that are examined for a quote."""
_REDIRECTS = range(300, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """An HTTP answer read whole. ``hide``: takes secrets out of what is quoted of it."""

    status: int
    body: bytes
    location: str = ""
    hide: Callable[[str], str] = field(default=str, repr=False)

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object, empty if it is none."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    def excerpt(self) -> str:
        """Return the body's beginning on one line."""
        whole = self.hide(
            self.body[:_QUOTED_FROM].decode("utf-8", "replace")
        )  # before it is cut: no half of a key
        return one_line(cut(" ".join(whole.split())))


class ServerClient:
    """Sends a server single requests, over its own session; reads ``most_bytes`` of an answer."""

    def __init__(
        self, endpoint: Endpoint, *, total_s: float = _TIMEOUT_S, most_bytes: int = _LONGEST_ANSWER
    ) -> None:
        self._endpoint = endpoint
        self._most_bytes = most_bytes
        self._session = open_session(endpoint, total_s=total_s)

    def hide(self, text: str) -> str:
        """Return ``text`` without the endpoint's secrets."""
        return self._endpoint.redact(text)

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def get(self, path: str) -> WholeAnswer:
        """Return the answer to a GET. Raises ServerError where there is no server to answer."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: bytes) -> WholeAnswer:
        """Return the answer to a POST of a body of the path's type. Raises ServerError where there is no server."""
        return await self._ask("POST", path, body)

    async def try_get(self, path: str) -> WholeAnswer | None:
        """Return a successful answer, or None if the server has none."""
        try:
            answer = await self.get(path)
        except ServerError:
            return None
        return answer if answer.status == 200 else None

    async def _ask(self, method: str, path: str, body: bytes | None) -> WholeAnswer:
        headers = {**self._endpoint.all_headers(path), "x-request-id": "vtwin-question"}
        url = self._endpoint.url(path)
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,  # the key is this server's alone
            ) as response:
                return WholeAnswer(
                    status=response.status,
                    body=await read_some(response.content, self._most_bytes),
                    location=one_line(response.headers.get("Location", "")),
                    hide=self._endpoint.redact,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as fault:
            raise self._refused(path, describe(fault)) from fault

    def refuse(self, path: str, answer: WholeAnswer) -> None:
        """Raise ServerError for an answer that makes a run pointless: a redirect, 401, 403, or 5xx."""
        if answer.status in _REDIRECTS:
            where = f" to {answer.location}" if answer.location else ""
            raise self._refused(
                path, f"HTTP {answer.status}: redirects{where}, expected --url of the server itself"
            )
        hint = (
            ", expected a key that it accepts: --api-key, --api-key-env, --api-key-file or OPENAI_API_KEY"
            if answer.status in (401, 403)
            else ""
        )
        if hint or answer.status >= 500:
            said = answer.excerpt()
            raise self._refused(path, f"HTTP {answer.status}{': ' + said if said else ''}{hint}")

    def need_model_list(self, path: str, answer: WholeAnswer) -> None:
        """Raise ServerError for an address that lists no models: most often the URL is wrong."""
        if answer.status != 200:
            hint = ", expected --url of an OpenAI-compatible server, or --model NAME for one that lists no models"
            raise self._refused(path, f"HTTP {answer.status}{hint}")

    def _refused(self, path: str, what: str) -> ServerError:
        return ServerError(self._endpoint.redact(f"{self._endpoint.url(path)}: {what}"))
