"""What commands do with files: a start, one hospital's step in either model, its threshold."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.components import check_names
from fcforge.errors import ConfigError, ExchangeError, at
from fcforge.exchange import archive, exchange, model, records
from fcforge.exchange.exchange import Exchange
from fcforge.exchange.home.private_record import PrivateRecord, default_place
from fcforge.exchange.home.receipts import Threshold
from fcforge.exchange.keeping.keepers import read_card
from fcforge.exchange.keys import Trust, read_private
from fcforge.exchange.model import Learned, Tick
from fcforge.exchange.names import site_name
from fcforge.exchange.policy import Policy
from fcforge.exchange.starts.public_start import MAKER, make_public
from fcforge.requests import LearnRequest, ThresholdRequest
from fcforge.runner.config_files import override
from fcforge.sites import load_dataset, load_people
from fcforge.sites.cohort import Cohort
from fcforge.types import Component


def start_file(
    dataset: Mapping[str, Any],
    sites: Sequence[str],
    remove: Sequence[str],
    out: Path,
    settings: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    maker: str = MAKER,
    sign: Path | None = None,
    keepers: Sequence[Path] = (),
    plan: records.Plan = records.Plan(),  # noqa: B008 (frozen)
    overwrite: bool = False,
) -> Exchange:
    """Make a start from public people and write it as an exchange without a hospital.

    Parameters
    ----------
    dataset : mapping
        Its name and settings, e.g. ``{"name": "folder", "path": "public.npz"}``.
    sites : sequence of str
        Public sites; may be empty for a user's own file, whose sites are then all public.
    remove : sequence of str
        Covariates to take out of every scan.
    out : Path
    settings : sequence of str
        ``start.axes=8``, ``dataset.quality=all``, ``policy.max_epsilon=2``.
    without : sequence of str
        Sites that are not public, whose people may add themselves later.
    maker : str
        Who makes it, and signs it where a key is named.
    sign : Path, optional
    keepers : sequence of Path
        Cards of the two keepers of its rounds (`fcforge keepers new`).
    plan : Plan
        Its settings are those that suit the planned people, hospitals and epsilon.
    overwrite : bool
    """
    archive.require_place(out, overwrite=overwrite)
    if keepers and sign is None:
        raise ConfigError(
            "a start that names keepers must be signed: anybody could put other keepers in.",
            do="Add --sign KEY (`fcforge keys new KEY` makes one).",
        )
    key = read_private(sign) if sign is not None else None
    allowed = {"exact_allowed": True} if plan.epsilon is None else {}
    given = {"start": {}, "policy": allowed, "dataset": dict(dataset)}
    given = override(given, settings)
    if set(given) != {"start", "policy", "dataset"}:
        raise ConfigError(
            f"--set {settings[0]}: only start.*, policy.* and dataset.* can be set."
        )
    policy = Policy.of(given["policy"]).with_keepers([read_card(k) for k in keepers])
    if plan.epsilon is None and not policy.exact_allowed:
        what = "--exact plans exact sums, which policy.exact_allowed=false refuses."
        raise ConfigError(what, do="Leave one of them out.")
    cohort = _public_people(given["dataset"], sites, without)
    signer = (site_name(maker), key)
    made = make_public(cohort, None, remove, given["start"], policy, *signer, plan)
    exchange.save(made, out, overwrite=overwrite)
    return made


def _public_people(
    dataset: dict[str, Any], sites: Sequence[str], without: Sequence[str]
) -> Cohort:
    name = dataset.pop("name")
    if not sites and name != "folder":
        what = f"dataset '{name}' needs --sites: which of its sites are public?"
        raise ConfigError(what, do="Name them, separated by commas.")
    if sites:
        dataset["sites"] = list(sites)
    found = load_dataset(Component(name, dataset))
    check_names("site", without, found.site_names, where="--without")
    return found.select(~np.isin(found.site, list(without)))


def learn_site(
    request: LearnRequest,
    *,
    agree: Callable[[Exchange], Any] = lambda found: None,
    tell: Callable[[Learned], Any] = lambda done: None,
    tick: Tick = lambda done, total, what: None,
) -> Learned:
    """Learn one site, in either model, and write what leaves; what stays is on the disk before it.

    Parameters
    ----------
    request : LearnRequest
    agree : callable
        Called with what is about to be continued; raises where it must not be.
    tell : callable
        Called with what was found and is about to be written.
    tick : callable
        Called as the site is learned.
    """
    request = replace(request, site=site_name(request.site))
    archive.require_place(request.out, overwrite=request.overwrite)
    key = _own_key(request)
    before, people = _handed(request, key, agree)
    with PrivateRecord.open(private_place(request)) as private:
        done = before.model.learn(people, private, request, key, tick)
        tell(done)
        private.publish(done.receipt, _leaving(request, done))
        if done.threshold is not None:
            private.append(done.threshold)
    return done


def _own_key(request: LearnRequest) -> Any:
    """The key to sign with; refused where one is required and none was named."""
    if request.sign is not None:
        return read_private(request.sign)
    if request.require_signature:
        raise ConfigError(
            "--require-signature was given, but your own part would not be signed.",
            do="Add --sign KEY (`fcforge keys new KEY` makes one).",
        )
    return None


def _handed(
    request: LearnRequest, key: Any, agree: Callable[[Exchange], Any]
) -> tuple[Exchange, Cohort]:
    """What a hospital goes on from, agreed to, and its people, who fit it."""
    before = None
    if request.state is not None:
        trust = Trust.of(request.trust, request.require_signature or None)
        before = exchange.open_exchange(request.state, trust)
        for keeper in before.root.policy.keepers:
            what = f"the card of keeper '{keeper.name}' in the start"
            trust.keyring.require_valid(keeper.key, what, keeper.name)
    model.require_options(before, request)
    people = load_people(request.data, [request.site], **request.loading)
    if before is None:
        before = model.begin(request, people, key)
    else:
        agree(before)
    _require_fit(before, people)
    before.require_same_signing(key is not None)
    return before, people


def _leaving(request: LearnRequest, done: Learned) -> dict[Path, bytes]:
    """The files that leave a hospital."""
    out = request.out
    files = {out: exchange.packed(done.exchange, out, done.new)}
    for keeper, share in done.files.items():
        place = share_place(out, keeper)
        archive.require_place(place, overwrite=request.overwrite)
        files[place] = share
    return files


def private_place(request: LearnRequest) -> Path:
    """Where the private record of a hospital lies: beside its data, or where it says."""
    return request.register or default_place(request.data)


def share_place(out: Path, keeper: str) -> Path:
    """Where a keeper's share is written: beside what else leaves."""
    name = re.sub(r"[^\w.-]", "_", keeper)
    return out.with_name(f"{out.stem}.{name}.share")


def _require_fit(found: Exchange, people: Cohort) -> None:
    """Raise for other ROIs or other diagnoses than the exchange has."""
    with at(f"site '{people.site_names[0]}'"):
        if wrong := wrong_rois(people.roi_names, found.model.roi_names):
            do = "All hospitals use one atlas with its ROIs in one order."
            raise ExchangeError(wrong, do=do)
        found.root.policy.require_classes(people.classes)


def wrong_rois(names: Sequence[str], ours: Sequence[str]) -> str:
    """What is wrong with the ROI names of some data; empty where either side has none."""
    if not names or not ours:
        return ""
    if len(names) != len(ours):
        return f"it has {len(names)} ROI names, the exchange {len(ours)}."
    for k, (mine, our) in enumerate(zip(names, ours, strict=True)):
        if mine != our:
            return f"ROI {k + 1} is '{mine}', the exchange has '{our}' there."
    return ""


def withdraw_file(
    site: str,
    state: Path,
    out: Path,
    sign: Path | None,
    trust: Trust,
    *,
    overwrite: bool = False,
) -> Exchange:
    """Take back what a site gave; OUT is the exchange without it, or the withdrawal alone."""
    archive.require_place(out, overwrite=overwrite)
    key = read_private(sign) if sign is not None else None
    name = site_name(site)
    found = exchange.open_exchange(state, trust).withdrawn(name, key)
    last = found.of(records.Withdrawal, name)[-1:]
    exchange.save(found, out, last, overwrite=overwrite)
    return found


def rotate_file(
    old: Path,
    new: Path,
    site: str,
    state: Path,
    out: Path,
    trust: Trust,
    overwrite: bool = False,
) -> records.Rotation:
    """Write an exchange (or, as ``.record``, the rotation alone) in which `new` signs for a site.

    Parameters
    ----------
    old, new : Path
        Private keys.
    site : str
    state : Path
        Exchange with everything that the site gave: what is not in it is not vouched for.
    out : Path
    trust : Trust
    overwrite : bool
    """
    archive.require_place(out, overwrite=overwrite)
    name = site_name(site)
    found = exchange.open_exchange(state, trust)
    rotated = found.rotated(name, read_private(old), read_private(new))
    last = rotated.of(records.Rotation, name)[-1:]
    exchange.save(rotated, out, last, overwrite=overwrite)
    return last[0]


def merge_files(
    paths: Sequence[Path], out: Path, trust: Trust, *, overwrite: bool = False
) -> Exchange:
    """Write the union of files: whole exchanges and single records, in any order."""
    archive.require_place(out, overwrite=overwrite)
    found = exchange.union_of(paths, trust)
    exchange.save(found, out, overwrite=overwrite)
    return found


def refit_threshold(request: ThresholdRequest) -> Threshold:
    """Fit a hospital's own threshold for a newer exchange; nothing leaves the hospital."""
    trust = Trust.of(request.trust, request.require_signature or None)
    found = exchange.open_exchange(request.file, trust)
    name = site_name(request.site)
    people = load_people(request.data, [name], **request.loading)
    _require_fit(found, people)
    PrivateRecord.read(request.register)  # a new one would know nobody
    with PrivateRecord.open(request.register) as private:
        threshold = found.model.own_threshold(people, name, private)
        private.append(threshold)
    return threshold
