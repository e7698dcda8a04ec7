"""`fcforge judge`: evaluate the generators of a config on all sites; a repeated call continues.

A row is one generator, or one reference for comparison, as it appears in the tables of the report. A record
holds the numbers of one row at one site with one seed.
"""

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
from fcforge.data.checks import data_warnings, require_valid, warn_in_python
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
    """Contents of a config file of `fcforge judge`."""

    dataset: Mapping[str, Any] = field(default_factory=dict)
    generator: tuple[Mapping[str, Any], ...] = ()
    judge: Panel = field(default_factory=Panel)
    training: Training = field(default_factory=Training)


def portrait(batch: FCBatch) -> tuple[np.ndarray, ...]:
    """Return the arrays of one row of `Portraits`.

    These are the FC (R, R) of the control and of the patient nearest to their class mean, the mean
    of each edge (E,), and the mean eigenvalues (R,).
    """
    e = edges(batch.fc)
    means = class_means(e, batch.y)
    typical = []
    for label in (0, 1):
        members = (batch.y == label).nonzero().flatten()
        distance = (e[members] - means[label]).norm(dim=1)
        nearest = members[distance.argmin()]
        typical.append(batch.fc[nearest])
    arrays = (*typical, e.mean(0), spectrum(batch.fc).float())
    return tuple(x.detach().cpu().numpy() for x in arrays)


def _rows(tables: Sequence[Mapping[str, Any]], where: str) -> dict[str, Component]:
    """Return the generators of ``[[generator]]`` tables by title.

    `name` and `title` are read from a table; all its other entries are settings of the generator.
    """
    titles = []
    components = []
    for number, table in enumerate(tables):
        settings = dict(table)
        title = settings.pop("title", "")
        component = read_component(
            settings, "generator", f"{where}: generator {number}"
        )
        make_generator(component)  # a wrong name or setting shows here
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
    warn: Callable[[str], None] = warn_in_python,
) -> list[str]:
    """Judge the generators of a config file on all its sites and seeds.

    Parameters
    ----------
    path : path
        TOML with ``[judge]``, ``[dataset]``, ``[training]`` and ``[[generator]]`` tables.
    overrides : sequence of str
        Settings that replace those of the file, as ``a.b=c``.
    out : Path
        Folder for ``records.json``, ``portraits.npz`` (`read_judgement`) and fitted generators,
        which a repeated call reuses.
    device : str
    say : callable
        Called with messages about the progress.
    allow_code : bool
        Whether a dataset may be imported from a module beside the config.
    warn : callable
        Called with each line of `data_warnings` about the judged sites, before a generator is
        fitted; by default the lines become Python warnings.

    Returns
    -------
    list of str
        A sentence for every generator that collapsed.
    """
    config: JudgeConfig = make(JudgeConfig, read_config(path, overrides), str(path))
    if not config.generator:
        raise ConfigError("[[generator]] is missing.", where=path)
    check_names("model", [*config.judge.classifiers, *config.judge.augment], MODELS)
    rows = {**REFERENCES, **_rows(config.generator, str(path))}
    dataset = resolve_dataset(config.dataset, Path(path), allow_code=allow_code)
    cohort = load_dataset(dataset)
    names = config.judge.sites or cohort.site_names
    judged = cohort.select_sites(names)
    require_valid(judged)
    for line in data_warnings(judged):
        warn(line)
    panel = replace(config.judge, sites=tuple(names))
    judge_run = JudgeRun(rows, panel, config.training, cohort, out, device, say)
    records = judge_run.records()
    write_portraits(out, judge_run.portraits())
    return collapse_list(records)


@dataclass(frozen=True)
class JudgeRun:
    """One call of `fcforge judge`.

    Attributes
    ----------
    rows : mapping of str to Component or None
        Generators by the title of their row; None stands for the real subjects.
    panel : Panel
        Sites, seeds and classifiers.
    training : Training
        Settings of the classifiers' training.
    cohort : Cohort
    out : Path
        Folder of the results.
    device : str
    say : callable
        Called with messages about the progress.
    """

    rows: Mapping[str, Component | None]
    panel: Panel
    training: Training
    cohort: Cohort
    out: Path
    device: str
    say: Say

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all sites, computing those that the folder does not hold yet."""
        # The stamp holds everything but the sites that records depend on; if it differs from the
        # stored one, all records are computed again.
        panel = replace(self.panel, title="", sites=())
        people = self.cohort.content_sha256()
        stamp = json.dumps([self.rows, panel, self.training, people], default=asdict)
        path = self.out / RECORDS
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        by_site = stored["sites"] if stored.get("stamp") == stamp else {}
        missing = [name for name in self.panel.sites if name not in by_site]
        if self.device != "cpu":
            self.fit_side_by_side(missing)
        for name in self.panel.sites:
            if name in by_site:
                self.say(f"{name}: already judged")
            else:
                by_site[name] = self.judge_site(name)
            contents = {"stamp": stamp, "title": self.panel.title, "sites": by_site}
            write_text(path, json.dumps(contents))
        return [record for site in by_site.values() for record in site]

    def fit_side_by_side(self, sites: Sequence[str]) -> None:
        """Fit the generators for several sites and all seeds at once, as far as they support it."""
        for row, component in self.rows.items():
            if component is None:  # the real subjects
                continue
            generator = make_generator(component)
            if not generator.in_lanes():
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

    def judge_site(self, name: str) -> list[dict[str, Any]]:
        """Judge all rows and seeds at one site and return a record of each."""
        records: list[dict[str, Any]] = []
        sets = []
        for seed in self.panel.seeds:
            train, test = self.split(name, seed)
            for row, component in self.rows.items():
                synthetic, diagnostics = self.synthesise(component, train, name, seed)
                sets.append(JudgedSet(train, test, synthetic, seed, diagnostics))
                place = {"site": name, "seed": seed, "row": row}
                records.append({**place, "diagnostics": dict(diagnostics)})
                self.say(f"{name} seed {seed} {row}: synthetic subjects drawn")
        results = judge_all(sets, self.panel, self.training, self.device)
        for record, numbers in zip(records, results, strict=True):
            record["numbers"] = numbers
        return records

    def split(self, name: str, seed: int) -> tuple[FCBatch, FCBatch]:
        """Return the subjects of a site that generators learn from, and the held-out ones."""
        site = split_site(self.cohort, name, seed)
        train = site.learning(with_val=True)
        return train.to(self.device), site.test.to(self.device)

    def synthesise(
        self, component: Component | None, train: FCBatch, name: str, seed: int
    ) -> tuple[FCBatch, Mapping[str, Any]]:
        """Fit a generator to a site's training subjects and draw synthetic subjects.

        Parameters
        ----------
        component : Component or None
            Name and settings of the generator; None for the row of real subjects.
        train : FCBatch
            Training subjects.
        name : str
            Name of the site, for the seed.
        seed : int

        Returns
        -------
        synthetic : FCBatch
            Synthetic subjects; `train` itself if `component` is None.
        diagnostics : mapping
            Values by which the generator describes its training; empty for real subjects.
        """
        if component is None:
            return train, {}
        generator = make_generator(component)
        state = fit_cached(generator, train, (seed, name), self.generators)
        rng = torch_rng(seed, "judge", name, component.name)
        y = train.y.repeat(self.panel.multiple)
        return generator.sample(state, y, rng), generator.diagnostics(state)

    def portraits(self) -> Portraits:
        """Return the data of the figures, from the first site and seed, real subjects first."""
        name = self.panel.sites[0]
        seed = self.panel.seeds[0]
        train, _ = self.split(name, seed)
        row_portraits = []
        for component in self.rows.values():
            row_portraits.append(
                portrait(self.synthesise(component, train, name, seed)[0])
            )
        atlas = atlas_of_names(self.cohort.roi_names)
        systems = np.array(atlas.systems if atlas else (), dtype=np.str_)
        # one array per field of `portrait`, with an entry for each row
        columns = map(np.stack, zip(*row_portraits, strict=True))
        caption = np.array(f"Site {name}, seed {seed}.")
        return Portraits._make([np.array(list(self.rows)), *columns, systems, caption])
