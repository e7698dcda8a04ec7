"""Triton kernels behind `fcforge.nn.fused`. Imported only where Triton is installed.

All arrays are (lanes, n, F) or (lanes, F), contiguous; a program works on ROWS rows of one lane.
"""

# mypy: disable-error-code="no-untyped-def"
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# do_not_specialize: sizes differ from site to site, and each would be compiled anew (a second).


@triton.jit
def _mix(h):
    """Murmur3's finaliser, as `randomness._mix`."""
    h = h ^ ((h >> 16) & 0xFFFF)
    h = h * -2048144789
    h = h ^ ((h >> 13) & 0x7FFFF)
    h = h * -1028477387
    return h ^ ((h >> 16) & 0xFFFF)


@triton.jit
def _hash(word, key):
    """Four bytes, as `randomness.keep_mask` draws them for four positions."""
    return _mix(_mix(word * -1640531535 + key) ^ key)


@triton.jit
def _kept(position, quarter, key, dropped):
    """Whether positions are kept, as `randomness.keep_mask`: four bytes of a hash serve four."""
    byte = (position >= quarter).to(
        tl.int32
    )  # no division: it costs as much as the hash
    byte += (position >= 2 * quarter).to(tl.int32) + (position >= 3 * quarter).to(
        tl.int32
    )
    word = position - byte * quarter
    return ((_hash(word, key) >> (byte * 8)) & 255) >= dropped


@triton.jit(do_not_specialize=["n"])
def _moments(h, mean, m2, n, F: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Mean and sum of squared deviations of a block of rows, (lanes, chunks, F)."""
    chunk = tl.program_id(0)
    lane = tl.program_id(1)
    row = chunk * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    there = (row[:, None] < n) & (col[None, :] < F)
    base = lane.to(tl.int64) * n * F
    x = tl.load(h + base + row[:, None] * F + col[None, :], mask=there, other=0.0)
    count = tl.minimum(n - chunk * ROWS, ROWS)
    average = tl.sum(x, 0) / count
    apart = tl.where(there, x - average[None, :], 0.0)
    place = (lane * tl.num_programs(0) + chunk) * F + col
    tl.store(mean + place, average, mask=col < F)
    tl.store(m2 + place, tl.sum(apart * apart, 0), mask=col < F)


@triton.jit(do_not_specialize=["n", "chunks"])
def _combine(
    part,
    m2,
    mean,
    inverse_sd,
    offset,
    old_mean,
    old_var,
    new_mean,
    new_var,
    n,
    chunks,
    epsilon,
    momentum,
    unbiased,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Chan's rule: moments of all rows of a lane from those of its blocks.

    Running statistics follow as `layers.normalise` has them.
    """
    lane = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for first in range(0, chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        there = (chunk[:, None] < chunks) & (col[None, :] < F)
        count = tl.minimum(n - chunk * ROWS, ROWS).to(tl.float32)
        at = (lane * chunks + chunk[:, None]) * F + col[None, :]
        total += tl.load(part + at, mask=there, other=0.0) * count[:, None]
    average = tl.sum(total, 0) / n
    square = tl.zeros([TILE, BLOCK], tl.float32)
    for first in range(0, chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        there = (chunk[:, None] < chunks) & (col[None, :] < F)
        count = tl.minimum(n - chunk * ROWS, ROWS).to(tl.float32)
        at = (lane * chunks + chunk[:, None]) * F + col[None, :]
        apart = tl.load(part + at, mask=there, other=0.0) - average[None, :]
        apart = tl.where(there, apart, 0.0)
        square += apart * apart * count[:, None] + tl.load(
            m2 + at, mask=there, other=0.0
        )
    inverse = 1.0 / tl.sqrt(tl.sum(square, 0) / n + epsilon)
    inside = col < F
    at = lane * F + col
    tl.store(mean + at, average, mask=inside)
    tl.store(inverse_sd + at, inverse, mask=inside)
    before = tl.load(old_mean + at, mask=inside, other=0.0)
    shifted = average + tl.load(offset + at, mask=inside, other=0.0)
    tl.store(new_mean + at, before + momentum * (shifted - before), mask=inside)
    before = tl.load(old_var + at, mask=inside, other=0.0)
    sample = (1.0 / (inverse * inverse) - epsilon) * unbiased
    tl.store(new_var + at, before + momentum * (sample - before), mask=inside)


@triton.jit
def _words(key, F: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Hashes (ROWS, BLOCK) that serve this program's rows of all four quarters, and their key."""
    own = tl.load(key + tl.program_id(1))
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    return _hash(row[:, None] * F + tl.arange(0, BLOCK)[None, :], own), own


@triton.jit
def _columns(mean, inverse_sd, weight, bias, F: tl.constexpr, BLOCK: tl.constexpr):
    """Places in (lanes, F) of this program's lane, which of them exist, and what is there."""
    col = tl.arange(0, BLOCK)
    at = tl.program_id(1) * F + col
    inside = col < F
    m = tl.load(mean + at, mask=inside, other=0.0)[None, :]
    r = tl.load(inverse_sd + at, mask=inside, other=0.0)[None, :]
    w = tl.load(weight + at, mask=inside, other=0.0)[None, :]
    b = tl.load(bias + at, mask=inside, other=0.0)[None, :]
    return at, inside, m, r, w, b


@triton.jit
def _part(
    q,
    h,
    m,
    r,
    w,
    b,
    words,
    key,
    n,
    quarter,
    dropped,
    SHARED: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Part q of four of this program's rows: with SHARED one of each quarter of the rows.

    Then one hash serves the four parts, which is what a pass over the activations costs most
    beside the memory it reads. Returns places in (lanes, n, F) and which of them exist, x-hat, the
    norm's output, and whether a place passes ReLU and dropout.
    """
    col = tl.arange(0, BLOCK)[None, :]
    if SHARED:
        first = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = (first[:, None] < n // 4) & (col < F)
        position = (q * (n // 4) + first)[:, None] * F + col
        kept = ((words >> (8 * q)) & 255) >= dropped
    else:
        row = (tl.program_id(0) * 4 + q) * ROWS + tl.arange(0, ROWS)
        there = (row[:, None] < n) & (col < F)
        position = row[:, None] * F + col
        kept = _kept(position, quarter, key, dropped)
    at = tl.program_id(1).to(tl.int64) * n * F + position
    x = tl.load(h + at, mask=there, other=0.0)
    hat = (x - m) * r
    y = hat * w + b
    return at, there, hat, y, kept & (y > 0)


@triton.jit(do_not_specialize=["n", "quarter", "dropped"])
def _apply(
    h,
    out,
    mean,
    inverse_sd,
    weight,
    bias,
    key,
    n,
    quarter,
    dropped,
    scale,
    SHARED: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """``relu(norm(h)) * mask``."""
    words, own = _words(key, F, BLOCK, ROWS)
    _, _, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    for q in tl.static_range(4):
        at, there, _, y, passes = _part(
            q, h, m, r, w, b, words, own, n, quarter, dropped, SHARED, F, BLOCK, ROWS
        )
        tl.store(out + at, tl.where(passes, y * scale, 0.0), mask=there)


@triton.jit(do_not_specialize=["n", "quarter", "dropped"])
def _gradient_sums(
    g,
    h,
    mean,
    inverse_sd,
    weight,
    bias,
    key,
    dw,
    db,
    n,
    quarter,
    dropped,
    scale,
    SHARED: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Sum over a block of rows the gradient at the norm's output, and its product with x-hat."""
    words, own = _words(key, F, BLOCK, ROWS)
    _, inside, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    sum_w = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_b = tl.zeros([ROWS, BLOCK], tl.float32)
    for q in tl.static_range(4):
        at, there, hat, _, passes = _part(
            q, h, m, r, w, b, words, own, n, quarter, dropped, SHARED, F, BLOCK, ROWS
        )
        dy = tl.where(passes, tl.load(g + at, mask=there, other=0.0) * scale, 0.0)
        sum_w += dy * hat
        sum_b += dy
    chunk = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    part = chunk * F + tl.arange(0, BLOCK)
    tl.store(dw + part, tl.sum(sum_w, 0), mask=inside)
    tl.store(db + part, tl.sum(sum_b, 0), mask=inside)


@triton.jit(do_not_specialize=["n", "quarter", "dropped"])
def _gradient(
    g,
    h,
    dh,
    mean,
    inverse_sd,
    weight,
    bias,
    key,
    dw,
    db,
    n,
    quarter,
    dropped,
    scale,
    SHARED: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Gradient of h: ``w r (dy - (db + x-hat dw) / n)``."""
    words, own = _words(key, F, BLOCK, ROWS)
    columns, inside, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    sum_w = tl.load(dw + columns, mask=inside, other=0.0)[None, :]
    sum_b = tl.load(db + columns, mask=inside, other=0.0)[None, :]
    for q in tl.static_range(4):
        at, there, hat, _, passes = _part(
            q, h, m, r, w, b, words, own, n, quarter, dropped, SHARED, F, BLOCK, ROWS
        )
        dy = tl.where(passes, tl.load(g + at, mask=there, other=0.0) * scale, 0.0)
        inner = dy - (sum_b + hat * sum_w) / n
        tl.store(dh + at, w * r * inner, mask=there)


@triton.jit(do_not_specialize=["n", "quarter", "dropped"])
def _dropout(x, out, key, n, quarter, dropped, scale, BLOCK: tl.constexpr):
    """``x * mask`` of one block of a lane."""
    lane = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = lane.to(tl.int64) * n + position
    keep = _kept(position, quarter, tl.load(key + lane), dropped)
    value = tl.load(x + at, mask=position < n, other=0.0)
    tl.store(out + at, tl.where(keep, value * scale, 0.0), mask=position < n)


def dropout(x: Tensor, key: Tensor, dropped: int) -> Tensor:
    """Dropout of x (lanes, n); see `fused.dropout`."""
    lanes, n = x.shape
    out = torch.empty_like(x)
    block = 1024
    numbers = n, triton.cdiv(n, 4), dropped, 256.0 / (256 - dropped)
    _dropout[(triton.cdiv(n, block), lanes)](
        x, out, key.contiguous(), *numbers, BLOCK=block
    )
    return out


@triton.jit(do_not_specialize=["R"])
def _mean_max(
    h, out, where, R, F: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Mean, maximum and its place over the ROIs of one graph."""
    graph = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    place = tl.zeros([BLOCK], tl.int32)
    for first in range(0, R, TILE):
        row = first + tl.arange(0, TILE)
        there = (row[:, None] < R) & (col[None, :] < F)
        at = (graph * R + row[:, None]) * F + col[None, :]
        x = tl.load(h + at, mask=there, other=float("-inf"))
        total += tl.sum(tl.where(there, x, 0.0), 0)
        high, index = tl.max(x, 0, return_indices=True)
        place = tl.where(high > top, first + index, place)
        top = tl.maximum(high, top)
    tl.store(out + graph * 2 * F + col, total / R, mask=col < F)
    tl.store(out + graph * 2 * F + F + col, top, mask=col < F)
    tl.store(where + graph * F + col, place, mask=col < F)


@triton.jit(do_not_specialize=["R"])
def _mean_max_gradient(
    g, where, dh, R, F: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Spread the mean's gradient evenly and add the maximum's gradient where it was."""
    graph = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    even = tl.load(g + graph * 2 * F + col, mask=col < F, other=0.0) / R
    top = tl.load(g + graph * 2 * F + F + col, mask=col < F, other=0.0)
    place = tl.load(where + graph * F + col, mask=col < F, other=0)
    for first in range(0, R, TILE):
        row = first + tl.arange(0, TILE)
        there = (row[:, None] < R) & (col[None, :] < F)
        at = (graph * R + row[:, None]) * F + col[None, :]
        value = even[None, :] + tl.where(
            row[:, None] == place[None, :], top[None, :], 0.0
        )
        tl.store(dh + at, value, mask=there)


def mean_max(h: Tensor) -> tuple[Tensor, Tensor]:
    """Readout (lanes, n, 2 F) and place of the maximum (lanes, n, F) of h (lanes, n, R, F)."""
    lanes, n, n_rois, width = h.shape
    out = h.new_empty(lanes, n, 2 * width)
    where = torch.empty(lanes, n, width, dtype=torch.int32, device=h.device)
    sizes = {"F": width, "BLOCK": triton.next_power_of_2(width), "TILE": 32}
    _mean_max[(lanes * n,)](h, out, where, n_rois, **sizes)
    return out, where


def mean_max_backward(grad: Tensor, where: Tensor, n_rois: int) -> Tensor:
    """Gradient of h (lanes, n, R, F)."""
    lanes, n, width = where.shape
    dh = grad.new_empty(lanes, n, n_rois, width)
    sizes = {"F": width, "BLOCK": triton.next_power_of_2(width), "TILE": 32}
    _mean_max_gradient[(lanes * n,)](grad, where, dh, n_rois, **sizes)
    return dh


def _launch(
    h: Tensor, dropped: int, rows: int
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, Any]]:
    """Grid, (n, quarter, dropped, scale) and constants of one launch of four parts."""
    lanes, n, width = h.shape
    numbers = (n, triton.cdiv(n * width, 4), dropped, 256.0 / (256 - dropped))
    sizes = {"F": width, "BLOCK": triton.next_power_of_2(width), "ROWS": rows // 4}
    # eight warps: few registers each, so that a multiprocessor holds many of them
    sizes |= {"SHARED": n % 4 == 0, "num_warps": 8}
    return (triton.cdiv(n, rows), lanes), numbers, sizes


def forward(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    offset: Tensor,
    old_mean: Tensor,
    old_var: Tensor,
    dropped: int,
    epsilon: float,
    momentum: float,
    rows: int,
) -> tuple[Tensor, ...]:
    """Output, mean, inverse standard deviation, running mean and variance.

    See `fused.norm_relu_dropout`.
    """
    grid, numbers, sizes = _launch(h, dropped, rows)
    lanes, n, width = h.shape
    given = [x.contiguous() for x in (weight, bias, key)]
    old = [x.contiguous() for x in (offset, old_mean, old_var)]
    whole = {"F": width, "BLOCK": sizes["BLOCK"], "ROWS": rows}
    part = h.new_empty(2, lanes, grid[0], width)
    _moments[grid](h, *part, n, **whole)
    mean, inverse_sd, *new = h.new_empty(4, lanes, width)
    how = (n, grid[0], epsilon, momentum, n / max(n - 1, 1))
    _combine[(lanes,)](*part, mean, inverse_sd, *old, *new, *how, TILE=32, **whole)
    out = torch.empty_like(h)
    _apply[grid](h, out, mean, inverse_sd, *given, *numbers, **sizes)
    return out, mean, inverse_sd, *new


def backward(
    grad: Tensor,
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    mean: Tensor,
    inverse_sd: Tensor,
    dropped: int,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h, weight and bias."""
    grid, numbers, sizes = _launch(h, dropped, rows)
    lanes, _, width = h.shape
    given = [x.contiguous() for x in (mean, inverse_sd, weight, bias, key)]
    part = h.new_empty(2, lanes, grid[0], width)
    _gradient_sums[grid](grad, h, *given, part[0], part[1], *numbers, **sizes)
    dw, db = part.sum(2)
    dh = torch.empty_like(h)
    _gradient[grid](grad, h, dh, *given, dw, db, *numbers, **sizes)
    return dh, dw, db


@triton.jit(do_not_specialize=["n"])
def _adam(
    p,
    g,
    m,
    v,
    shrink,
    rate,
    root,
    new_p,
    new_m,
    new_v,
    n,
    decay,
    beta1,
    beta2,
    epsilon,
    BLOCK: tl.constexpr,
):
    """One block of parameters of a lane."""
    lane = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = lane.to(tl.int64) * n + place
    there = place < n
    now = tl.load(p + at, mask=there, other=0.0)
    slope = tl.load(g + at, mask=there, other=0.0) * tl.load(shrink + lane)
    slope += decay * now
    first = tl.load(m + at, mask=there, other=0.0)
    first += (1.0 - beta1) * (slope - first)
    second = tl.load(v + at, mask=there, other=0.0) * beta2
    second += (1.0 - beta2) * slope * slope
    spread = tl.sqrt(second) * tl.load(root + lane) + epsilon
    tl.store(new_p + at, now - tl.load(rate + lane) * first / spread, mask=there)
    tl.store(new_m + at, first, mask=there)
    tl.store(new_v + at, second, mask=there)


def adam(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    shrink: Tensor,
    rate: Tensor,
    root: Tensor,
    *numbers: float,
) -> tuple[Tensor, ...]:
    """Parameters and moments (lanes, P) after a step; see `fused.adam`."""
    lanes, n = p.shape
    given = [x.contiguous() for x in (p, g, m, v, shrink, rate, root)]
    new = [torch.empty_like(x) for x in given[:3]]
    block = 1024
    _adam[(triton.cdiv(n, block), lanes)](*given, *new, n, *numbers, BLOCK=block)
    return tuple(new)
