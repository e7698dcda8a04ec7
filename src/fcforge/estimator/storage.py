"""The file of a fitted estimator: arrays as safetensors, everything else as JSON in its header.

Nothing is pickled and nothing in a file can run code. Everything that is read is checked against
the learner that the file names before it is used.

Shapes: n subjects, R ROIs, E = R (R - 1) / 2 edges.
A lane is one training run: one learner, order of sites and seed.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from fcforge.core.component import Component
from fcforge.core.errors import DataError, FCForgeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge.core.spec import LearnerSpec
from fcforge.core.subjects import FCBatch
from fcforge.core.target import Target
from fcforge.data.matrices import Order
from fcforge.estimator.trained import TrainedModel
from fcforge.experiments.networks import DIGEST, digest_of
from fcforge.graphs import edges, from_edges
from fcforge.methods.base import Lane
from fcforge.replay.state import rows_of
from fcforge.training.evaluation import class_scores
from fcforge.training.initial_lanes import untrained

VERSION: Literal[1] = 1
HEADER = "fcforge_estimator"
MOST_BYTES = 4 << 30
REMEMBERED_EDGES = "remembered/edges"
REMEMBERED_Y = "remembered/y"
REMEMBERED_WEIGHT = "remembered/weight"
MEAN_EDGES = "mean/edges"
# errors of arrays that do not fit the learner that they are given to
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)

Label = bool | int | float | str


class _Closed(BaseModel):
    """Part of the header: unknown fields and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PartHeader(_Closed):
    """A method or model with its settings."""

    # no colon: "module:object" would import code that the file names
    name: str = Field(max_length=200, pattern=r"^[\w.-]+$")
    params: dict[str, Any]

    @property
    def component(self) -> Component:
        """Name and settings as a component of a learner."""
        return Component(self.name, self.params)


class TargetHeader(_Closed):
    """The learned variable."""

    name: str
    classes: list[str]
    limits: tuple[float, float]


class LayoutHeader(_Closed):
    """Order of the vectorised edges that the estimator was fitted on."""

    n_rois: int = Field(ge=2, le=2_000)
    order: Order
    diagonal: bool


class FileHeader(_Closed):
    """Everything in the file that is not an array.

    Attributes
    ----------
    version : int
    estimator : str
        Class that wrote the file.
    parameters : dict
        Constructor parameters.
    method, model : PartHeader
    target : TargetHeader
    labels : list
        Classes as `y` has them, in the order of the model's outputs.
    n_rois, seed, n_features : int
        Numbers of ROIs and of columns of X, and the seed of all randomness.
    visits : list of str
        Sites in the order in which they were learned.
    temperatures : list of float
        Temperature of each calibrated visit.
    copies_real : bool
        Whether the file holds real subjects.
    layout : LayoutHeader or None
        Order of vectorised edges; None if the estimator was fitted on matrices.
    n_seen : int
        Number of people who were learned.
    feature_names : list of str
        Names of the columns of X; empty if they had none.
    people : dict of str to list of int
        Number of people of each of `labels` at each site; empty in files of earlier versions.
    """

    version: Literal[1]
    estimator: Literal["ForgeClassifier", "ForgeRegressor"]
    parameters: dict[str, Any]
    method: PartHeader
    model: PartHeader
    target: TargetHeader
    labels: list[Label]
    n_rois: int = Field(ge=2, le=2_000)
    seed: int = Field(ge=0)
    n_features: int = Field(ge=1)
    visits: list[str] = Field(min_length=1, max_length=100_000)
    temperatures: list[float]
    copies_real: bool
    layout: LayoutHeader | None
    n_seen: int = Field(ge=0)
    feature_names: list[str] = Field(default=[], max_length=10_000_000)
    people: dict[str, list[Annotated[int, Field(ge=0)]]] = {}

    @model_validator(mode="after")
    def _require_people_of_sites(self) -> Self:
        """Refuse numbers of people at other sites than `visits`, or of other classes than `labels`."""
        for site, numbers in self.people.items():
            if site not in self.visits or len(numbers) != len(self.labels):
                raise ValueError("people: other sites or classes than the model's.")
        return self


def part_header(component: Component) -> PartHeader:
    """Return a part's name and settings for the header."""
    return PartHeader(name=component.name, params=dict(component.params))


def target_header(target: Target) -> TargetHeader:
    """Return the target for the header."""
    low, high = target.limits
    limits = (float(low), float(high))
    return TargetHeader(name=target.name, classes=list(target.classes), limits=limits)


def write(
    path: Path, header: FileHeader, model: TrainedModel, mean_fc: Tensor | None
) -> None:
    """Write the file, whole or not at all; only its owner may read it.

    Parameters
    ----------
    path : Path
    header : FileHeader
    model : TrainedModel
    mean_fc : Tensor of shape (R, R), optional
        Reference of explanations.
    """
    from safetensors.torch import save

    arrays = {k: v.detach() for k, v in model.trained_lane.named().items()}
    arrays[REMEMBERED_EDGES] = edges(model.remembered.fc)
    arrays[REMEMBERED_Y] = model.remembered.y
    if model.remembered.weight is not None:
        arrays[REMEMBERED_WEIGHT] = model.remembered.weight
    if mean_fc is not None:
        arrays[MEAN_EDGES] = edges(mean_fc[None])[0]
    contiguous_arrays = {
        name: arrays[name].contiguous().clone() for name in sorted(arrays)
    }
    text = header.model_dump_json()
    metadata = {HEADER: text, DIGEST: digest_of(text, contiguous_arrays)}
    data = save(contiguous_arrays, metadata=metadata)
    write_bytes(path, data, private=True)


def read(path: Path) -> tuple[FileHeader, TrainedModel, Tensor | None]:
    """Read a file of a fitted estimator.

    Returns
    -------
    header : FileHeader
    model : TrainedModel
    mean_fc : Tensor of shape (R, R) or None
        Reference of explanations, if the file holds it.

    Raises
    ------
    DataError
        If the file is damaged or holds anything else.
    """
    data = read_plain(path, MOST_BYTES)
    with at(path, kind=DataError):
        header = FileHeader.model_validate(_header(data))
        arrays = _arrays(data)
        _require_content(data, arrays)
        mean = arrays.pop(MEAN_EDGES, None)
        model = _model(header, arrays)
        if mean is None:
            return header, model, None
        _require_correlations(mean[None], header.n_rois)
        return header, model, from_edges(mean[None])[0]


def _header(data: bytes) -> Any:
    """Return the JSON of the header; `DataError` if there is none."""
    try:
        # safetensors: 8 bytes with the length of the header, the header as JSON, the arrays
        size = int.from_bytes(data[:8], "little")
        outer = json.loads(data[8 : 8 + size])
        header = json.loads(outer["__metadata__"][HEADER])
        FileHeader.model_validate(header)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"its header has a wrong field '{place:.80}' ({first['msg']})."
        raise DataError(message) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = "is not a file of a fitted estimator, or it is damaged."
        hint = (
            "A file of the consortium (.fcx) is read by "
            "fcforge_consortium.estimator.ConsortiumClassifier.load."
        )
        raise DataError(message, do=hint) from error
    return header


def _require_content(data: bytes, arrays: dict[str, Tensor]) -> None:
    """Raise `DataError` if the content is not what was written; older files have no hash of it."""
    size = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + size])["__metadata__"]
    written = metadata.get(DIGEST)
    if written is not None and written != digest_of(metadata[HEADER], arrays):
        message = "is damaged: its content is not what was written."
        raise DataError(
            message, do="Copy it again, or fit and save the estimator again."
        )


def _arrays(data: bytes) -> dict[str, Tensor]:
    """Return the arrays by name; all must be finite numbers."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        arrays = load(data)
    except (SafetensorError, *MISFIT) as error:
        message = f"its arrays cannot be read ({type(error).__name__})."
        raise DataError(message) from error
    for name, value in arrays.items():
        if value.is_complex() or not bool(torch.isfinite(value).all()):
            raise DataError(f"array '{name:.80}' holds values that are not finite.")
    return {name: value.clone() for name, value in arrays.items()}  # aligned memory


def _require_correlations(upper: Tensor, n_rois: int) -> None:
    """Raise `DataError` unless rows (n, E) are upper triangles of correlation matrices."""
    n_edges = n_rois * (n_rois - 1) // 2
    if upper.dtype != torch.float32 or upper.dim() != 2 or upper.shape[1] != n_edges:
        raise DataError(f"its scans do not have {n_rois} ROIs.")
    if len(upper) and float(upper.abs().max()) > 1:
        raise DataError("its scans hold values beyond a correlation.")


def _model(header: FileHeader, arrays: dict[str, Tensor]) -> TrainedModel:
    """Return the model of a file's arrays, checked against the learner that the header names."""
    try:
        upper = arrays.pop(REMEMBERED_EDGES)
        y = arrays.pop(REMEMBERED_Y)
    except KeyError as error:
        raise DataError(f"array {error} is missing.") from error
    _require_correlations(upper, header.n_rois)
    classes = tuple(header.target.classes)
    target = Target(header.target.name, classes, header.target.limits)
    _require_labels(y, len(upper), target)
    weight = arrays.pop(REMEMBERED_WEIGHT, None)
    if weight is not None:
        fits = weight.dtype == torch.float64 and weight.shape == (len(upper),)
        if not fits or not bool((weight > 0).all()):
            raise DataError("its remembered subjects have weights that do not fit.")
    spec = LearnerSpec(header.method.component, header.model.component)
    model = TrainedModel(
        learner_spec=spec,
        target=target,
        n_rois=header.n_rois,
        seed=header.seed,
        visits=tuple(header.visits),
        lane=None,
        remembered=FCBatch(from_edges(upper), y, weight),
        temperatures=tuple(header.temperatures),
        copies_real=header.copies_real,
    )
    return replace(model, lane=_lane(model, arrays))


def _require_labels(y: Tensor, n: int, target: Target) -> None:
    """Raise `DataError` unless y holds a label of each of n remembered subjects."""
    kind = torch.int64 if target.classes else torch.float32
    low, high = (0, target.outputs - 1) if target.classes else (-1, 1)
    fits = y.dtype == kind and y.shape == (n,)
    if not fits or (n and not low <= float(y.min()) <= float(y.max()) <= high):
        raise DataError("its remembered subjects have labels that do not fit.")


def _lane(model: TrainedModel, arrays: dict[str, Tensor]) -> Lane:
    """Return the lane of a file: parameters of its network and state of its method.

    Raises
    ------
    DataError
        If the network has other shapes than the learner's model, if the state points to subjects
        that the file does not hold, or if scores are not finite.
    """
    learner = model.learner
    with torch.device("meta"):  # shapes alone: a forged size costs no memory
        expected = untrained(learner.model, 0, "meta").named()
    network = {k: v for k, v in arrays.items() if not k.startswith("state/")}
    shapes = {k: (v.shape, v.dtype) for k, v in network.items()}
    if shapes != {k: (v.shape, v.dtype) for k, v in expected.items()}:
        raise DataError("its network does not have the shapes of its model.")
    try:
        lane = Lane.from_named(arrays, learner.method.State)
        if lane.named().keys() != arrays.keys():
            raise DataError("it holds arrays that its method does not have.")
        for name, rows in rows_of(lane.state).items():
            # -1 is an empty slot
            in_range = rows.numel() == 0 or (
                int(rows.min()) >= -1 and int(rows.max()) < len(model.remembered)
            )
            if rows.is_floating_point() or not in_range:
                raise DataError(
                    f"array '{name}' points to subjects that are not there."
                )
        # trial scores of two scans without connectivity
        scores = class_scores(learner, lane, torch.eye(model.n_rois).expand(2, -1, -1))
    except FCForgeError:
        raise
    except MISFIT as error:
        message = f"its arrays do not fit its method ({type(error).__name__})."
        raise DataError(message) from error
    if not bool(torch.isfinite(torch.from_numpy(scores)).all()):
        raise DataError("its network does not give finite scores.")
    return lane
