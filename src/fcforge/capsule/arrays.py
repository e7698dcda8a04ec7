"""Arrays of a capsule as safetensors: written, read, and held against the model they belong to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fcforge import graphs, randomness
from fcforge.capsule.ledger import Entry
from fcforge.engine import Learner
from fcforge.errors import CapsuleError, FCForgeError
from fcforge.methods import Lane
from fcforge.sites.harmonise import Harmony
from fcforge.types import FCBatch

if TYPE_CHECKING:
    from fcforge.capsule.chain import ChainSettings

TYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
# All that a state of wrong shapes or with missing names was seen to raise.
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)


def save_arrays(tensors: dict[str, Tensor]) -> bytes:
    """Arrays as safetensors."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()})


def load_arrays(data: bytes, name: str) -> dict[str, Tensor]:
    """Arrays of a part, types and numbers checked."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
    except (SafetensorError, *MISFIT, OverflowError, RecursionError) as error:
        raise CapsuleError(
            f"part '{name}' cannot be read ({type(error).__name__})."
        ) from error
    for key, value in tensors.items():
        if value.dtype not in TYPES:
            raise CapsuleError(f"array '{key}' is of type {value.dtype}.")
        if not bool(torch.isfinite(value).all()):
            raise CapsuleError(f"array '{key}' holds NaN or infinity.")
    return {
        key: tensors[key] for key in sorted(tensors)
    }  # safetensors gives them in any order


def named_harmony(harmony: Harmony | None) -> dict[str, Tensor]:
    """Arrays ``harmony/...`` of a harmonised chain; none of another."""
    found = {} if harmony is None else harmony.arrays()
    return {f"harmony/{name}": torch.from_numpy(array) for name, array in found.items()}


def read_lane(
    data: bytes, settings: "ChainSettings"
) -> tuple[Lane, Learner, Harmony | None]:
    """Lane, learner and harmony; the network's names, shapes and types must be its model's."""
    try:
        learner = settings.build()
    except FCForgeError as error:
        raise CapsuleError(f"its learner cannot be built: {error}") from error
    names = ("params", "stats", "state", "harmony")
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for name, value in load_arrays(data, "lane.safetensors").items():
        part, _, key = name.partition("/")
        if part not in parts or not key:
            raise CapsuleError(f"array '{name}' belongs nowhere.")
        parts[part][key] = value
    how, moves = (
        settings.harmonise,
        {k: v.numpy() for k, v in parts.pop("harmony").items()},
    )
    if set(moves) != (
        {"level", "spread", "scale", "shift"} if how != "none" else set()
    ):
        raise CapsuleError(
            f"its harmonisation is not what harmonise = '{how}' declares."
        )
    lane, model = Lane(**parts), learner.model
    stored = sum(v.numel() for part in (lane.params, lane.stats) for v in part.values())
    with Allowance(2 * stored + 1_000):
        described = Lane(model.init(randomness.torch_rng(0)), model.init_stats(), {})
    if _shapes(lane) != _shapes(described):
        raise CapsuleError(
            f"the network is not a '{settings.learner.model.name}' as described."
        )
    return lane, learner, Harmony(how, **moves) if moves else None


def check_harmony(harmony: Harmony | None, n_rois: int, lines: Sequence[Entry]) -> None:
    """Raise unless every site's move (and the first one's reference) is what its line says."""
    said = [line.get("harmonised", "") for line in lines]
    if harmony is None:
        if any(said):
            raise CapsuleError(
                "a ledger line tells of a harmonisation that is not there."
            )
        return
    if wrong := harmony.complaint(len(lines), n_rois * (n_rois - 1) // 2):
        raise CapsuleError(f"its harmonisation cannot be used: {wrong}.")
    for place, line in enumerate(lines):
        if said[place] != harmony.digest(place):
            raise CapsuleError(
                f"how site '{line['site']}' is harmonised is not what it signed."
            )


def _shapes(lane: Lane) -> dict[str, tuple[tuple[int, ...], str]]:
    both = {**lane.params, **{f"stats/{k}": v for k, v in lane.stats.items()}}
    return {k: (tuple(v.shape), str(v.dtype)) for k, v in both.items()}


class Allowance(TorchFunctionMode):
    """Lets torch make arrays of at most so many numbers in all: a forged size costs no memory."""

    FACTORIES = (
        torch.rand,
        torch.randn,
        torch.zeros,
        torch.ones,
        torch.empty,
        torch.full,
    )

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.left = numbers

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in self.FACTORIES:
            size = args[0] if args and not isinstance(args[0], int) else args
            self.left -= math.prod(size or (kwargs or {}).get("size", ()))
            if self.left < 0:
                raise CapsuleError(
                    "the described network is larger than the stored one."
                )
        return func(*args, **(kwargs or {}))


def check_lane(lane: Lane, learner: Learner, n_remembered: int, sites: int) -> None:
    """Raise unless the state is what its method declares and the network answers.

    Parameters
    ----------
    lane : Lane
        Whose network is known to be its model's.
    learner : Learner
    n_remembered, sites : int
        Subjects that travel along; sites learned.
    """
    method, model = learner.method, learner.model
    try:
        declared = method.declares(
            model, lane, 1 if method.depends_on == "site" else sites
        )
        for key in sorted(declared.keys() ^ lane.state.keys()):
            what = (
                "is missing"
                if key in declared
                else "is not part of this method's state"
            )
            raise CapsuleError(f"array 'state/{key}' {what}.")
        for key, value in lane.state.items():
            if wrong := declared[key].complaint(value):
                raise CapsuleError(f"array 'state/{key}' {wrong}.")
        for key in method.row_keys:
            rows = lane.state[key]
            if (
                rows.numel()
                and not -1 <= int(rows.min()) <= int(rows.max()) < n_remembered
            ):
                raise CapsuleError(f"'{key}' points at subjects that are not there.")
        with torch.no_grad():
            eye = torch.eye(model.n_rois).expand(2, -1, -1)
            logits = method.logits(model, lane, model.prepare(eye))
    except MISFIT as error:
        raise CapsuleError(
            f"the network does not work ({type(error).__name__})."
        ) from error
    if logits.shape != (2, 2) or not bool(torch.isfinite(logits).all()):
        raise CapsuleError("the network does not give two finite scores per subject.")


@dataclass(frozen=True)
class Subjects:
    """Subjects that travel, as upper triangles of their FC.

    Attributes
    ----------
    upper : Tensor of shape (m, R (R - 1) / 2), float32
    y : Tensor of shape (m,), int64
    site : Tensor of shape (m,), int64
        Place of their site in the capsule's list of sites.
    real : Tensor of shape (m,), uint8
        1 for a real subject (only ever with the flag that allows it).
    """

    upper: Tensor
    y: Tensor
    site: Tensor
    real: Tensor

    @classmethod
    def none(cls, n_rois: int) -> Self:
        """Nobody."""
        empty = torch.zeros(0, dtype=torch.int64)
        n_edges = n_rois * (n_rois - 1) // 2
        return cls(
            torch.zeros(0, n_edges), empty, empty, torch.zeros(0, dtype=torch.uint8)
        )

    @classmethod
    def of(cls, batch: FCBatch, site: Tensor, real: Tensor) -> Self:
        """Subjects of a batch whose FC is exactly what its upper triangle says."""
        upper = graphs.edges(batch.fc).float()
        if len(batch) and not torch.equal(graphs.from_edges(upper), batch.fc):
            raise CapsuleError(
                "an FC matrix is not symmetric with unit diagonal, so that it would change by "
                "being sealed.",
                do="Generators must return symmetric matrices with ones on the diagonal.",
            )
        return cls(upper, batch.y, site, real)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def batch(self) -> FCBatch:
        """Their FC and labels."""
        n_rois = (1 + math.isqrt(1 + 8 * self.upper.shape[1])) // 2
        fc = (
            graphs.from_edges(self.upper)
            if len(self)
            else torch.zeros(0, n_rois, n_rois)
        )
        return FCBatch(fc, self.y)

    def of_site(self, place: int) -> FCBatch:
        """FC and labels of one site's."""
        return self.batch().select(self.site == place)

    def join(self, other: Self) -> Self:
        """These, then the others."""
        both = [
            torch.cat([getattr(of, f.name) for of in (self, other)])
            for f in fields(self)
        ]
        return type(self)(*both)


def read_subjects(data: bytes, n_rois: int, n_sites: int, name: str) -> Subjects:
    """Subjects of a part: correlation matrices of a known class and site, else `CapsuleError`."""
    found = load_arrays(data, name)
    n = found["y"].numel() if "y" in found else 0
    like = vars(Subjects.none(n_rois))
    expected = {k: ((n, *v.shape[1:]), v.dtype) for k, v in like.items()}
    if {k: (tuple(v.shape), v.dtype) for k, v in found.items()} != expected:
        raise CapsuleError(f"part '{name}' has other arrays than {n_rois} ROIs need.")
    most = {"upper": 1.0, "y": 1, "site": n_sites - 1, "real": 1}
    least = {"upper": -1.0, "y": 0, "site": 0, "real": 0}
    if n and not all(
        least[k] <= v.min() and v.max() <= most[k] for k, v in found.items()
    ):
        raise CapsuleError("a subject has an impossible edge, label or site.")
    return Subjects(**found)
