"""Files of trained networks: arrays as safetensors, everything else as JSON in their header.

Nothing in a file is unpickled or run. All content is checked against the learner that the file names before it
is used. Shapes: n subjects, R ROIs, K classes.

A lane is one network of a training, with the state of its method; a node is one site training
(`fcforge.experiments.plan`).
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fcforge.core.errors import ConfigError, DataError, FCForgeError, at
from fcforge.core.files import read_plain, whole_file
from fcforge.core.spec import LearnerSpec, RunSpec
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort
from fcforge.experiments.config_code import import_parts
from fcforge.experiments.logs import folder_name
from fcforge.experiments.plan import Plan
from fcforge.experiments.store import NETWORK, Store
from fcforge.methods import Lane, Learner, Method, build_learner
from fcforge.methods.base import prediction
from fcforge.replay.state import rows_of
from fcforge.training.initial_lanes import untrained

HEADER = "fcforge_network"
DIGEST = "sha256"
VERSION = 1
MOST_BYTES = 4 << 30  # size of a file that is read
FOLDER = "networks"
TOLERANCE = 1e-3  # largest excess of a correlation over 1, and largest asymmetry
# errors that tensors of another shape, type or name cause
MISFIT = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError)


@dataclass(frozen=True, repr=False)
class TrainedNetwork:
    """A network of a finished run.

    Attributes
    ----------
    learner : Learner
        Method and model.
    lane : Lane
        The trained network.
    target : Target
        The learned variable.
    n_rois : int
    order : tuple of str
        Sites that it has learned, in order.
    seed : int
    roi_names : tuple of str
        Names of the ROIs in the order of the FC matrices; empty if the data had none.
    """

    learner: Learner
    lane: Lane
    target: Target
    n_rois: int
    order: tuple[str, ...]
    seed: int
    roi_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sites = " > ".join(self.order)
        parts = f"{self.learner.method.name}/{self.learner.model.name}"
        return (
            f"<TrainedNetwork {parts} of {sites}, {self.n_rois} ROIs, seed {self.seed}>"
        )

    def scores(self, fc: np.ndarray) -> np.ndarray:
        """Return the scores of subjects, as a run stores them.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
            Pearson correlation matrices, ROIs in the order of the training data.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Probability of being a patient (n,) for two classes, of each class for more (n, K); the predicted
            number (n,) for a numeric target.
        """
        model = self.learner.model
        inputs = model.prepare(self._checked(fc))
        with torch.no_grad():
            predicted = prediction(self.learner.method.logits(model, self.lane, inputs))
        values = predicted.float().numpy()
        return values if self.target.classes else self.target.restored(values)

    def predict_proba(self, fc: np.ndarray) -> np.ndarray:
        """Return the probability of each class (n, K) for FC matrices (n, R, R)."""
        if not self.target.classes:
            raise ConfigError(
                f"'{self.target.name}' is a number, which has no class probabilities.",
                do="Use predict.",
            )
        p = self.scores(fc)
        return np.stack([1 - p, p], 1) if p.ndim == 1 else p

    def predict(self, fc: np.ndarray) -> np.ndarray:
        """Return the class of each subject, numbered from 0, or the predicted number (n,)."""
        if not self.target.classes:
            return self.scores(fc)
        return self.predict_proba(fc).argmax(1)

    def _checked(self, fc: np.ndarray) -> Tensor:
        """Return FC as a tensor; raise `DataError` unless it is one matrix per subject."""
        values = np.asarray(fc)
        shape = (self.n_rois, self.n_rois)
        if values.ndim != 3 or values.shape[1:] != shape:
            message = f"FC has the shape {values.shape}; the network was trained on {self.n_rois} ROIs."
            raise DataError(
                message, do="Give an array of shape (subjects, ROIs, ROIs)."
            )
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise DataError("FC holds values that are not finite.")
        largest = np.abs(values).max(initial=0.0)
        asymmetry = np.abs(values - values.transpose(0, 2, 1)).max(initial=0.0)
        if largest > 1 + TOLERANCE or asymmetry > TOLERANCE:
            raise DataError(
                "FC is not a symmetric matrix of correlations between -1 and 1.",
                do="Give Pearson correlations, not Fisher z.",
            )
        return torch.from_numpy(np.ascontiguousarray(values))


# -- writing ---------------------------------------------------------------------------------------
def network_file(
    spec: RunSpec, learner: Learner, lane: Lane, cohort: Cohort
) -> bytes | None:
    """Return the content of a network's file.

    If the method predicts with the network alone, its state is left out, and so everything that it remembers
    of subjects.

    Parameters
    ----------
    spec : RunSpec
        Its order holds the sites learned.
    learner : Learner
    lane : Lane
        The trained network (a lane is one network of a training).
    cohort : Cohort

    Returns
    -------
    bytes or None
        None if prediction needs remembered subjects, which a file must not hold.
    """
    from safetensors.torch import save

    if type(learner.method).logits is Method.logits:  # predicts without the state
        lane = lane._replace(state=())
    elif rows_of(lane.state):  # refers to remembered subjects
        return None
    header = {
        "version": VERSION,
        "learner": asdict(spec.learner),
        "order": list(spec.order),
        "seed": spec.seed,
        "n_rois": cohort.n_rois,
        "roi_names": list(cohort.roi_names),
        "target": asdict(cohort.target),
    }
    text = json.dumps(header, sort_keys=True)
    tensors = {k: v.detach().cpu().contiguous() for k, v in lane.named().items()}
    # copies, because safetensors refuses tensors that share memory
    tensors = {k: tensors[k].clone() for k in sorted(tensors)}
    return save(tensors, metadata={HEADER: text, DIGEST: digest_of(text, tensors)})


def digest_of(header: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a header and of names, types, shapes and values of tensors."""
    digest = hashlib.sha256(header.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def keeping_networks(plan: Plan) -> Plan:
    """Return the plan whose runs keep the network after their last site."""
    confounds = [spec.confounds for spec, _ in plan.runs if spec.confounds]
    if confounds:
        raise ConfigError(
            f"networks cannot be kept where {', '.join(confounds[0])} is regressed out of the scans: "
            "a network alone would be given scans from which nothing was removed.",
            do="Leave out --keep-networks, or [confounds].",
        )
    last = {keys[-1] for _, keys in plan.runs}
    nodes = {
        key: replace(node, kept=True) if key in last else node
        for key, node in plan.nodes.items()
    }
    return replace(plan, nodes=nodes)


def without_network(store: Store, plan: Plan) -> int:
    """Return the number of runs whose network is not stored.

    They were trained without ``--keep-networks``, or their learner has no network.
    """
    last = [store.folder(keys[-1]) for _, keys in plan.runs]
    return sum(not (folder / NETWORK).is_file() for folder in last)


def export_networks(store: Store, plan: Plan) -> None:
    """Copy the networks of complete runs to ``networks/LEARNER/seed S/ORDER.safetensors``."""
    whole, _ = store.complete(plan.nodes, checksums=False)
    for spec, keys in plan.runs:
        source = store.folder(keys[-1]) / NETWORK
        if keys[-1] not in whole or not source.is_file():
            continue
        parts = [*spec.learner.title.split("/"), f"seed {spec.seed}"]
        folder = store.root.joinpath(FOLDER, *map(folder_name, parts))
        name = folder_name(">".join(spec.order))
        with whole_file(folder / f"{name}.safetensors") as part:
            shutil.copyfile(source, part)


# -- reading ---------------------------------------------------------------------------------------
def load_network(path: str | Path, *, allow_code: bool = False) -> TrainedNetwork:
    """Read a network that ``fcforge run --keep-networks`` has stored.

    Parameters
    ----------
    path : path
        A file below ``networks/`` of a run folder.
    allow_code : bool
        Whether a method or a model that is named "module:object" may be imported, which runs code.

    Returns
    -------
    TrainedNetwork

    Raises
    ------
    DataError
        If the file is missing, damaged or no network.
    ConfigError
        If its learner is unknown here, or needs code that is not allowed.
    """
    path = Path(path)
    data = read_plain(path, MOST_BYTES)
    with at(path):
        header, tensors = _contents(data)
        try:
            spec = RunSpec.from_json(
                {
                    "dataset": {"name": "stored"},  # a placeholder: none is loaded
                    "learner": header["learner"],
                    "order": header["order"],
                    "seed": header["seed"],
                }
            )
            target = Target(**header["target"])
            n_rois = int(header["n_rois"])
            roi_names = tuple(map(str, header["roi_names"]))
        except (*MISFIT, ConfigError) as error:
            raise DataError(f"its header cannot be read ({error}).") from error
        low, high = target.limits  # JSON has lists in place of tuples
        target = replace(target, classes=tuple(target.classes), limits=(low, high))
        learner = _learner(spec.learner, n_rois, target, allow_code)
        lane = _lane(learner, tensors)
        network = TrainedNetwork(
            learner, lane, target, n_rois, spec.order, spec.seed, roi_names
        )
        _require_scores(network)
        return network


def _contents(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return header and tensors of a file; raise `DataError` if it is damaged or no network."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    hint = "Give a file that `fcforge run --keep-networks` has written."
    try:
        # safetensors: 8 bytes with the length of the header, the header as JSON, the arrays
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
        text, written = metadata[HEADER], metadata[DIGEST]
        header = json.loads(text)
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError("is not the file of a network.", do=hint) from error
    if version != VERSION:
        message = (
            f"is a network of format {version}; this fcforge reads format {VERSION}."
        )
        raise DataError(message, do="Read it with the fcforge that wrote it.")
    try:
        tensors = load(data)
    except (SafetensorError, *MISFIT) as error:
        raise DataError(f"its arrays cannot be read ({error}).", do=hint) from error
    if digest_of(text, tensors) != written:
        message = "is damaged: its content is not what was written."
        raise DataError(message, do="Copy it again, or run the experiment again.")
    return header, {name: tensors[name].clone() for name in sorted(tensors)}


def _learner(
    spec: LearnerSpec, n_rois: int, target: Target, allow_code: bool
) -> Learner:
    """Build the learner that a file names; raise `ConfigError` if it needs code that is not allowed."""
    parts = [part for part in (spec.method, spec.model, spec.generator) if part]
    outside = [part.name for part in parts if ":" in part.name]
    if outside and not allow_code:
        raise ConfigError(
            f"its learner needs code that is not part of fcforge ({outside[0]}).",
            do="If you trust that code, call load_network(path, allow_code=True).",
        )
    import_parts(spec)
    # True skips the check that the run has public subjects: prediction does not need them
    return build_learner(spec, n_rois, has_base_model=True, target=target)


def _lane(learner: Learner, tensors: Mapping[str, Tensor]) -> Lane:
    """Return the lane whose tensors a file holds; raise `DataError` unless they fit the learner."""
    fresh = untrained(learner.model, 0, "cpu").named()
    network = {k: v.shape for k, v in tensors.items() if not k.startswith("state/")}
    if network != {k: v.shape for k, v in fresh.items()}:
        raise DataError("its network does not have the shapes of its model.")
    # a method that predicts with the network alone has left its state out (`network_file`)
    stateless = type(learner.method).logits is Method.logits
    try:
        lane = Lane.from_named(tensors, tuple if stateless else learner.method.State)
    except MISFIT as error:
        raise DataError(f"its state does not fit its method ({error}).") from error
    if lane.named().keys() != tensors.keys():
        raise DataError("it holds arrays that its learner does not have.")
    return lane


def _require_scores(network: TrainedNetwork) -> None:
    """Raise `DataError` unless the network gives finite scores for one test matrix."""
    try:
        scores = network.scores(np.eye(network.n_rois, dtype=np.float32)[None])
    except FCForgeError:
        raise
    except MISFIT as error:
        message = f"its network cannot predict ({type(error).__name__})."
        raise DataError(message) from error
    if not np.isfinite(scores).all():
        raise DataError("its network gives scores that are not finite.")
