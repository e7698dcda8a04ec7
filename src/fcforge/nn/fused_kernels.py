"""Triton kernels behind `fcforge.nn.fused`, imported only where Triton is installed.

A lane is one of the networks that train at the same time. Arrays are contiguous, of shape
(lanes, n, F) or (lanes, F): n rows, F features. Functions with ``triton.jit`` are kernels; their
arguments are pointers to arrays, and many instances of a kernel ("programs") run at once. A program
works on one chunk of rows of one lane: ROWS rows, or four times ROWS in kernels that go through their
chunk in four parts (`_part`). BLOCK is F rounded up to a power of two, as Triton needs. Places are
offsets into an array; a mask says which places exist.

The dropout mask is a hash of the lane's key and a value's position (`randomness.keep_mask`). One
hash of 32 bits serves four positions, one in each quarter of the array: ``quarter`` is the length of
a quarter. A value is dropped if its byte is below ``dropped`` (of 256), and ``scale`` makes up for
the dropped ones.

Further letters: R ROIs, P parameters in all.
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
    """Mix the bits of 32-bit words by Murmur3's finaliser, as `randomness._mix` does."""
    h = h ^ ((h >> 16) & 0xFFFF)
    h = h * -2048144789
    h = h ^ ((h >> 13) & 0x7FFFF)
    h = h * -1028477387
    return h ^ ((h >> 16) & 0xFFFF)


@triton.jit
def _hash(word, key):
    """Return the hash whose four bytes decide on four positions (`randomness.keep_mask`)."""
    return _mix(_mix(word * -1640531535 + key) ^ key)


@triton.jit
def _kept(position, quarter, key, dropped):
    """Return whether dropout keeps the values at these positions, as `randomness.keep_mask`."""
    # number of the quarter, without a division, which would cost as much as the hash
    byte = (position >= quarter).to(tl.int32)
    byte += (position >= 2 * quarter).to(tl.int32) + (position >= 3 * quarter).to(
        tl.int32
    )
    word = position - byte * quarter
    return ((_hash(word, key) >> (byte * 8)) & 255) >= dropped


@triton.jit(do_not_specialize=["n"])
def _moments(h, mean, m2, n, F: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Store mean and sum of squared deviations of a chunk of rows of h, (lanes, chunks, F)."""
    chunk = tl.program_id(0)
    lane = tl.program_id(1)
    row = chunk * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    exists = (row[:, None] < n) & (col[None, :] < F)
    base = lane.to(tl.int64) * n * F
    x = tl.load(h + base + row[:, None] * F + col[None, :], mask=exists, other=0.0)
    count = tl.minimum(n - chunk * ROWS, ROWS)
    average = tl.sum(x, 0) / count
    apart = tl.where(exists, x - average[None, :], 0.0)
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
    """Compute the moments of all rows of a lane from those of its chunks, by Chan's rule.

    Stores mean and inverse standard deviation, and the running statistics after this batch as
    `layers.normalise` defines them. `part` and `m2` are the means and the sums of squared deviations
    that `_moments` stored. `unbiased` is n / (n - 1), which turns a population variance into a sample
    variance. TILE is the number of chunks that are loaded at once.
    """
    # A lane's mean is that of its chunks, weighted by their rows. Its sum of squares is that within
    # chunks, plus that of the chunks' means around the lane's.
    lane = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for first in range(0, chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        exists = (chunk[:, None] < chunks) & (col[None, :] < F)
        count = tl.minimum(n - chunk * ROWS, ROWS).to(tl.float32)
        at = (lane * chunks + chunk[:, None]) * F + col[None, :]
        total += tl.load(part + at, mask=exists, other=0.0) * count[:, None]
    average = tl.sum(total, 0) / n
    square = tl.zeros([TILE, BLOCK], tl.float32)
    for first in range(0, chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        exists = (chunk[:, None] < chunks) & (col[None, :] < F)
        count = tl.minimum(n - chunk * ROWS, ROWS).to(tl.float32)
        at = (lane * chunks + chunk[:, None]) * F + col[None, :]
        apart = tl.load(part + at, mask=exists, other=0.0) - average[None, :]
        apart = tl.where(exists, apart, 0.0)
        square += apart * apart * count[:, None] + tl.load(
            m2 + at, mask=exists, other=0.0
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
    """Return the hashes (ROWS, BLOCK) of this program's rows in the first quarter, and the lane's key.

    Each of the four bytes of a hash decides on one position, in the first to the fourth quarter. They
    are used only where the rows are divisible by four (SHARED in `_part`).
    """
    lane_key = tl.load(key + tl.program_id(1))
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    return _hash(row[:, None] * F + tl.arange(0, BLOCK)[None, :], lane_key), lane_key


@triton.jit
def _columns(mean, inverse_sd, weight, bias, F: tl.constexpr, BLOCK: tl.constexpr):
    """Load the statistics and parameters of this program's lane.

    Returns their places in arrays (lanes, F), which places exist, and mean, inverse standard
    deviation, scale and shift, each (1, BLOCK).
    """
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
    """Normalise part q (of four) of this program's rows.

    With SHARED (n is divisible by four) the four parts lie in the four quarters of the rows. One
    hash then serves all four, and hashes are the main cost of a pass beside reading memory. `m`, `r`,
    `w` and `b` are mean, inverse standard deviation, scale and shift from `_columns`, `words` and `key`
    come from `_words`.

    Returns places in (lanes, n, F), which of them exist, the normalised values, these after scale
    and shift, and whether a value passes ReLU and dropout.
    """
    col = tl.arange(0, BLOCK)[None, :]
    if SHARED:
        first = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        exists = (first[:, None] < n // 4) & (col < F)
        position = (q * (n // 4) + first)[:, None] * F + col
        kept = ((words >> (8 * q)) & 255) >= dropped
    else:
        row = (tl.program_id(0) * 4 + q) * ROWS + tl.arange(0, ROWS)
        exists = (row[:, None] < n) & (col < F)
        position = row[:, None] * F + col
        kept = _kept(position, quarter, key, dropped)
    at = tl.program_id(1).to(tl.int64) * n * F + position
    x = tl.load(h + at, mask=exists, other=0.0)
    hat = (x - m) * r
    y = hat * w + b
    return at, exists, hat, y, kept & (y > 0)


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
    """Store ``dropout(relu(norm(h)))`` in `out`."""
    words, lane_key = _words(key, F, BLOCK, ROWS)
    _, _, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    for q in tl.static_range(4):
        at, exists, _, y, passes = _part(
            q,
            h,
            m,
            r,
            w,
            b,
            words,
            lane_key,
            n,
            quarter,
            dropped,
            SHARED,
            F,
            BLOCK,
            ROWS,
        )
        tl.store(out + at, tl.where(passes, y * scale, 0.0), mask=exists)


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
    """Sum the gradients of the norm's scale (`dw`) and shift (`db`) over a chunk of rows.

    `g` is the gradient of the output of `_apply`.
    """
    words, lane_key = _words(key, F, BLOCK, ROWS)
    _, inside, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    sum_w = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_b = tl.zeros([ROWS, BLOCK], tl.float32)
    for q in tl.static_range(4):
        at, exists, hat, _, passes = _part(
            q,
            h,
            m,
            r,
            w,
            b,
            words,
            lane_key,
            n,
            quarter,
            dropped,
            SHARED,
            F,
            BLOCK,
            ROWS,
        )
        dy = tl.where(passes, tl.load(g + at, mask=exists, other=0.0) * scale, 0.0)
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
    """Store the gradient of h in `dh`: ``w r (dy - (db + normalised dw) / n)``.

    w is the scale, r the inverse standard deviation, dy the gradient at the norm's output; `dw` and
    `db` are sums over all rows.
    """
    words, lane_key = _words(key, F, BLOCK, ROWS)
    columns, inside, m, r, w, b = _columns(mean, inverse_sd, weight, bias, F, BLOCK)
    sum_w = tl.load(dw + columns, mask=inside, other=0.0)[None, :]
    sum_b = tl.load(db + columns, mask=inside, other=0.0)[None, :]
    for q in tl.static_range(4):
        at, exists, hat, _, passes = _part(
            q,
            h,
            m,
            r,
            w,
            b,
            words,
            lane_key,
            n,
            quarter,
            dropped,
            SHARED,
            F,
            BLOCK,
            ROWS,
        )
        dy = tl.where(passes, tl.load(g + at, mask=exists, other=0.0) * scale, 0.0)
        inner = dy - (sum_b + hat * sum_w) / n
        tl.store(dh + at, w * r * inner, mask=exists)


@triton.jit(do_not_specialize=["n", "quarter", "dropped"])
def _dropout(x, out, key, n, quarter, dropped, scale, BLOCK: tl.constexpr):
    """Store dropout of one block of x in `out`."""
    lane = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = lane.to(tl.int64) * n + position
    keep = _kept(position, quarter, tl.load(key + lane), dropped)
    value = tl.load(x + at, mask=position < n, other=0.0)
    tl.store(out + at, tl.where(keep, value * scale, 0.0), mask=position < n)


def dropout(x: Tensor, key: Tensor, dropped: int) -> Tensor:
    """Return dropout of x (lanes, n) with keys (lanes,); `dropped` of 256 values are dropped."""
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
    """Store mean and maximum over the ROIs of one graph, and in `where` the maximum's ROI."""
    graph = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    place = tl.zeros([BLOCK], tl.int32)
    for first in range(0, R, TILE):
        row = first + tl.arange(0, TILE)
        exists = (row[:, None] < R) & (col[None, :] < F)
        at = (graph * R + row[:, None]) * F + col[None, :]
        x = tl.load(h + at, mask=exists, other=float("-inf"))
        total += tl.sum(tl.where(exists, x, 0.0), 0)
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
        exists = (row[:, None] < R) & (col[None, :] < F)
        at = (graph * R + row[:, None]) * F + col[None, :]
        value = even[None, :] + tl.where(
            row[:, None] == place[None, :], top[None, :], 0.0
        )
        tl.store(dh + at, value, mask=exists)


def mean_max(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and maximum over ROIs of h (lanes, n, R, F), and the ROI of each maximum.

    Returns
    -------
    readout : Tensor of shape (lanes, n, 2 F)
    where : int32 Tensor of shape (lanes, n, F)
    """
    lanes, n, n_rois, width = h.shape
    out = h.new_empty(lanes, n, 2 * width)
    where = torch.empty(lanes, n, width, dtype=torch.int32, device=h.device)
    sizes = {"F": width, "BLOCK": triton.next_power_of_2(width), "TILE": 32}
    _mean_max[(lanes * n,)](h, out, where, n_rois, **sizes)
    return out, where


def mean_max_backward(grad: Tensor, where: Tensor, n_rois: int) -> Tensor:
    """Return the gradient of h (lanes, n, R, F).

    Parameters
    ----------
    grad : Tensor of shape (lanes, n, 2 F)
        Gradient of the readout.
    where : int32 Tensor of shape (lanes, n, F)
        ROIs of the maxima, as `mean_max` returns them.
    n_rois : int
    """
    lanes, n, width = where.shape
    dh = grad.new_empty(lanes, n, n_rois, width)
    sizes = {"F": width, "BLOCK": triton.next_power_of_2(width), "TILE": 32}
    _mean_max_gradient[(lanes * n,)](grad, where, dh, n_rois, **sizes)
    return dh


def _launch(
    h: Tensor, dropped: int, rows: int
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, Any]]:
    """Return what `_apply` and the gradient kernels are launched with.

    Returns
    -------
    grid : tuple
        Number of programs: chunks of `rows` rows, lanes.
    numbers : tuple
        n, quarter, dropped, scale.
    sizes : dict
        Constants at compile time. ROWS is a quarter of `rows`, because a program goes through its rows
        in four parts (`_part`).
    """
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
    """Apply batch norm, ReLU and dropout to h (lanes, n, F); see `fused.norm_relu_dropout`.

    Parameters
    ----------
    h : Tensor of shape (lanes, n, F)
    weight, bias, offset, old_mean, old_var : Tensor of shape (lanes, F)
        Scale and shift of the norm, offset of h, running statistics so far.
    key : int32 Tensor of shape (lanes,)
    dropped : int
        How many of 256 values are dropped.
    epsilon, momentum : float
    rows : int
        Rows of one program.

    Returns
    -------
    out : Tensor of shape (lanes, n, F)
    mean, inverse_sd, new_mean, new_var : Tensor of shape (lanes, F)
        Moments of the batch, then running statistics after it.
    """
    grid, numbers, sizes = _launch(h, dropped, rows)
    lanes, n, width = h.shape
    arrays = [x.contiguous() for x in (weight, bias, key)]
    old = [x.contiguous() for x in (offset, old_mean, old_var)]
    whole = {"F": width, "BLOCK": sizes["BLOCK"], "ROWS": rows}
    chunk_moments = h.new_empty(2, lanes, grid[0], width)
    _moments[grid](h, *chunk_moments, n, **whole)
    mean, inverse_sd, *new = h.new_empty(4, lanes, width)
    unbiased = n / max(n - 1, 1)
    settings = (n, grid[0], epsilon, momentum, unbiased)
    _combine[(lanes,)](
        *chunk_moments, mean, inverse_sd, *old, *new, *settings, TILE=32, **whole
    )
    out = torch.empty_like(h)
    _apply[grid](h, out, mean, inverse_sd, *arrays, *numbers, **sizes)
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
    """Return the gradients of h, weight and bias.

    Parameters
    ----------
    grad : Tensor of shape (lanes, n, F)
        Gradient of the output of `forward`.
    h, weight, bias, key, dropped, rows
        As for `forward`.
    mean, inverse_sd : Tensor of shape (lanes, F)
        Moments of the batch, as `forward` returns them.
    """
    grid, numbers, sizes = _launch(h, dropped, rows)
    lanes, _, width = h.shape
    arrays = [x.contiguous() for x in (mean, inverse_sd, weight, bias, key)]
    sums = h.new_empty(2, lanes, grid[0], width)  # of every chunk
    _gradient_sums[grid](grad, h, *arrays, sums[0], sums[1], *numbers, **sizes)
    dw, db = sums.sum(2)
    dh = torch.empty_like(h)
    _gradient[grid](grad, h, dh, *arrays, dw, db, *numbers, **sizes)
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
    """Take a step of Adam on one block of a lane's parameters.

    Pointers to arrays (lanes, n): parameters p, gradients g, first and second moments m and v, and their
    new values. Pointers to one number per lane: ``shrink``, ``rate`` and ``root`` (see `fused.adam`).
    """
    lane = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = lane.to(tl.int64) * n + place
    exists = place < n
    now = tl.load(p + at, mask=exists, other=0.0)
    slope = tl.load(g + at, mask=exists, other=0.0) * tl.load(shrink + lane)
    slope += decay * now
    first = tl.load(m + at, mask=exists, other=0.0)
    first += (1.0 - beta1) * (slope - first)
    second = tl.load(v + at, mask=exists, other=0.0) * beta2
    second += (1.0 - beta2) * slope * slope
    spread = tl.sqrt(second) * tl.load(root + lane) + epsilon
    tl.store(new_p + at, now - tl.load(rate + lane) * first / spread, mask=exists)
    tl.store(new_m + at, first, mask=exists)
    tl.store(new_v + at, second, mask=exists)


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
    """Return parameters and both moments (lanes, P) after a step; see `fused.adam`."""
    lanes, n = p.shape
    arrays = [x.contiguous() for x in (p, g, m, v, shrink, rate, root)]
    new = [torch.empty_like(x) for x in arrays[:3]]
    block = 1024
    _adam[(triton.cdiv(n, block), lanes)](*arrays, *new, n, *numbers, BLOCK=block)
    return tuple(new)
