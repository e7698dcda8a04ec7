"""The paper's GCN with other node features and another readout, for gcn_joint_529.toml.

Shapes: n subjects, R ROIs, F features of a node.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import LOG_SCALE
from fcforge.models.base import Output
from fcforge.models.gcn import GCN
from fcforge.nn.tensors import Inputs, Key, Params


@dataclass(frozen=True)
class GCNOf(GCN):
    """The paper's GCN, of which node features and readout can be chosen.

    Attributes
    ----------
    rows : {"standardised", "plain", "log"}
        Features of a node: its row of the FC matrix, every column standardised over the nodes
        (the paper's GCN); the row as it is; its row of the matrix logarithm.
    every_roi : bool
        Whether the head gets the features of every ROI side by side (R F numbers), instead of their
        mean and maximum over ROIs.
    """

    rows: Literal["standardised", "plain", "log"] = "standardised"
    every_roi: bool = False

    name = "gcn_parts:GCNOf"

    @property
    def readout_size(self) -> int:
        """Length of the readout."""
        return self.n_rois * self.hidden if self.every_roi else super().readout_size

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the propagation matrices P and propagated node features P X, both (n, R, R)."""
        if self.rows == "standardised":
            return super().prepare(fc)
        log = graphs.log_matrix(fc) / LOG_SCALE
        features = log if self.rows == "log" else graphs.without_diagonal(fc)
        propagation = graphs.gcn_norm(self.adjacency(fc))
        return {"propagation": propagation, "features": propagation @ features}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Compute logits, readout and statistics of a prepared batch, as `GraphModel.apply` does."""
        if not self.every_roi:
            return super().apply(params, stats, inputs, train=train, key=key)
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        readout = nodes.flatten(1)
        return Output(self.classify(params, readout, key), readout, new_stats)
