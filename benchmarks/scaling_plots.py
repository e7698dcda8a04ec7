"""Draw what `scaling.py` measured.

python benchmarks/scaling_plots.py scaling_cpu.json [scaling_cuda.json] [--folder FOLDER]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

Row = dict[str, Any]
COLOURS = ("#1a5c93", "#c2571a", "#3b7d3b", "#7a3b8f")


def _panel(ax: Any, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)


def _log_axis(ax: Any) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def plot(args: argparse.Namespace) -> None:
    files = [json.loads(Path(f).read_text()) for f in args.files]
    for data in files:
        kinds = [k for k in DRAW if k in data]
        figure, axes = plt.subplots(1, len(kinds), figsize=(3.6 * len(kinds), 3.2), squeeze=False)
        for ax, kind in zip(axes[0], kinds, strict=True):
            DRAW[kind](ax, data[kind])
        figure.suptitle(data["machine"].split(", load")[0], fontsize=8, x=0.01, ha="left")
        figure.tight_layout()
        args.folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(args.folder / f"scaling_{data['device']}.png", dpi=100)
        plt.close(figure)


def draw_rois(ax: Any, rows: list[Row]) -> None:
    for colour, lanes in zip(COLOURS, sorted({r["lanes"] for r in rows}), strict=False):
        mine = [r for r in rows if r["lanes"] == lanes]
        x, y = [r["rois"] for r in mine], [r["model_steps_per_s"] for r in mine]
        ax.plot(x, y, "o-", color=colour, label=f"{lanes} lane{'s' * (lanes > 1)}")
    first = [r for r in rows if r["lanes"] == rows[-1]["lanes"]]
    x0, y0 = first[0]["rois"], first[0]["model_steps_per_s"]
    xs = [r["rois"] for r in first]
    ax.plot(xs, [y0 * (x0 / x) ** 2 for x in xs], ":", color="grey", label="1 / ROIs²")
    _log_axis(ax)
    ax.set_xticks(xs)
    ax.legend(frameon=False, fontsize=8)
    _panel(ax, "ROIs", "ROIs", "model-steps / s")


def draw_subjects(ax: Any, rows: list[Row]) -> None:
    x, y = [r["subjects"] for r in rows], [r["epoch_s"] * 1e3 for r in rows]
    ax.plot(x, y, "o-", color=COLOURS[0])
    ax.plot([0, x[-1]], [0, y[-1]], ":", color="grey", label="proportional")
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.legend(frameon=False, fontsize=8)
    _panel(ax, f"Subjects, {rows[0]['lanes']} lane(s)", "training subjects of a site", "ms / epoch")


def draw_sites(ax: Any, rows: list[Row]) -> None:
    x = [r["sites"] for r in rows]
    ax.plot(x, [r["unshared"] for r in rows], "o--", color="grey", label="order by order")
    ax.plot(x, [r["shared"] for r in rows], "o-", color=COLOURS[0], label="shared prefixes")
    _log_axis(ax)
    ax.set_xticks(x)
    ax.legend(frameon=False, fontsize=8)
    _panel(ax, "Sites, all orders", "sites", "site trainings")


def draw_workers(ax: Any, rows: list[Row]) -> None:
    mine = [r for r in rows if r["threads"] == 1]
    x = [r["processes"] for r in mine]
    ax.plot(x, [mine[0]["wall_s"] / r["wall_s"] for r in mine], "o-", color=COLOURS[0])
    ax.plot(x, x, ":", color="grey", label="proportional")
    for r in rows:
        if r["threads"] > 1:
            gain = mine[0]["wall_s"] / r["wall_s"]
            ax.plot(r["threads"], gain, "s", color=COLOURS[1], label="one process, threads")
    ax.set_xticks(x)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=8)
    _panel(ax, "Workers", "processes (or threads)", "x one process")


DRAW = {"rois": draw_rois, "subjects": draw_subjects, "sites": draw_sites, "workers": draw_workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "plots")
    plot(parser.parse_args())


if __name__ == "__main__":
    main()
