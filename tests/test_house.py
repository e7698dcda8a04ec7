"""The house is in order: a line leads to its test."""

import ast
import inspect
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).parents[1]
SRC, TESTS = ROOT / "src" / "fcforge", ROOT / "tests"
SMALL = 50  # code lines of a module that needs no test file of its own

SPANNING = {  # test files of no single module, and why
    "estimator/test_explaining.py": "edges that moved a decision, and their stability",
    "cli/test_imaging.py": "fc and preprocess as they are typed",
    "cli/test_round.py": "a round as hospitals and keepers type it",
    "exchange/keeping/test_round_files.py": "a round from shares to its sum, in files",
    "exchange/test_public_starts.py": "starts by name, from fetching to the file",
    "exchange/test_no_subject_inside.py": "bytes of a chain of every method",
    "exchange/test_two_hospitals.py": "two folders, two processes, one file",
    "exchange/test_options.py": "every option of every command that opens a file",
    "exchange/test_targets.py": "three classes and a number from start to prediction",
    "exchange/test_speed.py": "what an exchange costs, from learning to merging",
    "exchange/test_forgeries.py": "hundreds of forged files against all that opens them",
    "methods/test_contract.py": "every registered method",
    "models/test_contract.py": "every registered model",
    "report/test_browser.py": "every page in a real browser",
    "runner/test_experiment_files.py": "every experiment that ships",
    "runner/test_poison.py": "no method, generator or model reads a test split",
    "runner/test_slurm.py": "a real Slurm, where one can be started",
    "test_bad_input.py": "every command given what it cannot use",
    "test_containers.py": "the Containerfile",
    "test_docs.py": "the documentation",
    "test_house.py": "this file",
    "test_memory_flat.py": "memory of whole commands",
    "test_security.py": "the page of promises",
    "test_supply.py": "what is installed, and from what",
    "test_without_torch.py": "what a hospital runs, without torch",
}
TESTED_BY = {  # modules whose tests stand under another name
    "exchange/model.py": "exchange/test_options.py",
    "exchange/starts/release_step.py": "exchange/starts/test_releases.py",
    "exchange/verification.py": "exchange/test_exchange.py",
    "models/fused_kernels.py": "models/test_fused.py",
    "methods/__init__.py": "methods/test_contract.py",
    "studies/check.py": "cli/test_experiments.py",
}


def code_lines(path: Path) -> int:
    """Lines that are no docstring, no comment and not blank."""
    text = path.read_text()
    said = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    return sum(
        bool(line) and not line.startswith("#") and i not in said for i, line in lines
    )


def modules_of(test: Path) -> list[Path]:
    """Where the module of a test file may lie; a private one, a package, a benchmark."""
    room, name = test.parent, test.stem.removeprefix("test_")
    own = [f"{name}.py", f"_{name}.py", f"{name}/__init__.py"]
    return [SRC / room / n for n in own] + [ROOT / room / "benchmarks" / f"{name}.py"]


def file_for(module: Path) -> Path:
    """Where the tests of a module lie; those of a package lie beside its room."""
    place = module.relative_to(SRC)
    place = place.parent if place.name == "__init__.py" else place
    return TESTS / place.parent / f"test_{place.stem.removeprefix('_')}.py"


def test_every_test_file_has_its_module_or_a_reason():
    files = [p.relative_to(TESTS) for p in TESTS.rglob("test_*.py")]
    alone = {str(p) for p in files if not any(m.exists() for m in modules_of(p))}
    assert alone == set(SPANNING)


def test_every_module_has_its_test_file_or_another():
    modules = [p for p in SRC.rglob("*.py") if code_lines(p) > SMALL]
    without = {str(p.relative_to(SRC)) for p in modules if not file_for(p).exists()}
    assert without == set(TESTED_BY)
    assert all((TESTS / file).exists() for file in TESTED_BY.values())


def test_benchmarks_name_what_is_there():
    """They are run by hand, and seldom: nobody noticed a name that a module had no more."""
    for script in (ROOT / "paper" / "benchmarks").glob("*.py"):
        nodes = list(ast.walk(ast.parse(script.read_text())))
        modules = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and str(node.module)[:7] == "fcforge":
                for alias in node.names:
                    found = resolve_name(f"{node.module}.{alias.name}")
                    if inspect.ismodule(found):
                        modules[alias.asname or alias.name] = found
        for node in nodes:
            if isinstance(node, ast.Attribute):
                home = modules.get(getattr(node.value, "id", ""))
                assert home is None or hasattr(home, node.attr), (script, node.attr)
