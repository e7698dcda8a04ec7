"""`fcforge judge`: a config in, all generators judged on all sites; the same call again goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from fcforge.components import check_names
from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.models import MODELS
from fcforge.runner.config import ConfigTable, TrainingTable, read_tables, resolve_dataset
from fcforge.runner.config_files import read_config
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
from fcforge.types import Component, Site, Training
from fcforge.writing import write_text

Say = Callable[[str], Any]
Record = dict[str, Any]
RECORDS = "records.json"


class JudgeTable(ConfigTable):
    """``[judge]``."""

    title: str = "Generators judged"
    seeds: list[int] = Field(default=[0], min_length=1)
    sites: list[str] = Field(default_factory=list)
    classifiers: list[str] = Field(default=["linear", "gcn"])
    augment: list[str] = Field(default_factory=list)
    multiple: int = Field(default=4, ge=1)
    check: str = ""


class GeneratorTable(ConfigTable):
    """``[[generator]]``: a row; what is not its name or title is a setting."""

    model_config = ConfigDict(extra="allow")
    name: str
    title: str = ""


class JudgeFile(ConfigTable):
    """A whole config that judges generators."""

    judge: JudgeTable = Field(default_factory=JudgeTable)
    dataset: dict[str, Any]
    training: TrainingTable = Field(default_factory=TrainingTable)
    generator: list[GeneratorTable] = Field(min_length=1)


@dataclass(frozen=True)
class JudgeExperiment:
    """What is judged, on which data.

    Attributes
    ----------
    panel : Panel
    dataset : Component
    title : str
    seeds : tuple of int
    sites : tuple of str
        Sites of the dataset; all where none is named.
    check : str
        Row that the requirements are asked of; none where empty.
    """

    panel: Panel
    dataset: Component
    title: str
    seeds: tuple[int, ...]
    sites: tuple[str, ...] = ()
    check: str = ""


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
    asked = config.judge
    check_names("model", [*asked.classifiers, *asked.augment], MODELS)
    panel = Panel(
        _rows(config.generator, files.where(("generator",))),
        classifiers=tuple(asked.classifiers),
        augment=tuple(asked.augment),
        multiple=asked.multiple,
        training=Training(**config.training.model_dump()),
    )
    if asked.check:
        check_names("row to check", [asked.check], panel.rows)
    folder = Path(path).resolve().parent
    dataset = resolve_dataset(config.dataset, files.where(("dataset",)), folder)
    seeds, sites = tuple(asked.seeds), tuple(asked.sites)
    return JudgeExperiment(panel, dataset, asked.title, seeds, sites, asked.check)


def _rows(tables: Sequence[GeneratorTable], where: str) -> dict[str, Component]:
    rows: dict[str, Component] = {}
    for table in tables:
        component, title = Component(table.name, table.model_extra or {}), table.title or table.name
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
    return judge_all(load_judge(path, overrides), out, device, say)


def judge_all(experiment: JudgeExperiment, out: Path, device: str, say: Say) -> Judgement:
    """Judge an experiment's generators; see `judge_config`."""
    panel, cohort = experiment.panel, load_dataset(experiment.dataset)
    names = experiment.sites or cohort.site_names
    check_names("site", names, cohort.site_names)
    make = partial(synthesise, multiple=panel.multiple, folder=out / "generators")
    records = _all_records(experiment, cohort, names, out / RECORDS, make, device, say)
    summary, seed = summarise(records), experiment.seeds[0]
    portraits = _portraits(panel, split_site(cohort, names[0], seed), seed, make, device)
    write_portraits(out / "portraits.npz", portraits)
    return Judgement(
        experiment.title,
        panel,
        summary,
        acceptance(summary, experiment.check) if experiment.check else [],
        collapse_list(records),
        f"Site {names[0]}, seed {seed}.",
        portraits,
    )


def _all_records(
    experiment: JudgeExperiment,
    cohort: Cohort,
    names: Sequence[str],
    path: Path,
    make: Maker,
    device: str,
    say: Say,
) -> list[Record]:
    """Records of all sites; those that `path` holds already are not made again."""
    stamp = _stamp(experiment, cohort)
    done = _read_records(path, stamp)
    for name in names:
        if name in done:
            say(f"{name}: already judged")
            continue
        sites = {seed: split_site(cohort, name, seed) for seed in experiment.seeds}
        done[name] = judge_site(experiment.panel, sites, device, make, say)
        write_text(path, json.dumps({"stamp": stamp, "sites": done}))
    return [record for name in names for record in done[name]]


def _stamp(experiment: JudgeExperiment, cohort: Cohort) -> str:
    """All that records depend on, but the sites: another stamp, and they are made anew."""
    parts = [asdict(experiment.panel), experiment.seeds, cohort.content_sha256()]
    return json.dumps(parts, sort_keys=True)


def _read_records(path: Path, stamp: str) -> dict[str, list[Record]]:
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["sites"] if found.get("stamp") == stamp else {}


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


def _portraits(
    panel: Panel, site: Site, seed: int, make: Maker, device: str
) -> dict[str, Portrait]:
    """What the figures show of one site and seed, the real subjects first."""
    train = to_device(site.learning(with_val=True), device)
    made = {REAL: portrait(train)}
    for row, component in panel.rows.items():
        if component is not None:
            made[row] = portrait(make(component, train, site.name, seed)[0])
    return made
