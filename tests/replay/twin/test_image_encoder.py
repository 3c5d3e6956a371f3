"""What a twin's model says of its images: how long they take, whether a step computes a part of one, what is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from replay import TwinConfig, simulate_trace
from replay.model import find_gpu
from replay.model.hf_config import read_model_config
from replay.model.towers.tower_kernels import on_gpus
from replay.model.towers.tower_times import tower_times
from replay.trace.trace_notes import trace_notes
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.keys.overlay import Setting
from replay.twin.start.from_serve import start_from_serve, twin_text
from traces import ConfigError, Header, Trace, make_trace

TWIN = """\
hardware: {gpu: H100, tp: TP}
engine: {KEYS}
latency: {model: LATENCY, model_config: MODEL}
"""
QWEN, GEMMA = "Qwen/Qwen3-VL-8B-Instruct", "google/gemma-3-4b-it"
BLACKBOX = "blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9000, beta1: 1, beta2: 1}"
TIMES = ("encoder_step_us", "encoder_token_us", "encoder_token_pair_us")


def twin(
    folder: Path, keys: str = "", *, model: str = QWEN, latency: str = "roofline", tp: str = "1"
) -> TwinConfig:
    """Return a twin of a model on H100s."""
    path = folder / "twin.yaml"
    text = TWIN.replace("KEYS", keys).replace("LATENCY", latency).replace("MODEL", model).replace("TP", tp)
    path.write_text(text)
    return load_config(path)


def times_in(config: TwinConfig) -> tuple[float, ...]:
    return tuple(getattr(config.engine, name) for name in TIMES)


def towers_times(model: str, *, tp: int = 1, is_data: bool = False) -> tuple[float, float, float]:
    vision = read_model_config(model).vision
    assert vision is not None
    times = tower_times(on_gpus(vision, find_gpu("H100"), tp=tp, is_data=is_data))
    return times.step_us, times.token_us, times.pair_us


def workload(**columns: object) -> Trace:
    """Return three prompts of 3,000 tokens, far apart."""
    usual: dict[str, object] = {
        "request_id": [f"r{i}" for i in range(3)],
        "arrival_time_us": [10**7 * i for i in range(3)],
        "input_tokens": [3000] * 3,
        "output_tokens": [4] * 3,
    }
    return make_trace(Header(mode="generated"), usual | columns)


def times_of(trace: Trace, config: TwinConfig, column: str) -> np.ndarray:
    """Return a column of times of the simulated trace."""
    return simulate_trace(trace, config)[0].cells(column).values


SEEN = workload(images=["0:1024:a 1500:256:b", "0:1024:c", None])


@pytest.mark.parametrize("latency", ["roofline", "physics", "auto"])
@pytest.mark.parametrize("tp", [1, 2])
def test_a_latency_model_that_knows_model_and_gpu_has_its_towers_time(
    latency: str, tp: int, tmp_path: Path
) -> None:
    config = twin(tmp_path, latency=latency, tp=str(tp))
    assert times_in(config) == towers_times(QWEN, tp=tp)
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert load_config(again) == config


def test_images_lengthen_the_steps_that_encode_them_and_nothing_else(tmp_path: Path) -> None:
    config = twin(tmp_path)
    free = replace(config, engine=replace(config.engine, **dict.fromkeys(TIMES, 0.0)))
    outcomes = [times_of(SEEN, each, "content_first_time_us") for each in (config, free)]
    step, token, pair = times_in(config)
    first, second = step + token * 1280 + pair * (1024**2 + 256**2), step + token * 1024 + pair * 1024**2
    assert (outcomes[0] - outcomes[1]).tolist() == [round(first), round(second), 0]


def test_who_shows_no_image_is_told_nothing_and_takes_as_long(tmp_path: Path) -> None:
    config, text = twin(tmp_path), workload()
    silent = replace(config, engine=replace(config.engine, **dict.fromkeys(TIMES, 0.0)))
    told = [trace_notes(text, each) for each in (config, silent)]
    ends = [times_of(text, each, "last_token_time_us") for each in (config, silent)]
    assert told == [(), ()]
    assert np.array_equal(*ends)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("encoder_token_us: 3", (0.0, 3.0, 0.0)),
        ("encoder_token_us: 0", (0.0, 0.0, 0.0)),
        ("language_model_only: true", (0.0, 0.0, 0.0)),
        ("batching: orca", (0.0, 0.0, 0.0)),
    ],
)
def test_a_files_own_time_per_token_stands_for_all_and_text_takes_none(
    keys: str, expected: tuple[float, ...], tmp_path: Path
) -> None:
    assert times_in(twin(tmp_path, keys)) == expected


def test_of_the_others_each_that_is_written_stands_for_itself(tmp_path: Path) -> None:
    assert times_in(twin(tmp_path, "encoder_step_us: 9000")) == (9000.0, *towers_times(QWEN)[1:])


def test_coefficients_say_nothing_of_images_and_that_is_told(tmp_path: Path) -> None:
    config = twin(tmp_path, latency=BLACKBOX)
    assert times_in(config) == (0.0, 0.0, 0.0)
    (said,) = trace_notes(SEEN, config)
    assert said.startswith("image tokens count as prompt tokens (input_tokens); no encoder's time is added")
    assert said.endswith(
        f"roofline, physics and profiled have the time of {QWEN}'s vision tower, with the GPU named)"
    )


def test_the_time_that_images_take_is_told_where_it_follows_from_the_model(tmp_path: Path) -> None:
    config = twin(tmp_path)
    (said,) = trace_notes(SEEN, config)
    assert said.startswith(
        f"images: the vision tower of {QWEN} takes 1,294 µs of a step that encodes any, 7.596 per"
    )
    assert "computed, not measured" in said
    assert trace_notes(SEEN, twin(tmp_path, "encoder_token_us: 3")) == ()


def test_what_is_not_known_of_images_without_a_place_and_of_sounds_is_told(tmp_path: Path) -> None:
    unplaced = workload(image_tokens=[900] * 3, audio_tokens=[70, None, None])
    _, places, sounds = trace_notes(unplaced, twin(tmp_path))
    assert places.startswith("image, audio tokens: where each begins and ends is not known (images)")
    assert sounds == "audio tokens: their encoder is not known; a token takes as long as an image's"


def test_a_tower_of_an_unknown_kind_is_named_before_a_run(tmp_path: Path) -> None:
    text = read_model_config("mistralai/Mistral-7B-v0.1")
    assert text.vision is None
    (tmp_path / "config.json").write_text(
        '{"model_type": "eyes", "vision_config": {"hidden_size": 8}, "text_config": {"model_type": "mistral", '
        '"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 4, "num_attention_heads": 32, '
        '"vocab_size": 32000}}'
    )
    config = twin(tmp_path, model=str(tmp_path / "config.json"))
    assert times_in(config) == (0.0, 0.0, 0.0)
    assert [note for note in config.notes if "vision_config of model_type 'eyes' is no vision tower" in note]
    assert [note for note in trace_notes(SEEN, config) if "no encoder's time is added" in note]


# -- tensor parallelism -------------------------------------------------------------------------------------------


def test_in_data_mode_gpus_share_images_out(tmp_path: Path) -> None:
    config = twin(tmp_path, tp="4, mm_encoder_tp_mode: data")
    assert times_in(config) == towers_times(QWEN, tp=1)
    assert config.engine.encoder_data_parallel_size == 4
    gemma = twin(tmp_path, model=GEMMA, tp="4, mm_encoder_tp_mode: data")
    assert (times_in(gemma), gemma.engine.encoder_data_parallel_size) == (towers_times(GEMMA, tp=4), 1)


def test_another_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match='mm_encoder_tp_mode: got "pipeline", expected one of weights, data'
    ):
        twin(tmp_path, tp="4, mm_encoder_tp_mode: pipeline")


def test_from_serve_takes_the_mode(tmp_path: Path) -> None:
    text, _ = twin_text(start_from_serve(f"vllm serve {QWEN} -tp 4 --mm-encoder-tp-mode data"), gpu="H100")
    assert "  mm_encoder_tp_mode: data\n" in text
    (tmp_path / "twin.yaml").write_text(text)
    assert load_config(tmp_path / "twin.yaml").engine.encoder_data_parallel_size == 4


# -- images that are computed whole -------------------------------------------------------------------------------


def test_a_model_whose_images_see_themselves_in_both_directions_computes_them_whole(tmp_path: Path) -> None:
    assert twin(tmp_path, model=GEMMA).engine.disable_chunked_mm_input
    assert twin(tmp_path, model=GEMMA, latency=BLACKBOX).engine.disable_chunked_mm_input
    assert not twin(tmp_path, "disable_chunked_mm_input: false", model=GEMMA).engine.disable_chunked_mm_input
    assert not twin(tmp_path, "language_model_only: true", model=GEMMA).engine.disable_chunked_mm_input
    assert not twin(tmp_path).engine.disable_chunked_mm_input


@pytest.mark.parametrize("flag", ["", " --no-disable-chunked-mm-input"])
@pytest.mark.parametrize("gpu", [None, "H100"])
def test_from_serve_writes_it_as_vllm_forces_it(flag: str, gpu: str | None) -> None:
    text, notes = twin_text(start_from_serve(f"vllm serve {GEMMA}{flag}"), gpu=gpu)
    assert "  disable_chunked_mm_input: true\n" in text
    assert [note for note in notes if note.startswith("disable_chunked_mm_input: true, as vLLM forces it")]


def test_from_serve_leaves_it_to_whoever_shows_no_image_or_needs_no_force() -> None:
    for command in (f"vllm serve {GEMMA} --language-model-only", f"vllm serve {QWEN}"):
        text, notes = twin_text(start_from_serve(command), gpu="H100")
        assert "disable_chunked_mm_input" not in text + "".join(notes)
    text, notes = twin_text(start_from_serve(f"vllm serve {GEMMA} --disable-chunked-mm-input"), gpu=None)
    assert "  disable_chunked_mm_input: true\n" in text
    assert not [note for note in notes if "forces" in note]


@pytest.mark.parametrize(
    ("base", "is_answered"),
    [
        ({"tp": "4"}, True),
        ({"tp": "1"}, False),
        ({"tp": "4", "model": GEMMA}, False),
        ({"tp": "4", "latency": BLACKBOX}, True),  # whole on every GPU, it leaves room for fewer blocks
        ({"tp": "4", "keys": "encoder_token_us: 3"}, True),
    ],
)
def test_a_mode_that_changes_nothing_is_told(base: dict[str, str], is_answered: bool, tmp_path: Path) -> None:
    twin(tmp_path, **base)
    asked = load_config(tmp_path / "twin.yaml", settings=[Setting("hardware.mm_encoder_tp_mode", "data")])
    assert (asked.unanswered == ()) is is_answered
    assert asked.unanswered_keys == (() if is_answered else ("hardware.mm_encoder_tp_mode",))
