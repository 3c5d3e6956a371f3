"""The input of a cluster's run."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.cluster.client_plans import ClientPlan
from sim.requests import Int64s, Requests

if TYPE_CHECKING:
    from sim.cluster.fleet import RequestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWork:
    """Requests, and what decisions may know of them; columns of int64, -1 where absent.

    ``session``, ``tenant``, ``adapter``: dense numbers from 0; ``tenants`` names the tenants. ``slo_priority``: higher
    matters more, below 0 may be shed (``sim.cluster.slo_classes``). ``slo_target_us``: of the first token.
    ``clients`` None: every request arrives at its ``arrival_us``.
    """

    requests: Requests
    session: Int64s | None = None
    tenant: Int64s | None = None
    tenants: Sequence[str] = ()
    adapter: Int64s | None = None
    slo_priority: Int64s | None = None
    slo_target_us: Int64s | None = None
    clients: ClientPlan | None = None

    @property
    def waits_for_first_tokens(self) -> bool:
        """Whether first tokens are heard whatever the policy: where requests have adapters."""
        return self.adapter is not None

    def table(self) -> RequestTable:
        """Return the columns that decisions look at."""
        from sim.cluster.fleet import request_table

        return request_table(
            self.requests,
            session=self.session,
            tenant=self.tenant,
            adapter=self.adapter,
            slo_priority=self.slo_priority,
            slo_target_us=self.slo_target_us,
        )
