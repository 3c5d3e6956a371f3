"""The locks pin every package by hash and name no place; the bill of materials names what they install here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.sbom import LOCK, ROOT, bill_of_materials

RUN_LOCK = ROOT / "requirements-run.lock"
PINNED = re.compile(
    r"([a-z0-9-]+==\S+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)(?:    # .*\n)*"
)


@pytest.mark.parametrize("lock", [LOCK, RUN_LOCK], ids=lambda lock: lock.name)
def test_a_lock_is_versions_with_their_hashes_and_nothing_else(lock: Path) -> None:
    """No index and no host: those are each machine's own."""
    text = lock.read_text()
    assert PINNED.sub("", text) == ""
    assert len(PINNED.findall(text)) > 30


def test_the_locks_agree_and_have_what_the_project_asks_for() -> None:
    """After a change of pyproject.toml: `make lock`."""
    tested, needed = ({name for name, _ in PINNED.findall(lock.read_text())} for lock in (LOCK, RUN_LOCK))
    assert needed < tested
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for asked, lock in (
        (project["dependencies"], needed),
        (project["optional-dependencies"]["dev"], tested),
    ):
        assert {re.split(r"[>=]", each)[0] for each in asked} <= {name.split("==")[0] for name in lock}


def test_every_pinned_package_is_a_component_and_nothing_else_is() -> None:
    lock = LOCK.read_text()
    found = {f"{each['name']}=={each['version']}" for each in bill_of_materials(lock)["components"]}
    pinned = {name for name, _ in PINNED.findall(lock)}
    assert found <= pinned
    assert all(f"{name} ; " in lock for name in pinned - found)
    document = bill_of_materials(
        "uvloop==1.0 ; sys_platform != 'nowhere' \\\nother==2 ; sys_platform == 'nowhere' \\\n"
    )
    assert [each["purl"] for each in document["components"]] == ["pkg:pypi/uvloop@1.0"]
    references = [each["bom-ref"] for each in bill_of_materials(lock)["components"]]
    assert len(set(references)) == len(references)


def test_licences_are_those_that_installed_packages_name() -> None:
    (numpy,) = bill_of_materials("numpy==0.1\n")["components"]
    assert "BSD" in numpy["licenses"][0]["license"]["name"]
    (unknown,) = bill_of_materials("no-such-package==1.0\n")["components"]
    assert "licenses" not in unknown
