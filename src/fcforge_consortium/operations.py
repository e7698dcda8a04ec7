"""What commands do with files: a start, one hospital's step in either model, its threshold."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.base_model.contributions import noise_units
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.files import whole_file
from fcforge.core.formatting import listed
from fcforge.core.names import check_names, look_up
from fcforge.core.settings import override_only
from fcforge.data.abide import PUBLISHED, DownloadError, rebuild, subjects_sha256
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import (
    dataset_of,
    left_out,
    load_dataset,
    load_people,
    without_twins,
)
from fcforge.data.folder import load_folder
from fcforge_consortium.aggregation.aggregators import (
    Kept,
    Noise,
    RoundList,
    keep,
    own_card,
    read_card,
)
from fcforge_consortium.aggregation.rounds import read_share, rounds_of
from fcforge_consortium.base_model.record import make_public
from fcforge_consortium.ledger.ledger import PrivateRecord, Threshold, default_place
from fcforge_consortium.model import Learned, Tick
from fcforge_consortium.options import (
    AuditRequest,
    KeepRequest,
    LearnRequest,
    MergeRequest,
    RotateRequest,
    StartRequest,
    ThresholdRequest,
    WithdrawRequest,
)
from fcforge_consortium.privacy.noise import DELTA, EPSILON, check_budget
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer, Trust, read_private, read_signer
from fcforge_consortium.records.schema import Policy, site_name


def start_file(asked: StartRequest) -> Exchange:
    """Make a start from public people and write it as an exchange without a hospital."""
    if asked.out is None:
        raise ConfigError("--out is missing.", do="Say where to write the start.")
    archive.require_place(asked.out)
    if asked.keeper and asked.sign is None:
        raise ConfigError(
            "a start that names keepers must be signed: anybody could put other keepers in.",
            do="Add --sign KEY (`fcforge keys new KEY` makes one).",
        )
    plan = records.Plan(
        people=asked.people, hospitals=asked.hospitals, epsilon=planned_epsilon(asked)
    )
    allowed = {"exact_allowed": True} if asked.exact else {}
    said = {"start": {}, "policy": allowed, "dataset": {}}
    given = override_only(said, asked.overrides)
    policy = Policy.of(given["policy"], [read_card(path) for path in asked.keeper])
    if asked.exact and not policy.exact_allowed:
        what = "--exact plans exact sums, which policy.exact_allowed=false refuses."
        raise ConfigError(what, do="Leave one of them out.")
    cohort = _public_people(asked, given["dataset"])
    key = read_signer(asked.sign)
    made = make_public(cohort, listed(asked.remove), given["start"], policy, key, plan)
    exchange.save(made, asked.out)
    return made


def planned_epsilon(asked: StartRequest) -> float | None:
    """What each person is planned to spend; None for exact sums."""
    if not asked.exact:
        planned = EPSILON if asked.epsilon is None else asked.epsilon
        check_budget(planned, DELTA, "--epsilon")
        return planned
    if asked.epsilon is not None:
        raise ConfigError("--exact has no --epsilon.", do="Leave one of them out.")
    return None


def _public_people(asked: StartRequest, settings: dict[str, Any]) -> Cohort:
    """People of the sites that are public, from a data set or as published."""
    sites = listed(asked.sites)
    without = listed(asked.without)
    data = asked.data
    if asked.public:
        if data is not None:
            raise ConfigError("--public has no --data.", do="Leave one of them out.")
        data = public_people(asked.public)
    said = {"path": "" if data is None else str(data), "sites": sites}
    known = {name: value for name, value in said.items() if value}
    found = load_dataset(dataset_of(asked.dataset, known, settings))
    check_names("site", without, found.site_names, where="--without")
    return found.select(~np.isin(found.site, without))


def learn_site(
    request: LearnRequest,
    *,
    agree: Callable[[Exchange], Any] = lambda found: None,
    warn: Callable[[str], Any] = lambda text: None,
    tick: Tick = lambda done, total, what: None,
) -> Learned:
    """Learn one site, in either model, and write what leaves; what stays is on the disk before it.

    Parameters
    ----------
    request : LearnRequest
    agree : callable
        Called with what is about to be continued; raises where it must not be.
    warn : callable
        Called with what is told of people who are left out.
    tick : callable
        Called as the site is learned.
    """
    request = replace(request, site=site_name(request.site))
    archive.require_place(request.out)
    if request.require_signature and request.sign is None:
        raise ConfigError(
            "--require-signature was given, but your own part would not be signed.",
            do="Add --sign KEY (`fcforge keys new KEY` makes one).",
        )
    key = read_signer(request.sign)
    before, people = _handed(request, key, agree)
    for text in left_out(people):
        warn(text)
    with PrivateRecord.open(private_place(request)) as private:
        done = before.model.learn(people, private, request, key, tick)
        private.publish(done.receipt, _leaving(request, done))
    return done


def _handed(
    request: LearnRequest, key: Signer, agree: Callable[[Exchange], Any]
) -> tuple[Exchange, Cohort]:
    """What a hospital goes on from, agreed to, and its people, who fit it."""
    if request.state is None:  # a first hospital, which begins a chain
        if request.trust:
            what = "--trust says who must have signed --state, which is missing."
            do = "Name the file that you were handed, or leave it out."
            raise ConfigError(what, do=do)
        request.require_for("chain")
        from fcforge_consortium.chains.chain import begin  # needs torch

        people = load_people(request.data, [request.site], **request.loading)
        return begin(request, people, key), people
    trust = Trust.asked(request)
    before = exchange.open_exchange(request.state, trust)
    request.require_for(before.root.kind)
    for keeper in before.root.policy.keepers:
        what = f"the card of keeper '{keeper.name}' in the start"
        trust.keyring.require_valid(keeper.key, what, keeper.name)
    before.require_same_signing(key is not None)
    people = people_for(before, request, request.site)
    agree(before)
    return before, people


def _leaving(request: LearnRequest, done: Learned) -> dict[Path, bytes]:
    """The files that leave a hospital."""
    out = request.out
    files = {out: exchange.packed(done.exchange, out, done.new)}
    for keeper, share in done.files.items():
        place = share_place(out, keeper)
        archive.require_place(place)
        files[place] = share
    return files


def private_place(request: LearnRequest | AuditRequest) -> Path:
    """Where the private record of a hospital lies: beside its data, or where it says."""
    return request.register or default_place(request.data)


def share_place(out: Path, keeper: str) -> Path:
    """Where a keeper's share is written: beside what else leaves."""
    name = re.sub(r"[^\w.-]", "_", keeper)
    return out.with_name(f"{out.stem}.{name}.share")


def people_for(
    found: Exchange, asked: LearnRequest | ThresholdRequest | AuditRequest, site: str
) -> Cohort:
    """The people of a site, who fit an exchange."""
    loading = asked.loading | found.root.policy.loading
    people = load_people(asked.data, [site], **loading)
    found.require_fit(people)
    return people


def withdraw_file(
    asked: WithdrawRequest, warn: Callable[[str], Any] = lambda text: None
) -> Exchange:
    """Take back what a site gave; OUT is the exchange without it, or the withdrawal alone.

    `warn` is told of rounds that go with it, and of whose numbers are lost by that.
    """
    name = site_name(asked.site)
    opened = exchange.open_exchange(asked.state, Trust.asked(asked))
    found = opened.withdrawn(name, read_signer(asked.sign))
    exchange.save(found, asked.out, found.of(records.Withdrawal, name)[-1:])
    for lost in rounds_of(opened):
        if name in lost.hospitals:
            others = ", ".join(site for site in lost.hospitals if site != name)
            warn(
                f"WARNING: round '{lost.name}' goes whole, and with it what {others} gave: nobody "
                "can be taken out of its sum. Its keepers can publish it once more without "
                f"'{name}' (`fcforge keep --again`), which spends everybody's budget once more."
            )
    return found


def rotate_file(asked: RotateRequest) -> records.Rotation:
    """Write an exchange, or the rotation alone, in which a new key signs for a site."""
    name = site_name(asked.site)
    opened = exchange.open_exchange(asked.state, Trust.asked(asked))
    rotated = opened.rotated(name, read_private(asked.old), read_private(asked.new))
    last = rotated.of(records.Rotation, name)[-1:]
    exchange.save(rotated, asked.out, last)
    return last[0]


def merge_files(asked: MergeRequest) -> Exchange:
    """Write the union of files: whole exchanges and single records, in any order."""
    found = exchange.union_of(asked.files, Trust.asked(asked))
    exchange.save(found, asked.out)
    return found


def refit_threshold(request: ThresholdRequest) -> Threshold:
    """Fit a hospital's own threshold for a newer exchange; nothing leaves the hospital."""
    found = exchange.open_exchange(request.file, Trust.asked(request))
    name = site_name(request.site)
    people = people_for(found, request, name)
    PrivateRecord.read(request.register)  # a new one would know nobody
    with PrivateRecord.open(request.register) as private:
        threshold = found.model.own_threshold(people, name, private)
        private.append(threshold)
    return threshold


# -- a keeper's part ---------------------------------------------------------------------------
def keep_files(asked: KeepRequest) -> Kept:
    """Add the shares of a round; the half is written and on the keeper's list, or neither."""
    archive.require_place(asked.out)
    key = read_private(asked.key)
    trust = Trust.asked(asked)
    opened = exchange.open_exchange(asked.state, trust)
    own_card(opened, key)  # a chain has no keepers
    shares = [read_share(path, trust) for path in asked.shares]
    model: Any = opened.model
    epsilon, delta = shares[0].notice.budget if shares else (None, 0.0)
    noise = Noise(noise_units(epsilon, delta), model.grid, model.size)
    with RoundList.open(asked.rounds or f"{asked.key}.rounds") as listed:
        kept = keep(opened, shares, key, noise, listed, again=asked.again)
        exchange.require_trusted(kept.exchange.everything, trust)
        listed.publish(kept.line, {asked.out: archive.pack(kept.contents)})
    return kept


# -- starts that everybody can have: of public people, fetched once, kept in a folder of the user's.
# ``FCFORGE_CACHE`` names that folder; by default it is ``~/.cache/fcforge``. What is promised of a
# start is who it is made of: the scans, rounded to 16 bits, have the published SHA-256, or there is
# no start. Its arrays are rounded to 12 bits, and came out the same bit by bit on four kinds of
# processors (paper/results/public_start.json); where they do not, it is said.
class Source(NamedTuple):
    """What a public start is made of.

    Attributes
    ----------
    data : str
        Published file of its people.
    people, arrays : str
        SHA-256 of the people's scans and of the start's arrays; empty where not published.
    """

    data: str
    people: str = ""
    arrays: str = ""


STARTS = {
    "abide-aal": Source(
        "abide-871",
        people="efa193f8f5e1efdf346bea5ae10309d2556e8c6c972ddb827e408bc6f97aff47",
        arrays="38a029374a091008fdf0088d34cf833496f2db41318a233a4fa099046933b712",
    ),
    "abide-cc200": Source("abide-871-cc200"),
}
POLICY = Policy(exact_allowed=True)


def cache_folder() -> Path:
    """Where public people and starts are kept."""
    return Path(os.environ.get("FCFORGE_CACHE") or Path.home() / ".cache" / "fcforge")


def public_people(name: str) -> Path:
    """File with the people of a public start, fetched where it is not there.

    Raises
    ------
    DataError
        Where somebody could not be fetched; what is there is kept for the next time.
    """
    source = look_up("public start", name, STARTS)
    place = cache_folder() / f"{source.data}.npz"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        do = (
            "Connect to the internet and run the same again: what was fetched is kept. Or run "
            f"`fcforge start --public {name}` where there is a network, and copy {name}.fcx and "
            f"{place.name} from its cache folder into {place.parent}, or give the path of that "
            f"{name}.fcx as start=."
        )
        with whole_file(place) as part:
            try:
                different = rebuild(source.data, part)
            except DownloadError as error:
                raise DataError(error.what, where=name, do=do) from error
            if different:
                raise DataError("; ".join(different) + ".", where=name, do=do)
    everybody = load_folder(place)
    people = without_twins(everybody)[0].content_sha256()
    _require_published(name, people, everybody.subject_id.tolist(), place)
    return place


def _require_published(name: str, people: str, ids: Sequence[str], place: Path) -> None:
    """Raise `DataError` where a file in the cache is of other people than published.

    Where there is no SHA-256 of their scans, they are known by their ids.
    """
    source = STARTS[name]
    same = people == source.people
    if not source.people:
        same = subjects_sha256(ids) == PUBLISHED[source.data].subjects_sha256
    if not same:
        what = f"its people are not those of '{name}' as published (SHA-256 {people})."
        do = "Remove it to fetch it again, or use it as your own: `fcforge start --data`."
        raise DataError(what, where=place, do=do)


def public_start(name: str, say: Callable[[str], Any] = lambda text: None) -> Path:
    """File of a public start with exact sums allowed, made where it is not there.

    Parameters
    ----------
    name : str
        One of `STARTS`.
    say : callable
        Told where its arrays are not, bit by bit, the published ones.
    """
    source = look_up("public start", name, STARTS)
    place = cache_folder() / f"{name}.fcx"
    if place.exists():  # anybody may have put it there
        found = exchange.open_exchange(place)
        root = found.root
        if found.records or root.kind != "start" or root.policy != POLICY:
            what = f"is not a start by itself with the policy of '{name}'."
            raise DataError(what, where=place, do="Remove it to make it again.")
        ids = [*root.ids, *root.left_out]
        _require_published(name, root.people_sha256, ids, place)
    else:
        cohort = load_folder(public_people(name))
        found = make_public(cohort, policy=POLICY, plan=records.Plan(epsilon=None))
        exchange.save(found, place)
    one_file = "in one consortium all use one file, and compare its id."
    if not source.arrays:
        say(f"no SHA-256 of '{name}' is published: {one_file}")
    elif found.root.payload != source.arrays:
        what = f"the arrays of '{name}' are not, bit by bit, the published ones"
        why = f"as on another processor, or where somebody put others into {place}"
        say(f"{what}, {why}: {one_file}")
    return place
