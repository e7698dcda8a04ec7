"""Write the locks: the pins of constraints.txt with the SHA-256 of every file of each.

``python supply/lock.py`` runs in the environment of ``make setup`` and queries the package index.

- build.lock: packages that run while fcforge is built and installed.
- core.lock: packages that an installation of fcforge alone needs.
- train.lock: further packages that torch needs.
- dev.lock: all others.

torch is in none of them: its CPU build comes from an index of its own; constraints.txt pins it.
"""

import re
import sys
import urllib.request
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
INDEX = "https://pypi.org/simple"
LEFT_OUT = {"torch"}
BUILD = ("hatchling", "editables")  # editables: for `pip install -e`
HEAD = "# Written by supply/lock.py; install with pip --require-hashes --no-deps -r.\n"


def plain(name: str) -> str:
    """Return a name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Return the pinned versions by name."""
    found = {}
    for line in (HERE.parent / "constraints.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.split("==")
            found[plain(name)] = version
    return found


def needed(name: str, found: set[str]) -> set[str]:
    """Return the requirements of an installed package without extras, and theirs in turn."""
    for said in distribution(name).requires or ():
        requirement, _, marker = said.partition(";")
        other = plain(re.split(r"[ <>=!~(\[]", requirement.strip())[0])
        if "extra ==" not in marker and other not in found:
            try:
                distribution(other)
            except ImportError:
                continue  # for other systems or versions of Python
            found.add(other)
            needed(other, found)
    return found


def hashes(name: str, version: str) -> list[str]:
    """Return the SHA-256 of every file of a version."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    found = set()
    for file, digest in re.findall(r"/([^/\"#]+)#sha256=([0-9a-f]{64})", page):
        stem = plain(file.removesuffix(".tar.gz").removesuffix(".zip"))
        if stem == f"{name}-{plain(version)}" or stem.startswith(
            f"{name}-{plain(version)}-"
        ):
            found.add(digest)
    return sorted(found)


def main() -> int:
    """Write the locks; return 1 if the index knows no file of a pin."""
    known = pins()
    core = needed("fcforge", set()) & known.keys()
    build = set(BUILD)
    for name in BUILD:
        needed(name, build)
    train = needed("torch", set()) - core
    rest = known.keys() - build - core - train
    members = {"build.lock": build, "core.lock": core}
    members |= {"train.lock": train, "dev.lock": rest}
    lines: dict[str, list[str]] = {file: [] for file in members}
    lost = []
    for name in sorted(known.keys() - LEFT_OUT):
        found = hashes(name, known[name])
        if not found:
            lost.append(name)
        parts = [f"{name}=={known[name]}", *(f"--hash=sha256:{h}" for h in found)]
        for file, names in members.items():
            if name in names:
                lines[file].append(" \\\n    ".join(parts) + "\n")
    for file, texts in lines.items():
        (HERE / file).write_text(HEAD + "".join(texts))
    print(", ".join(f"{len(texts)} in {file}" for file, texts in lines.items()))
    if lost:
        print(f"no file on the index: {', '.join(lost)}", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
