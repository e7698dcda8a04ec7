"""`fcforge judge`: a config in, all generators judged on all sites; the same call again goes on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fcforge.errors import ConfigError, check_names
from fcforge.files import write_text
from fcforge.generators import make_generator
from fcforge.generators.cache import fit_together
from fcforge.generators.corr_gauss import class_means
from fcforge.graphs import edges
from fcforge.imaging.atlas import atlas_of_names
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
from fcforge.studies.judge import summary as judged
from fcforge.studies.judge.measures import spectrum
from fcforge.studies.judge.panel import Panel, judge_site, synthesise, to_device
from fcforge.studies.judge.summary import REAL, Portrait, write_portraits
from fcforge.types import Component, Estimate, FCBatch, Training

Say = Callable[[str], Any]
RECORDS = "records.json"


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


def portrait(batch: FCBatch) -> Portrait:
    """The most typical subject of each class (nearest to its class mean), means and spectrum."""
    e = edges(batch.fc)
    means = class_means(e, batch.y)
    typical = []
    for label in (0, 1):
        members = (batch.y == label).nonzero().flatten()
        if not members.numel():
            members = (batch.y >= 0).nonzero().flatten()
        distance = (e[members] - means[label]).norm(dim=1)
        nearest = members[distance.argmin()]
        typical.append(_array(batch.fc[nearest]))
    control, patient = typical
    edge_mean = _array(e.mean(0))
    return Portrait(control, patient, edge_mean, _array(spectrum(batch.fc)))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()


@dataclass(frozen=True)
class Judgement:
    """All that is shown of judged generators.

    Attributes
    ----------
    summary : mapping of row to metric to Estimate
    warnings : sequence of Collapse
    portraits : mapping of row to Portrait
        At the site and seed that `where` names.
    """

    title: str
    panel: Panel
    summary: Mapping[str, Mapping[str, Estimate]]
    warnings: Sequence[judged.Collapse] = ()
    where: str = ""
    portraits: Mapping[str, Portrait] | None = None


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
    panel, dataset, asked = load_judge(path, overrides)
    cohort = load_dataset(dataset)
    names = asked.sites or cohort.site_names
    require_valid(cohort.select_sites(names))
    judge_run = JudgeRun(panel, asked.seeds, cohort, names, out, device, say)
    records = judge_run.records()
    summary = judged.summarise(records)
    portraits = judge_run.portraits()
    write_portraits(out / "portraits.npz", portraits)
    where = f"Site {names[0]}, seed {asked.seeds[0]}."
    collapsed = judged.collapse_list(records)
    return Judgement(asked.title, panel, summary, collapsed, where, portraits)


@dataclass(frozen=True)
class JudgeRun:
    """Generators, seeds, people and the sites asked for, and where to work."""

    panel: Panel
    seeds: Sequence[int]
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
            [asdict(self.panel), self.seeds, self.cohort.content_sha256()],
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
                continue
            sites = {seed: split_site(self.cohort, name, seed) for seed in self.seeds}
            where = self.device, self.generators
            done[name] = judge_site(self.panel, sites, *where, self.say)
            write_text(path, json.dumps({"stamp": stamp, "sites": done}))
        return [record for name in self.names for record in done[name]]

    def fit_together(self) -> None:
        """Fit every generator on all sites and seeds side by side, where a GPU can do so."""
        asked = []
        for name, seed in product(self.names, self.seeds):
            site = split_site(self.cohort, name, seed)
            asked.append((site.learning(with_val=True), (seed, name)))
        for row, component in self.panel.rows.items():
            if component is not None:
                where = self.generators, self.device
                n = fit_together(make_generator(component), asked, *where)
                self.say(f"{row}: {n} of {len(asked)} fitted")

    def portraits(self) -> dict[str, Portrait]:
        """What the figures show of the first site and seed, the real subjects first."""
        name = self.names[0]
        seed = self.seeds[0]
        site = split_site(self.cohort, name, seed)
        train = to_device(site.learning(with_val=True), self.device)
        made = {REAL: portrait(train)}
        for row, component in self.panel.rows.items():
            if component is not None:
                asked = (component, train, name, seed, self.panel.multiple)
                fake, _ = synthesise(*asked, self.generators)
                made[row] = portrait(fake)
        if atlas := atlas_of_names(self.cohort.roi_names):
            systems = np.array(atlas.systems)
            for row, found in made.items():
                made[row] = found._replace(systems=systems)
        return made
