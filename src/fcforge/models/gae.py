"""Encoder of a graph auto-encoder."""

from dataclasses import dataclass

from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.models.gcn import GCN


@limits(depth=at_least(1), dropout=SHARE_BELOW_ONE)
@dataclass(frozen=True)
class GAE(GCN):
    """3 graph convolutions of 128, dropout 0.2, learning rate 1e-3 (paper).

    The paper uses the encoder of a graph auto-encoder followed by global pooling; nothing is
    decoded.
    """

    depth: int = 3
    dropout: float = 0.2
    name = "gae"
