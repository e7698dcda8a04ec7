"""Write a software bill of materials (CycloneDX 1.6, JSON) of the environment this runs in.

``python supply/sbom.py OUT`` lists every installed package that fcforge needs, torch and the
packages that build it included, with version, licence, package URL, the SHA-256 of its files as
the locks pin them, and the packages it requires. torch has no SHA-256: it comes from one of two
indexes, and constraints.txt pins its version.
"""

import json
import re
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from lock import BUILD, HERE, needed, plain


def direct(name: str, among: set[str]) -> list[str]:
    """Return the requirements that a package names itself."""
    said = distribution(name).requires or ()
    names = {plain(re.split(r"[ ;<>=!~(\[]", one)[0]) for one in said}
    return sorted(names & among)


def pinned() -> dict[str, list[str]]:
    """Return the SHA-256 of the files of each package, from the locks."""
    found: dict[str, list[str]] = {}
    for file in ("build.lock", "core.lock", "train.lock", "dev.lock"):
        for part in (HERE / file).read_text().replace("\\\n", "").splitlines():
            if "==" in part:
                found[part.split("==")[0]] = re.findall("sha256:([0-9a-f]{64})", part)
    return found


def component(name: str, files: list[str]) -> dict[str, Any]:
    """Return a package as CycloneDX describes it."""
    about = distribution(name).metadata
    version = distribution(name).version
    url = f"pkg:pypi/{name}@{version}"
    licence = about.get("License-Expression") or (about.get("License") or "")[:60]
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "properties": [{"name": "sha256", "value": digest} for digest in files],
    }
    if licence:
        made["licenses"] = [{"license": {"name": licence.splitlines()[0]}}]
    return made


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    names = {"torch", *BUILD}
    for name in ("fcforge", *sorted(names)):
        needed(name, names)
    files = pinned()
    parts = {name: component(name, files.get(name, [])) for name in sorted(names)}
    own = {**component("fcforge", []), "type": "application"}
    every = {"fcforge": own, **parts}
    depends = []
    for name, part in every.items():
        others = [every[other]["bom-ref"] for other in direct(name, names)]
        depends.append({"ref": part["bom-ref"], "dependsOn": others})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": list(parts.values()),
        "dependencies": depends,
    }


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    made = bill()
    out.write_text(json.dumps(made, indent=1) + "\n")
    print(f"wrote {out}: {len(made['components'])} packages")
