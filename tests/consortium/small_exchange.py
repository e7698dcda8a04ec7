"""A small exchange: a base model of simulated sites, hospitals, and their contributions."""

from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
from exchange_records import key_of

from fcforge.data.cohort import Cohort
from fcforge.data.simulated import simulate
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.base_model.space import SpaceSettings
from fcforge_consortium.contributions.contribution import learn
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.policy import Policy

R = 10


@cache
def people() -> Cohort:
    made = simulate(preset="easy", n_rois=R, n_sites=6, scale=0.5)
    rng = np.random.default_rng(0)
    age = rng.uniform(8, 40, len(made))
    sex = rng.integers(1, 3, len(made)).astype(float)
    return Cohort(
        name="made up",
        fc=made.fc,
        y=made.y,
        site=made.site,
        subject_id=made.subject_id,
        roi_names=tuple(f"ROI {i}" for i in range(R)),
        covariates={**made.covariates, "age": age, "sex": sex},
    )


def sites() -> tuple[str, ...]:
    return people().site_names


@cache
def start(remove: tuple[str, ...] = (), **policy) -> Exchange:
    key = key_of("maker") if "aggregators" in policy else None
    settings = asdict(SpaceSettings(axes=4))
    public = people().select_sites(sites()[:2])
    return make_base_model(public, remove, settings, Policy(**policy), key)


def request(site: str, **asked) -> ContributeRequest:
    return ContributeRequest(
        **{"site": site, "data": Path("x"), "out": Path("y"), "state": Path("z")}
        | asked
    )


def learned(exchange, site, private=None, signer="", cohort=None, **asked):
    """Return one hospital's contribution; nothing is written.

    Diagnoses that look swapped are accepted by default: to a model with the noise of other hospitals,
    drawn anew in every run, those of few people look so by chance.
    """
    asked = {"accept_labels": True} | asked
    mine = (cohort or people()).select_sites([site])
    key = key_of(signer) if signer else None
    home = private or Ledger(Path("fcforge.private"))
    asking = request(site, **asked)
    return learn(exchange.model, mine, home, asking, key)


@cache
def given(site: str, signer: str = "", epsilon: float = 1.0):
    """Return the contribution of a site to the base model, made once per test session."""
    return learned(start(), site, signer=signer, epsilon=epsilon)


def all_given(signed: bool = False) -> Exchange:
    found = start()
    for site in sites()[2:]:
        done = given(site, site) if signed else given(site)
        found = found.merged(done.exchange)
    return found


@cache
def data_file(folder: Path, cohort: Cohort | None = None) -> Path:
    """Write people as a file that commands read; return its path."""
    who = people() if cohort is None else cohort
    rows, columns = np.triu_indices(R, 1)
    place = folder / "people.npz"
    np.savez(
        place,
        fc_upper=who.fc[:, rows, columns],
        label=who.y,
        site=who.site,
        subject_id=who.subject_id,
        roi_names=np.array(who.roi_names),
        **who.covariates,
    )
    return place
