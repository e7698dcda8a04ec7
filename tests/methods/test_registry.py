"""The table of methods, the folder and the import contract name the same files."""

import tomllib
from pathlib import Path

import fcforge.methods
from fcforge.methods import METHODS

ROOT = Path(__file__).parents[2]


def independent_modules() -> set[str]:
    """Modules that import-linter keeps from importing each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (c for c in config["contracts"] if c["type"] == "independence")
    return set(contract["modules"])


def test_every_file_of_a_method_is_in_the_import_contract():
    folder = Path(fcforge.methods.__file__).parent
    files = {f"fcforge.methods.{p.stem}" for p in folder.glob("[a-z]*.py")} - {
        "fcforge.methods.base"
    }
    assert independent_modules() == files


def test_every_method_is_found_by_its_own_name():
    assert {cls.__module__ for cls in METHODS.values()} <= independent_modules()
    assert all(METHODS[name].name == name for name in METHODS)
