"""Before the run: which options of a body the server accepts."""

from __future__ import annotations

from dataclasses import replace

from observe.plan.prompts import OWN, Prompts, Segment
from observe.plan.request_body import COMPLETION_LIMIT, BodyShape
from observe.senders.request_kinds import KINDS
from observe.server.http_client import ServerClient


async def negotiate(
    client: ServerClient, shape: BodyShape, *, prompts: Prompts
) -> tuple[BodyShape, str | None]:
    """Return the shape without what the server refuses, and its last refusal if nothing helped.

    A refusal that names ``max_completion_tokens`` is answered with that name.

    Sends requests of one token. Raises ServerError on 401, 403, 5xx, or no answer.
    """
    prompt = prompts.render([Segment(OWN, 1 << 62, 16)])
    attempts = _fallbacks(shape)
    while attempts:
        attempt = attempts.pop(0)
        body = attempt.body(prompt, max_tokens=1, model=None, priority=None)
        answer = await client.post(KINDS[shape.api].path, body)
        client.refuse(KINDS[shape.api].path, answer)
        if answer.status not in (400, 422):
            return attempt, None
        refusal = f"HTTP {answer.status}: {answer.excerpt()}"
        if COMPLETION_LIMIT in refusal and attempt.limit_name != COMPLETION_LIMIT:
            shape = replace(shape, limit_name=COMPLETION_LIMIT)
            attempts = [replace(attempt, limit_name=COMPLETION_LIMIT), *_fallbacks(shape)]
    return shape, refusal


def _fallbacks(shape: BodyShape) -> list[BodyShape]:
    """Return the shape, then ever simpler ones."""
    if not KINDS[shape.api].generates:
        return [shape]
    no_usage = replace(shape, continuous_usage=False)
    return [
        shape,
        no_usage,
        replace(no_usage, min_tokens=False),
        replace(no_usage, ignore_eos=False),
        replace(no_usage, min_tokens=False, ignore_eos=False),
    ]
