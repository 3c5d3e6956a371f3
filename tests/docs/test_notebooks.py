"""The notebooks of docs/notebooks run, show what they kept, and are what their sources say."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.docs.notebook_cells import (
    NOTEBOOKS,
    NotebookCell,
    as_a_user,
    cells_of,
    notebook_of,
    notebook_text,
    outputs_of,
    sources,
)
from tests.docs.pages import ROOT

MOST_CPU_S = 20
"""Of one notebook, on a slow machine; a quarter of it on a fast one."""
MOST_BYTES = 500_000


def kept(source: Path) -> list[dict[str, Any]]:
    """Return the cells of a source's notebook as they lie in docs."""
    return json.loads(notebook_of(source).read_text())["cells"]  # type: ignore[no-any-return]


def forms(outputs: list[dict[str, Any]]) -> list[str]:
    """Return the kinds of what a cell shows."""
    return [" ".join(sorted(each.get("data", {each["output_type"]: 0}))) for each in outputs]


def test_every_notebook_has_a_source() -> None:
    assert sorted(NOTEBOOKS.glob("*.ipynb")) == [notebook_of(each) for each in sources()]


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_s_cells_are_its_source_s(source: Path) -> None:
    lying = [NotebookCell("".join(each["source"]), each["cell_type"] == "code") for each in kept(source)]
    assert lying == cells_of(source), "run `make docs`"
    assert notebook_of(source).stat().st_size < MOST_BYTES


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_runs_and_shows_what_it_kept(source: Path) -> None:
    started = time.process_time()
    with as_a_user():
        shown = list(outputs_of(cells_of(source), name=source.stem))
    assert time.process_time() - started < MOST_CPU_S
    assert [forms(each) for each in shown] == [forms(each.get("outputs", [])) for each in kept(source)]
    drawn = [
        each["data"]["text/html"] for cell in shown for each in cell if "text/html" in each.get("data", {})
    ]
    assert len(drawn) >= 4
    assert sum('<svg class="chart"' in "".join(html) for html in drawn) >= 2
    assert not any("<script" in "".join(html) for html in drawn)


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_enters_by_the_doors(source: Path) -> None:
    code = "\n".join(each.text for each in cells_of(source) if each.is_code)
    own = r"^(?:from|import) ((?:replay|calibrate|traces|observe|sim)[\w.]*)"
    plain = re.sub(r'""".*?"""', "", code, flags=re.DOTALL)  # texts are files of a user's own
    assert set(re.findall(own, plain, re.MULTILINE)) <= {"replay", "traces", "traces.workload"}


def test_the_notebooks_are_linked() -> None:
    for page in ("README.md", "docs/index.md", "docs/how-to/use-from-python.md"):
        assert "notebooks/" in (ROOT / page).read_text(), page


def test_what_a_cell_ends_with_is_shown_as_a_notebook_shows_it(tmp_path: Path) -> None:
    source = tmp_path / "small.py"
    source.write_text(
        "# %% [markdown]\n# # Title\n#\n# text\n\n# %%\nx = 2\nprint('said')\nx + 1\n\n# %%\nNone\n"
    )
    document = json.loads(notebook_text(source))
    title, first, last = document["cells"]
    assert "".join(title["source"]) == "# Title\n\ntext"
    assert first["outputs"] == [
        {"name": "stdout", "output_type": "stream", "text": ["said\n"]},
        {
            "data": {"text/plain": ["3"]},
            "execution_count": 1,
            "metadata": {},
            "output_type": "execute_result",
        },
    ]
    assert last["outputs"] == []
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    failing = [NotebookCell("y = 1\n1 / 0", True)]
    with pytest.raises(ZeroDivisionError):
        list(outputs_of(failing, name="small"))
