"""The state of a chain as it travels: lane, remembered and held-out subjects, checked when read.

A *lane* is a network with its parameters and all that its method remembers (`fcforge.methods.base.Lane`).
*Remembered* subjects are those that the method replays; *held-out* subjects are synthetic and are never
trained on. A method's state does not hold subjects but refers to the remembered ones by their *place*,
the index among them.

The file comes from another hospital. Names, shapes, types and bounds of every array are therefore
declared (`chains.declared`) and compared before anything is computed with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core import randomness
from fcforge.core.errors import ExchangeError
from fcforge.core.subjects import FCBatch
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.methods import Lane
from fcforge.methods.base import Learner
from fcforge.replay.state import rows_of
from fcforge_consortium.chains.declared import Declared, alike, declared_state
from fcforge_consortium.chains.settings import ChainSettings
from fcforge_consortium.records.archive import load_arrays, save_arrays

# Errors that a network raises when its arrays do not fit each other.
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)
REMEMBERED = "remembered"
PARTS = (REMEMBERED, "held_out")  # subjects that travel
NOBODY = torch.zeros(0, dtype=torch.int64)


# -- what travels ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC; m subjects, R ROIs.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
        Edges of the FC matrices.
    y : Tensor of shape (m,), int64, or float32 of a number
    site : Tensor of shape (m,), int64
        Index of their site among the sites of the chain.
    """

    upper: Tensor
    y: Tensor
    site: Tensor

    @classmethod
    def none(cls, n_rois: int, target: Target = TWO_CLASSES) -> Self:
        """Return an empty set of subjects."""
        y = NOBODY if target.classes else NOBODY.float()
        return cls(torch.zeros(0, n_rois * (n_rois - 1) // 2), y, NOBODY)

    @classmethod
    def of(cls, batch: FCBatch, site: Tensor) -> Self:
        """Return the subjects of a batch.

        Parameters
        ----------
        batch : FCBatch
        site : Tensor of shape (m,), int64
            Index of each subject's site among the sites of the chain.

        Raises
        ------
        ExchangeError
            If a matrix is not symmetric with unit diagonal, so that its edges do not determine it.
        """
        upper = graphs.edges(batch.fc).float()
        if not torch.equal(graphs.from_edges(upper), batch.fc):
            raise ExchangeError(
                "an FC matrix is not symmetric with unit diagonal, so it would change in a file.",
                do="Generators must return symmetric matrices with ones on the diagonal.",
            )
        return cls(upper, batch.y, site)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def batch(self) -> FCBatch:
        """Return FC matrices and labels of the subjects."""
        return FCBatch(graphs.from_edges(self.upper), self.y)

    def of_site(self, place: int) -> FCBatch:
        """Return FC matrices and labels of the subjects of the site with this index."""
        return self.batch().select(self.site == place)

    def join(self, other: Self) -> Self:
        """Return these subjects, followed by the others."""
        mine = vars(self)
        theirs = vars(other)
        return type(self)(**{k: torch.cat([mine[k], theirs[k]]) for k in mine})


class State(NamedTuple):
    """The state of a chain after a step, which the next hospital receives.

    Attributes
    ----------
    lane : Lane
        Network and method state. Where the state refers to subjects, it holds their places in
        `remembered`.
    remembered : Subjects
        Subjects that the method replays.
    held_out : Subjects
        Synthetic subjects of every site, never trained on.
    """

    lane: Lane
    remembered: Subjects
    held_out: Subjects

    def to_bytes(self) -> bytes:
        """Return the state as the payload of a step's record."""
        return save_arrays({k: v.detach().numpy() for k, v in self.named().items()})

    def named(self) -> dict[str, Tensor]:
        """Return every array by its name in the payload."""
        arrays = self.lane.named()
        for part in PARTS:
            subjects = vars(getattr(self, part))
            arrays |= {f"{part}/{key}": value for key, value in subjects.items()}
        return arrays


def empty_state(n_rois: int, target: Target = TWO_CLASSES) -> State:
    """Return the state before the first hospital: no network, no remembered subjects."""
    nobody = Subjects.none(n_rois, target)
    return State(Lane({}, {}), nobody, nobody)


def read_state(
    data: bytes,
    settings: ChainSettings,
    n_sites: int,
    record: str,
    target: Target = TWO_CLASSES,
) -> State:
    """Return the state in a payload; raise `ExchangeError` unless every array is as declared.

    Parameters
    ----------
    data : bytes
        The payload of a chain's last step.
    settings : ChainSettings
    n_sites : int
        Sites that the chain has learned.
    record : str
        Name of the record, for error messages.
    target : Target
    """
    arrays: dict[str, Tensor] = {}
    for name, value in load_arrays(data, record).items():
        arrays[name] = torch.from_numpy(np.array(value))
    learner = settings.build(target)
    sizes = {part: arrays.get(f"{part}/y", NOBODY).numel() for part in PARTS}
    declared = _declared(learner, n_sites, sizes, target)
    for name in sorted(declared.keys() ^ arrays.keys()):
        missing = "is missing" if name in declared else "is not part of a state"
        raise ExchangeError(f"array '{name:.80}' {missing}.")
    for name, one in declared.items():
        if wrong := one.complaint(arrays[name]):
            raise ExchangeError(f"array '{name}' {wrong}.")
    subjects = [_take_subjects(arrays, part) for part in PARTS]
    lane = Lane.from_named(arrays, learner.method.State)
    _require_answers(learner, lane)
    return State(lane, *subjects)


def _take_subjects(arrays: dict[str, Tensor], part: str) -> Subjects:
    """Remove the subjects of a part from the arrays and return them."""
    names = [field.name for field in fields(Subjects)]
    return Subjects(**{name: arrays.pop(f"{part}/{name}") for name in names})


def _declared(
    learner: Learner, n_sites: int, sizes: Mapping[str, int], target: Target
) -> dict[str, Declared]:
    """Declare every array of a state: shape, type and bounds.

    Parameters
    ----------
    learner : Learner
    n_sites : int
        Number of sites that the chain has learned.
    sizes : mapping of str to int
        Number of subjects in each of `PARTS`.
    target : Target

    Returns
    -------
    dict of str to Declared
        By the name of the array in the payload.
    """
    model = learner.model
    method = learner.method
    with torch.device("meta"):  # shapes alone: a forged size costs no memory
        lane = Lane(model.init(randomness.torch_rng(0)), model.init_stats())
        # a method that begins anew at every site knows its last site alone
        n_learned = 1 if method.depends_on == "site" else n_sites
        state = declared_state(method, model, lane, n_learned)
        rows = rows_of(method.start(model, lane).state)
    for key in rows:  # places among the subjects that travel, or -1
        low = max(state[key].low, -1)
        state[key] = state[key]._replace(low=low, high=sizes[REMEMBERED] - 1)
    declared = alike(lane.named()) | {f"state/{key}": one for key, one in state.items()}
    n_edges = model.n_rois * (model.n_rois - 1) // 2
    y = Declared((0,), low=-1, high=1)
    if target.classes:
        y = Declared((0,), torch.int64, low=0, high=len(target.classes) - 1)
    for part, n in sizes.items():
        declared[f"{part}/upper"] = Declared((n, n_edges), low=-1, high=1)
        declared[f"{part}/y"] = y._replace(shape=(n,))
        declared[f"{part}/site"] = Declared((n,), torch.int64, low=0, high=n_sites - 1)
    return declared


def _require_answers(learner: Learner, lane: Lane) -> None:
    """Raise `ExchangeError` unless the network gives finite scores of two test matrices.

    Parameters
    ----------
    learner : Learner
    lane : Lane
        The network as read from a file, and the state of its method.
    """
    model = learner.model
    try:
        with torch.no_grad():
            eye = torch.eye(model.n_rois).expand(2, -1, -1)
            logits = learner.method.logits(model, lane, model.prepare(eye))
    except MISFIT as error:
        message = f"the network does not work ({type(error).__name__})."
        raise ExchangeError(message) from error
    wanted = (2, model.n_outputs)
    if logits.shape != wanted or not bool(torch.isfinite(logits).all()):
        raise ExchangeError("the network does not give finite scores of each subject.")
