"""Edge-to-edge layer of BrainNetCNN, for classifiers and generators of FC matrices.

Shapes: n subjects, R ROIs.

References
----------
Kawahara et al., BrainNetCNN: convolutional neural networks for brain networks, NeuroImage 2017.
"""

import torch
from torch import Tensor

from fcforge.nn.layers import affine, init_linear
from fcforge.nn.tensors import Params


def init_edge_to_edge(
    rng: torch.Generator, name: str, c_in: int, c_out: int, rois: int
) -> Params:
    """Draw the parameters of an edge-to-edge layer.

    Parameters
    ----------
    rng : torch.Generator
    name : str
        Prefix of the parameters' names.
    c_in, c_out : int
        Channels of input and output.
    rois : int
        Number of ROIs R.

    Returns
    -------
    dict of Tensor
        ``name.row`` and ``name.col``: weights (c_out, c_in * R), and biases of 0.
    """
    row = init_linear(rng, f"{name}.row", c_in * rois, c_out, bias="zero")
    return row | init_linear(rng, f"{name}.col", c_in * rois, c_out, bias="zero")


def edge_to_edge(params: Params, name: str, x: Tensor) -> Tensor:
    r"""Combine every edge with all edges of its two ROIs.

    .. math:: y_{oij} = \sum_{ck} r_{ock} x_{cik} + \sum_{ck} s_{ock} x_{ckj} + b_o

    for the edge of ROIs i and j, with input channels c, output channels o, row weights r
    (``name.row.weight``), column weights s (``name.col.weight``) and b the sum of both biases. The first
    sum runs over the edges of ROI i, the second over those of ROI j.

    Parameters
    ----------
    params : dict of Tensor
    name : str
        Layer, as made by `init_edge_to_edge`.
    x : Tensor of shape (n, c_in, R, R)
        Values of the edges in every input channel.

    Returns
    -------
    Tensor of shape (n, c_out, R, R)
    """
    by_row = x.transpose(1, 2).flatten(2)  # (n, R, c_in * R): all edges of each ROI
    row = affine(params, f"{name}.row", by_row).transpose(1, 2)
    by_column = x.permute(0, 3, 1, 2).flatten(2)
    column = affine(params, f"{name}.col", by_column).transpose(1, 2)
    return row[:, :, :, None] + column[:, :, None, :]
