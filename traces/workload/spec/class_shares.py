"""``--shares``: how much of the load is of each service class, tenant or client, in place of the specification's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from traces.errors import ConfigError
from traces.workload.model import Client, OpenLoop, Workload

KINDS: Final = {"service classes": "slo_class", "tenants": "tenant_id", "clients": "id"}
"""What a name may be of, in the order in which it is looked up, and the field of a client."""
LEAST, MOST = 1e-6, 1e6


def share_groups(workload: Workload) -> dict[str, dict[str, float]]:
    """Return the rate fractions of all groups, by kind and name; {} where a share would change nothing.

    So it is in a closed loop, and where clients have rates of their own.
    """
    if _of_own_rates(workload) is not None:
        return {}
    groups: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for kind, field in KINDS.items():
        for client in workload.clients:
            if (name := getattr(client, field)) is not None:
                groups[kind][name] = groups[kind].get(name, 0.0) + client.rate_fraction
    return groups


def with_shares(workload: Workload, text: str) -> Workload:
    """Return the workload with these rate fractions of groups, ``critical=0.7,batch=0.3``.

    Within a group clients keep their proportions; groups that are not named stay as they are. Raises ConfigError, one
    line that begins with ``--shares``.
    """
    shares = parse_shares(text)
    if (why := _of_own_rates(workload)) is not None:
        raise ConfigError(f"--shares: got {text}, expected none: {why} ({workload.source})")
    groups = share_groups(workload)
    kind = next((each for each in KINDS if shares.keys() <= groups[each].keys()), None)
    if kind is None:
        known = "; ".join(f"{kind} {', '.join(names)}" for kind, names in groups.items() if names)
        raise ConfigError(
            f"--shares: got {', '.join(shares)}, expected names of one kind: {known} ({workload.source})"
        )
    factors = {name: share / groups[kind][name] for name, share in shares.items()}
    return replace(workload, clients=tuple(_scaled(each, factors, KINDS[kind]) for each in workload.clients))


def parse_shares(text: str) -> dict[str, float]:
    """Return the shares by name. Raises ConfigError."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.strip().rpartition("=")
        if not sign or not name:
            raise ConfigError(f"--shares: got {part.strip()!r}, expected NAME=SHARE (critical=0.7,batch=0.3)")
        if name in shares:
            raise ConfigError(f"--shares {name}: got it twice, expected each name once")
        try:
            shares[name] = float(value)
        except ValueError:
            shares[name] = math.nan
        if not LEAST <= shares[name] <= MOST:
            raise ConfigError(f"--shares {name}: got {value!r}, expected a number from {LEAST:g} to {MOST:g}")
    return shares


def _scaled(client: Client, factors: Mapping[str, float], field: str) -> Client:
    factor = factors.get(getattr(client, field))
    return client if factor is None else replace(client, rate_fraction=client.rate_fraction * factor)


def _of_own_rates(workload: Workload) -> str | None:
    """Return why rate fractions decide nothing of a workload, None where they do."""
    if not isinstance(workload.load, OpenLoop):
        return "the specification's loop is closed"
    clients = workload.clients
    if any(window.trace_rate_per_s is not None for client in clients for window in client.windows):
        return "the specification's windows have a trace_rate"
    if any(client.arrival.rate_per_s is not None for client in clients):
        return "the specification's clients have a rate of their own (arrival.scale)"
    return None
