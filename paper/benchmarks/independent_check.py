"""Recompute published numbers from paper/results with numpy alone.

    python paper/benchmarks/independent_check.py    # 40 numbers of the pages of results, 48 of sums
    python paper/benchmarks/independent_check.py --number 5 --sums 10 --orders 3

It imports nothing of fcforge and nothing of the other scripts here. It reads the tables of
docs/results, takes AAA, AUROC, FM or FOR of rows spread over all pages, decodes the stored scores of
those learners, computes the number by its definition and compares. The encoding is that of the
docstring of scores.py, written down anew. The tables of docs/results/sums.md are recomputed from
sums.npz and sums_attacks.npz in the same way (docstring of sums_scores.py): all columns but the
intervals and the ceiling. So are those of the four hospitals in all orders, from four_hospitals.npz
(docstring of four_hospitals_scores.py), with their intervals. Exit status 1: a number differs.
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


class Sums:
    """Stored scores of one cell of sums.npz or sums_attacks.npz."""

    def __init__(self, path, file, public, hospitals=None):
        """Read the arrays of one data file, number of public people and number of hospitals."""
        with np.load(path) as stored:
            self.about = json.loads(stored["about"].tobytes())
            wanted = {"file": file, "public": public, "hospitals": hospitals}
            cells = self.about["cells"]
            (c,) = (k for k, x in enumerate(cells) if x | wanted == x)
            f = self.about["files"].index(file)
            self.columns = cells[c]["columns"]
            self.y, self.site = stored[f"y_{f}"], stored[f"site_{f}"]
            self.groups = stored[f"groups_{f}"] == 1
            self.roles = stored[f"roles_{c}"]
            self.arrays = {
                name: stored[f"{name}_{c}"]
                for name in ("ranks", "chance", "order")
                if f"{name}_{c}" in stored.files
            }

    def aurocs(self, row, group=None):
        """Return the AUROC within hospitals of every partition, of all people or those of a group."""
        begin = 0
        for title, draws in self.columns:
            if title == row:
                mine = slice(begin, begin + draws)
            begin += draws
        chosen = np.full(len(self.y), True)
        if group is not None:
            chosen = self.groups[self.about["groups"].index(group)]
        values = []
        done = 0
        for roles in self.roles:
            test = np.flatnonzero(roles == 3)
            ranks = self.arrays["ranks"][done : done + len(test), mine].astype(int)
            done += len(test)
            won = pairs = 0
            for site in np.unique(self.site[test]):
                here = (self.site[test] == site) & chosen[test]
                y = self.y[test][here]
                gap = ranks[here][y == 1][:, None] - ranks[here][y == 0][None, :]
                won += ((gap > 0) + 0.5 * (gap == 0)).mean(axis=2).sum()
                pairs += gap.shape[0] * gap.shape[1]
            # a group with at most 20 pairs in a partition is left out there
            values.append(won / pairs if group is None or pairs > 20 else np.nan)
        return np.array(values)

    def worth(self, row, column):
        """Return one number of a row of the curve, as it is printed."""
        if column == "auroc":
            return self.aurocs(row).mean()
        if column in self.about["groups"]:
            return np.nanmean(self.aurocs(row, column))
        head = self.aurocs(ALONE).mean()
        gain = self.aurocs(row).mean() - head
        if column == "gain":
            return gain
        return 100 * gain / (self.aurocs("pooled ridge").mean() - head)

    def calibration(self, row):
        """Return the expected calibration error over ten bins, averaged over partitions."""
        rows = [ALONE, *dict.fromkeys(title for title, _, _ in self.columns)]
        values = []
        done = 0
        for roles in self.roles:
            y = self.y[roles == 3].astype(int)
            part = self.arrays["chance"][done : done + len(y), rows.index(row)]
            done += len(y)
            p = part / (2**32 - 1)
            bins = np.minimum(np.floor(10 * p), 9)
            off = [abs((p - y)[bins == b].sum()) for b in range(10)]
            values.append(sum(off) / len(y))
        return np.mean(values)

    def attack(self, row, wanted):
        """Return the AUC of an attack on a row, averaged over partitions and draws."""
        values = []
        done = bits_done = 0
        for roles in self.roles:
            inside = roles[roles >= 2] == 2
            n = len(inside)
            ranks = self.arrays["ranks"][done : done + n].astype(int)
            done += n
            k = 0
            for title, attack, draws in self.columns:
                if draws == 1:
                    areas = [auroc(ranks[:, k], inside)]
                    k += 1
                else:
                    size = draws * -(-n // 8)
                    packed = self.arrays["order"][bits_done : bits_done + size]
                    bits_done += size
                    if (title, attack) == (row, wanted):
                        bits = np.unpackbits(packed.reshape(draws, -1), axis=1)[:, :n]
                        areas = [auroc(np.arange(n), b) for b in bits]
                if (title, attack) == (row, wanted):
                    values.append(np.mean(areas))
        return np.mean(values) if values else np.nan


class Orders:
    """Stored scores of one data file in four_hospitals.npz."""

    def __init__(self, path, file):
        """Read the arrays of one data file."""
        with np.load(path) as stored:
            self.about = json.loads(stored["about"].tobytes())
            f = self.about["files"].index(file)
            self.y, self.site = stored[f"y_{f}"], stored[f"site_{f}"]
            self.tested = stored[f"tested_{f}"] == 1
            self.ranks = [
                stored[f"ranks_{f}_{r}"] for r in range(len(self.about["rows"]))
            ]

    def values(self, row):
        """Return AAA over all 24 orders and AUROC at the end, (seeds, 2), averaged over draws."""
        ranks = self.ranks[self.about["rows"].index(row)].astype(int)
        n_sites = len(self.about["sites"])
        sets = [
            chosen
            for size in range(1, n_sites + 1)
            for chosen in itertools.combinations(range(n_sites), size)
        ]
        values = []
        done = 0
        for tested in self.tested:
            y, site = self.y[tested], self.site[tested]
            mine = ranks[done : done + len(y)]
            done += len(y)
            stages, last = [], []
            for draw in range(ranks.shape[2]):
                for order in itertools.permutations(range(n_sites)):
                    for stage in range(1, n_sites + 1):
                        seen = order[:stage]
                        part = mine[:, sets.index(tuple(sorted(seen))), draw]
                        right = [
                            ((part > 0) == (y == 1))[site == s].mean() for s in seen
                        ]
                        stages.append(np.mean(right))
                areas = [
                    auroc(mine[site == s, -1, draw], y[site == s])
                    for s in range(n_sites)
                ]
                last.append(np.mean(areas))
            values.append([np.mean(stages), np.mean(last)])
        return np.array(values)

    def number(self, row, column):
        """Return the mean over seeds of a column, and both ends of its 95 % interval."""
        aaa, area = self.values(row).T
        values = {"AAA": aaa, "AUROC": area}
        if column == HEAD:
            values[HEAD] = area - self.values(ALONE)[:, 1]
        of_seeds = values[column]
        half = 1.96 * of_seeds.std(ddof=1) / np.sqrt(len(of_seeds))
        return of_seeds.mean() + half * np.array([0, -1, 1])


ALONE = "base model alone"
HEAD = f"above the {ALONE}"
WORTH = {"AUROC": "auroc", HEAD: "gain", "of the gap": "gap"}
GROUPS = ("female", "male", "under 15", "15 and over")
KNOWING = {
    "attack": ("public covariance", "everybody known"),
    "attack, all others known": ("all others known",),
}


def marked_cells(page, name):
    """Yield (words of the marker, row, column, cell) of the tables of one spreadsheet."""
    words, heads = None, []
    for line in page.read_text().splitlines():
        if line.startswith("<!-- "):
            words, heads = line.split()[2:-1], []
        elif words and words[0] == name and line.startswith("| what leaves"):
            heads = [h.strip() for h in line.strip("|").split("|")]
        elif heads and line.startswith("| "):
            row, *cells = (c.strip() for c in line.strip("|").split("|"))
            for head, cell in zip(heads[1:], cells, strict=True):
                if cell:
                    yield words, row, head, cell


def published_sums(page):
    """Yield (file, public, hospitals, row, column, printed) of the tables of sums."""
    for words, row, head, cell in marked_cells(page, "sums"):
        if head == "ceiling":
            continue
        public, hospitals = int(words[3]) if len(words) > 3 else 200, None
        column, text = head, cell.split(" [")[0]
        if words[1] == "by_hospitals":
            column = HEAD
            count = head.split()[0]
            hospitals = None if count == "all" else int(count)
            text = cell.split(" (")[0]
        yield words[2], public, hospitals, row, column, text


def published_orders(page):
    """Yield (file, row, column, [value, low, high] as printed) of the four hospitals in all orders."""
    for words, row, head, cell in marked_cells(page, "four_hospitals"):
        yield (
            words[2],
            row,
            head,
            cell.replace("[", "").replace(",", "").strip("]").split(),
        )


def recomputed_sum(file, public, hospitals, row, column):
    """Return a number of the tables of sums from the stored scores."""
    if column in WORTH or column in GROUPS:
        cell = Sums(RESULTS / "sums.npz", file, public, hospitals)
        return cell.worth(row, WORTH.get(column, column))
    cell = Sums(RESULTS / "sums_attacks.npz", file, public)
    if column == "calibration error":
        return cell.calibration(row)
    return np.nanmax([cell.attack(row, name) for name in KNOWING[column]])


def by_column(every, place, number):
    """Return about `number` of the published numbers, as many of every column; `place` is the column's."""
    columns = list(dict.fromkeys(found[place] for found in every))
    parts = [[f for f in every if f[place] == column] for column in columns]
    share = -(-number // len(columns))
    return [
        f for first, part in enumerate(parts) for f in spread(part, share, 2 * first)
    ]


def differs(where, row, column, text, ours):
    """Print a printed number beside the recomputed one; return whether they differ."""
    value = float(text.replace("\N{MINUS SIGN}", "-").removesuffix(" %"))
    digits = len(text.partition(".")[2]) if "." in text else 0
    far = not abs(ours - value) < 0.51 * 10**-digits
    sign = "   DIFFERS" if far else ""
    print(f"{where:36} {row:26} {column:26} {text:>7} {ours:.4f}{sign}")
    return far


def check_sums(number):
    """Recompute numbers of docs/results/sums.md; return how many were compared and how many differ.

    Every column has its share of `number`; with a large one all are compared.
    """
    every = list(published_sums(ROOT / "docs" / "results" / "sums.md"))
    chosen = by_column(every, 4, number)
    wrong = 0
    for file, public, hospitals, row, column, text in chosen:
        ours = recomputed_sum(file, public, hospitals, row, column)
        where = f"{file} {public} {hospitals or 'all'}"
        wrong += differs(where, row, column, text, ours)
    return len(chosen), wrong


def check_orders(number):
    """Recompute the four hospitals in all orders as `check_sums` does; an interval is two numbers more."""
    every = list(published_orders(ROOT / "docs" / "results" / "sums.md"))
    chosen = by_column(every, 2, -(-number // 3))
    wrong = 0
    for file, row, column, texts in chosen:
        ours = Orders(RESULTS / "four_hospitals.npz", file).number(row, column)
        for text, value in zip(texts, ours, strict=True):
            wrong += differs(file, row, column, text, value)
    return 3 * len(chosen), wrong


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
    parser.add_argument("--sums", type=int, default=30, help="how many of sums")
    parser.add_argument(
        "--orders", type=int, default=18, help="how many of four hospitals"
    )
    args = parser.parse_args()
    every = [
        found
        for found in published((ROOT / "docs" / "results").glob("*.md"))
        if not found[1].startswith("majority class") and has_two_classes(found[0])
    ]
    # by column in turn, so that each kind of number is checked on each page
    parts = [[f for f in every if f[2] == key] for key in COLUMNS.values()]
    chosen = [
        found
        for first, part in enumerate(parts)
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
    n = len(chosen)
    too_few = n < args.number
    for check, asked in ((check_sums, args.sums), (check_orders, args.orders)):
        compared, differing = check(asked) if asked else (0, 0)
        n, wrong = n + compared, wrong + differing
        too_few = too_few or compared < bool(asked)
    print(f"{n} published numbers recomputed, {wrong} differ.")
    return int(wrong > 0 or too_few)


if __name__ == "__main__":
    sys.exit(main())
