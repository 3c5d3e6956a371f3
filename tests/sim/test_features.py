"""A feature has a home: few files outside its own name it in their code, and the number only falls."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import PACKAGES, ROOT

FEATURES = {"images": "image|encoder", "lora": "lora|adapter", "drafts": "draft|specul"}
"""What a feature is called, in names of files and in code."""
MOST_FILES = {"images": 30, "lora": 24, "drafts": 33}
"""How many files outside a feature's own may name it: lowered with each change that needs fewer, never raised."""


@cache
def names_in(source: str) -> set[str]:
    """Return the identifiers of a source: no word of a comment, a docstring or another string."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def files_that_name(pattern: str, *, root: Path = ROOT) -> dict[str, list[str]]:
    """Return the files whose code names a feature and whose path does not, each with the names."""
    is_named = re.compile(pattern, re.IGNORECASE).search
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            names = sorted(filter(is_named, names_in(path.read_text())))
            if names and not is_named(place):
                found[place] = names
    return found


@pytest.mark.parametrize("feature", FEATURES)
def test_few_files_outside_a_feature_name_it(feature: str) -> None:
    found = files_that_name(FEATURES[feature])
    assert len(found) <= MOST_FILES[feature], found


def test_names_are_looked_for_in_code_alone(tmp_path: Path) -> None:
    """A feature's own files, and words of comments and strings, do not count."""
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "images.py").write_text("num_images = 1\n")
    (tmp_path / "sim" / "words.py").write_text('"""Images."""\nnames = ("images",)  # of images\n')
    (tmp_path / "sim" / "step.py").write_text("def f(s): return s.num_images + s.ENCODER\n")
    assert files_that_name("image|encoder", root=tmp_path) == {"sim/step.py": ["ENCODER", "num_images"]}
