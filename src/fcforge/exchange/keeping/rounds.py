"""Rounds as an exchange holds them: notices of hospitals, and the halves of two keepers.

Both halves of a round must name the same hospitals with the same notices. Each is uniform by
itself; together they are the noisy sum over those hospitals.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fcforge.errors import ExchangeError, at
from fcforge.exchange.keeping.shares import added, signed_numbers
from fcforge.exchange.policy import Policy
from fcforge.exchange.records import Half, Notice

if TYPE_CHECKING:
    from fcforge.exchange.exchange import Exchange
    from fcforge.exchange.home.private_record import Receipt

NUMBERS = "numbers"  # the array of a half
LOST = "Nothing was changed. Ask both keepers which shares they have, and give a new round."


class Round(NamedTuple):
    """A round that at least one keeper has published.

    Attributes
    ----------
    name : str
    halves : tuple of Half
        One, or both; sorted by keeper.
    """

    name: str
    halves: tuple[Half, ...]

    @property
    def closed(self) -> bool:
        """Whether both keepers have published it."""
        return len(self.halves) == 2

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Who is in it."""
        return tuple(one.site for one in self.halves[0].hospitals)

    @property
    def notices(self) -> frozenset[str]:
        """Ids of the notices in it."""
        return frozenset(one.notice for one in self.halves[0].hospitals)


def rounds_of(exchange: "Exchange") -> tuple[Round, ...]:
    """The rounds of an exchange by name; `ExchangeError` for halves that cannot be joined."""
    found: dict[str, list[Half]] = {}
    notices = {notice.id: notice for notice in exchange.of(Notice)}
    for half in exchange.of(Half):
        with at(half.title):
            _check_half(half, exchange.root.policy, notices)
        found.setdefault(half.round, []).append(half)
    for name, halves in found.items():
        _check_pair(name, halves)
    return tuple(Round(name, tuple(found[name])) for name in sorted(found))


def total(exchange: "Exchange", closed: Round) -> np.ndarray:
    """The noisy sum (d,), int64, of a round that both keepers have published."""
    words = [exchange.arrays(half)[NUMBERS] for half in closed.halves]
    return signed_numbers(added(words))


def _check_half(half: Half, policy: Policy, notices: Mapping[str, Notice]) -> None:
    """A half is by a keeper of the policy, of enough hospitals that gave it what it says."""
    keeper = policy.keeper(half.site)
    if half.key != keeper.key:
        by = f"key {half.key[:16]}" if half.key else "nobody"
        raise ExchangeError(
            f"is signed by {by}, not by the keeper's key in the policy."
        )
    names = [one.site for one in half.hospitals]
    if names != sorted(set(names)):
        raise ExchangeError("names a hospital twice, or not in order.")
    if len(names) < policy.fewest_hospitals:
        asked = f"the policy asks for {policy.fewest_hospitals}"
        raise ExchangeError(f"is of {len(names)} hospitals; {asked}.")
    for one in half.hospitals:
        notice = notices.get(one.notice)
        if notice is None or (notice.site, notice.round) != (one.site, half.round):
            raise ExchangeError(f"names a notice of '{one.site}' that is not there.")
        gave = {given.keeper: given.sha256 for given in notice.shares}
        if gave.get(half.site) != one.share:
            raise ExchangeError(f"adds a share that '{one.site}' did not give.")
        if notice.budget != half.budget:
            raise ExchangeError(f"has another budget than '{one.site}' gave its for.")
        with at(f"'{one.site}'", kind=ExchangeError):
            policy.require_budget(*spent_with(notice, half.times))


def _check_pair(name: str, halves: list[Half]) -> None:
    """Both halves are of the same hospitals, notices and budget, by different keepers."""
    first = halves[0]
    if any(half.times != first.times for half in halves):
        raise ExchangeError(
            "it was published once more after a withdrawal that is not in these files.",
            where=f"round '{name}'",
            do="Join the file with the withdrawal, too: `fcforge merge FILES --out FILE`.",
        )
    for other in halves[1:]:
        with at(f"round '{name}'", do=LOST):
            if other.site == first.site:
                raise ExchangeError(f"keeper '{first.site}' has published it twice.")
            mine = {one.site: one.notice for one in first.hospitals}
            theirs = {one.site: one.notice for one in other.hospitals}
            for site in sorted(mine.keys() | theirs.keys()):
                if mine.get(site) != theirs.get(site):
                    what = f"the halves have different shares of '{site}'"
                    raise ExchangeError(f"{what}, or only one has any.")
            for name in ("budget", "grid", "variance"):
                if getattr(first, name) != getattr(other, name):
                    raise ExchangeError(f"the halves have different noise ({name}).")


def times_published(
    exchange: "Exchange", receipts: Iterable["Receipt"]
) -> dict[str, int]:
    """How often what a hospital gave to rounds was published, by commitment.

    Whoever is in the last publication was in all of them; whoever is not can have been in all
    before it. So a late share, which is in neither half of a round published once, costs nothing:
    one of the two keepers is honest and never adds it. Before a round is closed, it counts.
    """
    here = {one.name: one for one in rounds_of(exchange)}
    notices = {notice.id: notice.commitment for notice in exchange.of(Notice)}
    found = {}
    for receipt in receipts:
        if receipt.round in here and exchange.root.id in receipt.seen:
            last = here[receipt.round]
            used = {notices[one] for one in last.notices}
            times = last.halves[0].times - (receipt.commitment not in used)
            found[receipt.commitment] = times if last.closed else max(times, 1)
    return found


def spent_with(notice: Notice, times: int) -> tuple[float | None, float]:
    """Most that one of a hospital's people has spent when a round was published so often."""
    epsilon, delta = notice.budget
    if epsilon is None:
        return None, 0.0
    more = times - 1
    return notice.spent_epsilon + more * epsilon, notice.spent_delta + more * delta
