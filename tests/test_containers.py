"""The Containerfile, as far as it can be checked without an engine: what it names is there."""

import re
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "supply" / "Containerfile").read_text()
STEPS = [
    line.split(" ", 1)
    for line in TEXT.splitlines()
    if line and not line.startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def test_what_is_copied_is_there_and_nothing_else_reaches_the_builder():
    copied = [
        rest.split()[:-1] for rest in steps("COPY") if not rest.startswith("--from")
    ]
    names = {name for group in copied for name in group}
    assert all((ROOT / name).exists() for name in names)
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(x for x in lines if not x.startswith("#")) == "*"
    assert {x.removeprefix("!") for x in lines if x.startswith("!")} == names
    # what the package itself needs to be built
    assert {
        PROJECT["readme"],
        *PROJECT["license-files"],
        "pyproject.toml",
        "src",
    } <= names


def test_the_tested_versions_are_installed_and_compared_with_their_hashes():
    installs = [rest for rest in steps("RUN") if "pip install" in rest]
    locked = ""
    for install in installs:
        words = shlex.split(install)
        assert "--no-deps" in words
        if "--require-hashes" in words:
            locked += (ROOT / "supply" / words[words.index("-r") + 1]).read_text()
        else:  # fcforge itself, which the stage has built
            assert {"--no-index", "wheels/*.whl"} <= set(words)
    (build,) = (rest for rest in steps("RUN") if "pip wheel" in rest)
    assert {"--no-deps", "--no-build-isolation"} <= set(shlex.split(build))
    for package in (*PROJECT["dependencies"], "hatchling"):
        name = re.match(r"[\w-]+", package)[0]
        assert re.search(rf"(?im)^{name}==", locked), name
    (base,) = steps("ARG")
    version = base.split(":")[1].split("-")[0]
    assert f"(Python {version})" in (ROOT / "constraints.txt").read_text()
    assert int(version.split(".")[1]) >= int(
        PROJECT["requires-python"].rsplit(".", 1)[1]
    )


def test_it_runs_as_a_user_without_rights_and_starts_the_command():
    assert len(steps("FROM")) == 2
    last = TEXT[TEXT.rindex("FROM") :]
    made = re.search(r"useradd .* (\w+)\n", last)[1]
    assert re.search(rf"^USER {made}$", last, flags=re.MULTILINE)
    (entry,) = steps("ENTRYPOINT")
    assert entry == '["fcforge"]'
    assert "fcforge" in PROJECT["scripts"]
    made_in = "/opt/fcforge"
    assert f"python -m venv {made_in}\n" in TEXT
    assert f"COPY --from=build {made_in} {made_in}\n" in last
    assert f"PATH={made_in}/bin:$PATH" in last
