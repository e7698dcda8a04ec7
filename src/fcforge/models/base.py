"""The contract of a classifier: a frozen description plus pure functions of its parameters."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import Checked, at_least, limits
from fcforge.core.target import Kind
from fcforge.nn.tensors import Inputs, Key, Params


class Output(NamedTuple):
    """Result of a model for a batch of n subjects.

    Attributes
    ----------
    logits : Tensor of shape (n, n_outputs)
        Of each class; of a number the number itself.
    embedding : Tensor of shape (n, d)
        Graph-level readout (before the head).
    stats : dict of Tensor
        Batch-norm running statistics after this batch (unchanged when ``train`` is False).
    """

    logits: Tensor
    embedding: Tensor
    stats: Params


@limits(n_rois=at_least(1), n_outputs=at_least(1))
@dataclass(frozen=True)
class Model(Checked, ABC):
    """One classifier, written for one parameter set; the engine lifts it over lanes.

    Fields are hyper-parameters. Nothing is learned in the object: parameters and batch-norm
    statistics are dicts of tensors that go in and come out. A subclass must set `name` and implement
    `init`, `prepare` and `apply`; one whose readout is learned also sets `readout_size`.
    """

    n_rois: int = 116
    n_outputs: int = 2  # a logit of each class, or one number (`Target.outputs`)
    kind: ClassVar[str] = "model"
    name: ClassVar[str]
    lr: ClassVar[float] = 1e-3
    # whether `apply` works under torch.func.vmap and in CUDA graphs; else one lane at a time
    lifts: ClassVar[bool] = True
    belongs_to: ClassVar[str] = ""  # the only method that has a use for it, if any
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")

    @property
    def readout_size(self) -> int:
        """Return the length of the readout; 0 where a subject's readout never changes."""
        return 0

    @abstractmethod
    def init(self, rng: torch.Generator) -> Params:
        """Draw fresh parameters from `rng` alone."""

    def init_stats(self) -> Params:
        """Return fresh batch-norm running statistics (empty for models without batch norm)."""
        return {}

    @abstractmethod
    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the tensors that `apply` needs, once per subject; they are cached.

        Every tensor of the result has the subject as its first dimension. The same function
        serves real and synthetic subjects.
        """

    @abstractmethod
    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Compute logits and readout of a prepared batch.

        Pure and free of data-dependent control flow, so that ``torch.func.vmap`` and
        ``torch.compile`` can lift it. With ``train`` batch norm uses the batch's own moments;
        with a `key` (int32 scalar) dropout is drawn from it (`fcforge.core.randomness.keep_mask`).
        """
