"""Encoder of a graph auto-encoder."""

from dataclasses import dataclass

from fcforge.core.settings import ShareBelowOne, Size
from fcforge.models.gcn import GCN


@dataclass(frozen=True)
class GAE(GCN):
    """3 graph convolutions of 128, dropout 0.2, learning rate 1e-3 (paper).

    The paper uses the encoder of a graph auto-encoder followed by global pooling; nothing is
    decoded.
    """

    depth: Size = 3
    dropout: ShareBelowOne = 0.2
    name = "gae"
