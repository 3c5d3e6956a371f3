"""A twin that the form made is looked at with the page's load: its form, its answers, its command once it is saved."""

from __future__ import annotations

import random
import re
from pathlib import Path

import orjson
import pytest

import vtwin
from replay.explore.asked_run import AskedRun
from replay.explore.build_twin import built
from replay.explore.state_answers import Message, StateAnswers
from replay.twin.config_read import load_config
from tests.replay.explore.test_as_the_command import LIKE, drawn_value, printed, without_cpu_time
from tests.twins import SIXTY_FOUR_SEATS
from traces import ConfigError
from traces.workload import WorkloadOptions

FORM = {
    "latency.model": "roofline",
    "latency.model_config": "Qwen/Qwen2.5-7B-Instruct",
    "hardware.gpu": "H100",
    "engine.max_num_seqs": "96",
}
TWIN = {f"twin.{name}": text for name, text in FORM.items()}


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateAnswers:
    """A page of a fleet of three of the file's servers, with a setting of its own."""
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(SIXTY_FOUR_SEATS)
    load = WorkloadOptions(like=LIKE, rate=8.0, num_requests=300)
    first = AskedRun(
        config=Path("twin.yaml"),
        workload=load,
        settings=(("engine.max_num_seqs", "7"),),
        instances=3,
        routing="random",
        slo="ttft=500ms",
    )
    return StateAnswers(first, None)


def only(messages: object) -> Message:
    (found,) = [each for each in messages if each is not None]  # type: ignore[attr-defined]
    assert isinstance(found, dict)
    return found


def test_its_form_is_of_its_own_keys_and_the_page_s_load(answers: StateAnswers) -> None:
    form = only(answers.form(TWIN))
    knobs = {each["name"]: each["begins"] for each in form["knobs"]}  # type: ignore[attr-defined]
    assert form["twin"] == "built.yaml"
    assert {
        "rate": "8",
        "max_num_seqs": "96",
        "instances": "1",
        "gpu": "H100",
        "slo_ttft": "500",
    }.items() <= knobs.items()
    assert only(answers.form({}))["twin"] == "twin.yaml"
    assert "gpu" not in {each["name"] for each in only(answers.form({}))["knobs"]}  # type: ignore[attr-defined]


def test_its_answers_are_those_of_the_saved_file(
    answers: StateAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(3)
    knobs = {each["name"]: each for each in only(answers.form(TWIN))["knobs"]}  # type: ignore[attr-defined]
    begin, _ = answers.at(TWIN)
    from replay.explore.knobs import knobs_of

    turns = [
        {},
        *(
            {name: drawn_value(knobs_of(begin)[name], knobs[name]["begins"], rng)}
            for name in ("rate", "tp", "max_num_seqs")
        ),
    ]
    for turned in turns:
        told = only(answers.turn({**TWIN, **turned}))
        assert told["built"] == only(built(FORM))["yaml"]
        Path("built.yaml").write_text(str(told["built"]))
        document = only(answers.document({**TWIN, **turned}))
        code, out, _ = printed(str(told["command"]), capsys)
        assert code in (0, 1)
        assert without_cpu_time(out) == without_cpu_time(str(document["text"])), turned
        values = told["values"]
        assert isinstance(values, dict)
        assert turned.items() <= values.items()
        Path("built.yaml").unlink()  # nothing of the page reads it


def test_it_is_read_as_the_file_would_be(answers: StateAnswers) -> None:
    begin, _ = answers.at(TWIN)
    Path("saved.yaml").write_text(str(begin.asked.built))
    assert begin.twin.engine == load_config("saved.yaml").engine
    assert [each for each in Path().iterdir() if each.name not in ("twin.yaml", "saved.yaml")] == []


def test_the_file_s_own_twin_is_as_before_beside_it(answers: StateAnswers) -> None:
    own, other = only(answers.turn({})), only(answers.turn(TWIN))
    assert (own["twin"], own["built"], other["twin"]) == ("twin.yaml", None, "built.yaml")
    assert "--instances 3" in str(own["command"])
    assert "--config built.yaml --like" in str(other["command"])
    assert "--set" not in str(other["command"])
    orjson.dumps(other)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"twin.engine.max_num_seqs": "0"}, "engine.max_num_seqs: got 0"),
        ({"twin.nix": "1"}, "nix: got a key that the form does not have"),
        ({"twin.hardware.gpu": "B300X"}, "hardware (built.yaml:3): got 'B300X'"),
        ({"twin.latency.model": "mine.py:Model"}, "--allow-code"),
        ({"nix": "1"}, "nix: got a setting that this page does not have"),
    ],
)
def test_what_is_wrong_with_it_is_the_turn_s_fault_and_leaves_a_form(
    answers: StateAnswers, changed: dict[str, str], said: str
) -> None:
    state = {**TWIN, **changed}
    with pytest.raises(ConfigError, match=re.escape(said)):
        list(answers.turn(state))
    assert only(answers.form(state))["knobs"]
    with pytest.raises(ConfigError, match="--state "):
        answers.check(state)


def test_a_link_of_it_is_refused_at_the_start_where_it_is_wrong(
    answers: StateAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answers.begin.asked.config.exists()
    words = [
        "explore",
        "--config",
        "twin.yaml",
        "--rate",
        "5",
        "--no-open",
        "--state",
        "twin.engine.max_num_seqs=x",
    ]
    assert vtwin.main(words) == 2
    assert "--state latency: got nothing" in " ".join(capsys.readouterr().err.split())
