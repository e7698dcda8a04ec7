"""The test tree mirrors the packages, and benchmarks name what exists."""

import ast
import inspect
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).parents[1]
SRC, TESTS = ROOT / "src", ROOT / "tests"

SPANNING = {  # test files of no single module, and why
    "acceptance/test_forge_prevents_forgetting.py": "the whole system on one world",
    "cli/test_commands.py": "every command and its help",
    "consortium/operations/test_operations.py": "operations on files, one after another",
    "consortium/operations/test_options.py": "every option of every consortium command",
    "consortium/operations/test_books.py": "ledgers and the file, whatever happens to a round",
    "estimator/test_forge.py": "FORGE through the scikit-learn interface",
    "estimator/test_own_method.py": "estimators on any object of a Method",
    "estimator/test_own_network.py": "estimators on any torch.nn.Module",
    "estimator/test_weights.py": "weights of subjects and classes in every method",
    "generators/fcm_vae/test_generator.py": "the three variants of FCM-VAE as generators",
    "generators/fcm_vae/test_network.py": "the network of the three variants",
    "generators/fcm_vae/test_settings.py": "the settings of the three variants",
    "imaging/test_bids_app.py": "fcforge fc as a BIDS App, from words to files",
    "methods/test_own_network.py": "methods on any torch.nn.Module",
    "test_tracing.py": "the documented way of one FC matrix",
    "report/test_rendering.py": "templates, figures and text of pages",
    "estimator/test_explaining.py": "edges that moved a decision, and their stability",
    "consortium/cli/test_round.py": "a round as hospitals and aggregators type it",
    "consortium/aggregation/test_round_files.py": "a round from shares to its sum, in files",
    "consortium/test_no_subject_inside.py": "bytes of a chain of every method",
    "consortium/test_two_hospitals.py": "two folders, two processes, one file",
    "consortium/test_targets.py": "three classes and a number from start to prediction",
    "consortium/test_speed.py": "what an exchange costs, from learning to merging",
    "consortium/test_forgeries.py": "hundreds of forged files against all that opens them",
    "methods/test_contract.py": "every registered method",
    "models/test_contract.py": "every registered model",
    "report/test_browser.py": "every page in a real browser",
    "experiments/test_experiment_files.py": "every experiment that ships",
    "experiments/test_poison.py": "no method, generator or model reads a test split",
    "experiments/test_visits.py": "visits from the split to the report",
    "experiments/test_slurm.py": "a real Slurm, where one can be started",
    "test_bad_input.py": "every command given what it cannot use",
    "test_containers.py": "the Containerfile",
    "test_docs.py": "the documentation",
    "test_imports.py": "imports of both packages, without a cycle",
    "test_layout.py": "this file",
    "test_pictures.py": "pictures in README and the documentation",
    "test_memory_flat.py": "memory of whole commands",
    "test_security.py": "the page of promises",
    "test_supply.py": "what is installed, and from what",
    "test_without_torch.py": "what a hospital runs, without torch",
}


def modules_of(test: Path) -> list[Path]:
    """Return the places where the module of a test file may lie."""
    folder, name = test.parent, test.stem.removeprefix("test_")
    package = SRC / "fcforge" / folder
    if folder.parts[:1] == ("consortium",):
        package = SRC / "fcforge_consortium" / Path(*folder.parts[1:])
    names = (f"{name}.py", f"_{name}.py", f"{name}/__init__.py")
    return [package / n for n in names] + [ROOT / folder / "benchmarks" / f"{name}.py"]


def test_every_test_file_has_its_module_or_a_reason():
    files = [p.relative_to(TESTS) for p in TESTS.rglob("test_*.py")]
    alone = {str(p) for p in files if not any(m.exists() for m in modules_of(p))}
    assert alone == set(SPANNING)


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
