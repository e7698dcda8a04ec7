r"""Harmonisation at arrival: a site's edges are brought to those of the first site of the order.

Everything happens in Fisher z and uses training parts only (train and val, never test). The
first site is the fixed reference: it is left as it is, and every later site is moved to it with
statistics of its own training part, when it arrives. So nothing of a later site reaches an
earlier one, no stage has to be repeated, and what has to travel between hospitals is one mean
(and one spread) per edge of the first site. Public people may take the first site's place.

``site_demean``: :math:`z' = z - \bar z_{site} + \bar z_{first}`; needs no diagnosis.
``combat``: location and scale with ComBat's empirical Bayes, the diagnoses of the training part
keeping a site's share of patients out of the estimates. A subject's own diagnosis is never used
to harmonise it: classic ComBat with the class as covariate does so, and hands the answer to the
classifier.

A site that has not been learned yet is harmonised in the same way before it is scored, but without
its diagnoses: zero-shot cells of a harmonised run are those of a hospital that has some scans of
its own to harmonise with, not of one that has a single patient.

Shifted edges need not be a correlation matrix any more; eigenvalues below zero are then raised to
zero and the diagonal is scaled back to one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fcforge.components import check_names
from fcforge.errors import DataError
from fcforge.sites.cohort import fc_from_upper, upper_from_fc
from fcforge.sites.combat import Unseen, by_site, no_zeros, site_effect
from fcforge.types import FCBatch, Site

Harmonisation = Literal["none", "site_demean", "combat"]
LEAST = 10  # people whose mean may travel: that of fewer gives each of them away
LIMIT = 0.9999  # as graphs.fisher_z


def to_z(fc: np.ndarray) -> np.ndarray:
    """Fisher-z edges: (n, R, R) -> (n, E), float64."""
    return np.arctanh(np.clip(upper_from_fc(fc).astype(np.float64), -LIMIT, LIMIT))


def to_fc(z: np.ndarray) -> np.ndarray:
    """Correlation matrices of Fisher-z edges: (n, E) -> (n, R, R), float32, no eigenvalue < 0."""
    fc = fc_from_upper(np.tanh(z))
    if not len(fc):
        return fc
    value, vector = np.linalg.eigh(fc.astype(np.float64))
    bad = np.flatnonzero(value[:, 0] < -1e-6)
    if len(bad):
        root = vector[bad] * np.sqrt(np.maximum(value[bad], 0.0))[:, None, :]
        root /= np.linalg.norm(root, axis=2, keepdims=True)
        fixed = np.clip(root @ root.transpose(0, 2, 1), -1.0, 1.0)
        fixed[:, np.arange(fc.shape[1]), np.arange(fc.shape[1])] = 1.0
        fc[bad] = (fixed + fixed.transpose(0, 2, 1)) / 2
    return fc


class Transform(NamedTuple):
    r"""What happens to every subject of a site: :math:`z' = s \odot z + c`, both (E,).

    Knows neither the subject's split nor its diagnosis.
    """

    scale: np.ndarray
    shift: np.ndarray

    def __call__(self, fc: np.ndarray) -> np.ndarray:
        """Harmonised FC (n, R, R)."""
        return to_fc(self.scale * to_z(fc) + self.shift)


def centre_classes(
    z: np.ndarray, y: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Residuals (n, E) about class means, location (E,) and the number of means.

    The location is the mean of the class means, so that a site with more patients is not moved
    by them; without `y` it is the plain mean.
    """
    known, group = np.unique(np.zeros(len(z)) if y is None else y, return_inverse=True)
    means = np.stack([z[group == c].mean(0) for c in range(len(known))])
    return z - means[group], means.mean(0), len(known)


class Level(NamedTuple):
    """Where the edges of the reference lie, and how wide: both (E,)."""

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, z: np.ndarray, y: np.ndarray | None = None) -> "Level":
        """Level of edges z (n, E); with diagnoses midway between the classes."""
        residual, mean, _ = centre_classes(z, y)
        return cls(mean, no_zeros(np.sqrt((residual**2).mean(0))))

    def move(self, how: str, z: np.ndarray, y: np.ndarray | None = None) -> Transform:
        r"""What brings an arriving site to this level.

        ``site_demean`` moves the mean of its edges. For ``combat``, with :math:`\alpha, \sigma`
        this level and the arriving site's :math:`\gamma^*, \delta^*` of `site_effect`,

        .. math:: z' = \alpha + \sigma \frac{(z - \alpha) / \sigma - \gamma^*}{\delta^*}.

        Without classes this is neuroCombat's ``ref_batch``.

        Parameters
        ----------
        how : {"site_demean", "combat"}
        z : ndarray of shape (n, E)
            Training edges of the arriving site.
        y : ndarray of shape (n,), optional
            Diagnoses; given (to `of`, too), ComBat keeps the difference between the classes.
        """
        if how == "site_demean":
            return Transform(np.ones(z.shape[1]), self.mean - z.mean(0))
        own, location, _ = centre_classes(z, y)
        gamma, delta2 = site_effect((own + location - self.mean) / self.spread)
        delta = np.sqrt(delta2)
        return Transform(
            1 / delta, self.mean - (self.mean + self.spread * gamma) / delta
        )


def harmonise_sites(
    sites: Mapping[str, Site],
    how: Harmonisation,
    first: str = "",
    labelled: bool = True,
) -> dict[str, Site]:
    """Sites of an order that begins with `first`, harmonised to it.

    Without a first site (the untrained network) or with "none", the sites as they are.
    `labelled` lets ComBat use the diagnoses of training subjects (see `Level.move`).
    """
    check_names("harmonisation", [how], ("none", "site_demean", "combat"))
    if how == "none" or not first:
        return dict(sites)
    level, note = Level.of(*_training(sites[first], how, labelled)), f"{how} to {first}"
    moves = {
        name: level.move(how, *_training(s, how, labelled)) for name, s in sites.items()
    }
    return {n: s if n == first else _moved(s, moves[n], note) for n, s in sites.items()}


def _training(
    site: Site, how: str, labelled: bool = True
) -> tuple[np.ndarray, np.ndarray | None]:
    """Edges of the training part, and diagnoses where the estimates use them."""
    part = site.learning(with_val=True)
    return to_z(
        part.fc.numpy()
    ), part.y.numpy() if labelled and how == "combat" else None


def _moved(site: Site, move: Transform, note: str) -> Site:
    def moved(batch: FCBatch, part: str) -> FCBatch:
        return FCBatch.from_numpy(move(batch.fc.numpy()), batch.y.numpy())

    return site.changed(moved, harmonised=note)


# -- a chain of hospitals, whose data never meet ---------------------------------------------------
@dataclass(frozen=True, eq=False)
class Harmony:
    """What travels of a harmonised chain: the reference, and how each site is moved to it.

    Attributes
    ----------
    how : {"site_demean", "combat"}
    level, spread : ndarray of shape (E,)
        Of the first site's training part, or of public people.
    scale, shift : ndarray of shape (sites, E)
        `Transform` of each site, in the order learned; 1 and 0 of a first site that is itself the
        reference.
    """

    how: str
    level: np.ndarray
    spread: np.ndarray
    scale: np.ndarray
    shift: np.ndarray

    @classmethod
    def to_public(
        cls, how: str, fc: np.ndarray, y: np.ndarray | None = None
    ) -> "Harmony":
        """A chain's harmony before its first site: public people (n, R, R) are the reference."""
        _require_many(len(fc), "the public people")
        level, spread = Level.of(to_z(fc), y if how == "combat" else None)
        return cls(how, level, spread, *np.zeros((2, 0, len(level))))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that travels, by name."""
        return {
            name: getattr(self, name) for name in ("level", "spread", "scale", "shift")
        }

    def digest(self, place: int) -> str:
        """SHA-256 of what a site adds: its move, and for the first site the reference, too."""
        added = [
            self.scale[place],
            self.shift[place],
            *[self.level, self.spread] * (place == 0),
        ]
        return hashlib.sha256(
            b"".join(a.astype("<f8").tobytes() for a in added)
        ).hexdigest()

    def complaint(self, sites: int, n_edges: int) -> str:
        """Why these arrays cannot be the harmony of so many sites; empty where they can."""
        one, all_sites = (n_edges,), (sites, n_edges)
        shapes = {"level": one, "spread": one, "scale": all_sites, "shift": all_sites}
        for name, array in self.arrays().items():
            if array.shape != shapes[name] or array.dtype != np.float64:
                return f"'{name}' has another shape or type than {sites} sites need"
        if not ((self.scale > 0).all() and (self.spread > 0).all()):
            return "a scale is not above zero"
        return (
            ""
            if self.how == "combat" or (self.scale == 1).all()
            else "demeaning scales nothing"
        )

    def zero_shot(self, site: Site) -> Site:
        """A site that was not learned yet, moved without its diagnoses."""
        z, _ = _training(site, self.how)
        return _moved(site, Level(self.level, self.spread).move(self.how, z), self.how)

    def apply(
        self,
        fc: np.ndarray,
        names: Sequence[str],
        sites: Sequence[str],
        unseen: Unseen = "refuse",
    ) -> np.ndarray:
        """FC (n, R, R) of new people, each moved as those of its site were.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        names : sequence of n str
            Site of each.
        sites : sequence of str
            Those learned, in order.
        unseen : {"refuse", "leave", "estimate"} or mapping of str to str
            As in `by_site`.
        """
        out = np.array(fc, dtype=np.float32)
        for rows, like in by_site(names, sites, unseen):
            if like is None:
                move = Level(self.level, self.spread).move(self.how, to_z(out[rows]))
            else:
                place = sites.index(like)
                move = Transform(self.scale[place], self.shift[place])
            if (move.scale != 1).any() or (move.shift != 0).any():
                out[rows] = move(out[rows])
        return out


def arrive(
    before: Harmony | None, how: Harmonisation, site: Site
) -> tuple[Harmony | None, Site]:
    """The chain's harmony with one more site, and the site moved; nothing happens with "none".

    The first site is the reference and stays as it is, unless `before` has one already.
    """
    if how == "none":
        return None, site
    z, y = _training(site, how)
    _require_many(len(z), f"site '{site.name}'")
    if before is None:
        level, one = Level.of(z, y), np.ones((1, z.shape[1]))
        return Harmony(how, *level, one, 0 * one), site
    move = Level(before.level, before.spread).move(how, z, y)
    scale = np.vstack([before.scale, move.scale])
    shift = np.vstack([before.shift, move.shift])
    return replace(before, scale=scale, shift=shift), _moved(site, move, how)


def _require_many(n: int, where: str) -> None:
    if n < LEAST:
        what = (
            f"{n} people to harmonise with: a mean of so few gives each of them away."
        )
        do = (
            f"Learn from at least {LEAST} people of each site, or set harmonise='none'."
        )
        raise DataError(what, where=where, do=do)
