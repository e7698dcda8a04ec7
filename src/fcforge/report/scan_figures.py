"""Draw one run of a scan: mean image, signal over time, coverage, power spectrum.

Arguments that recur: `mean` and `labels` are volumes of shape (x, y, z), the latter with the number of the
ROI or tissue of each voxel and -1 outside; `affine` (4, 4) maps voxels to mm. `first` and `first_volume`
are the number, counted from 1, of the first volume that is drawn. A *carpet* is the signal of many voxels
or ROIs, a row each, over all volumes. *Cells* are rectangles of a figure that show values at the pointer
(`report.cells`); a function that draws appends them to the list `areas`, because the decorator for the style
lets it return the figure alone.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import counted, number
from fcforge.imaging.atlas import Atlas, weights_on
from fcforge.imaging.extract import Run
from fcforge.report import cells
from fcforge.report.brains import Dot, glass_brain
from fcforge.report.cells import Cells, over_axes
from fcforge.report.figures import (
    ACCENT,
    FAINT,
    MUTED,
    NETWORKS,
    SERIES,
    TISSUE_COLOURS,
    by_system,
    in_page_style,
    new_figure,
)
from fcforge.report.html import dots_legend, macro, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FD_LINE_MM = 0.5
WIDE = 6.6  # inches
PANEL = 1.05  # height of a panel of lines, inches
CARPET = 3.6
LEFT, RIGHT = 0.13, 0.97
CARPET_ROWS = 360  # on a page
TILES = 7  # slices in each row of the mosaic
TILE_PX = 150
OUTLINE = np.array([230, 97, 0], dtype=np.uint8)
PLANES = ("sagittal, x", "coronal, y", "axial, z")
# Coverage from which a colour holds, its name and colour; below the last one an ROI is empty.
COVERAGE = (
    (0.9, "90 % or more", "var(--s2)"),
    (0.75, "75 to 90 %", "var(--s0)"),
    (0.5, "50 to 75 %", "var(--s4)"),
    (0.0, "below 50 %", "var(--bad)"),
)

# A panel of lines over volumes: title, values by name of the line, and height of a dotted line or None.
Panel = tuple[str, Mapping[str, np.ndarray], float | None]


# -- mean image ------------------------------------------------------------------------------------
def atlas_mosaic(mean: np.ndarray, affine: np.ndarray, atlas: Atlas) -> Markup:
    """Return slices of a mean image with the borders of the ROIs.

    A voxel of a probabilistic atlas belongs to the ROI with the largest weight.
    """
    if atlas.image is None:
        labels = np.full(mean.shape, -1, dtype=np.int16)
    elif atlas.probabilistic:
        weights = weights_on(atlas, (mean.shape, np.asarray(affine, float).tobytes()))
        empty = np.diff(weights.indptr) == 0
        labels = np.where(empty, -1, weights.argmax(axis=1).ravel())
        labels = labels.astype(np.int16).reshape(mean.shape, order="F")
    else:
        labels = atlas.on_grid(mean.shape, affine)
    return _mosaic(mean, affine, labels)


def template_mosaic(mean: np.ndarray, affine: np.ndarray) -> Markup:
    """Return slices of a mean image in MNI space with the borders of the template's tissues."""
    from nilearn.datasets import load_mni152_brain_mask, load_mni152_template
    from scipy.ndimage import affine_transform

    template = load_mni152_template(resolution=2)
    inside = np.asarray(load_mni152_brain_mask(resolution=2).dataobj) > 0
    t1 = np.asarray(template.dataobj, dtype=np.float32)
    bright = np.percentile(t1[inside], 99)
    # -1 outside the brain, 0 the fluid of ventricles and sulci (dark in T1), 1 the brain's tissue
    tissue = np.where(inside, np.where(t1 > 0.4 * bright, 1.0, 0.0), -1.0)
    to_template = np.linalg.inv(template.affine) @ affine
    labels = affine_transform(
        tissue,
        to_template,
        output_shape=mean.shape,
        order=0,
        mode="grid-constant",
        cval=-1,
    )
    return _mosaic(mean, affine, labels.astype(np.int16))


def _mosaic(mean: np.ndarray, affine: np.ndarray, labels: np.ndarray) -> Markup:
    """Return slices of a mean image in three planes, with borders where `labels` change."""
    scan = np.where(np.isfinite(mean), mean, 0.0)
    scan, labels, axes_mm = _upright(scan, labels, affine)
    inside = scan[scan > 0]
    top = float(np.percentile(inside, 99.5)) if len(inside) else 1.0
    grey = (255 * np.clip(scan / top, 0, 1)).astype(np.uint8)
    rows, tips = [], []
    for axis in (2, 1, 0):
        chosen = _slices(scan, labels, axis)
        tiles = [_tile(grey.take(k, axis), labels.take(k, axis)) for k in chosen]
        rows.append(np.concatenate(tiles, axis=1))
        places = (number(float(axes_mm[axis][k]), 0, sign=True) for k in chosen)
        tips.append([f"{PLANES[axis]} = {position} mm" for position in places])
    image = np.concatenate(rows)
    whole = Cells(0, 0, 1, 1, cells.texts(tips)).html()
    return Markup(
        '<div class="scroll plain mosaic" tabindex="0"><div class="hover">{}{}</div></div>'
    ).format(_png(image, "Mean scan with borders"), whole)


def _upright(
    values: np.ndarray, labels: np.ndarray, affine: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return volumes with axes to the right, front and top, and the position in mm along each axis."""
    from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation

    turn = io_orientation(affine)
    turned = affine @ inv_ornt_aff(turn, values.shape)
    values = apply_orientation(values, turn)
    labels = apply_orientation(labels, turn)
    mm = [
        turned[axis, axis] * np.arange(n) + turned[axis, 3]
        for axis, n in enumerate(values.shape)
    ]
    return values, labels, mm


def _slices(values: np.ndarray, labels: np.ndarray, axis: int) -> np.ndarray:
    """Return evenly spread slices through the ROIs, or through the image where there are none."""
    other_axes = tuple(k for k in range(3) if k != axis)
    filled = np.flatnonzero((labels >= 0).any(axis=other_axes))
    if not len(filled):
        filled = np.flatnonzero((values > 0).any(axis=other_axes))
    low, high = (filled[0], filled[-1]) if len(filled) else (0, values.shape[axis] - 1)
    return np.linspace(low, high, TILES + 2)[1:-1].round().astype(int)


def _tile(grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one slice as pixels, first axis to the right and second up, outlines on it."""
    height = max(1, round(TILE_PX * grey.shape[1] / grey.shape[0]))
    across = np.arange(TILE_PX) * grey.shape[0] // TILE_PX
    up = (height - 1 - np.arange(height)) * grey.shape[1] // height
    image = np.repeat(grey[np.ix_(across, up)].T[..., None], 3, axis=2)
    roi = labels[np.ix_(across, up)].T
    edge = np.zeros(roi.shape, dtype=bool)
    edge[:, 1:] |= roi[:, 1:] != roi[:, :-1]
    edge[1:] |= roi[1:] != roi[:-1]
    image[edge] = OUTLINE
    return image


def _png(pixels: np.ndarray, alt: str) -> Markup:
    """Return pixels (height, width, 3) as an embedded PNG of 64 colours."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).quantize(64).save(buffer, format="png", optimize=True)
    height, width = pixels.shape[:2]
    data = base64.b64encode(buffer.getvalue()).decode()
    image = '<img class="plot" width="{}" height="{}" alt="{}" src="data:image/png;base64,{}">'
    return Markup(image).format(width, height, alt, data)


# -- signal over time ------------------------------------------------------------------------------
def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """Return a colour of each group of the carpet, tissues last."""
    names = dict.fromkeys(groups)
    networks = [name for name in names if name not in TISSUE_COLOURS]
    colours = {name: NETWORKS[k % len(NETWORKS)] for k, name in enumerate(networks)}
    return colours | {n: TISSUE_COLOURS[n] for n in names if n in TISSUE_COLOURS}


def time_plot(run: Run, first_volume: int) -> tuple[Any, ...]:
    """Return the parts of the section with motion, confounds and the carpet over volumes.

    Parameters
    ----------
    run : Run
    first_volume : int
        Number of the first volume that is used, counted from 1.
    """
    n = run.carpet.shape[1]
    panels = _panels(run, n)
    parts: list[Any] = []
    if run.fd is not None and len(run.fd) != n:
        parts.append(
            f"The motion table has {len(run.fd)} volumes and the series {n}: framewise "
            "displacement is drawn below on its own, because the volumes cannot be aligned."
        )
    figure, areas = _time_figure(run, panels, first_volume)
    alt = "Motion, confounds and signal of each row, volume by volume"
    parts.append(picture(figure, alt, cells=areas))
    if lines := _line_names(panels):
        parts.append(dots_legend(lines))
    colours = group_colours(run.quality.row_groups)
    if len(colours) > 1:
        parts.append(dots_legend([(c, name) for name, c in colours.items()]))
    if run.fd is not None and len(run.fd) != n:
        alone, area = _fd_figure(run.fd, first_volume)
        parts.append(picture(alone, "Framewise displacement", cells=area))
    return tuple(parts)


def _line_names(panels: Sequence[Panel]) -> list[tuple[str, str]]:
    """Return each line colour with the names of its lines, over all panels with several lines."""
    several = [tuple(lines) for _, lines, _ in panels if len(lines) > 1]
    names = zip_longest(*several, fillvalue="")
    return [
        (f"var(--s{k % len(SERIES)})", ", ".join(filter(None, same_colour)))
        for k, same_colour in enumerate(names)
    ]


def motion_plot(fd: np.ndarray) -> Markup:
    """Return framewise displacement over volumes, with a line at a usual threshold of scrubbing."""
    figure, areas = _fd_figure(fd, 1)
    return picture(figure, "Framewise displacement, volume by volume", cells=areas)


@in_page_style
def _draw_fd(fd: np.ndarray, areas: list[Cells], first: int) -> "Figure":
    """Draw framewise displacement, and append the rectangle with its values to `areas`."""
    figure = new_figure(WIDE, 1.8, left=LEFT, right=RIGHT, top=0.86, bottom=0.29)
    axes = figure.subplots()
    _draw_panel(axes, "FD, mm", {"FD": fd}, FD_LINE_MM)
    axes.set_xlim(-0.5, len(fd) - 0.5)
    _number_volumes(axes, len(fd), first)
    areas.append(_panel_cells(axes, "FD, mm", {"FD": fd}, first))
    return figure


def _fd_figure(fd: np.ndarray, first_volume: int) -> tuple["Figure", list[Cells]]:
    """Return the figure of framewise displacement and its rectangles with values."""
    areas: list[Cells] = []
    return _draw_fd(fd, areas, first_volume), areas


def _panels(run: Run, n: int) -> list[Panel]:
    """Return title, lines and value of the dotted line (or None) of each panel above the carpet."""
    panels: list[Panel] = []
    if run.fd is not None and len(run.fd) == n:
        panels.append(("FD, mm", {"FD": run.fd}, FD_LINE_MM))
    if run.quality.dvars is not None:
        panels.append(("DVARS, %", {"DVARS": run.quality.dvars}, None))
    traces = {k: v for k, v in run.quality.traces.items() if len(v) == n}
    # names of motion traces end in their unit ("x, mm"); other confounds have none
    signals = {k: _standardised(v) for k, v in traces.items() if "," not in k}
    for title, lines in (
        ("confounds, SD", signals),
        ("translation, mm", _ending(traces, ", mm")),
        ("rotation, rad", _ending(traces, ", rad")),
    ):
        if lines:
            panels.append((title, lines, None))
    return panels


def _ending(traces: Mapping[str, np.ndarray], unit: str) -> dict[str, np.ndarray]:
    """Return the traces whose name ends in a unit, without it."""
    return {k.removesuffix(unit): v for k, v in traces.items() if k.endswith(unit)}


def _standardised(values: np.ndarray) -> np.ndarray:
    """Return values minus their mean, in standard deviations."""
    spread = np.nanstd(values)
    return (values - np.nanmean(values)) / (spread if spread > 0 else 1.0)


def _time_figure(
    run: Run, panels: Sequence[Panel], first_volume: int
) -> tuple["Figure", list[Cells]]:
    """Return the figure of all panels and the carpet, and its rectangles with values."""
    areas: list[Cells] = []
    return _draw_time(run, panels, areas, first_volume), areas


@in_page_style
def _draw_time(
    run: Run, panels: Sequence[Panel], areas: list[Cells], first: int
) -> "Figure":
    """Draw the panels and the carpet over volumes, and append rectangles with values to `areas`."""
    n = run.carpet.shape[1]
    heights = [PANEL] * len(panels) + [CARPET]
    total = sum(heights) + 0.75
    margins = {"left": LEFT, "right": RIGHT}
    figure = new_figure(
        WIDE, total, **margins, top=1 - 0.28 / total, bottom=0.5 / total
    )
    grid = figure.subplots(
        len(heights),
        1,
        gridspec_kw={"height_ratios": heights, "hspace": 0.62},
        squeeze=False,
    )[:, 0]
    kept_volumes = run.quality.kept
    scrubbed = (
        np.setdiff1d(np.arange(n), kept_volumes)
        if kept_volumes is not None
        else np.zeros(0)
    )
    for axes, (title, lines, dotted) in zip(grid, panels, strict=False):
        _draw_panel(axes, title, lines, dotted)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_xticks([])
        for volume in scrubbed:
            axes.axvspan(volume - 0.5, volume + 0.5, color=FAINT, alpha=0.45, lw=0)
        areas.append(_panel_cells(axes, title, lines, first))
    areas.append(_draw_carpet(figure, grid[-1], run, first))
    return figure


def _draw_panel(
    axes: "Axes", title: str, lines: Mapping[str, np.ndarray], dotted: float | None
) -> None:
    """Draw lines over volumes, and a dotted horizontal line at `dotted` if it is given."""
    for k, values in enumerate(lines.values()):
        axes.plot(np.arange(len(values)), values, lw=0.9, color=SERIES[k % len(SERIES)])
    if dotted is not None:
        axes.axhline(dotted, ls=":", lw=0.9, color=MUTED)
        largest = max(float(np.nanmax(v, initial=0.0)) for v in lines.values())
        axes.set_ylim(0, max(1.2 * dotted, 1.05 * largest))
    axes.set_title(title)
    axes.locator_params(axis="y", nbins=2)


def _number_volumes(axes: "Axes", n_volumes: int, first: int) -> None:
    """Label the horizontal axis with the numbers of volumes, the first being `first`."""
    ticks = np.unique(np.linspace(0, n_volumes - 1, 5).astype(int))
    axes.set_xticks(ticks, [str(tick + first) for tick in ticks])
    axes.set_xlabel("volume")


def _panel_cells(
    axes: "Axes", title: str, lines: Mapping[str, np.ndarray], first: int
) -> Cells:
    """Return the rectangle of a panel that shows all its lines' values at the pointer."""
    unit = title.partition(", ")[2]
    digits = 4 if unit == "rad" else 2
    content = cells.content(
        np.stack(list(lines.values())),
        list(lines),
        first_volume=first,
        digits=digits,
        every_row=True,
    )
    return over_axes(axes, content)


def _draw_carpet(figure: "Figure", axes: "Axes", run: Run, first: int) -> Cells:
    """Draw the carpet, each row in standard deviations, grouped with a strip of colours.

    Returns the rectangle with its values.
    """
    groups = run.quality.row_groups or ("ROIs",) * len(run.carpet)
    names = run.quality.row_names or tuple(
        f"row {k + 1}" for k in range(len(run.carpet))
    )
    order = by_system(groups)[0]
    # at most `CARPET_ROWS` rows, evenly spread
    order = order[np.unique(np.linspace(0, len(order) - 1, CARPET_ROWS).astype(int))]
    signal = np.nan_to_num(run.carpet[order]).astype(np.float64)
    centred = signal - signal.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    z = centred / np.where(spread > 0, spread, 1.0)
    look: Any = {"aspect": "auto", "cmap": "gray", "interpolation": "nearest"}
    axes.imshow(z, vmin=-2, vmax=2, **look)
    axes.set_title("signal of each row: black \N{MINUS SIGN}2 SD, white 2 SD")
    axes.set_yticks([])
    _number_volumes(axes, z.shape[1], first)
    colours = group_colours(groups)
    if len(colours) > 1:
        from matplotlib.colors import to_rgb

        strip = np.array([[to_rgb(colours[groups[k]])] for k in order])
        box = axes.get_position()
        colour_axes = figure.add_axes((box.x0 - 0.03, box.y0, 0.022, box.height))
        colour_axes.imshow(strip, aspect="auto", interpolation="nearest")
        colour_axes.set_axis_off()
    rows = [_row_name(names[k], groups[k]) for k in order]
    return over_axes(axes, cells.content(z, rows, first_volume=first, digits=1))


def _row_name(name: str, group: str) -> str:
    """Return the name of a carpet row with its group, unless that adds nothing."""
    return name if group in (name, "ROIs") else f"{name} ({group})"


# -- coverage --------------------------------------------------------------------------------------
def coverage_plot(
    coverage: np.ndarray, tsnr: np.ndarray | None, atlas: Atlas
) -> tuple[Any, ...]:
    """Return the coverage of each ROI on a brain, or as bars where the places are unknown."""
    texts = {}
    for roi, share in enumerate(coverage):
        text = f"{atlas.roi_names[roi]}: {number(100 * share, 0)} % covered"
        if tsnr is not None and np.isfinite(tsnr[roi]):
            text += f", tSNR {number(float(tsnr[roi]), 0)}"
        texts[roi] = text
    if not len(atlas.places):
        return (_coverage_bars(coverage, atlas),)
    # the first line of `COVERAGE` whose lower limit a share reaches; the last has the limit 0
    ranks = np.array(
        [next(k for k, c in enumerate(COVERAGE) if share >= c[0]) for share in coverage]
    )
    order = np.argsort(ranks, kind="stable")  # the worst on top
    dots = [Dot(int(k), COVERAGE[ranks[k]][2], 3.4, texts[int(k)]) for k in order]
    brain = glass_brain(atlas.places, dots, [], "Coverage of each ROI")
    counts = (
        (colour, f"{name}: {counted(int((ranks == k).sum()), 'ROI')}")
        for k, (_, name, colour) in enumerate(COVERAGE)
    )
    return (brain, dots_legend(list(counts)))


def _coverage_bars(coverage: np.ndarray, atlas: Atlas) -> Markup:
    """Return the coverage of each ROI as bars, with values at the pointer."""
    areas: list[Cells] = []
    figure = _draw_bars(coverage, atlas, areas)
    return picture(figure, "Coverage of each ROI", cells=areas)


@in_page_style
def _draw_bars(coverage: np.ndarray, atlas: Atlas, areas: list[Cells]) -> "Figure":
    """Draw the coverage of each ROI, and append the rectangle with its values to `areas`."""
    figure = new_figure(WIDE, 1.5, left=LEFT, right=RIGHT, top=0.9, bottom=0.2)
    axes = figure.subplots()
    rois = np.arange(len(coverage))
    axes.fill_between(rois, coverage, step="mid", color=SERIES[0])
    axes.set(ylim=(0, 1), yticks=[0, 1], xlim=(-0.5, len(coverage) - 0.5), xticks=[])
    content = cells.content(
        coverage[None], ["covered"], atlas.roi_names, every_row=True
    )
    areas.append(over_axes(axes, content))
    return figure


# -- power spectrum --------------------------------------------------------------------------------
def spectrum(series: np.ndarray, tr: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies (m,) and the share of power (m,) at each, mean over ROIs, by Welch's method.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
        ROIs without signal are left out.
    tr : float or None
        Seconds; frequencies are in cycles per volume where it is unknown.
    """
    from scipy.signal import welch

    good = np.isfinite(series).all(axis=0)  # ROIs with a signal that is not constant
    good &= np.ptp(np.where(good, series, 0.0), axis=0) > 0
    segment = min(len(series), 128)
    frequency, power = welch(
        series[:, good], fs=1 / (tr or 1.0), nperseg=segment, axis=0, detrend="linear"
    )
    share = power / np.maximum(power.sum(axis=0), 1e-300)
    return frequency, share.mean(axis=1) if good.any() else np.zeros(len(frequency))


def spectrum_plot(run: Run) -> Markup:
    """Return the power spectrum of the ROI series, before denoising dashed."""
    areas: list[Cells] = []
    figure = _draw_spectrum(run, areas)
    return picture(figure, "Power spectrum of the ROI series", cells=areas)


@in_page_style
def _draw_spectrum(run: Run, areas: list[Cells]) -> "Figure":
    """Draw the power spectrum, and append the rectangle with its values to `areas`."""
    figure = new_figure(WIDE, 2.3, left=LEFT, right=RIGHT, top=0.88, bottom=0.26)
    axes = figure.subplots()
    frequency, after = spectrum(run.series, run.tr)
    lines = {"% of power": 100 * after}
    axes.plot(frequency, 100 * after, color=ACCENT, lw=1.6)
    if run.quality.before is not None:
        frequency_before, before = spectrum(run.quality.before, run.tr)
        # shares add up to 1 over the frequencies, of which a scrubbed, shorter series may have fewer
        before = before * len(frequency_before) / len(frequency)
        before = np.interp(frequency, frequency_before, before)
        axes.plot(frequency, 100 * before, "--", color=MUTED, lw=1.4)
        lines = {"after": 100 * after, "before": 100 * before}
    unit = "Hz" if run.tr else "cycles per volume"
    axes.set_title("% of power")
    axes.set(xlabel=unit, ylim=(0, None))
    half = frequency[1] / 2 if len(frequency) > 1 else 0.5
    axes.set_xlim(-half, frequency[-1] + half)
    names = [f"{f:.3f} {unit}" for f in frequency]
    values = np.stack(list(lines.values()))
    content = cells.content(values, list(lines), names, every_row=True)
    areas.append(over_axes(axes, content))
    return figure


def legend_of(*items: tuple[str, str]) -> Markup:
    """Return a legend of lines, from pairs of (CSS class of the line, name)."""
    return macro("legend", items)
