"""Recompute published numbers from paper/results with numpy alone.

    python paper/benchmarks/independent_check.py            # 40 numbers of the pages of results
    python paper/benchmarks/independent_check.py --number 5

It imports nothing of fcforge and nothing of the other scripts here. It reads the tables of
docs/results, takes AAA, AUROC, FM or FOR of rows spread over all pages, decodes the stored scores of
those learners, computes the number by its definition and compares. The encoding is that of the
docstring of scores.py, written down anew. Exit status 1: a number differs.
"""

import argparse
import itertools
import json
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results"
COLUMNS = {"AAA": "aaa", "AUROC": "auroc", "FM": "fm", "FOR": "for"}
CONFIG = re.compile(r"Config `paper/experiments/(\w+)\.toml`")
LARGEST_LOGIT = np.log((1 - 1e-8) / 1e-8)


def decode(codes, grades):
    """Return the probabilities of integer codes; a grade of k halves the largest logit k/8 times."""
    m = 63 if codes.dtype == np.int8 else 32767
    z_max = LARGEST_LOGIT / 2 ** (grades / 8)
    q = codes.astype(float)
    q[codes == np.iinfo(codes.dtype).min] = np.nan
    share = (np.abs(q) - 0.5) / m * z_max / (z_max + 2)
    z = np.where(q == 0, 0, np.sign(q) * 2 * share / (1 - share))
    return 1 / (1 + np.exp(-z))


def auroc(p, y):
    """Return the share of (patient, control) pairs in the right order; ties count half."""
    gap = p[y == 1][:, None] - p[y == 0][None, :]
    if gap.size == 0:
        return np.nan
    return ((gap > 0).sum() + 0.5 * (gap == 0).sum()) / gap.size


def accuracy(p, y):
    """Return the share of people on the right side of one half."""
    return ((p > 0.5) == (y == 1)).mean()


class Table:
    """Stored scores of a table, decoded."""

    def __init__(self, path):
        """Read the file and decode the scores of every seed."""
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.about = json.loads(self.arrays["about"].tobytes())
        experiment = self.about["experiment"]
        self.titles = [learner["title"] for learner in experiment["learners"]]
        counts = self.arrays["test_count"].astype(int)
        self.scores, self.y, self.cuts = [], [], []
        code = grade = person = 0
        for seed, sizes in enumerate(counts):
            mine = self.arrays["run_seed"] == seed
            n_stages = int(self.arrays["run_stages"][mine].max()) + 1
            n = int(sizes.sum())
            codes = self.arrays["codes"][code : code + n * n_stages]
            grades = self.arrays["grades"][grade : grade + len(sizes) * n_stages]
            code += n * n_stages
            grade += len(sizes) * n_stages
            of_person = np.repeat(grades.reshape(len(sizes), -1), sizes, axis=0)
            self.scores.append(decode(codes.reshape(n, n_stages), of_person))
            self.y.append(self.arrays["test_y"][person : person + n].astype(int))
            self.cuts.append(np.concatenate([[0], np.cumsum(sizes)]))
            person += n

    def matrices(self, learner, metric):
        """Yield for every run the metric after each stage (rows) on each site in its order."""
        wanted = self.titles.index(learner)
        for run in np.flatnonzero(self.arrays["run_learner"] == wanted):
            seed = int(self.arrays["run_seed"][run])
            order = [s for s in self.arrays["run_order"][run] if s >= 0]
            stages = self.arrays["run_stages"][run][1 : len(order) + 1]
            yield np.array(
                [[self._cell(seed, t, s, metric) for s in order] for t in stages]
            )

    def _cell(self, seed, stage, site, metric):
        part = slice(self.cuts[seed][site], self.cuts[seed][site + 1])
        return metric(self.scores[seed][part, stage], self.y[seed][part])

    def number(self, learner, column):
        """Return one number of a learner, averaged over its runs."""
        metric = auroc if column == "auroc" else accuracy
        values = [SUMMARIES[column](a) for a in self.matrices(learner, metric)]
        return float(np.mean(values))


def average_along_the_way(a):
    """Return the mean over stages of the mean over the sites learned so far.

    A site that tests people of one diagnosis only has no AUROC and is left out.
    """
    stages = [a[t, : t + 1] for t in range(len(a))]
    stages = [row[~np.isnan(row)] for row in stages]
    return np.mean([row.mean() for row in stages if len(row)])


def forgetting(a):
    """Return Chaudhry's forgetting: the best earlier value of a site minus its last, averaged."""
    last = len(a) - 1
    return np.mean([a[j:last, j].max() - a[last, j] for j in range(last)])


def forgetting_of_the_paper(a):
    """Return the paper's FOR: mean over all sites of the best value before the last stage minus the last."""
    return np.mean(a[:-1].max(axis=0) - a[-1])


SUMMARIES = {
    "aaa": average_along_the_way,
    "auroc": average_along_the_way,
    "fm": forgetting,
    "for": forgetting_of_the_paper,
}


def published(pages):
    """Yield (table, learner, column, value) of every row of the tables of results."""
    for page in sorted(pages):
        name, heads = None, []
        for line in page.read_text().splitlines():
            if found := CONFIG.search(line):
                name, heads = found[1], []
            elif line.startswith("| learner |"):
                heads = [h.strip().split(" [")[0] for h in line.strip("|").split("|")]
            elif not line.startswith("|"):
                heads = []
            elif name and heads and not line.startswith("|---"):
                cells = [c.strip() for c in line.strip("|").split("|")]
                for head, cell in zip(heads, cells, strict=False):
                    if head in COLUMNS and cell:
                        text = cell.split(" [")[0].replace("\N{MINUS SIGN}", "-")
                        yield name, cells[0], COLUMNS[head], float(text)


@cache
def has_two_classes(name):
    """Return whether a table's scores are probabilities of two classes."""
    with np.load(RESULTS / f"{name}.npz") as file:
        return "codes" in file.files


def spread(items, n, first):
    """Return n items at equal distances, shifted by `first`."""
    places = np.linspace(0, len(items) - 1, min(n, len(items))).round().astype(int)
    return [items[(k + first) % len(items)] for k in places]


def main():
    """Compare and print; return 1 if a number differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=40, help="how many numbers")
    args = parser.parse_args()
    every = [
        found
        for found in published((ROOT / "docs" / "results").glob("*.md"))
        if not found[1].startswith("majority class") and has_two_classes(found[0])
    ]
    # by column in turn, so that each kind of number is checked on each page
    by_column = [[f for f in every if f[2] == key] for key in COLUMNS.values()]
    chosen = [
        found
        for first, part in enumerate(by_column)
        for found in spread(part, -(-args.number // len(COLUMNS)), 3 * first)
    ]
    wrong = 0
    for name, rows in itertools.groupby(sorted(chosen), key=lambda f: f[0]):
        table = Table(RESULTS / f"{name}.npz")
        for _, learner, column, value in rows:
            ours = table.number(learner, column)
            near = abs(ours - value) < 0.00051
            wrong += not near
            sign = "" if near else "   DIFFERS"
            print(f"{name:24} {learner:32} {column:6} {value:.3f} {ours:.4f}{sign}")
    print(f"{len(chosen)} published numbers recomputed, {wrong} differ.")
    return int(wrong > 0 or len(chosen) < args.number)


if __name__ == "__main__":
    sys.exit(main())
