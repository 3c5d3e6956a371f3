"""Several engines in a trace's header as a twin's cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.twin.config_read import load_config
from replay.twin.start.from_serve import start_from_server, twin_text
from replay.twin.start.several_engines import refuse_several
from traces import ConfigError, ServerInfo

KNOWN = {"version": "0.20.0", "num_gpu_blocks": 30_000, "block_size": 16, "max_model_len": 8192}


def text_of(server: ServerInfo) -> tuple[str, tuple[str, ...]]:
    return twin_text(start_from_server(server, name="monday"))


def test_one_engine_is_no_cluster() -> None:
    assert "cluster" not in text_of(ServerInfo(**KNOWN))[0]  # type: ignore[arg-type]


def test_ranks_of_one_server_are_instances_with_the_blocks_of_one_rank(tmp_path: Path) -> None:
    text, notes = text_of(ServerInfo(data_parallel=2, **KNOWN))  # type: ignore[arg-type]
    (tmp_path / "twin.yaml").write_text(text)
    twin = load_config(tmp_path / "twin.yaml")
    assert twin.cluster is not None
    assert twin.cluster.pools[0].instances == 2
    assert twin.engine.num_gpu_blocks == 30_000
    assert any("data_parallel 2: cluster.instances 2" in note for note in notes)
    assert not any("not in the engine" in note and "data_parallel" in note for note in notes)


def test_ranks_of_a_model_with_experts_step_together() -> None:
    server = ServerInfo(data_parallel=2, enable_expert_parallel=True, **KNOWN)  # type: ignore[arg-type]
    assert "  lockstep: true\n" in text_of(server)[0]


def test_servers_behind_a_router_are_instances_of_a_router_that_is_not_known() -> None:
    text, notes = text_of(ServerInfo(num_instances=3, **KNOWN))  # type: ignore[arg-type]
    assert "cluster:\n  instances: 3\n" in text
    assert any("round-robin is assumed" in note for note in notes)


def test_a_fit_is_of_one_engine() -> None:
    refuse_several(ServerInfo(), name="monday")
    with pytest.raises(
        ConfigError, match=r"--fit: got monday, .* 3 engines behind it, .*cluster.instances: 3"
    ):
        refuse_several(ServerInfo(num_instances=3), name="monday")
