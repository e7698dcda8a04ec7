"""Tables and the picture of sums: views of make_tables.py over results/sums*.csv.

The attacks of a row are the strongest of three (benchmarks/sums.py): *public* is the best one of an
attacker who knows public people or everybody but not who is in; *all others* the one that the
mechanism's ceiling is for.
"""

import csv
import json
from functools import cache
from pathlib import Path

from paper_tables import markdown

from fcforge.text import number, with_interval

RESULTS = Path(__file__).parents[1] / "results"
PEOPLE = {"abide1_aal116.npz": "871 people", "abide1_aal116_dparsf.npz": "1,098 people"}


@cache
def rows_of(name: str) -> tuple[dict[str, str], ...]:
    """Lines of a spreadsheet of results/."""
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return tuple(csv.DictReader(stream))


def _interval(row: dict[str, str], key: str, sign: bool = False) -> str:
    value, low, high = (float(row[f"{key}{end}"]) for end in ("", "_low", "_high"))
    if not sign:
        return with_interval(value, low, high)
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _attacks(file: str, public: str, row: str) -> tuple[str, str, str]:
    """Strongest attack of those who do not know who is in, of one who does, and the ceiling."""
    for found in rows_of("sums_attacks"):
        if (found["file"], found["public"], found["row"]) == (file, public, row):
            seen = [found[key] for key in ("public covariance", "everybody known")]
            known = [float(value) for value in seen if value not in ("", "nan")]
            if known:
                best = number(max(known), 2)
                alone = number(float(found["all others known"]), 2)
                return best, alone, number(float(found["ceiling"]), 2)
    return "", "", ""


def curve(name: str, rest: str) -> str:
    """One file at one number of public people: worth and attacks, row by row."""
    file, public = rest.split()
    lines = []
    for row in rows_of(name):
        if (row["file"], row["public"], row["hospitals"]) == (file, public, "all"):
            gain = "" if row["row"] == "public head" else _interval(row, "gain", True)
            closed = f"{100 * float(row['gap_closed']):.0f} %" if gain else ""
            attacks = _attacks(file, public, row["row"])
            lines.append((row["row"], _interval(row, "auroc"), gain, closed, *attacks))
    heads = (
        "what leaves",
        "AUROC",
        "above the public head",
        "of the gap",
        "attack",
        "attack, all others known",
        "ceiling",
    )
    return markdown(heads, lines)


LEAVES = {
    "public head": "nothing",
    "each hospital alone": "nothing",
    "local, epsilon 1": "10 noisy numbers",
    "two keepers, epsilon 1": "two encrypted shares",
    "two keepers, epsilon 4": "two encrypted shares",
    "two keepers, exact": "two encrypted shares",
    "pooled ridge": "every scan",
}


def honest(name: str, _: str) -> str:
    """Both files at 200 public people, for the first page."""
    lines = []
    for title, leaves in LEAVES.items():
        cells = [title, leaves]
        worst = []
        for file in reversed(PEOPLE):
            place = (file, "200", "all", title)
            keys = ("file", "public", "hospitals", "row")
            row = next(r for r in rows_of(name) if tuple(r[k] for k in keys) == place)
            closed = f"{100 * float(row['gap_closed']):.0f} %"
            plain = title in ("public head", "pooled ridge")
            cells += [_interval(row, "auroc"), "" if plain else closed]
            worst.append(_attacks(file, "200", title)[:2])
        known = [max(values) for values in zip(*worst, strict=True)]
        cells.append(f"{known[0]} ({known[1]})" if known[0] else "")
        lines.append(cells)
    heads = []
    for people in reversed(PEOPLE.values()):
        heads += [f"AUROC, {people}", "of the gap"]
    return markdown(("", "leaves each hospital", *heads, "strongest attack"), lines)


def by_hospitals(name: str, rest: str) -> str:
    """Share of the gap by how many hospitals give."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows_of(name):
        if row["file"] == rest and row["public"] == "200" and "keepers" in row["row"]:
            told = f"{float(row['gain']):+.3f} ({100 * float(row['gap_closed']):.0f} %)"
            cells.setdefault(row["row"], {})[row["hospitals"]] = told
    counts = ("4", "8", "all")
    lines = [(title, *(each[k] for k in counts)) for title, each in cells.items()]
    return markdown(("what leaves", *(f"{k} hospitals" for k in counts)), lines)


def in_orders(name: str, rest: str) -> str:
    """The paper's four hospitals in all orders."""
    lines = []
    for row in rows_of(name):
        if row["file"] == rest:
            keys = (("aaa", False), ("auroc", False), ("auroc_gain", True))
            lines.append((row["row"], *(_interval(row, *key) for key in keys)))
    return markdown(("what leaves", "AAA", "AUROC", "above the public head"), lines)


def groups(name: str, rest: str) -> str:
    """AUROC by subgroup, and calibration, at 200 public people."""
    kinds = ("female", "male", "under 15", "15 and over")
    errors = {
        row["row"]: number(float(row["ece"]))
        for row in rows_of(f"{name}_attacks")
        if (row["file"], row["public"]) == (rest, "200") and row["ece"]
    }
    lines = []
    for row in rows_of(name):
        if (row["file"], row["public"], row["hospitals"]) == (rest, "200", "all"):
            inside = [number(float(row[kind])) for kind in kinds]
            lines.append((row["row"], *inside, errors.get(row["row"], "")))
    return markdown(("what leaves", *kinds, "calibration error"), lines)


def about(name: str, _: str) -> str:
    """Command, commit and machine of a spreadsheet."""
    told = json.loads((RESULTS / f"{name}.json").read_text())
    return f"`{told['command']}`; commit {told['commit'][:10]}; {told['machine']}."


def draw_sums(folder: Path) -> None:
    """What each epsilon adds, by file and number of public people: docs/images/sums.svg."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    ticks = ("1", "2", "4", "8", "exact")
    figure, panels = plt.subplots(
        2, 3, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (file, people) in zip(panels, PEOPLE.items(), strict=True):
        for panel, public in zip(axes, ("100", "200", "400"), strict=True):
            found = {
                row["row"]: row
                for row in rows_of("sums")
                if (row["file"], row["public"], row["hospitals"])
                == (file, public, "all")
            }
            for form, colour in (("two keepers", "#1b6ca8"), ("local", "#d1751f")):
                titles = [f"{form}, epsilon {e}" for e in ticks[:-1]] + [
                    f"{form}, exact"
                ]
                gain = [float(found[t]["gain"]) for t in titles]
                ends = [
                    [
                        g - float(found[t]["gain_low"])
                        for g, t in zip(gain, titles, strict=True)
                    ],
                    [
                        float(found[t]["gain_high"]) - g
                        for g, t in zip(gain, titles, strict=True)
                    ],
                ]
                panel.errorbar(
                    range(5),
                    gain,
                    ends,
                    fmt="o-",
                    ms=4,
                    capsize=2,
                    color=colour,
                    label=form,
                )
            pooled = float(found["pooled ridge"]["gain"])
            panel.axhline(pooled, color="0.3", ls="--", lw=1, label="pooled ridge")
            panel.axhline(0, color="0.6", lw=1)
            panel.set(title=f"{people}, {public} public", xticks=range(5))
            panel.set_xticklabels(ticks)
            panel.spines[["top", "right"]].set_visible(False)
    panels[0, 0].legend(fontsize=8, frameon=False, loc="upper left")
    figure.supxlabel("epsilon of each person (delta 1e-6)")
    figure.supylabel("AUROC within hospitals above the public head")
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "fcforge", "svg.fonttype": "none"}):
        plain = {"Date": None, "Creator": None}
        figure.savefig(folder / "sums.svg", metadata=plain, bbox_inches="tight")
    plt.close(figure)
