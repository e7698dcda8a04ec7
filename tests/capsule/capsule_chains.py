"""Small chains of capsules for the tests: two or three made-up hospitals with ten ROIs."""

from functools import cache
from pathlib import Path

import torch

from fcforge.capsule import Capsule, ChainSettings, LearnOptions, learn, settings_for
from fcforge.methods import METHODS
from fcforge.sites import Cohort
from fcforge.sites.simulated import simulate
from fcforge.studies.audit_result import Audit, AuditRow
from fcforge.types import Component, Estimate, LearnerSpec, Training

N_ROIS = 10
SITES = ("Sim-NYU", "Sim-UCLA", "Sim-UM")

# small enough for seconds; quality is tested elsewhere
QUICK: dict[str, LearnerSpec] = {
    "finetune": LearnerSpec(Component("finetune"), Component("gcn", {"hidden": 16})),
    "analytic": LearnerSpec(Component("analytic"), Component("linear")),
    "independent": LearnerSpec(Component("independent"), Component("linear")),
    "majority": LearnerSpec(Component("majority"), Component("linear")),
    "cumulative": LearnerSpec(Component("cumulative"), Component("linear")),
    "forge": LearnerSpec(
        Component(
            "forge",
            {"memory": 16, "candidates": 24, "dev": 8, "replay": 8, "refresh": 1},
        ),
        Component("gcn", {"hidden": 16}),
        Component("corr_gauss"),
    ),
    "tiny": LearnerSpec(
        Component(
            "forge", {"memory": 4, "candidates": 4, "dev": 4, "replay": 4, "refresh": 1}
        ),
        Component("linear"),
        Component("corr_gauss"),
    ),
}


@cache
def cohort(n_sites: int = 3) -> Cohort:
    return simulate(n_rois=N_ROIS, scale=0.3, n_sites=n_sites)


def quick(method: str) -> LearnerSpec:
    """The smallest learner of a method; the linear model where it works."""
    if method in QUICK:
        return QUICK[method]
    cls = METHODS[method]
    name = cls.models[0] if cls.models else "linear"
    model = Component(name, {"hidden": 16} if name in ("gcn", "gat", "sage") else {})
    generator = Component("corr_gauss") if cls.needs_generator else None
    return LearnerSpec(Component(method), model, generator)


def settings(name: str, **rest) -> ChainSettings:
    return settings_for(
        quick(name), N_ROIS, **{"training": Training(epochs=3), "held_out": 16, **rest}
    )


def chain(name: str, sites: tuple[str, ...], folder: Path, **rest) -> list[Path]:
    """One capsule file per site, each made from the last."""
    made: list[Path] = []
    for i, site in enumerate(sites):
        out = folder / f"{name}-{i}.capsule"
        chain_settings = settings(name, **rest) if not made else None
        learn(
            made[-1] if made else None,
            site,
            cohort(),
            out,
            settings=chain_settings,
            options=LearnOptions(
                allow_real_subjects=name in METHODS
                and METHODS[name].keeps == "real subjects",
                accept=("accept_labels",)
                if "inner_val" in str(rest)
                else (),  # by chance
            ),
        )
        made.append(out)
    return made


def learned(name: str, sites: tuple[str, ...], folder: Path, **rest) -> Capsule:
    from fcforge.capsule import open_capsule

    return open_capsule(chain(name, sites, folder, **rest)[-1])


def same_lane(a: Capsule, b: Capsule) -> bool:
    """Whether two capsules hold bitwise the same network and method state."""
    pairs = zip(a.lane, b.lane, strict=True)
    return all(
        x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)
        for x, y in pairs
    )


def an_audit(site: str, auc: float = 0.52) -> dict:
    """What `fcforge audit --record` would write."""
    found = Estimate(auc, auc - 0.1, auc + 0.1)
    row = AuditRow("network", "loss", found, found, None, found)
    return Audit(
        (row,), {"site": site, "what": "capsule", "plan": {"seed": 0}}
    ).to_ledger()


def first(folder: Path, data=None, **rest) -> Path:
    """The capsule of the first site alone."""
    path = folder / "a.capsule"
    made = settings(rest.pop("method", "majority"), **rest)
    learn(None, SITES[0], data or cohort(), path, settings=made)
    return path


def entry(
    site: str, accuracy: float | None, patients: int | None, controls: int | None
) -> dict:
    """What a ledger line says of a site's own test."""
    own = None if accuracy is None else {"accuracy": accuracy}
    counts = {"test": {"patients": patients, "controls": controls}}
    return {
        "kind": "learn",
        "site": site,
        "metrics": {"own_test": own},
        "counts": counts,
    }
