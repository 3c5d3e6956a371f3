"""The bill of materials names what the lock pins, and nothing else."""

from __future__ import annotations

from tests.sbom import LOCK, bill_of_materials


def test_every_pinned_package_is_a_component_and_nothing_else_is() -> None:
    lock = LOCK.read_text()
    pinned = {
        line.split(" ")[0] for line in lock.splitlines() if "==" in line and not line.lstrip().startswith("#")
    }
    found = bill_of_materials(lock)
    assert {f"{each['name']}=={each['version']}" for each in found["components"]} == pinned
    references = [each["bom-ref"] for each in found["components"]]
    assert len(set(references)) == len(references) == len(found["dependencies"][0]["dependsOn"])
    assert found["components"][0]["purl"].startswith("pkg:pypi/")


def test_licences_are_those_that_installed_packages_name() -> None:
    (numpy,) = bill_of_materials("numpy==0.1\n")["components"]
    assert "BSD" in numpy["licenses"][0]["license"]["name"]
    (unknown,) = bill_of_materials("no-such-package==1.0\n")["components"]
    assert "licenses" not in unknown
