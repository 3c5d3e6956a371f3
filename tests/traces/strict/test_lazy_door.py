"""Doors that import a name when it is first asked for."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from traces.strict.lazy_door import homes_of, opened

HOMES = homes_of({"colorsys": "hls_to_rgb rgb_to_hls", "this_is_no_module": "nothing"})


def test_names_are_at_home_where_they_are_listed() -> None:
    assert HOMES == {"hls_to_rgb": "colorsys", "rgb_to_hls": "colorsys", "nothing": "this_is_no_module"}


def test_a_door_imports_a_name_when_it_is_asked_for_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ModuleType("room")
    monkeypatch.setitem(sys.modules, "room", room)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    asked, listed = opened("room", HOMES)
    assert listed() == ["hls_to_rgb", "nothing", "rgb_to_hls"]
    assert "colorsys" not in sys.modules
    found = asked("hls_to_rgb")
    assert found is sys.modules["colorsys"].hls_to_rgb
    assert vars(room)["hls_to_rgb"] is found
    with pytest.raises(AttributeError, match="module 'room' has no attribute 'other'"):
        asked("other")
