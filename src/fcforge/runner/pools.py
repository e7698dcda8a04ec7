"""Synthetic subjects of a site: the generator is fitted once per (site, seed) and cached."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from fcforge.errors import ConfigError
from fcforge.generators.base import Generator, GeneratorState
from fcforge.graphs import edges, from_edges
from fcforge.randomness import torch_rng
from fcforge.releases.start import Start
from fcforge.replay.bank import PoolName
from fcforge.runner.store import SUBJECTS
from fcforge.types import FCBatch, RunSpec, Site

SO_FAR = "\x1f"  # before each site that the confounds of a pool were fitted on


def so_far(spec: RunSpec) -> str:
    """Sites that the confound step was fitted on, as the end of a pool's name."""
    return "".join(f"{SO_FAR}{site}" for site in spec.fitted_on)


def synthetic_size(pool: PoolName) -> int:
    """How many subjects a synthetic pool has."""
    return int(pool.part.partition(SO_FAR)[0].rsplit(":", 1)[1])


def synthetic_name(spec: RunSpec, site: str, n: int) -> PoolName:
    """Name of a synthetic pool: all that decides its content."""
    decides = [
        asdict(spec.learner.generator) if spec.learner.generator else None,
        spec.test_fraction,
        spec.val_fraction,
        spec.harmonise + spec.reference,
        spec.training.selection,
        spec.leaks.generator_sees_test,
        [list(spec.confounds), str(spec.start)],
        *[f"{spec.folds} folds"] * bool(spec.folds),
    ]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]
    return PoolName("synthetic", site, spec.seed, f"{digest}:{n}{so_far(spec)}")


def fit_generator(
    site: Site, spec: RunSpec, cache: Path | None, start: Start | None = None
) -> tuple[Generator, GeneratorState, FCBatch]:
    """The learner's generator, its state fitted on a site's training part alone, and that part.

    Under the `generator_sees_test` leak the test subjects are added to what it is fitted on,
    as in the authors' code.
    """
    from fcforge.generators.cache import fit_cached

    generator, source, names = _asked(site, spec, start)
    return generator, fit_cached(generator, source, names, cache), source


def fit_generators(
    asked: Sequence[tuple[Site, RunSpec, Start | None]], cache: Path, device: str
) -> int:
    """Fit the generators of several (site, seed) on `device`, side by side, into the cache."""
    from fcforge.generators.cache import fit_together

    alike: dict[str, list[tuple[Generator, FCBatch, tuple[int, str, str]]]] = {}
    for site, spec, start in asked:
        alike.setdefault(repr(spec.learner.generator), []).append(_asked(site, spec, start))
    return sum(
        fit_together(group[0][0], [(batch, names) for _, batch, names in group], cache, device)
        for group in alike.values()
    )


def _asked(
    site: Site, spec: RunSpec, start: Start | None
) -> tuple[Generator, FCBatch, tuple[int, str, str]]:
    """Generator of a learner, the subjects it is fitted on, and the names of its seed."""
    from fcforge.generators import make_generator

    if spec.learner.generator is None:
        raise ConfigError(f"learner '{spec.learner.title}' names no generator.")
    source = site.learning(with_val=spec.training.selection == "fixed")
    if spec.leaks.generator_sees_test:
        source = FCBatch.concat([source, site.test])
    names = (spec.seed, "generator", site.name)
    return make_generator(spec.learner.generator, start), source, names


def synthetic_subjects(
    site: Site,
    spec: RunSpec,
    n: int,
    cache: Path | None,
    start: Start | None = None,
    device: torch.device | str | None = None,
) -> tuple[FCBatch, int]:
    """`n` synthetic subjects of a site with the class shares of those the generator saw.

    Drawing, on `device` where given, takes seconds on a CPU, so that in a run they lie beside the
    generators until it has ended. Also returned are the bytes of the state that they can be drawn
    from again.
    """
    from fcforge.generators.cache import read_state, write_state

    def draw() -> tuple[FCBatch, int]:
        generator, state, source = fit_generator(site, spec, cache, start)
        rng = torch_rng(spec.seed, "generator", site.name, "sample", n)
        made = generator.sample(state, generator.diagnoses(state, source.y, n), rng, device)
        return made, sum(v.numel() * v.element_size() for v in state.values())

    if cache is None:
        return draw()
    name = hashlib.sha256(repr((synthetic_name(spec, site.name, n), spec.data_sha256)).encode())
    path = cache / f"{SUBJECTS}{name.hexdigest()[:32]}.safetensors"
    if not path.exists():
        made, size = draw()
        arrays = {"edges": edges(made.fc), "y": made.y, "bytes": torch.tensor(size)}
        write_state(path, arrays, {"subjects": str(n)})
    found = read_state(path)
    return FCBatch(from_edges(found["edges"]), found["y"]), int(found["bytes"])
