"""What a chain's step hands on: a lane and synthetic subjects, held against the model they name."""

from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from fcforge import graphs, randomness
from fcforge.engine import Learner
from fcforge.errors import ExchangeError
from fcforge.exchange.archive import load_arrays, save_arrays
from fcforge.exchange.chains.chain_settings import ChainSettings
from fcforge.methods import Lane
from fcforge.types import FCBatch

# All that a state of wrong shapes or with missing names was seen to raise.
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)
REMEMBERED = "remembered"
HELD_OUT = "held_out"


@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
    y : Tensor of shape (m,), int64
    site : Tensor of shape (m,), int64
        Place of their site in the chain.
    """

    upper: Tensor
    y: Tensor
    site: Tensor

    @classmethod
    def none(cls, n_rois: int) -> Self:
        """Nobody."""
        nobody = torch.zeros(0, dtype=torch.int64)
        upper = torch.zeros(0, n_rois * (n_rois - 1) // 2)
        return cls(upper, nobody, nobody)

    @classmethod
    def of(cls, batch: FCBatch, site: Tensor) -> Self:
        """Subjects of a batch whose FC is exactly what its upper triangle says."""
        upper = graphs.edges(batch.fc).float()
        if len(batch) and not torch.equal(graphs.from_edges(upper), batch.fc):
            raise ExchangeError(
                "an FC matrix is not symmetric with unit diagonal, so that it would change on "
                "its way.",
                do="Generators must return symmetric matrices with ones on the diagonal.",
            )
        return cls(upper, batch.y, site)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def batch(self) -> FCBatch:
        """Their FC and labels."""
        if len(self):
            return FCBatch(graphs.from_edges(self.upper), self.y)
        n_rois = graphs.n_rois_of(self.upper.shape[1])
        return FCBatch(torch.zeros(0, n_rois, n_rois), self.y)

    def of_site(self, place: int) -> FCBatch:
        """FC and labels of one site's."""
        return self.batch().select(self.site == place)

    def join(self, other: Self) -> Self:
        """These, then the others."""
        mine = vars(self)
        theirs = vars(other)
        return type(self)(**{k: torch.cat([mine[k], theirs[k]]) for k in mine})

    def check(self, n_rois: int, n_sites: int, name: str) -> None:
        """Raise `ExchangeError` unless they are correlations of a known class and site."""
        for key, like in vars(type(self).none(n_rois)).items():
            found = getattr(self, key)
            expected = (len(self), *like.shape[1:])
            if tuple(found.shape) != expected or found.dtype != like.dtype:
                raise ExchangeError(
                    f"array '{name}/{key}' is of shape {tuple(found.shape)}, not {expected}."
                )
        least = {"upper": -1.0, "y": 0, "site": 0}
        most = {"upper": 1.0, "y": 1, "site": n_sites - 1}
        for key in least if len(self) else ():
            found = getattr(self, key)
            if found.min() < least[key] or found.max() > most[key]:
                raise ExchangeError(f"array '{name}/{key}' holds what cannot be.")


class State(NamedTuple):
    """All that a chain's next hospital needs.

    Attributes
    ----------
    lane : Lane
        Rows of its state are places in `remembered`.
    remembered : Subjects
        What the method replays.
    held_out : Subjects
        Synthetic subjects of every site, never trained on.
    """

    lane: Lane
    remembered: Subjects
    held_out: Subjects

    def to_bytes(self) -> bytes:
        """As a payload."""
        return save_arrays({k: v.detach().numpy() for k, v in self.named().items()})

    def named(self) -> dict[str, Tensor]:
        """Every array by its name in the payload."""
        found = self.lane.named()
        for part in (REMEMBERED, HELD_OUT):
            subjects = vars(getattr(self, part))
            found |= {f"{part}/{key}": value for key, value in subjects.items()}
        return found


def empty_state(n_rois: int) -> State:
    """What the first hospital of a chain is handed: nothing learned, nobody remembered."""
    nobody = Subjects.none(n_rois)
    return State(Lane({}, {}, {}), nobody, nobody)


def read_state(data: bytes, settings: ChainSettings, n_sites: int, what: str) -> State:
    """The state of a payload; anything that is not exactly one raises `ExchangeError`."""
    names = (*Lane._fields, REMEMBERED, HELD_OUT)
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for name, value in load_arrays(data, what).items():
        part, _, key = name.partition("/")
        if part not in parts or not key:
            raise ExchangeError(f"array {name!r:.80} belongs nowhere.")
        parts[part][key] = torch.from_numpy(np.array(value))
    keys = {field.name for field in fields(Subjects)}
    for part in (REMEMBERED, HELD_OUT):
        if parts[part].keys() != keys:
            raise ExchangeError(
                f"the {what} has no {part} subjects as they are stored."
            )
    remembered = Subjects(**parts.pop(REMEMBERED))
    held_out = Subjects(**parts.pop(HELD_OUT))
    remembered.check(settings.n_rois, n_sites, REMEMBERED)
    held_out.check(settings.n_rois, n_sites, HELD_OUT)
    state = State(Lane(**parts), remembered, held_out)
    check_lane(state, settings, n_sites)
    return state


def check_lane(state: State, settings: ChainSettings, n_sites: int) -> None:
    """Raise unless network and state are what the settings declare, and the network answers."""
    learner = settings.build()
    lane = state.lane
    model = learner.model
    with torch.device("meta"):  # shapes alone: a forged size costs no memory
        described = Lane(model.init(randomness.torch_rng(0)), model.init_stats(), {})
    if _shapes(lane) != _shapes(described):
        name = settings.learner.model.name
        raise ExchangeError(f"the network is not a '{name}' as described.")
    try:
        _check_declared(learner, lane, n_sites)
        _check_rows(learner, lane, len(state.remembered))
        with torch.no_grad():
            eye = torch.eye(model.n_rois).expand(2, -1, -1)
            logits = learner.method.logits(model, lane, model.prepare(eye))
    except MISFIT as error:
        what = f"the network does not work ({type(error).__name__})."
        raise ExchangeError(what) from error
    if logits.shape != (2, 2) or not bool(torch.isfinite(logits).all()):
        raise ExchangeError("the network does not give two finite scores per subject.")


def _check_declared(learner: Learner, lane: Lane, n_sites: int) -> None:
    """Raise unless the method's arrays are those it declares."""
    n_learned = 1 if learner.method.depends_on == "site" else n_sites
    declared = learner.method.declares(learner.model, lane, n_learned)
    for key in sorted(declared.keys() ^ lane.state.keys()):
        missing = "is missing" if key in declared else "is not of this method's state"
        raise ExchangeError(f"array 'state/{key:.80}' {missing}.")
    for key, value in lane.state.items():
        if wrong := declared[key].complaint(value):
            raise ExchangeError(f"array 'state/{key}' {wrong}.")


def _check_rows(learner: Learner, lane: Lane, n_remembered: int) -> None:
    """Raise unless rows of subjects are places among those who travel, or -1."""
    for key in learner.method.row_keys:
        rows = lane.state[key]
        if rows.numel() and not (rows.min() >= -1 and rows.max() < n_remembered):
            raise ExchangeError(f"'{key}' points at subjects that are not there.")


def _shapes(lane: Lane) -> dict[str, tuple[tuple[int, ...], str]]:
    both = {**lane.params, **{f"stats/{k}": v for k, v in lane.stats.items()}}
    return {k: (tuple(v.shape), str(v.dtype)) for k, v in both.items()}
