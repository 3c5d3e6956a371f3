"""``make sbom``: what an installation consists of, as CycloneDX 1.5 JSON (https://cyclonedx.org/docs/1.5/json/).

A component for each package that requirements.lock installs on this machine: name, version, package URL, and the
licence that its own metadata names.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
LINE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)(?: ; ([^\\]+))?")


def main() -> int:
    """Write sbom.json beside the lock, return the exit code."""
    place = ROOT / "sbom.json"
    document = bill_of_materials(LOCK.read_text(encoding="utf-8"))
    place.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {place.relative_to(ROOT)}: {len(document['components'])} components")
    return 0


def bill_of_materials(lock: str) -> dict[str, Any]:
    """Return the document for the lines of a lock file; the same lines give the same document."""
    components = [_component(name, number) for name, number in pinned_here(lock)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "vtwin",
                "name": "vtwin",
                "version": version("vtwin"),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "vtwin", "dependsOn": [each["bom-ref"] for each in components]}],
    }


def pinned_here(lock: str) -> list[tuple[str, str]]:
    """Return name and version of each line of a lock file whose marker holds on this machine."""
    lines = [match.groups() for line in lock.splitlines() if (match := LINE.match(line))]
    return [(name, number) for name, number, marker in lines if not marker or Marker(marker).evaluate()]


def _component(name: str, number: str) -> dict[str, Any]:
    url = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{number}"
    found = {"type": "library", "bom-ref": url, "name": name, "version": number, "purl": url}
    licence = _licence(name)
    return found | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def _licence(name: str) -> str:
    """Return the licence that an installed package names in a line, empty where it is not installed or names none."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return ""
    classified = [
        each.rpartition("::")[2].strip() for each in told.get_all("Classifier") or () if "License ::" in each
    ]
    written = told.get("License-Expression") or (classified[0] if classified else told.get("License")) or ""
    return written.strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
