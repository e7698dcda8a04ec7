"""What is installed is what was tested: every pin has the hashes of its files."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(text):
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_locks_are_the_constraints_with_hashes():
    pins = versions((ROOT / "constraints.txt").read_text())
    assert pins.pop("torch")  # from an index of its own
    locked = {}
    for file in ("core.lock", "dev.lock"):
        text = (ROOT / "supply" / file).read_text().replace("\\\n", "")
        for line in text.splitlines()[1:]:
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line[:40]
            locked |= versions(line)
    assert locked == pins


def test_make_installs_from_the_locks():
    makefile = (ROOT / "Makefile").read_text()
    assert "--require-hashes" in makefile
    for file in ("core.lock", "dev.lock"):
        assert f"$(VERIFIED) supply/{file}" in makefile
