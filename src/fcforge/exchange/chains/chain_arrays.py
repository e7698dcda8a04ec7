"""What a chain's step hands on: a lane and synthetic subjects, held against the model they name."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from fcforge import graphs, randomness
from fcforge.exchange.archive import load_arrays, save_arrays
from fcforge.exchange.chains.chain_settings import ChainSettings
from fcforge.messages import ExchangeError
from fcforge.methods import Lane
from fcforge.methods.base import Learner
from fcforge.replay.memory import Declared, alike
from fcforge.types import TWO_CLASSES, FCBatch, Target

# All that a network whose numbers do not fit each other was seen to raise.
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)
REMEMBERED = "remembered"
PARTS = (REMEMBERED, "held_out")  # subjects that travel
NOBODY = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
    y : Tensor of shape (m,), int64, or float32 of a number
    site : Tensor of shape (m,), int64
        Place of their site in the chain.
    """

    upper: Tensor
    y: Tensor
    site: Tensor

    @classmethod
    def none(cls, n_rois: int, target: Target = TWO_CLASSES) -> Self:
        """Nobody."""
        y = NOBODY if target.classes else NOBODY.float()
        return cls(torch.zeros(0, n_rois * (n_rois - 1) // 2), y, NOBODY)

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
        for part in PARTS:
            subjects = vars(getattr(self, part))
            found |= {f"{part}/{key}": value for key, value in subjects.items()}
        return found


def empty_state(n_rois: int, target: Target = TWO_CLASSES) -> State:
    """What the first hospital of a chain is handed: nothing learned, nobody remembered."""
    nobody = Subjects.none(n_rois, target)
    return State(Lane({}, {}, {}), nobody, nobody)


def read_state(
    data: bytes,
    settings: ChainSettings,
    n_sites: int,
    what: str,
    target: Target = TWO_CLASSES,
) -> State:
    """The state of a payload; anything that is not exactly one raises `ExchangeError`."""
    found: dict[str, Tensor] = {}
    for name, value in load_arrays(data, what).items():
        found[name] = torch.from_numpy(np.array(value))
    learner = settings.build(target)
    sizes = {part: found.get(f"{part}/y", NOBODY).numel() for part in PARTS}
    declared = _declared(learner, n_sites, sizes, target)
    for name in sorted(declared.keys() ^ found.keys()):
        missing = "is missing" if name in declared else "belongs nowhere"
        raise ExchangeError(f"array '{name:.80}' {missing}.")
    for name, one in declared.items():
        if wrong := one.complaint(found[name]):
            raise ExchangeError(f"array '{name}' {wrong}.")
    subjects = [_taken_out(found, part) for part in PARTS]
    lane = Lane.from_named(found)
    _require_answers(learner, lane)
    return State(lane, *subjects)


def _taken_out(arrays: dict[str, Tensor], part: str) -> Subjects:
    """The subjects of a part, which is no longer among the arrays."""
    names = [field.name for field in fields(Subjects)]
    return Subjects(**{name: arrays.pop(f"{part}/{name}") for name in names})


def _declared(
    learner: Learner, n_sites: int, sizes: Mapping[str, int], target: Target
) -> dict[str, Declared]:
    """Every array of a state with so many subjects of either kind, after so many sites."""
    model = learner.model
    method = learner.method
    with torch.device("meta"):  # shapes alone: a forged size costs no memory
        lane = Lane(model.init(randomness.torch_rng(0)), model.init_stats(), {})
        n_learned = 1 if method.depends_on == "site" else n_sites
        state = method.declares(model, lane, n_learned)
    for key in method.row_keys:  # places among those who travel, or -1
        low = max(state[key].low, -1)
        state[key] = state[key]._replace(low=low, high=sizes[REMEMBERED] - 1)
    found = alike(lane.named()) | {f"state/{key}": one for key, one in state.items()}
    n_edges = model.n_rois * (model.n_rois - 1) // 2
    y = Declared((0,), low=-1, high=1)
    if target.classes:
        y = Declared((0,), torch.int64, low=0, high=len(target.classes) - 1)
    for part, n in sizes.items():
        found[f"{part}/upper"] = Declared((n, n_edges), low=-1, high=1)
        found[f"{part}/y"] = y._replace(shape=(n,))
        found[f"{part}/site"] = Declared((n,), torch.int64, low=0, high=n_sites - 1)
    return found


def _require_answers(learner: Learner, lane: Lane) -> None:
    """Raise unless the network answers."""
    model = learner.model
    try:
        with torch.no_grad():
            eye = torch.eye(model.n_rois).expand(2, -1, -1)
            logits = learner.method.logits(model, lane, model.prepare(eye))
    except MISFIT as error:
        what = f"the network does not work ({type(error).__name__})."
        raise ExchangeError(what) from error
    wanted = (2, model.n_outputs)
    if logits.shape != wanted or not bool(torch.isfinite(logits).all()):
        raise ExchangeError("the network does not give finite scores of each subject.")
