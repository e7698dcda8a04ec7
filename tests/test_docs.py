"""The documentation says what is there: tables are whole, links lead somewhere, examples run."""

import ast
import dataclasses
import doctest
import importlib
import importlib.util
import re
import runpy
from operator import attrgetter
from pathlib import Path

import pytest

from fcforge.data.datasets import DATASETS
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.replay.hcts import HCTS

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", sorted((ROOT / "examples").glob("plot_*.py"))
ONLY_IN_THE_GALLERY = ("plot_from_fmriprep",)  # takes a minute; `make docs` runs it
SRC = ROOT / "src"
WITH_EXAMPLES = sorted(p for p in SRC.rglob("*.py") if "\n    >>> " in p.read_text())
PAGES = sorted(
    p for p in DOCS.glob("**/*.md") if not {"generated", "_build"} & set(p.parts)
)
ABOVE = [ROOT / name for name in ("README.md", "paper/RESULTS.md", "CHANGELOG.md")]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("methods", METHODS),
        ("models", MODELS),
        ("generators", GENERATORS),
        ("datasets", DATASETS),
    ],
)
def test_table_has_every_registered_name(tables, name, registry):
    text = tables.TABLES[name]()
    rows = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    # parts "module:object" come from configs that other tests opened in this process
    assert rows == [part for part in registry if ":" not in part]
    lengths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()}
    assert len(lengths) == 1  # no cell broke a row


def test_tables_in_pages_are_fresh(tables):
    shown = []
    for page in PAGES:
        text = page.read_text()
        shown += [name for _, name, _, _ in tables.MARKED.findall(text)]
        assert tables.filled(text) == text, (page.name, "run: python docs/tables.py")
        included = re.findall(r"include\} generated/(\w+)\.md", text)
        assert {*included} <= {*tables.INCLUDED}
    assert sorted(shown) == sorted(tables.TABLES)


def test_pages_link_examples_where_a_clone_has_them():
    for page in PAGES:
        assert "auto_examples/plot_" not in page.read_text(), page.name


def test_methods_table_says_what_is_kept(tables):
    text = tables.methods()
    for name, cls in METHODS.items():
        row = next(
            line for line in text.splitlines() if line.startswith(f"| `{name}` |")
        )
        assert f"| {cls.keeps} |" in row
    assert (
        tables.basis("after Hoang et al. 2023 (TMLR), from its abstract")
        == "reconstruction"
    )
    assert tables.basis("sufficient statistics of ridge regression") == "textbook"


def test_command_page_has_every_command(tables):
    import typer.main

    from fcforge.cli import app

    text = tables.INCLUDED["commands"]()
    overview = (DOCS / "command_line.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():
        if command.hidden:
            continue  # former names
        assert f"## fcforge {name}\n" in text
        assert f"`{name}`" in overview
        for part in getattr(command, "commands", ()):
            assert f"### fcforge {name} {part}\n" in text
    assert "| `--epsilon` |" in text


def test_index_reaches_every_page():
    lines = (DOCS / "index.md").read_text().splitlines()
    pages = [
        *DOCS.glob("*.md"),
        *DOCS.glob("explained/*.md"),
        *DOCS.glob("results/*.md"),
    ]
    names = {page.relative_to(DOCS).with_suffix("").as_posix() for page in pages}
    listed_by_pattern = {n for n in names if "results/*" in lines and "results/" in n}
    assert names - {"index"} - listed_by_pattern <= set(lines)
    listed = {line for line in lines if re.fullmatch(r"[a-z_]+(/[a-z_]+)?", line)}
    assert listed <= names | {"api", "auto_examples/index"}


@pytest.mark.parametrize(
    "page", sorted(DOCS.glob("explained/*.md")), ids=lambda p: p.stem
)
def test_pages_that_explain_forge_have_formula_drawing_and_links_to_code(page):
    text = page.read_text()
    assert "\n$$\n" in text
    (drawing,) = re.findall(r"!\[[^]]+\]\((\S+)\)", text)
    assert (page.parent / drawing).is_file()
    linked = re.findall(r"\{py:(?:class|func)\}`([\w.]+)`", text)
    methods = re.findall(r"\{py:meth\}`([\w.]+)\.\w+`", text)
    listed = re.findall(r"^   (fcforge\.[\w.]+)$", (DOCS / "api.rst").read_text(), re.M)
    assert len(linked) >= 3
    assert {*linked, *methods} <= {
        *listed
    }  # Sphinx resolves a link to a listed name only


def test_api_page_names_what_exists():
    names = re.findall(
        r"^   (fcforge\.[\w.]+)$", (DOCS / "api.rst").read_text(), re.MULTILINE
    )
    assert len(names) > 40
    for name in names:
        module, _, thing = name.rpartition(".")
        assert hasattr(importlib.import_module(module), thing), name


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda p: p.stem)
def test_examples_in_docstrings_give_what_they_say(file):
    name = ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(
        ".__init__"
    )
    ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert ran.attempted > 0
    assert ran.failed == 0


def anchors(page: Path) -> set[str]:
    """Names by which headings of a page can be linked to."""
    heads = re.findall(r"^#{1,3} (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, *ABOVE], ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(
        r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()
    ):
        if target.startswith(("http", "mailto:")):
            continue
        example = re.fullmatch(r"(?:\.\./)*auto_examples/(\w+)\.rst", target)
        if example:
            name = example[1]
            assert name == "index" or (ROOT / "examples" / f"{name}.py").is_file(), (
                target
            )
        else:
            there = page.parent / target if target else page
            assert there.exists(), target
            if anchor and there.suffix == ".md":
                assert anchor in anchors(there), (target, anchor)


# -- architecture and glossary -----------------------------------------------------------------
def contract() -> list[str]:
    """Rooms of the import contract, top first."""
    import tomllib

    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in tool["contracts"] if c["type"] == "layers")
    return [room for room in layers if not room.startswith("(")]


def test_the_drawing_of_the_rooms_is_the_import_contract():
    text = (DOCS / "architecture.md").read_text()
    drawn = text.split("```text\n")[1].split("```")[0]
    rows = [
        line[12:33].strip() for line in drawn.splitlines() if not line.startswith(" ─")
    ]
    assert rows == contract()
    for row in rows:
        for room in row.split(" | "):
            assert (SRC / "fcforge" / room).is_dir() or (
                SRC / "fcforge" / f"{room}.py"
            ).is_file()


def test_one_fc_is_followed_in_files_that_exist():
    text = (DOCS / "architecture.md").read_text()
    steps = re.findall(
        r"^\| (\d+) \| `([\w/.]+)` \| (`.*?`) \|", text, flags=re.MULTILINE
    )
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    assert len({file for _, file, _ in steps}) == len(steps) > 0
    for _, file, names in steps:
        tree = ast.walk(ast.parse((SRC / "fcforge" / file).read_text()))
        # lines of code by name: a docstring alone does no work
        bodies = {f.name: len(f.body) for f in tree if isinstance(f, ast.FunctionDef)}
        for name in re.findall(r"\w+", names):
            assert bodies.get(name, 0) > 1, (file, name)


def test_new_things_go_to_files_that_exist():
    section = (
        (DOCS / "architecture.md").read_text().split("## Where a new thing goes")[1]
    )
    places = re.findall(r"`(?:(fcforge_consortium)/)?(\w+(?:/\w*)+(?:\.py)?)`", section)
    assert len(places) > 20
    for package, place in places:
        path = SRC / (package or "fcforge") / place
        assert (path.parent if path.stem == "NAME" else path).exists(), place


def test_every_term_is_defined_once_and_every_link_to_one_leads_there():
    terms = re.findall(
        r"^### (.+)$", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE
    )
    assert len(set(terms)) == len(terms) > 40
    anchors = {term.lower().replace(" ", "-") for term in terms}
    for page in {*PAGES, ROOT / "README.md"} - {DOCS / "glossary.md"}:
        assert re.search(r"\]\((docs/|\.\./)?glossary\.md", page.read_text()), page.name
        for anchor in re.findall(r"glossary\.md#([\w-]+)", page.read_text()):
            assert anchor in anchors, (page.name, anchor)


BLOCK = re.compile(r"^```(bash|console|toml|python)\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize("page", [*PAGES, ABOVE[0]], ids=lambda p: p.stem)
def test_code_is_not_cut_off_and_imports_what_exists(page):
    for kind, code in BLOCK.findall(page.read_text()):
        if page in PAGES:
            assert max(map(len, code.splitlines())) <= 91  # what a page has room for
        if kind == "python":
            for node in ast.walk(ast.parse(code)):
                module = getattr(node, "module", None) or ""
                if module.startswith("fcforge"):
                    found = importlib.import_module(module)
                    assert all(hasattr(found, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", [*PAGES, *ABOVE], ids=lambda p: p.stem)
def test_commands_have_the_options_that_pages_type(page):
    import typer.main

    from fcforge.cli import app

    commands = typer.main.get_command(app).commands
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"(?<=[`\n ])fcforge ([a-z][^`\n|#;&]*)", text):
        first, *words = line.split()
        command = commands.get(first)
        if command is None:
            continue  # a sentence about fcforge
        while hasattr(command, "commands") and words:
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in option.opts}
        for word in words:
            name = re.match(r"--[a-z-]+", word)
            assert not name or name[0] in known, (page.name, line)


def test_every_experiment_is_on_its_page():
    text = (DOCS / "experiments.md").read_text()
    named = set(re.findall(r"`(\w+)`", text))
    for path in (ROOT / "paper" / "experiments").glob("*.toml"):
        beside = re.sub("_529(_confounds)?$", r"\1", path.stem)
        also = re.sub("_529(_confounds)?$", r"_abide\1", path.stem)
        assert {path.stem, beside, also} & named, path.name


def test_experiments_page_says_which_have_results():
    text = (DOCS / "experiments.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| [^|]+ \| (.+) \|$", text, re.M)
    linked = set()
    for names, results in rows:
        stored = [
            name
            for name in re.findall(r"\w+", names)
            if (ROOT / "paper" / "results" / f"{name}.npz").is_file()
        ]
        page = re.search(r"\]\((results/\w+\.md)\)", results)
        assert bool(page) == bool(stored), names
        if page:
            linked.add(page[1])
            published = (DOCS / page[1]).read_text()
            assert all(f"experiments/{name}.toml" in published for name in stored)
    assert len(rows) > 20
    others = {"results/people.md", "results/sums.md"}  # made from runs of other tables
    others |= {"results/generators.md"}  # judged, and named below the table
    assert "(results/generators.md)" in text
    pages = {f"results/{path.name}" for path in DOCS.glob("results/*.md")}
    assert pages - others <= linked


def test_files_named_in_the_docs_exist():
    folder = r"(?:\w+/)*(?:experiments|benchmarks|results|tests)"
    named = folder + r"/[a-z0-9_/+]+\.(?:toml|py|json|csv|npz)"
    for page in [*PAGES, *ABOVE, ROOT / "paper" / "benchmarks" / "RESULTS.md"]:
        for name in re.findall(named, page.read_text()):
            places = (ROOT / name, SRC / "fcforge" / name)
            assert any(p.is_file() for p in places), f"{page.name}: {name}"


# -- numbers in sentences ------------------------------------------------------------------------


def test_default_strengths_are_those_of_the_code():
    table = (
        (DOCS / "methods.md")
        .read_text()
        .split("### Default strengths")[1]
        .split("###")[0]
    )
    found = 0
    for names, told in re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", table, re.MULTILINE
    ):
        methods = [METHODS[name]() for name in re.findall(r"\w+", names)]
        for field, value in re.findall(r"`(\w+)` ([\d.e]+\d|\d)", told):
            has = [
                getattr(method, field) for method in methods if hasattr(method, field)
            ]
            assert set(has) == {float(value)}, (names, field)
            found += 1
    assert found > 15


def said(value: object) -> str:
    """A setting as the page of FORGE writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


SAMPLER = {  # rows of the page that are numbers of the sampler
    "scale of a reward": "hcts.reward_scale",
    "shortlist, in quotas": "hcts.shortlist",
    "prior and noise, sites": "hcts.sites.prior hcts.sites.noise",
    "prior and noise, subjects": "hcts.subjects.prior hcts.subjects.noise",
    "weight of the present in the averages": "hcts.prototype_weight",
    "jitter added at every average": "hcts.UPDATE_JITTER",
}
WORDED = {  # what else differs between the samplers' classes, and the row that says so
    "temperature": "utilities as z-scores; temperature",
    "shares": "utilities as z-scores; temperature",
    "floor": "split evenly",
    "LEAST_SHARE": "split evenly",
    "LIMITS": "limits of a site's quota",
    "deal": "limits of a site's quota",
    "reward": 'a reward of "nothing changed"',
    "refresh": "a reward is credited to",
    "draws_by_share": "a site counts",
    "draw_slots": "a site counts",
    "chooses_at_end": "a choice when a site ends",
    "moments": "second moments of a choice's contexts",
    "closeness": "closeness",
    "averages": "class means and covariances",
    "keeps_prototypes": "class means and covariances",
    "sites.pooled": "weight vectors of sites",
    "sites.belief": "belief",
    "subjects.belief": "belief",
    "sites": "what a bandit knows",
    "subjects": "what a bandit knows",
}


def forge_table() -> list[tuple[str, ...]]:
    """Rows of the page's table: what it is about, and the cell of each variant."""
    text = (DOCS / "forge.md").read_text()
    return re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE
    )


def test_the_settings_of_forge_are_those_of_the_code():
    forge = METHODS["forge"]
    presets = [forge.of_variant(word)() for word in ("stable", "paper", "authors")]
    found = []
    for names, *told in forge_table():
        fields = SAMPLER.get(names, "").split() or re.findall(r"`(\w+)`", names)
        found += fields
        for preset, cell in zip(presets, told, strict=True):
            if fields == ["lambdas"]:
                weights = (told[0] if cell == "the same" else cell).split(" / ")
                assert preset.weights == tuple(map(float, weights))
                continue
            for field, value in zip(fields, cell.split(", "), strict=bool(fields)):
                *path, last = field.split(".")
                holder = attrgetter(".".join(path))(preset) if path else preset
                now = getattr(holder, last, "none")
                assert said(now) == value, (field, cell)
    assert len(found) == 17
    differing = {
        name
        for name in (field.name for field in dataclasses.fields(forge))
        if len({getattr(preset, name) for preset in presets}) > 1
    }
    assert differing <= {*found}


def test_the_table_of_fcm_vae_is_that_of_the_code():
    """Every setting in which the variants differ is in the table, with its values."""
    text = (DOCS / "generators.md").read_text()
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+|dropout) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|",
        text,
        re.M,
    )
    root = GENERATORS["fcm_vae"]
    variants = [root.variants[word]() for word in ("paper", "authors", "stable")]
    told = {}
    for names, *cells in rows:
        fields = re.findall(r"\w+", names)
        if not all(hasattr(variants[0], name) for name in fields):
            continue  # a row of another table
        for variant, cell in zip(variants, cells, strict=True):
            parts = cell.split(", ")[: len(fields)]
            for name, part in zip(fields, parts, strict=True):
                value = 0.0 if part == "none" else float(part.split()[0])
                assert getattr(variant, name) == value, (name, cell)
                told[name] = value
    differing = {
        field.name
        for field in dataclasses.fields(root)
        if len({getattr(variant, field.name) for variant in variants}) > 1
    }
    assert differing == {*told}


def test_the_table_of_forge_names_every_difference_of_the_samplers():
    """Each setting and behaviour that a variant's sampler overrides has a row."""
    rows = {row[0] for row in forge_table()}
    assert {*WORDED.values(), *SAMPLER} <= rows
    known = {
        name.removeprefix("hcts.") for row in SAMPLER.values() for name in row.split()
    }
    unsaid = {"variant", "looked"}
    for cls in (HCTS.of_variant("paper"), HCTS.of_variant("authors")):
        for name, value in vars(cls).items():
            if name.startswith("_") or name in unsaid or name in known:
                continue
            same = getattr(HCTS, name, None) == value
            assert same or name in WORDED, name
    stable, paper, authors = (
        HCTS.of_variant(word)() for word in ("stable", "paper", "authors")
    )
    for level in ("sites", "subjects"):
        for field in dataclasses.fields(stable.sites):
            values = [
                getattr(getattr(sampler, level), field.name)
                for sampler in (stable, paper, authors)
            ]
            name = f"{level}.{field.name}"
            assert len({*values}) == 1 or name in {*WORDED, *known}, name


def test_the_readme_examples_run_as_written(capsys):
    first, *others = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert len(first.strip().splitlines()) == 12
    names = {}
    exec(compile(first, "README.md", "exec"), names)
    assert 0.5 < float(capsys.readouterr().out) <= 1
    for code in others:
        exec(compile(code, "README.md", "exec"), names)
    assert names["synthetic"].shape == (3, 40, 40)


def test_generators_on_arrays_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "generators.md").read_text().split("## ")[1]
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(compile(code, "generators.md", "exec"), names)
    assert names["latent"].shape == (len(names["fc"]), 32)
    assert (tmp_path / "nyu.safetensors").is_file()
    printed = capsys.readouterr().out
    for what in ("edge means", "class difference"):
        assert float(re.search(rf"{what} (\S+)", printed)[1]) > 0.9, what
    assert "spectra" in printed
    key = re.search(r'`diagnostics_\["(\w+)"\]`', (DOCS / "generators.md").read_text())
    assert 0 < names["vae"].diagnostics_[key[1]] < 1


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_examples_compile_and_have_a_title(script):
    text = script.read_text()
    compile(text, str(script), "exec")
    title, line = re.match(r'r?"""\n(.+)\n(=+)\n', text).groups()
    assert len(title) == len(line)


def test_there_are_the_examples_that_were_promised():
    promised = (
        "first_run see_forgetting own_data write_a_method two_hospitals read_an_audit"
    )
    promised += " consortium any_pipeline"
    assert {p.stem.split("_", 2)[2] for p in EXAMPLES} >= set(promised.split())
    of_forge = "0_forge_in_five_minutes synthetic_fc hcts_at_work own_network 4_write_a_method "
    of_forge += "known_site_returns from_fmriprep"
    stems = {path.stem.removeprefix("plot_") for path in EXAMPLES}
    assert stems >= set(of_forge.split())


@pytest.mark.parametrize(
    "script",
    [path for path in EXAMPLES if path.stem not in ONLY_IN_THE_GALLERY],
    ids=lambda p: p.stem,
)
def test_examples_run(script, capsys):
    import matplotlib.pyplot as plt

    known = dict(METHODS)
    plt.switch_backend("Agg")
    found = runpy.run_path(str(script))
    plt.close("all")
    assert "fig" in found
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert known == METHODS  # an example leaves the tables as it found them
