"""What a gateway learns from a request's headers."""

from __future__ import annotations

import pytest

from tests.observe.servers import observed, serving
from tests.observe.workloads import workload
from traces.priorities import PRIORITY_OF_CLASS


@pytest.mark.parametrize("plain", [True, False])
async def test_a_gateway_hears_of_tenant_class_and_target(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.senders.choose_sender.is_direct_http", lambda _: plain)
    columns = {"tenant_id": ["a\r\nb", None], "slo_class": ["batch", "mine"], "slo_target_us": [1500, None]}
    async with serving() as server:
        await observed(server, workload([0, 30_000], **columns), class_priority=PRIORITY_OF_CLASS)  # type: ignore[arg-type]
        first, second = server.requests
    assert first.headers["x-gateway-inference-fairness-id"] == "a b"
    assert first.headers["x-gateway-inference-objective"] == "batch"
    assert first.headers["x-slo-ttft-ms"] == "2"
    assert "x-gateway-inference-fairness-id" not in second.headers
    assert first.body["priority"] == 5
    assert "priority" not in second.body
