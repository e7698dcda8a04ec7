"""`fcforge judge`: a config in, all generators judged on all sites; the same call again goes on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.files import write_text
from fcforge.generators import make_generator
from fcforge.generators.cache import fit_together
from fcforge.generators.corr_gauss import class_means
from fcforge.graphs import edges
from fcforge.imaging.atlas import atlas_of_names
from fcforge.messages import ConfigError, check_names
from fcforge.models import MODELS
from fcforge.runner.config import (
    Seeds,
    read_component,
    require_different,
    resolve_dataset,
)
from fcforge.runner.config_files import read_config
from fcforge.settings import Checked, Size, make
from fcforge.sites import Cohort, load_dataset, require_valid, split_site
from fcforge.studies.judge.measures import spectrum
from fcforge.studies.judge.panel import Panel, judge_site, synthesise, to_device
from fcforge.studies.judge.summary import (
    RECORDS,
    Portraits,
    collapse_list,
    write_portraits,
)
from fcforge.types import Component, FCBatch, Training

Say = Callable[[str], Any]


@dataclass(frozen=True)
class JudgeTable(Checked):
    """``[judge]``: all sites where none is named."""

    title: str = "Generators judged"
    seeds: Seeds = (0,)
    sites: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = Panel.classifiers
    augment: tuple[str, ...] = ()
    multiple: Size = Panel.multiple


@dataclass(frozen=True)
class JudgeConfig(Checked):
    """All of a config file that judges."""

    dataset: Mapping[str, Any] = field(default_factory=dict)
    generator: tuple[Mapping[str, Any], ...] = ()
    judge: JudgeTable = JudgeTable()
    training: Training = field(default_factory=Training)


def portrait(batch: FCBatch) -> tuple[np.ndarray, ...]:
    """The most typical control and patient (nearest to the class mean), edge means, spectrum."""
    e = edges(batch.fc)
    means = class_means(e, batch.y)
    typical = []
    for label in (0, 1):
        members = (batch.y == label).nonzero().flatten()
        if not members.numel():
            members = (batch.y >= 0).nonzero().flatten()
        distance = (e[members] - means[label]).norm(dim=1)
        nearest = members[distance.argmin()]
        typical.append(batch.fc[nearest])
    shown = (*typical, e.mean(0), spectrum(batch.fc).float())
    return tuple(x.detach().cpu().numpy() for x in shown)


def load_judge(
    path: str | Path, overrides: Sequence[str] = ()
) -> tuple[Panel, Component, JudgeTable]:
    """Generators, dataset and ``[judge]`` of a config; mistakes name the nearest known thing."""
    tables: JudgeConfig = make(JudgeConfig, read_config(path, overrides), str(path))
    if not tables.generator:
        raise ConfigError("[[generator]] is missing.", where=path)
    asked = tables.judge
    check_names("model", [*asked.classifiers, *asked.augment], MODELS)
    panel = Panel(
        _rows(tables.generator, str(path)),
        classifiers=asked.classifiers,
        augment=asked.augment,
        multiple=asked.multiple,
        training=tables.training,
    )
    return panel, resolve_dataset(tables.dataset, Path(path)), asked


def _rows(tables: Sequence[Mapping[str, Any]], where: str) -> dict[str, Component]:
    """Generators by title; what is not a row's name or title is a setting."""
    titles = []
    components = []
    for number, table in enumerate(tables):
        said = dict(table)
        title = said.pop("title", "")
        component = read_component(said, "generator", f"{where}: generator {number}")
        make_generator(component)
        titles.append(str(title or component.name))
        components.append(component)
    require_different("generators", titles, where)
    return dict(zip(titles, components, strict=True))


def judge_config(
    path: str | Path, overrides: Sequence[str], out: Path, device: str, say: Say
) -> list[str]:
    """Judge the generators of a config file on all its sites and seeds; returns what collapsed.

    Parameters
    ----------
    path : path
        TOML with ``[judge]``, ``[dataset]``, ``[training]`` and ``[[generator]]`` tables.
    overrides : sequence of str
        ``a.b=c``.
    out : Path
        Folder for ``records.json``, ``portraits.npz`` (`read_judgement`) and fitted generators,
        which the same call again takes up.
    device : str
    say : callable
        Told what is going on.
    """
    panel, dataset, asked = load_judge(path, overrides)
    cohort = load_dataset(dataset)
    names = asked.sites or cohort.site_names
    require_valid(cohort.select_sites(names))
    judge_run = JudgeRun(panel, asked, cohort, names, out, device, say)
    records = judge_run.records()
    write_portraits(out, judge_run.portraits())
    return collapse_list(records)


@dataclass(frozen=True)
class JudgeRun:
    """Generators, what is asked, people and the sites asked for, and where to work."""

    panel: Panel
    asked: JudgeTable
    cohort: Cohort
    names: Sequence[str]
    out: Path
    device: str
    say: Say

    @property
    def generators(self) -> Path:
        """Folder of fitted generators."""
        return self.out / "generators"

    def records(self) -> list[dict[str, Any]]:
        """Records of all sites; those that are in the folder already are not made again."""
        # All that records depend on, but the sites: another stamp, and they are made anew.
        stamp = json.dumps(
            [asdict(self.panel), self.asked.seeds, self.cohort.content_sha256()],
            sort_keys=True,
        )
        path = self.out / RECORDS
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        done = stored["sites"] if stored.get("stamp") == stamp else {}
        if self.device != "cpu" and any(name not in done for name in self.names):
            self.fit_together()
        for name in self.names:
            if name in done:
                self.say(f"{name}: already judged")
            else:
                sites = {k: split_site(self.cohort, name, k) for k in self.asked.seeds}
                where = self.device, self.generators
                done[name] = judge_site(self.panel, sites, *where, self.say)
            kept = {"stamp": stamp, "title": self.asked.title, "sites": done}
            write_text(path, json.dumps(kept))
        return [record for site in done.values() for record in site]

    def fit_together(self) -> None:
        """Fit every generator on all sites and seeds side by side, where a GPU can do so."""
        asked = []
        for name, seed in product(self.names, self.asked.seeds):
            site = split_site(self.cohort, name, seed)
            asked.append((site.learning(with_val=True), (seed, name)))
        for row, component in self.panel.rows.items():
            if component is not None:
                where = self.generators, self.device
                n = fit_together(make_generator(component), asked, *where)
                self.say(f"{row}: {n} of {len(asked)} fitted")

    def portraits(self) -> Portraits:
        """What the figures show of the first site and seed, the real subjects first."""
        name = self.names[0]
        seed = self.asked.seeds[0]
        site = split_site(self.cohort, name, seed)
        train = to_device(site.learning(with_val=True), self.device)
        made = {}
        for row, component in self.panel.rows.items():
            shown = train
            if component is not None:
                asked = (component, train, name, seed, self.panel.multiple)
                shown, _ = synthesise(*asked, self.generators)
            made[row] = portrait(shown)
        atlas = atlas_of_names(self.cohort.roi_names)
        systems = np.array(atlas.systems if atlas else (), dtype=np.str_)
        columns = list(map(np.stack, zip(*made.values(), strict=True)))
        where = np.array(f"Site {name}, seed {seed}.")
        return Portraits._make([np.array(list(made)), *columns, systems, where])
