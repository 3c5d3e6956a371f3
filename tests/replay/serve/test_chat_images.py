"""Images of a chat: as many tokens as squares, the same for the same image; what is no image is refused."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from replay.serve.chat_images import image_tokens, part_reader
from replay.serve.protocol import Refusal, chat_tokens

SIDE = 28


def part(width: int, height: int, *, colour: int = 0, kind: str = "PNG") -> dict[str, object]:
    file = io.BytesIO()
    Image.new("L", (width, height), colour).save(file, kind)
    url = f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(("width", "height", "number"), [(280, 140, 50), (1, 1, 1), (41, 43, 2), (43, 43, 4)])
def test_an_image_has_a_token_a_square(width: int, height: int, number: int, kind: str) -> None:
    assert len(image_tokens(part(width, height, kind=kind), side=SIDE)) == number


def test_equal_images_have_equal_tokens_and_others_have_none_in_common() -> None:
    one, again, other = (image_tokens(part(140, 140, colour=colour), side=SIDE) for colour in (0, 0, 9))
    assert one.tolist() == again.tolist()
    assert not np.isin(one, other).any()


def test_images_stand_where_they_are_in_the_message() -> None:
    content = [{"type": "text", "text": "what is "}, part(56, 28), {"type": "text", "text": "here"}]
    found = chat_tokens(
        {"messages": [{"role": "user", "content": content}]}, read_part=part_reader(SIDE)
    ).tolist()
    image = image_tokens(content[1], side=SIDE).tolist()
    plain = chat_tokens({"messages": [{"role": "user", "content": "what is "}]}).tolist()
    place = found.index(image[0])
    assert found[place : place + 2] == image
    assert found[:place] == plain[:place]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "not in the request"),
        ({"type": "image_url", "image_url": "data:image/png;base64,!!!"}, "not base64"),
        ({"type": "image_url", "image_url": "data:image/png;base64,aGVsbG8="}, "got no image"),
        ({"type": "image_url"}, "not in the request"),
        ({"type": "input_audio", "input_audio": {}}, "not text or images"),
    ],
)
def test_what_is_no_image_is_refused(bad: dict[str, object], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        chat_tokens({"messages": [{"role": "user", "content": [bad]}]}, read_part=part_reader(SIDE))
    with pytest.raises(Refusal, match="not text, expected text"):
        chat_tokens({"messages": [{"role": "user", "content": [bad]}]})
