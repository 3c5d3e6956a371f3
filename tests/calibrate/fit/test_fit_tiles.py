"""A server whose products jump where their tiles end: the fit that knows them takes them, and jumps there, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.fit.model_selection import PREFERRED, TERMS, TILES
from calibrate.fit.objective.known_server import KnownServer, known_physics, known_server, known_tiles
from calibrate.fit.result import BEYOND, BEYOND_WITH_TILES, WITHIN, pace_of
from replay import TwinConfig, load_config
from sim import Extended, LatencyModel
from tests.calibrate.known_servers import GUESS
from tests.sim.step_batches import batch_of
from tests.studies.validation.tiles import ENGINE, TRUTHS, fitted
from tests.studies.validation.tiles import TILES as FACTORS
from traces.header import ServerInfo


def jump(latency: LatencyModel) -> float:
    """Return how much longer a lone prefill of 1,030 tokens takes than one of 1,020, a share."""
    below, above = latency.durations_us(batch_of([[(1020, 0, False)], [(1030, 0, False)]]))
    return float(above / below - 1)


def test_a_server_with_tiles_is_fitted_with_them() -> None:
    server = TwinConfig(engine=ENGINE, latency=TRUTHS["tiles"])
    found = fitted(server, seed=1, knows_tiles=True, num=150)
    assert [each.name for each in found.candidates if each.chosen] == [TILES]
    assert jump(server.latency) > 0.15
    assert jump(found.config.latency) == pytest.approx(jump(server.latency), abs=0.04)
    without = replace(found.config.latency, tiles=())  # type: ignore[call-arg]  # it is the extended model
    assert jump(without) < 0.03
    pace = pace_of(found)
    assert pace.within >= WITHIN
    assert pace.beyond == max(BEYOND_WITH_TILES, pace.within) < BEYOND


def test_tiles_come_first_and_vary_nothing_more() -> None:
    assert PREFERRED[0] == TILES
    assert TERMS[TILES] == TERMS["attention, floor"]


def test_a_twin_s_own_tiles_stand_before_those_of_its_model() -> None:
    own = ((1, 1.0), (512, 1.0), (513, 1.5))
    twin = TwinConfig(engine=ENGINE, latency=Extended(beta0=1, floor=2, tiles=own))
    assert known_tiles(KnownServer(), twin).factors == own
    known = known_server(ServerInfo(model="Qwen/Qwen3-14B", gpu="H100"))
    assert known_tiles(known, GUESS).factors == FACTORS


def test_without_model_or_gpu_the_reason_names_what_is_missing() -> None:
    assert "model and GPU not known" in known_tiles(known_server(ServerInfo()), GUESS).reason
    assert "GPU not known" in known_tiles(known_server(ServerInfo(model="Qwen/Qwen3-14B")), GUESS).reason


def test_physics_of_a_twin_s_file_has_the_file_s_own_numbers(tmp_path: Path) -> None:
    """A GPU that is named with another rate, and two stages: a name alone would say neither."""
    plain = "hardware: {gpu: H100}"
    own = "hardware: {gpu: H100, tflops_16bit: 500, pp: 2}"
    found = []
    for text in (plain, own):
        path = tmp_path / "twin.yaml"
        path.write_text(
            f"engine: {{num_gpu_blocks: 1000, max_model_len: 4096}}\n{text}\n"
            "latency: {model: physics, model_config: Qwen/Qwen3-8B}\n"
        )
        twin = replace(load_config(path), latency=GUESS.latency)
        physics, missing = known_physics(known_server(ServerInfo(), twin), twin)
        assert missing == ""
        assert physics is not None
        found.append(physics.peak)
    assert (found[0].pp, found[1].pp) == (1, 2)
    assert found[1].matmul > 1.5 * found[0].matmul
