"""The edge-to-edge layer by hand, against a naive loop, and under a swap of ROIs."""

import torch

from fcforge.core.randomness import torch_rng
from fcforge.nn.edge_to_edge import edge_to_edge, init_edge_to_edge


def test_edge_to_edge_is_kawaharas_sum() -> None:
    """out[o, i, j] = sum_ck row[o, c, k] x[c, i, k] + col[o, c, k] x[c, k, j] + biases."""
    p = init_edge_to_edge(torch_rng(0), "e2e", 2, 3, 4)
    p["e2e.row.bias"], p["e2e.col.bias"] = torch.arange(3.0), torch.ones(3)
    x = torch.randn(2, 2, 4, 4, generator=torch_rng(1))
    row = p["e2e.row.weight"].unflatten(1, (2, 4))
    col = p["e2e.col.weight"].unflatten(1, (2, 4))
    expected = (
        torch.einsum("ock,ncik->noi", row, x)[..., :, None]
        + torch.einsum("ock,nckj->noj", col, x)[..., None, :]
        + (torch.arange(3.0) + 1.0)[:, None, None]
    )
    torch.testing.assert_close(
        edge_to_edge(p, "e2e", x), expected, atol=1e-5, rtol=1e-5
    )


def test_edge_to_edge_follows_a_swap_of_rois() -> None:
    """With kernels that treat ROIs alike, swapping ROIs of the input swaps them in the output."""
    p = init_edge_to_edge(torch_rng(0), "e2e", 1, 2, 4)
    for side in ("row", "col"):
        weight = p[f"e2e.{side}.weight"]
        p[f"e2e.{side}.weight"] = weight[:, :1].expand_as(weight)
    x = torch.randn(1, 1, 4, 4, generator=torch_rng(1))
    order = torch.tensor([2, 0, 3, 1])
    swapped = edge_to_edge(p, "e2e", x[:, :, order][:, :, :, order])
    torch.testing.assert_close(
        swapped, edge_to_edge(p, "e2e", x)[:, :, order][:, :, :, order]
    )


def test_edge_to_edge_is_the_naive_loop() -> None:
    p = init_edge_to_edge(torch_rng(0), "e", 2, 3, 5)
    p["e.row.bias"], p["e.col.bias"] = torch.arange(3.0), torch.ones(3)
    x = torch.randn(2, 2, 5, 5, generator=torch_rng(1))
    expected = torch.zeros(2, 3, 5, 5)
    for n in range(2):
        for o in range(3):
            for i in range(5):
                for j in range(5):
                    total = p["e.row.bias"][o] + p["e.col.bias"][o]
                    for c in range(2):
                        for k in range(5):
                            total = (
                                total + p["e.row.weight"][o, 5 * c + k] * x[n, c, i, k]
                            )
                            total = (
                                total + p["e.col.weight"][o, 5 * c + k] * x[n, c, k, j]
                            )
                    expected[n, o, i, j] = total
    torch.testing.assert_close(edge_to_edge(p, "e", x), expected, atol=1e-5, rtol=1e-5)
