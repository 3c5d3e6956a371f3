"""What is told on stderr: wrapped between words in a terminal, one line elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtwin
from traces.strict.narration import COLOUR, wrapped

WORDS = st.lists(
    st.text("abc\x1b[31m-0", min_size=1, max_size=12).filter(lambda word: "\x1b" not in word), max_size=30
)


@given(WORDS, st.integers(20, 60), st.integers(0, 4), st.booleans())
def test_a_line_is_broken_between_words_and_nothing_is_lost(
    words: list[str], width: int, indent: int, is_red: bool
) -> None:
    line = " " * indent + " ".join(words)
    shown = wrapped(f"\x1b[31m{line}\x1b[0m\n" if is_red else f"{line}\n", width)
    plain = COLOUR.sub("", shown)
    assert plain.split() == line.split()
    assert plain.endswith("\n")
    assert all(len(each) <= width or len(each.split()) == 1 for each in plain.splitlines())
    if len(line) <= width:
        assert plain == f"{line}\n"


@pytest.mark.parametrize("text", ["\rworking " + 30 * "word ", "\x1b[2K" + 30 * "word "])
def test_what_moves_the_cursor_is_left_alone(text: str) -> None:
    assert wrapped(text, 40) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_notes_and_errors_are_wrapped_in_a_terminal_and_one_line_elsewhere(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    assert vtwin.main(["config", "from-serve", "vllm serve Qwen/Qwen3-32B", "--gpu", "L4"]) == 0
    assert (
        vtwin.main(["run", "--config", str(tmp_path / "missing.yaml"), "--rate", "20", "--num-requests", "5"])
        == 2
    )
    assert sys.stderr is stream
    lines = COLOUR.sub("", stream.getvalue()).splitlines()
    starts = [line for line in lines if not line.startswith("  ")]
    assert all(line.startswith(("note: ", "ConfigError: ")) for line in starts)
    if is_terminal:
        assert all(len(line) <= 60 or len(line.split()) == 1 for line in lines)
        assert len(lines) > len(starts)
    else:
        assert lines == starts
        assert max(map(len, lines)) > 60
