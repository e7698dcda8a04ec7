"""The tested versions are installed: every pin has the hashes of its files."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("build.lock", "core.lock", "train.lock", "dev.lock")


def versions(text):
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_locks_are_the_constraints_with_hashes():
    pins = versions((ROOT / "constraints.txt").read_text())
    assert pins.pop("torch")  # from an index of its own
    locked = {}
    for file in LOCKS:
        text = (ROOT / "supply" / file).read_text().replace("\\\n", "")
        for line in text.splitlines()[1:]:
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line[:40]
            locked |= versions(line)
    assert locked == pins


def test_make_installs_from_the_locks():
    makefile = (ROOT / "Makefile").read_text()
    assert "VERIFIED := -m pip install -q --require-hashes --no-deps -r" in makefile
    for file in LOCKS:
        assert f"$(VERIFIED) supply/{file}" in makefile


def test_what_make_installs_without_hashes_is_fcforge_and_what_the_policy_names():
    """SECURITY.md names torch and the environment of `make bench`; all else has its hash."""
    rules = (ROOT / "Makefile").read_text().replace("\\\n", " ").split("\n\n")
    for rule in rules:
        locked = set(re.findall(r"supply/(\w+\.lock)", rule))
        for line in rule.splitlines():
            if "pip install" not in line or line.startswith("VERIFIED"):
                continue
            if "avalanche-lib" in line:
                continue
            assert "constraints.txt" in line or "$(BUILT)" in line, line
            assert "'.[" in line or "dist/*.whl" in line, line
            assert {"core.lock", "train.lock"} <= locked or "dev.lock" in locked, line
    policy = (ROOT / "SECURITY.md").read_text()
    assert "torch is pinned by version" in policy
    assert "`make bench` installs Avalanche" in policy


def test_the_build_backend_is_pinned_hashed_and_not_fetched_by_pip():
    """It runs on the machine that installs, before anything of fcforge does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    required = project["build-system"]["requires"]
    assert versions("\n".join(required)).keys() == {"hatchling"}
    lock = versions((ROOT / "supply" / "build.lock").read_text())
    assert versions("\n".join(required)).items() <= lock.items()
    for place in ("Makefile", "supply/Containerfile"):
        for line in (ROOT / place).read_text().splitlines():
            if re.search("pip (wheel|install .* -e) ", line):
                assert "--no-build-isolation" in line or "$(BUILT)" in line, line


def test_the_bill_of_materials_has_torch_and_the_build_backend():
    code = "import json, sbom; print(json.dumps(sbom.bill()))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "supply",
        capture_output=True,
        text=True,
        check=True,
    )
    components = {part["name"]: part for part in json.loads(run.stdout)["components"]}
    pins = versions((ROOT / "constraints.txt").read_text())
    assert components["torch"]["version"].split("+")[0] == pins["torch"].split("+")[0]
    for name in ("hatchling", "numpy", "cryptography"):
        assert components[name]["version"] == pins[name]
        assert components[name]["properties"], name  # the SHA-256 of its files
