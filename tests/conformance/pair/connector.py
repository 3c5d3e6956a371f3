"""A KV connector whose scheduler half follows NixlConnector's in pull mode, and which moves nothing.

Runs under a Python that has vLLM, which loads it by the name of this module. The rules are those of
``vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py`` of 0.32.0: a request whose prompt was computed
elsewhere asks for all of it but what the engine has cached, asynchronously and once; one whose answer is computed
elsewhere keeps its blocks when it has finished by length.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus


class Nothing(KVConnectorMetadata):
    """What the workers would be told."""


class PullConnector(KVConnectorBase_V1, SupportsHMA):
    """``pulls``: (request id, blocks that its KV takes) of whoever asked since the driver last looked."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.block_size = vllm_config.cache_config.block_size
        self.pulls: list[tuple[str, int]] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        params = request.kv_transfer_params or {}
        count = request.num_prompt_tokens - num_computed_tokens
        return (count, True) if params.get("do_remote_prefill") and count > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return
        params["do_remote_prefill"] = False
        if num_external_tokens > 0:
            self.pulls.append((request.request_id, -(-num_external_tokens // self.block_size)))

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return Nothing()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        params = request.kv_transfer_params or {}
        has_ended = request.status == RequestStatus.FINISHED_LENGTH_CAPPED
        is_kept = bool(params.get("do_remote_decode")) and has_ended and any(map(len, block_ids))
        return is_kept, None

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def start_load_kv(self, *args: Any, **options: Any) -> None:
        """Move nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing."""

    def save_kv_layer(self, *args: Any, **options: Any) -> None:
        """Save nothing."""

    def wait_for_save(self) -> None:
        """Wait for nothing."""
