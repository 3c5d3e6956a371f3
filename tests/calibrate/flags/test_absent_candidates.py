"""Which candidates of a fit are absent for want of a model or a GPU, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.findings import Options
from calibrate.flags.known_model_and_gpu import absent_candidates, known_of
from tests.calibrate.known_servers import GUESS, workload
from traces import ServerInfo, Trace

SHIPS = "Qwen/Qwen3-14B"
AUTO = Options(latency_model="auto")


def of(**values: str | int) -> Trace:
    """Return a trace whose header says this of its server."""
    return workload(5, rate=1, seed=1).with_header(server=ServerInfo().learn("/v1/models", **values))


def test_neither_known_is_one_note_that_says_what_is_missing_and_what_helps() -> None:
    (note,) = absent_candidates(workload(5, rate=1, seed=1), GUESS, AUTO)
    assert "physics; attention, floor, tiles: the model is not known; the GPU is not known. " in note
    assert note.count("--gpu H100 --model-config CONFIG.json") == 1


def test_a_model_whose_name_ships_is_named_in_what_to_add() -> None:
    for trace in (of(model=SHIPS), of(model="chat", model_root=SHIPS)):
        (note,) = absent_candidates(trace, GUESS, AUTO)
        assert (
            f"model {SHIPS} (from /v1/models) ships with vtwin; the GPU is not known. Add --gpu H100 " in note
        )


def test_a_header_that_knows_both_leaves_no_candidate_out() -> None:
    for named in ({"model": SHIPS}, {"model": "chat", "model_root": SHIPS}):
        trace = of(gpu="H100", **named)
        assert absent_candidates(trace, GUESS, AUTO) == ()
        shape = known_of(trace, GUESS, AUTO).shape
        assert shape is not None
        assert shape.name == SHIPS


def test_a_served_name_that_does_not_ship_is_one_note_too() -> None:
    (note,) = absent_candidates(of(model="chat", gpu="H100"), GUESS, AUTO)
    assert "floor, tiles: model chat (from /v1/models) does not ship with vtwin; the GPU is H100. Add" in note
    assert len(note) < 500  # not the list of all models
    assert "Add --gpu H100 --model-config CONFIG.json" in note


def test_a_reason_that_no_name_cures_proposes_none() -> None:
    (note,) = absent_candidates(of(), GUESS, replace(AUTO, gpu="L40S", model_config=SHIPS))
    assert "choose from: attention, floor, tiles: no measured products of L40S ship" in note
    assert "--gpu" not in note


@pytest.mark.parametrize("model", ["blackbox", "extended", None])
def test_a_user_who_chose_the_model_of_a_step_is_told_nothing(model: str | None) -> None:
    assert absent_candidates(of(), GUESS, replace(AUTO, latency_model=model)) == ()


def test_an_emulated_server_is_not_asked_for_its_gpu() -> None:
    server = ServerInfo().learn("/metrics vtwin:scheduler_config_info", max_num_seqs=8)
    (note,) = absent_candidates(workload(5, rate=1, seed=1).with_header(server=server), GUESS, AUTO)
    assert note.endswith("the model is not known; the GPU is not known")
