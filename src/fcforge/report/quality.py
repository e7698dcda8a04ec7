"""Quality pages: one self-contained HTML per subject, one for the group. No links to elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.imaging.group import mixed_trs, numbers, outliers, site_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FD_LINE_MM = 0.5

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}img{max-width:100%;height:auto}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}.warn{background:#fff3cd;padding:.4rem .8rem;margin:.3rem 0}
.bad{background:#f8d7da;padding:.4rem .8rem;margin:.3rem 0}.num{text-align:right}
"""

_SUBJECT = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{{ subject }}: quality</title><style>{{ style }}</style></head><body>
<h1>{{ subject }}</h1>
{% for w in warnings %}<p class="warn">{{ w }}</p>{% endfor %}
<table>{% for k, v in facts.items() %}<tr><th>{{ k }}</th><td>{{ v }}</td></tr>{% endfor %}</table>
{% for title, image in figures %}<h2>{{ title }}</h2>
<img alt="{{ title }}" src="data:image/png;base64,{{ image }}">{% endfor %}
{% if low %}<h2>ROIs with low coverage</h2><table><tr><th>ROI</th><th>coverage</th></tr>
{% for name, value in low %}<tr><td>{{ name }}</td><td class="num">{{ value }}</td></tr>
{% endfor %}</table>{% endif %}
<h2>What was done</h2>
<table>{% for k, v in done.items() %}<tr><th>{{ k }}</th><td>{{ v }}</td></tr>{% endfor %}</table>
</body></html>"""

_GROUP = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Functional connectivity: group quality</title><style>{{ style }}</style></head><body>
<h1>{{ rows|length }} of {{ total }} subjects have FC</h1>
{% for who, why in failed %}<p class="bad"><b>{{ who }}</b>: {{ why }}</p>{% endfor %}
{% for w in warnings %}<p class="warn">{{ w }}</p>{% endfor %}
{% if image %}<img alt="group quality" src="data:image/png;base64,{{ image }}">{% endif %}
<h2>Sites</h2><table><tr><th>site</th><th>subjects</th><th>diagnosis</th><th>TR</th></tr>
{% for s in sites %}<tr><td>{{ s.site }}</td><td class="num">{{ s.n }}</td>
<td>{{ s.diagnosis }}</td><td>{{ s.tr }}</td></tr>{% endfor %}</table>
<h2>Subjects</h2><table><tr>{% for c in columns %}<th>{{ c }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for c in columns %}<td>{% if c == "participant_id" %}<a
href="{{ row[c] }}.html">{{ row[c] }}</a>{% else %}{{ row[c] }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}</table></body></html>"""


def subject_page(result: SubjectFC, atlas: Atlas, settings: Mapping[str, Any]) -> str:
    """Carpet plot, FC, motion and ROI coverage of one subject, as one HTML page."""
    figures = []
    for run in result.runs:
        title = run.source.path.name if len(result.runs) > 1 else "Signal, motion and coverage"
        figures.append((title, _png(_run_figure(run, atlas))))
    figures.append(
        ("Functional connectivity, ROIs grouped by system", _png(_fc_figure(result, atlas)))
    )
    warnings = [w for run in result.runs for w in run.warnings]
    if result.empty:
        names = ", ".join(atlas.roi_names[i] for i in result.empty)
        warnings.append(f"{len(result.empty)} ROIs without signal, FC set to 0: {names}.")
    facts = {
        "volumes used": result.n_volumes,
        "mean FD": "unknown" if np.isnan(result.mean_fd) else f"{result.mean_fd:.3f} mm",
        "TR": "unknown" if result.runs[0].tr is None else f"{result.runs[0].tr:g} s",
        "atlas": f"{atlas.name}, {atlas.n_rois} ROIs",
    }
    done = {"source": ", ".join(str(run.source.path) for run in result.runs), **settings}
    return _render(
        _SUBJECT,
        subject=f"sub-{result.subject}",
        warnings=warnings,
        facts=facts,
        figures=figures,
        low=_low_coverage(result, atlas),
        done={**done, **{k: _short(v) for k, v in result.runs[0].report.items()}},
    )


def preprocess_page(
    subject: str,
    runs: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray]],
    facts: Mapping[str, Any],
) -> str:
    """Motion and registration of one subject's raw runs, as one HTML page.

    Parameters
    ----------
    subject : str
    runs : sequence of (name, parameters, mean, edges)
        Motion parameters (n_volumes, 6), mean in MNI space and the atlas' outlines on its grid.
    facts : mapping
        Rows of the table.
    """
    figures = []
    for name, parameters, mean, edges in runs:
        figures.append((f"Motion: {name}", _png(_motion_figure(parameters))))
        figures.append((f"Mean scan with the atlas' outlines: {name}", _png(_mean(mean, edges))))
    return _render(
        _SUBJECT, subject=subject, warnings=[], facts={}, figures=figures, low=[], done=facts
    )


def _motion_figure(parameters: np.ndarray) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4))
    figure.subplots_adjust(left=0.08, right=0.98, top=0.97, bottom=0.12, hspace=0.25)
    axes = figure.subplots(2, 1, sharex=True)
    for axis, values, label in (
        (axes[0], parameters[:, :3], "translation, mm"),
        (axes[1], np.degrees(parameters[:, 3:]), "rotation, degrees"),
    ):
        for k, name in enumerate("xyz"):
            axis.plot(values[:, k], lw=0.9, label=name)
        axis.set_ylabel(label)
    axes[0].legend(ncols=3, loc="upper left", frameon=False)
    axes[1].set_xlabel("volume")
    return figure


def _mean(mean: np.ndarray, edges: np.ndarray) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6))
    figure.subplots_adjust(left=0, right=1, top=1, bottom=0, wspace=0.02)
    axes = figure.subplots(1, 5)
    levels = np.linspace(0.25, 0.8, 5) * mean.shape[2]
    top = np.percentile(mean, 99.5)
    for axis, k in zip(axes, levels.astype(int), strict=True):
        axis.imshow(mean[:, :, k].T, origin="lower", cmap="gray", vmin=0, vmax=top)
        shown = np.ma.masked_equal(edges[:, :, k].T.astype(float), 0)
        axis.imshow(shown, origin="lower", cmap="autumn", vmin=0, vmax=1, alpha=0.6)
        axis.set_axis_off()
    return figure


def group_page(
    rows: Sequence[Mapping[str, Any]], failed: Sequence[tuple[str, str]], total: int
) -> str:
    """Table of all subjects, what failed and why, and distributions over subjects."""
    warnings = [*mixed_trs(rows), *outliers(rows)]
    hidden = {"file"}
    columns = [c for c in (rows[0] if rows else {}) if c not in hidden]
    image = _png(_group_figure(rows)) if rows else ""
    return _render(
        _GROUP,
        rows=rows,
        failed=failed,
        total=total,
        warnings=warnings,
        image=image,
        sites=site_rows(rows),
        columns=columns,
    )


def _run_figure(run: Run, atlas: Atlas) -> Figure:
    from matplotlib.figure import Figure

    # A fixed layout: matplotlib's constrained one takes longer than reading the scan.
    figure = Figure(figsize=(10, 6.5))
    figure.subplots_adjust(left=0.08, right=0.98, top=0.97, bottom=0.09, hspace=0.35)
    has_coverage = run.coverage is not None
    axes = figure.subplots(3 if has_coverage else 2, 1, height_ratios=[1, 3, 1][: 2 + has_coverage])
    if run.fd is not None:
        axes[0].plot(np.arange(len(run.fd)), run.fd, lw=0.8, color="#8c2d04")
        axes[0].axhline(FD_LINE_MM, ls=":", lw=0.8, color="gray")
    else:
        axes[0].text(0.5, 0.5, "no motion table", ha="center", transform=axes[0].transAxes)
    axes[0].set(ylabel="FD, mm", xlim=(0, run.carpet.shape[1] - 1))
    axes[1].imshow(
        _standardised(run.carpet), aspect="auto", cmap="gray", vmin=-2, vmax=2,
        interpolation="nearest",
    )  # fmt: skip
    rows = "voxels, ROI by ROI" if has_coverage else "ROIs"
    axes[1].set(ylabel=rows, xlabel="volume", yticks=[])
    if has_coverage:
        axes[2].fill_between(np.arange(atlas.n_rois), run.coverage, step="mid", color="#2c7fb8")
        axes[2].set(ylabel="coverage", xlabel="ROI", ylim=(0, 1), xlim=(-0.5, atlas.n_rois - 0.5))
    return figure


def _standardised(carpet: np.ndarray) -> np.ndarray:
    x = np.nan_to_num(carpet - np.nanmean(np.nan_to_num(carpet), axis=1, keepdims=True))
    spread = x.std(axis=1, keepdims=True)
    return x / np.where(spread > 0, spread, 1.0)


def _fc_figure(result: SubjectFC, atlas: Atlas) -> Figure:
    from matplotlib.figure import Figure

    order = np.argsort(np.array(atlas.systems), kind="stable")
    systems = np.array(atlas.systems)[order]
    figure = Figure(figsize=(6.6, 5.4))
    figure.subplots_adjust(left=0.19, right=0.97, top=0.97, bottom=0.03)
    axes = figure.subplots()
    image = axes.imshow(result.fc[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
    figure.colorbar(image, ax=axes, label="r", shrink=0.8)
    edges = np.flatnonzero(systems[1:] != systems[:-1]) + 1
    for edge in edges:
        axes.axhline(edge - 0.5, color="k", lw=0.5)
        axes.axvline(edge - 0.5, color="k", lw=0.5)
    bounds = np.array([0, *edges, len(systems)])
    if any(atlas.systems):
        axes.set_yticks((bounds[1:] + bounds[:-1]) / 2 - 0.5, systems[bounds[:-1]])
    axes.set_xticks([])
    return figure


def _group_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3))
    figure.subplots_adjust(left=0.07, right=0.98, top=0.95, bottom=0.18, wspace=0.3)
    axes = figure.subplots(1, 3)
    names = {"mean_fd": "mean FD, mm", "mean_fc": "mean FC", "n_volumes": "volumes"}
    for axis, (key, title) in zip(axes, names.items(), strict=True):
        values = numbers(rows, key)
        axis.hist(values[np.isfinite(values)], bins=20, color="#2c7fb8")
        axis.set(xlabel=title, ylabel="subjects")
    return figure


def _low_coverage(result: SubjectFC, atlas: Atlas) -> list[tuple[str, str]]:
    known = [run.coverage for run in result.runs if run.coverage is not None]
    if not known:
        return []
    lowest = np.min(known, axis=0)
    order = np.argsort(lowest)
    return [(atlas.roi_names[i], f"{lowest[i]:.2f}") for i in order if lowest[i] < 0.8]


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) < 400 else text[:400] + " ..."


def _png(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return base64.b64encode(buffer.getvalue()).decode()


def _render(template: str, **values: Any) -> str:
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(template).render(style=_STYLE, **values)
