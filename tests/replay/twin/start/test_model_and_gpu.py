"""What is said of a server whose model or GPU is not known, and with which options."""

from __future__ import annotations

import pytest

from replay.twin.start.from_serve import start_from_server, twin_text
from replay.twin.start.model_and_gpu import is_emulated, missing_note, model_of, what_helps
from traces import ServerInfo

SHIPS = "Qwen/Qwen3-14B"


def server(**values: str | int) -> ServerInfo:
    return ServerInfo().learn("/v1/models", **values)


def test_a_model_that_ships_is_named_with_the_exact_options() -> None:
    note = missing_note(server(model=SHIPS))
    assert note is not None
    assert note.startswith(
        f"model {SHIPS} (from /v1/models) ships with vtwin; the GPU is not known. Add --gpu H100 "
    )
    assert f"Add --gpu H100 --model-config {SHIPS} (your GPU for H100; and --tp N where N GPUs share" in note
    assert "to vtwin calibrate and vtwin config from-serve" in note


def test_a_name_that_its_operator_made_up_asks_for_the_config_json() -> None:
    note = missing_note(server(model="chat", tensor_parallel=2))
    assert note is not None
    assert "model chat (from /v1/models) does not ship with vtwin; the GPU is not known" in note
    assert (
        "Add --gpu H100 --model-config CONFIG.json (your GPU for H100; the model's config.json, or the name of"
        in note
    )
    assert "--tp" not in note


def test_what_the_model_was_loaded_from_tells_it_where_the_served_name_does_not() -> None:
    aliased = server(model="chat", model_root=SHIPS)
    assert model_of(aliased) == SHIPS
    note = missing_note(aliased)
    assert note is not None
    assert note.startswith(f"model {SHIPS} (from /v1/models) ships with vtwin")
    text, _ = twin_text(start_from_server(aliased, name="monday"), gpu="H100")
    assert f'model_config: "{SHIPS}"' in text


@pytest.mark.parametrize("path", ["/models/Qwen3-14B", "/models/qwen3-14b"])
def test_a_path_may_be_a_model_that_ships_and_is_not_taken_for_it(path: str) -> None:
    for named in (server(model=path), server(model="chat", model_root=path)):
        note = missing_note(named)
        assert note is not None
        assert f"model {named.model} (from /v1/models) may be {SHIPS}, which ships with vtwin" in note
        assert f"--model-config {SHIPS}" in note
        assert model_of(named) == named.model


def test_nothing_is_said_where_both_are_known_or_there_is_no_gpu() -> None:
    assert missing_note(server(model=SHIPS, gpu="H100")) is None
    emulated = server(model="vtwin").learn("/metrics vtwin:scheduler_config_info", max_num_seqs=8)
    assert is_emulated(emulated)
    assert missing_note(emulated) is None
    assert not is_emulated(server(model="vtwin"))


def test_a_gpu_that_vtwin_does_not_know_is_told() -> None:
    note = missing_note(server(model=SHIPS, gpu="H1000"))
    assert note is not None
    assert "the GPU is H1000, which vtwin does not know (nearest: H100, " in note
    assert "B300" in note
    assert "--gpu H1000" not in note


def test_what_is_given_already_is_not_asked_for() -> None:
    said = what_helps(server(model="chat"), gpu="B200", model_config="mine/config.json")
    assert said.startswith("Add --gpu B200 --model-config mine/config.json (and --tp N where")
    assert missing_note(ServerInfo()) is not None
    assert str(missing_note(ServerInfo())).startswith(
        "the model is not known; the GPU is not known. Add --gpu H100"
    )
