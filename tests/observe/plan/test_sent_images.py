"""Images of a workload as pictures: their sizes, their places, and what the server receives."""

from __future__ import annotations

import base64
import io
import sys

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe import Settings, observe_with, parse_endpoint
from observe.plan.prompts import WordPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from observe.plan.sent_images import PictureDrawing, squares
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, workload
from traces import ConfigError, Trace

SIDE = 28
WORDS = WordPrompts(
    salt=1, words=("a", "b"), anchor="A", tokens_per_word=1.0, overhead=0, lead=0, chat=True, source="words"
)


def plan_of(trace: Trace, *, salt: int = 1) -> SendPlan:
    """Return the plan of a chat whose images are drawn."""
    shape = BodyShape(api="chat", model="m")
    return make_plan(trace, prompts=WORDS, shape=shape, drawing=PictureDrawing(side=SIDE, salt=salt))


def shown(plan: SendPlan, row: int) -> list[tuple[int, int, bytes]]:
    """Return width, height and bytes of each picture of a row."""
    image = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    content = orjson.loads(plan.take_body(row))["messages"][-1]["content"]
    found = []
    for part in content[1:] if isinstance(content, list) else ():
        data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        with image.open(io.BytesIO(data)) as picture:
            picture.load()
            found.append((*picture.size, data))
    return found


def words_of(plan: SendPlan, row: int) -> int:
    """Return the words of a row's text."""
    content = orjson.loads(plan.take_body(row))["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return len(text.split()) - 1  # the anchor


@given(st.integers(1, 20_000))
def test_a_picture_has_nearly_as_many_squares_as_tokens(num_tokens: int) -> None:
    width, height = squares(num_tokens)
    assert abs(width * height - num_tokens) <= 2 + num_tokens // 100
    assert 1 <= height <= width <= 4 * height


def test_pictures_stand_behind_the_text_of_the_rest() -> None:
    trace = workload([0, 1, 2], input_tokens=100).with_columns(
        images=["0:64:x 70:16:y", "10:64:x", None], image_tokens=[80, 64, None]
    )
    plan = plan_of(trace)
    assert [shown(plan_of(trace), row) for row in (2,)] == [[]]
    first, second = shown(plan, 0), shown(plan_of(trace), 1)
    assert [(width, height) for width, height, _ in first] == [(8 * SIDE, 8 * SIDE), (4 * SIDE, 4 * SIDE)]
    assert first[0][2] == second[0][2]  # one content
    assert first[0][2] != first[1][2]
    assert [words_of(plan_of(trace), row) for row in range(3)] == [20, 36, 100]
    assert plan.trace.column("images").tolist()[:2] == ["20:64:0 84:16:1", "36:64:0"]
    assert "2 requests have images, sent as drawn pictures behind the text" in plan.notes


def test_another_run_has_other_pictures() -> None:
    trace = workload([0], input_tokens=100).with_columns(images=["0:64:x"], image_tokens=[64])
    assert shown(plan_of(trace, salt=1), 0) != shown(plan_of(trace, salt=2), 0)


def test_a_row_that_states_its_tokens_alone_has_one_picture() -> None:
    trace = workload([0, 1], input_tokens=100).with_columns(image_tokens=[36, 36])
    plan = plan_of(trace)
    first, second = shown(plan, 0), shown(plan, 1)
    assert [(len(first), first[0][:2])] == [(1, (6 * SIDE, 6 * SIDE))]
    assert first != second  # nothing says that they are the same


def test_without_a_side_images_are_text() -> None:
    trace = workload([0], input_tokens=100).with_columns(images=["0:64:x"], image_tokens=[64])
    plan = make_plan(trace, prompts=WORDS, shape=BodyShape(api="chat", model="m"))
    assert words_of(plan, 0) == 100
    assert not plan.trace.cells("images").is_known.any()
    assert "1 requests have image, audio or video tokens: sent as as many tokens of text" in plan.notes


async def test_a_trace_keeps_what_was_sent() -> None:
    trace = workload(every(1000, 2), input_tokens=100).with_columns(image_tokens=[64, None])
    async with serving(Behaviour(tokenize=True)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), api="chat", image_side=SIDE)
        seen = await observe_with(trace, settings)
        contents = [request.body["messages"][0]["content"] for request in server.requests]
    assert sorted(type(content) is list for content in contents) == [False, True]
    assert seen.trace.column("images").tolist()[0] == "36:64:0"
    assert seen.trace.cells("images").is_known.tolist() == [True, False]


def test_the_library_is_asked_for_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"vtwin\[images\]"):
        plan_of(workload([0]).with_columns(image_tokens=[4]))
