"""`fcforge judge`: a config in, all generators judged on all sites; the same call again goes on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.files import write_text
from fcforge.core.names import check_names
from fcforge.core.randomness import torch_rng
from fcforge.core.settings import Checked, make
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import split_site
from fcforge.evaluation.generator_quality.measures import spectrum
from fcforge.evaluation.generator_quality.panel import JudgedSet, Panel, judge_all
from fcforge.evaluation.generator_quality.summary import (
    REAL,
    RECORDS,
    Portraits,
    collapse_list,
    write_portraits,
)
from fcforge.experiments.config import (
    read_component,
    require_different,
    resolve_dataset,
)
from fcforge.experiments.config_files import read_config
from fcforge.generators import make_generator
from fcforge.generators.cache import fit_cached, fit_together
from fcforge.generators.gaussian import class_means
from fcforge.graphs import edges
from fcforge.imaging.atlas import atlas_of_names
from fcforge.models import MODELS

Say = Callable[[str], Any]
# rows of every table: the real subjects themselves, copies of them, a plain Gaussian
REFERENCES: Mapping[str, Component | None] = {
    REAL: None,
    "bootstrap": Component("bootstrap"),
    "corr_gauss": Component("corr_gauss"),
}


@dataclass(frozen=True)
class JudgeConfig(Checked):
    """All of a config file that judges."""

    dataset: Mapping[str, Any] = field(default_factory=dict)
    generator: tuple[Mapping[str, Any], ...] = ()
    judge: Panel = field(default_factory=Panel)
    training: Training = field(default_factory=Training)


def portrait(batch: FCBatch) -> tuple[np.ndarray, ...]:
    """Return the most typical control and patient (nearest to the class mean), edge means, spectrum."""
    e = edges(batch.fc)
    means = class_means(e, batch.y)
    typical = []
    for label in (0, 1):
        members = (batch.y == label).nonzero().flatten()
        distance = (e[members] - means[label]).norm(dim=1)
        nearest = members[distance.argmin()]
        typical.append(batch.fc[nearest])
    shown = (*typical, e.mean(0), spectrum(batch.fc).float())
    return tuple(x.detach().cpu().numpy() for x in shown)


def _rows(tables: Sequence[Mapping[str, Any]], where: str) -> dict[str, Component]:
    """Return generators by title; what is not a row's name or title is a setting."""
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
    path: str | Path,
    overrides: Sequence[str],
    out: Path,
    device: str,
    say: Say,
    *,
    allow_code: bool = True,
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
    allow_code : bool
        Whether a dataset may be imported from a module beside the config.
    """
    asked: JudgeConfig = make(JudgeConfig, read_config(path, overrides), str(path))
    if not asked.generator:
        raise ConfigError("[[generator]] is missing.", where=path)
    check_names("model", [*asked.judge.classifiers, *asked.judge.augment], MODELS)
    rows = {**REFERENCES, **_rows(asked.generator, str(path))}
    dataset = resolve_dataset(asked.dataset, Path(path), allow_code=allow_code)
    cohort = load_dataset(dataset)
    names = asked.judge.sites or cohort.site_names
    require_valid(cohort.select_sites(names))
    panel = replace(asked.judge, sites=tuple(names))
    judge_run = JudgeRun(rows, panel, asked.training, cohort, out, device, say)
    records = judge_run.records()
    write_portraits(out, judge_run.portraits())
    return collapse_list(records)


@dataclass(frozen=True)
class JudgeRun:
    """Generators by row, how they are judged, people, and where to work."""

    rows: Mapping[str, Component | None]
    panel: Panel
    training: Training
    cohort: Cohort
    out: Path
    device: str
    say: Say

    def records(self) -> list[dict[str, Any]]:
        """Return records of all sites; those that are in the folder already are not made again."""
        # All that records depend on, but the sites: another stamp, and they are made anew.
        how = replace(self.panel, title="", sites=())
        people = self.cohort.content_sha256()
        stamp = json.dumps([self.rows, how, self.training, people], default=asdict)
        path = self.out / RECORDS
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        done = stored["sites"] if stored.get("stamp") == stamp else {}
        waiting = [name for name in self.panel.sites if name not in done]
        if self.device != "cpu":
            self.fit_side_by_side(waiting)
        for name in self.panel.sites:
            if name in done:
                self.say(f"{name}: already judged")
            else:
                done[name] = self.judged(name)
            kept = {"stamp": stamp, "title": self.panel.title, "sites": done}
            write_text(path, json.dumps(kept))
        return [record for site in done.values() for record in site]

    def fit_side_by_side(self, sites: Sequence[str]) -> None:
        """Fit the generators of some sites and all seeds as lanes, where a generator can do so."""
        for row, component in self.rows.items():
            generator = component and make_generator(component)
            if not generator or not generator.in_lanes():
                continue
            requests = []
            for name, seed in product(sites, self.panel.seeds):
                requests.append((self.split(name, seed)[0], (seed, name)))
            n = fit_together(generator, requests, self.generators, self.device)
            self.say(f"{row}: {n} of {len(requests)} fitted")

    @property
    def generators(self) -> Path:
        """Folder of fitted generators."""
        return self.out / "generators"

    def judged(self, name: str) -> list[dict[str, Any]]:
        """Return records of all rows and seeds of one site."""
        records: list[dict[str, Any]] = []
        sets = []
        for seed in self.panel.seeds:
            train, test = self.split(name, seed)
            for row, component in self.rows.items():
                fake, said = self.made(component, train, name, seed)
                sets.append(JudgedSet(train, test, fake, seed, said))
                place = {"site": name, "seed": seed, "row": row}
                records.append({**place, "diagnostics": dict(said)})
                self.say(f"{name} seed {seed} {row}: made")
        found = judge_all(sets, self.panel, self.training, self.device)
        for record, numbers in zip(records, found, strict=True):
            record["numbers"] = numbers
        return records

    def split(self, name: str, seed: int) -> tuple[FCBatch, FCBatch]:
        """Return a site's subjects that generators learn from, and those held out."""
        site = split_site(self.cohort, name, seed)
        train = site.learning(with_val=True)
        return train.to(self.device), site.test.to(self.device)

    def made(
        self, component: Component | None, train: FCBatch, name: str, seed: int
    ) -> tuple[FCBatch, Mapping[str, Any]]:
        """Return synthetic subjects and the generator's diagnostics; without one those it would learn."""
        if component is None:
            return train, {}
        generator = make_generator(component)
        state = fit_cached(generator, train, (seed, name), self.generators)
        rng = torch_rng(seed, "judge", name, component.name)
        y = train.y.repeat(self.panel.multiple)
        return generator.sample(state, y, rng), generator.diagnostics(state)

    def portraits(self) -> Portraits:
        """Return what the figures show of the first site and seed, real subjects first."""
        name = self.panel.sites[0]
        seed = self.panel.seeds[0]
        train, _ = self.split(name, seed)
        made = []
        for component in self.rows.values():
            made.append(portrait(self.made(component, train, name, seed)[0]))
        atlas = atlas_of_names(self.cohort.roi_names)
        systems = np.array(atlas.systems if atlas else (), dtype=np.str_)
        columns = map(np.stack, zip(*made, strict=True))
        where = np.array(f"Site {name}, seed {seed}.")
        return Portraits._make([np.array(list(self.rows)), *columns, systems, where])
