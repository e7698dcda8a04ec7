"""What the commands of a consortium do with files: start, a hospital's turn, its threshold."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.capsule.container import require_place
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import Home, Threshold, read_home, write_home
from fcforge.capsule.keys import read_private
from fcforge.capsule.opening import Trust
from fcforge.capsule.requests import LearnRequest
from fcforge.capsule.sealing import require_same_signing
from fcforge.consortium.files import read_consortium, write_consortium, write_either
from fcforge.consortium.learning import Budget, Learned, learn, refit_threshold
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import PublicStart, make_public
from fcforge.errors import ConfigError
from fcforge.releases.start import StartSettings
from fcforge.runner.config_files import override
from fcforge.settings import make
from fcforge.sites import Cohort, load_dataset
from fcforge.sites.reading import Kind
from fcforge.types import Component


def names_in(text: str) -> list[str]:
    """Names in a list with commas.

    Examples
    --------
    >>> names_in("NYU, UM"), names_in("")
    (['NYU', 'UM'], [])
    """
    return [name for part in text.split(",") if (name := part.strip())]


def start_file(
    dataset: Mapping[str, Any],
    sites: Sequence[str],
    remove: Sequence[str],
    out: Path,
    settings: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> PublicStart:
    """Make a start from public people and write it as a capsule without a release.

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
        ``start.axes=8``, ``dataset.quality=all``.
    overwrite : bool
    """
    require_place(out, overwrite=overwrite)
    given = override({"start": {}, "dataset": dict(dataset)}, settings)
    if set(given) != {"start", "dataset"}:
        raise ConfigError(f"--set {settings[0]}: only start.* and dataset.* can be set.")
    name = given["dataset"].pop("name")
    if not sites and name != "folder":
        raise ConfigError(
            f"dataset '{name}' needs --sites: which of its sites are public?",
            do="Name them, separated by commas.",
        )
    if sites:
        given["dataset"]["sites"] = list(sites)
    cohort = load_dataset(Component(name, given["dataset"]))
    start = make_public(cohort, sites, remove, make(StartSettings, given["start"], "start"))
    write_consortium(Consortium(start), out, overwrite=overwrite)
    return start


def take_turn(
    request: LearnRequest,
    tell: Callable[[Learned], None] = lambda done: None,
    agree: Callable[[Consortium], Any] = lambda group: None,
) -> Learned:
    """Learn one site around a start: the release is written, and what stays at home.

    `agree` is called with what is about to be continued, and raises where it must not be; `tell`
    with what was found and what is about to be spent, before anything is written.

    The receipt is written first: should the disk fail in between, a release was counted that
    never left, not the other way round.
    """
    budget = _asked(request)
    require_place(request.out, overwrite=request.overwrite)
    group = read_consortium(str(request.state), Trust.of(request.trust))
    cohort = own_data(request.data, [request.site], request.kind, request.positive)
    place = request.local or home_of(request.site, request.data)
    home = read_home(place)
    require_home(home, group, request.site, place)
    key = read_private(request.sign) if request.sign is not None else None
    require_same_signing([{"key": record.key} for record in group.records], key is not None)
    agree(group)
    accept = request.accept_labels
    done = learn(group, cohort, request.site, home, budget, key, accept_labels=accept)
    tell(done)
    write_home(done.home, place)
    write_either(done.group, done.release, request.out, overwrite=request.overwrite)
    return done


def _asked(request: LearnRequest) -> Budget:
    """What is asked to be spent; `ConfigError` for options that do not fit a release."""
    odd = [*request.chosen, *(["allow_real_subjects"] if request.allow_real_subjects else [])]
    if odd:
        raise ConfigError(
            f"--{odd[0].replace('_', '-')} is for chained capsules; the start has fixed everything "
            "of a release.",
            do="Leave it out.",
        )
    given = request.release
    if given.get("mechanism") == "none" and {"epsilon", "delta"} & set(given):
        raise ConfigError(
            "--mechanism none releases exact sums and has no epsilon or delta.",
            do="Leave --epsilon and --delta out, or use the gaussian mechanism.",
        )
    return Budget(**{k: v for k, v in given.items() if k not in ("local", "accept_labels")})


def own_data(data: Path, sites: Sequence[str], kind: Kind, positive: str | None = None) -> Cohort:
    """A hospital's own people; all sites of the file where none is named."""
    named = {"sites": list(sites)} if sites else {}
    params = {"path": str(data), "kind": kind, "positive": positive, **named}
    return load_dataset(Component("folder", params))


def home_of(site: str, data: Path) -> Path:
    """The default home file of a site: beside its data, wherever a release is written to."""
    name = re.sub(r"[^\w.-]", "_", site)
    return data.resolve().parent / f"{name}.home.json"


def require_home(home: Home, group: Consortium, site: str, place: Path) -> None:
    """Refuse where the capsule holds a release that the home file does not know."""
    known = {receipt.commitment for receipt in home.receipts}
    if any(r.site == site and r.commitment not in known for r in group.releases):
        raise ConfigError(
            f"the capsule holds a release of site '{site}' that {place} does not know, so nobody "
            "can tell who has spent what.",
            do="Name the home file of that release with --local.",
        )


def refit_file(capsule: Path, data: Path, site: str, local: Path, kind: Kind = "auto") -> Threshold:
    """Fit the own threshold anew for a later state of the consortium, in the home file."""
    home = read_home(local, must_exist=True)
    found = refit_threshold(
        read_consortium(capsule, Trust.of(())), own_data(data, [site], kind), site, home
    )
    write_home(replace(home, threshold=found), local)
    return found


def local_home(local: Path | None) -> Home:
    """The home file that was named; an empty one where none was."""
    return Home() if local is None else read_home(local, must_exist=True)


def withdraw_file(
    site: str, state: Path, out: Path, sign: Path | None, *, overwrite: bool = False
) -> Consortium:
    """Take a site's releases back; OUT is the capsule without them, or the record alone."""
    require_place(out, overwrite=overwrite)
    key = read_private(sign) if sign is not None else None
    group = read_consortium(state, Trust.of(())).withdrawn(site, key)
    mine = [w for w in group.withdrawals if w.site == site]
    write_either(group, max(mine, key=lambda w: w.time), out, overwrite=overwrite)
    return group


def own_threshold(local: Path | None, capsule: Capsule | Consortium) -> Threshold | None:
    """The own threshold of a home file; `ConfigError` where it cannot be meant."""
    if local is not None and isinstance(capsule, Capsule):
        raise ConfigError("--local is for capsules of releases.", where=str(local))
    own = local_home(local).threshold
    if local is not None and own is None:
        raise ConfigError("holds no threshold yet.", where=str(local), do="Learn a site first.")
    return own
