"""The contract of a classifier: a frozen description plus pure functions of its parameters.

The training engine trains many networks of one model at the same time by ``torch.func.vmap``. Each
is called a lane: one learner, one order of sites, one seed.

Shapes: n subjects, R ROIs.
"""

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
        One logit per class; where the target is a number, the predicted number.
    embedding : Tensor of shape (n, d)
        Graph-level readout: the d features of a subject that the head classifies.
    stats : dict of Tensor
        Batch-norm running statistics after this batch (unchanged when ``train`` is False).
    """

    logits: Tensor
    embedding: Tensor
    stats: Params


@limits(n_rois=at_least(1), n_outputs=at_least(1))
@dataclass(frozen=True)
class Model(Checked, ABC):
    """A classifier, written for one set of parameters; the engine applies it to many lanes at once.

    Fields are hyper-parameters. Nothing is learned in the object: parameters and batch-norm
    statistics are dictionaries of tensors, arguments and results of its functions. A subclass must
    set `name` and implement `init`, `prepare` and `apply`; one whose readout is learned also sets
    `readout_size`.

    Attributes
    ----------
    n_rois : int
        Number of ROIs R of the FC matrices.
    n_outputs : int
        Number of logits: one per class, or 1 where the target is a number (`Target.outputs`).
    name : str
        Name in configs.
    lr : float
        Default learning rate.
    lifts : bool
        Whether `apply` works under ``torch.func.vmap`` and in CUDA graphs; if not, the engine trains
        one lane at a time.
    needs_rois : bool
        Whether an instance can be made only once the number of ROIs is known. The settings of a
        config are then checked one by one before data are read.
    belongs_to : str
        Name of the only method that can use the model; empty if any can.
    learns : tuple of str
        Kinds of targets that the model can predict.
    """

    n_rois: int = 116
    n_outputs: int = 2
    kind: ClassVar[str] = "model"
    name: ClassVar[str]
    lr: ClassVar[float] = 1e-3
    lifts: ClassVar[bool] = True
    needs_rois: ClassVar[bool] = False
    belongs_to: ClassVar[str] = ""
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")

    @property
    def readout_size(self) -> int:
        """Length of the readout; 0 where training never changes a subject's readout."""
        return 0

    @abstractmethod
    def init(self, rng: torch.Generator) -> Params:
        """Return fresh parameters, drawn from `rng` only."""

    def init_stats(self) -> Params:
        """Return fresh batch-norm running statistics (empty for models without batch norm)."""
        return {}

    @abstractmethod
    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the tensors that `apply` needs of FC matrices (n, R, R).

        It is called once per subject and its result is cached, so what does not depend on parameters
        belongs here. Every tensor of the result has the subject as its first dimension. The same
        function serves real and synthetic subjects.
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
        """Compute logits and readout of a batch of subjects.

        The function must be pure and must not branch on values of tensors, so that
        ``torch.func.vmap`` and ``torch.compile`` can transform it.

        Parameters
        ----------
        params : dict of Tensor
            Trained parameters, with the names of `init`.
        stats : dict of Tensor
            Batch-norm running statistics, with the names of `init_stats`.
        inputs : dict of Tensor
            Rows of what `prepare` returned.
        train : bool
            Whether batch norm uses the moments of the batch and updates the running ones.
        key : int32 scalar or None
            Random key of dropout (`fcforge.core.randomness.keep_mask`); None: no dropout.

        Returns
        -------
        Output
        """
