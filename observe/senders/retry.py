"""Which failures are retried, and after what pause: only if retries were requested."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from observe.senders.exchange import Exchange

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


def is_retryable(exchange: Exchange) -> bool:
    """Return whether the failure may pass: no connection, an answer that never began, 429, or 5xx.

    An answer that had begun to stream, or that took too long, is not requested again: both are outcomes.
    """
    failure, status = exchange.failure, exchange.http_status
    if failure is None or failure.status != "error":
        return False
    if status is None:
        return exchange.first_byte_ns is None
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def pause_s(exchange: Exchange, num_attempts: int, *, most_s: float) -> float:
    """Return the wait after the last of ``num_attempts``: Retry-After, else half a second, doubled each time.

    Retry-After is followed up to ``most_s``.
    """
    if exchange.retry_after_s is not None:
        return min(exchange.retry_after_s, most_s)
    doubled: float = _FIRST_PAUSE_S * 2 ** min(num_attempts - 1, 10)
    return min(doubled, _LONGEST_PAUSE_S, most_s)


def retry_after_s(value: str) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3); None of anything else."""
    text = value.strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
