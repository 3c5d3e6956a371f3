"""Before the run: which options of a body the server accepts."""

from __future__ import annotations

from dataclasses import replace

from observe.plan.prompts import OWN, Prompts, Segment
from observe.plan.request_body import BodyShape
from observe.senders.endpoint import PATHS
from observe.server.http_client import ServerClient


async def negotiate(
    client: ServerClient, shape: BodyShape, *, prompts: Prompts
) -> tuple[BodyShape, str | None]:
    """Return the shape without what the server refuses, and its last refusal if nothing helped.

    Sends requests of one token. Raises ServerError on 401, 403, 5xx, or no answer.
    """
    prompt = prompts.render([Segment(OWN, 1 << 62, 16)])
    for attempt in _fallbacks(shape):
        body = attempt.body(prompt, max_tokens=1, model=None, priority=None)
        answer = await client.post(PATHS[shape.api], body)
        client.refuse(PATHS[shape.api], answer)
        if answer.status not in (400, 422):
            return attempt, None
        refusal = f"HTTP {answer.status}: {answer.excerpt()}"
    return shape, refusal


def _fallbacks(shape: BodyShape) -> list[BodyShape]:
    """Return the shape, then ever simpler ones."""
    no_usage = replace(shape, continuous_usage=False)
    return [
        shape,
        no_usage,
        replace(no_usage, min_tokens=False),
        replace(no_usage, ignore_eos=False),
        replace(no_usage, min_tokens=False, ignore_eos=False),
    ]
