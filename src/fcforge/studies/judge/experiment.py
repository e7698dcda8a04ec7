"""`fcforge judge`: a config in, all generators judged on all sites; the same call again goes on."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.components import check_names
from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.generators.cache import fit_together
from fcforge.imaging.atlas import atlas_of_names
from fcforge.models import MODELS
from fcforge.runner.config import read_component, read_table, read_tables, resolve_dataset
from fcforge.runner.config_files import read_config
from fcforge.runner.experiment import Seeds
from fcforge.settings import Size
from fcforge.sites import Cohort, load_dataset, split_site
from fcforge.studies.judge.panel import (
    REAL,
    Interval,
    Maker,
    Panel,
    Requirement,
    acceptance,
    judge_site,
    summarise,
    synthesise,
    to_device,
)
from fcforge.studies.judge.portraits import Portrait, portrait, write_portraits
from fcforge.types import Component, Training
from fcforge.writing import write_text

Say = Callable[[str], Any]
Record = dict[str, Any]
RECORDS = "records.json"


@dataclass(frozen=True)
class JudgeTable:
    """``[judge]``: all sites where none is named; `check` is the row that has to meet something."""

    title: str = "Generators judged"
    seeds: Seeds = (0,)
    sites: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = ("linear", "gcn")
    augment: tuple[str, ...] = ()
    multiple: Size = 4
    check: str = ""


@dataclass(frozen=True)
class JudgeFile:
    """A whole config that judges generators; a ``[[generator]]`` is a row."""

    dataset: dict[str, Any]
    generator: list[dict[str, Any]]
    judge: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgeExperiment:
    """What is judged, on which data, and what the config's ``[judge]`` says of it."""

    panel: Panel
    dataset: Component
    asked: JudgeTable


@dataclass(frozen=True)
class Judgement:
    """All that is shown of judged generators.

    Attributes
    ----------
    summary : mapping of row to metric to Interval
    findings : sequence of Requirement
        Of the checked row, if any.
    warnings : sequence of str
        One line per generator that collapsed.
    portraits : mapping of row to Portrait
        At the site and seed that `where` names.
    """

    title: str
    panel: Panel
    summary: Mapping[str, Mapping[str, Interval]]
    findings: Sequence[Requirement] = ()
    warnings: Sequence[str] = ()
    where: str = ""
    portraits: Mapping[str, Portrait] | None = None


def load_judge(path: str | Path, overrides: Sequence[str] = ()) -> JudgeExperiment:
    """What a config asks to be judged; mistakes name the nearest known thing."""
    files = read_config(path, overrides)
    config = read_tables(JudgeFile, files)
    asked = read_table(JudgeTable, config.judge, files, "judge")
    check_names("model", [*asked.classifiers, *asked.augment], MODELS)
    panel = Panel(
        _rows(config.generator, files.where(("generator",))),
        classifiers=asked.classifiers,
        augment=asked.augment,
        multiple=asked.multiple,
        training=read_table(Training, config.training, files, "training"),
    )
    if asked.check:
        check_names("row to check", [asked.check], panel.rows)
    folder = Path(path).resolve().parent
    dataset = resolve_dataset(config.dataset, files.where(("dataset",)), folder)
    return JudgeExperiment(panel, dataset, asked)


def _rows(tables: Sequence[Mapping[str, Any]], where: str) -> dict[str, Component]:
    """Generators by title; what is not a row's name or title is a setting."""
    rows: dict[str, Component] = {}
    for number, table in enumerate(tables):
        said = {k: v for k, v in table.items() if k != "title"}
        component = read_component(said, "generator", f"{where}: generator {number}")
        title = str(table.get("title") or component.name)
        make_generator(component)
        if title in rows:
            raise ConfigError(
                f"two generators are called '{title}'.", where=where, do="Give each a title."
            )
        rows[title] = component
    return rows


def judge_config(
    path: str | Path, overrides: Sequence[str], out: Path, device: str, say: Say
) -> Judgement:
    """Judge the generators of a config file on all its sites and seeds.

    Parameters
    ----------
    path : path
        TOML with ``[judge]``, ``[dataset]``, ``[training]`` and ``[[generator]]`` tables.
    overrides : sequence of str
        ``a.b=c``.
    out : Path
        Folder for ``records.json``, ``portraits.npz`` and fitted generators, which the same call
        again takes up.
    device : str
    say : callable
        Told what is going on.
    """
    experiment = load_judge(path, overrides)
    cohort, asked = load_dataset(experiment.dataset), experiment.asked
    names = asked.sites or cohort.site_names
    check_names("site", names, cohort.site_names)
    court = _Court(experiment, cohort, names, out, device, say)
    records = court.records()
    summary, portraits = summarise(records), court.portraits()
    write_portraits(out / "portraits.npz", portraits)
    return Judgement(
        asked.title,
        experiment.panel,
        summary,
        acceptance(summary, asked.check) if asked.check else [],
        collapse_list(records),
        f"Site {names[0]}, seed {asked.seeds[0]}.",
        portraits,
    )


@dataclass(frozen=True)
class _Court:
    """An experiment with its people, the sites asked for, and where to work."""

    experiment: JudgeExperiment
    cohort: Cohort
    names: Sequence[str]
    out: Path
    device: str
    say: Say

    @property
    def make(self) -> Maker:
        """Synthetic subjects of a generator, which is fitted once."""
        multiple = self.experiment.panel.multiple
        return partial(synthesise, multiple=multiple, folder=self.out / "generators")

    def records(self) -> list[Record]:
        """Records of all sites; those that are in the folder already are not made again."""
        panel, seeds = self.experiment.panel, self.experiment.asked.seeds
        # All that records depend on, but the sites: another stamp, and they are made anew.
        stamp = json.dumps([asdict(panel), seeds, self.cohort.content_sha256()], sort_keys=True)
        path = self.out / RECORDS
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        done = stored["sites"] if stored.get("stamp") == stamp else {}
        if self.device != "cpu" and any(name not in done for name in self.names):
            self.fit_together()
        for name in self.names:
            if name in done:
                self.say(f"{name}: already judged")
                continue
            sites = {seed: split_site(self.cohort, name, seed) for seed in seeds}
            done[name] = judge_site(panel, sites, self.device, self.make, self.say)
            write_text(path, json.dumps({"stamp": stamp, "sites": done}))
        return [record for name in self.names for record in done[name]]

    def fit_together(self) -> None:
        """Fit every generator on all sites and seeds side by side, where a GPU can do so."""
        seeds = self.experiment.asked.seeds
        sites = [(split_site(self.cohort, n, s), s) for n in self.names for s in seeds]
        asked = [(site.learning(with_val=True), (seed, site.name)) for site, seed in sites]
        for row, component in self.experiment.panel.rows.items():
            if component is not None:
                folder = self.out / "generators"
                n = fit_together(make_generator(component), asked, folder, self.device)
                self.say(f"{row}: {n} of {len(asked)} fitted")

    def portraits(self) -> dict[str, Portrait]:
        """What the figures show of the first site and seed, the real subjects first."""
        name, seed = self.names[0], self.experiment.asked.seeds[0]
        site = split_site(self.cohort, name, seed)
        train = to_device(site.learning(with_val=True), self.device)
        made = {REAL: portrait(train)}
        for row, component in self.experiment.panel.rows.items():
            if component is not None:
                made[row] = portrait(self.make(component, train, name, seed)[0])
        if atlas := atlas_of_names(self.cohort.roi_names):
            systems = np.array(atlas.systems)
            made = {row: found._replace(systems=systems) for row, found in made.items()}
        return made


def collapse_list(records: Sequence[Record]) -> list[str]:
    """Collapse warnings, one line per row: how often, and what."""
    total = Counter(record["row"] for record in records)
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        for text in record["numbers"]["warnings"]:
            what = "no latent unit is active"
            if "variance" in text:
                what = "within-class edge variance is below a fifth of the real one"
            found[record["row"], what] += 1
    return [
        f"{row} COLLAPSED in {n} of {total[row]} site-seeds: {what}."
        for (row, what), n in found.items()
    ]
