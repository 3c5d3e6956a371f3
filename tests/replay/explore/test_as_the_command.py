"""What the page answers is what the command prints that it shows, to the byte, in states that are drawn."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest

import vtwin
from replay.explore.asked_run import AskedRun
from replay.explore.knobs import Knob, knobs_of
from replay.explore.state_answers import StateAnswers
from tests.examples import THOROUGH
from tests.twins import SIXTY_FOUR_SEATS
from traces.workload import SessionOptions, WorkloadOptions

LIKE = Path(__file__).parents[3] / "traces" / "samples" / "azure_code_200.csv"
OF_A_MODEL = """\
engine: {max_num_seqs: 64}
hardware: {gpu: H100}
latency: {model: roofline, model_config: Qwen/Qwen2.5-7B-Instruct}
"""
AGENTS = Path(__file__).parents[3] / "traces" / "samples" / "mooncake_conversation_200.jsonl"
NUM_STATES = 50 if THOROUGH else 6
"""Of all pages together."""
CLASSES = """\
version: "2"
aggregate_rate: 12
clients:
  - {id: chat, slo_class: critical, rate_fraction: 0.7, input_distribution: {type: constant, params: {value: 200}},
     output_distribution: {type: constant, params: {value: 30}}}
  - {id: night, slo_class: batch, rate_fraction: 0.3, input_distribution: {type: constant, params: {value: 900}},
     output_distribution: {type: constant, params: {value: 90}}}
"""
BEGINNINGS: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "drawn": (
        SIXTY_FOUR_SEATS,
        {"rate": 12.0, "prompt_tokens": 300, "output_tokens": 40},
        {"slo": "ttft=500ms"},
    ),
    "sessions": (SIXTY_FOUR_SEATS, {"rate": 3.0, "rounds": 3, "prompt_tokens": 200, "output_tokens": 30}, {}),
    "like": (SIXTY_FOUR_SEATS, {"like": LIKE, "rate": 5.0}, {"slo": "ttft=2s,tpot=60ms"}),
    "users": (SIXTY_FOUR_SEATS, {"concurrency": 12, "prompt_tokens": 300, "output_tokens": 40}, {}),
    "fleet": (
        SIXTY_FOUR_SEATS,
        {"rate": 30.0, "prompt_tokens": 300, "output_tokens": 40},
        {"instances": 3, "routing": "least-loaded"},
    ),
    "classes": (SIXTY_FOUR_SEATS, {"workload": "load.yaml", "rate": 12.0}, {"slo": "ttft=500ms"}),
    "model": (OF_A_MODEL, {"rate": 12.0, "prompt_tokens": 300, "output_tokens": 40}, {"slo": "e2e=5s"}),
}
"""TWIN.yaml, the load's options, and further options of the run, by what the page is about."""
NEAR = (0.3, 3.0)
"""A number is turned by a factor between these, so that most states can be simulated."""


def beginning(name: str, folder: Path) -> StateAnswers:
    """Return the answers of a page, whose twin is written into the folder."""
    twin, load, more = BEGINNINGS[name]
    config = folder / "twin.yaml"
    config.write_text(twin)
    if "workload" in load:
        load = {**load, "workload": folder / "load.yaml"}
        (folder / "load.yaml").write_text(CLASSES)
    workload = WorkloadOptions(**{"num_requests": 300, **load})  # type: ignore[arg-type]
    return StateAnswers(AskedRun(config=config, workload=workload, sessions=SessionOptions(), **more), None)  # type: ignore[arg-type]


def drawn_value(knob: Knob, begins: str, rng: random.Random) -> str:
    if knob.kind == "switch":
        return rng.choice(["true", "false"])
    if knob.kind == "choice":
        return rng.choice(knob.choices())
    middle = float(begins or {"slo": 400}.get(knob.place, 1))
    value = min(knob.most, max(knob.least, middle * rng.uniform(*NEAR)))
    if knob.name == "num_requests":
        value = min(value, 500)
    return str(round(value)) if knob.kind == "integer" else f"{value:.4g}"


def drawn_state(answers: StateAnswers, rng: random.Random) -> dict[str, str]:
    """Return some knobs turned."""
    knobs = knobs_of(answers.begin)
    names = rng.sample(sorted(knobs), rng.randint(1, 4))
    return {name: drawn_value(knobs[name], knobs[name].begins(answers.begin), rng) for name in names}


def without_cpu_time(text: str) -> str:
    """Return a document without the only figure that differs from run to run."""
    return re.sub(r'"engine_cpu_s": [\d.e-]+', "", text)


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = vtwin.main([*shlex.split(command)[1:], "--json"])
    said = capsys.readouterr()
    return code, said.out.removesuffix("\n"), said.err


@pytest.mark.parametrize("name", BEGINNINGS)
def test_the_answer_is_the_command_s(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = beginning(name, tmp_path)
    rng = random.Random(f"{name} {THOROUGH}")
    for _ in range(-(-NUM_STATES // len(BEGINNINGS))):
        state = drawn_state(answers, rng)
        try:
            turn = next(message for message in answers.turn(state) if message is not None)
        except Exception as refused:
            assert_refused_alike(refused, answers, state, capsys)
            continue
        document = next(message for message in answers.document(state) if message is not None)
        code, out, _ = printed(str(turn["command"]), capsys)
        assert code in (0, 1)
        assert without_cpu_time(out) == without_cpu_time(str(document["text"])), state
        shown = turn["column"]
        assert isinstance(shown, dict)
        assert shown["verdict"] == (json.loads(out)["verdict"] or "-")


def assert_refused_alike(
    refused: Exception, answers: StateAnswers, state: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from replay.explore.knobs import turned

    code, _, err = printed(turned(answers.begin, state).command(), capsys)
    assert code in (2, 3), (state, refused)
    assert " ".join(str(refused).split())[:60] in " ".join(err.split()), (state, refused, err)
