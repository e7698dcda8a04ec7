"""Figures of docs/images show the numbers of paper/results/."""

import pytest
from sums_tables import PEOPLE, at
from table_figures import PARTS, draw_sums, draw_worth, save


@pytest.fixture(scope="module")
def worth():
    return draw_worth()


@pytest.mark.parametrize("panel", [0, 1])
def test_every_bar_ends_at_its_row_or_at_the_sum_without_noise(worth, panel):
    rows = at(list(PEOPLE)[panel], "200")
    best = float(rows["two aggregators, exact"]["auroc"])
    for line, title in enumerate(PARTS):
        bars = [
            bar
            for bar in worth.axes[panel].patches
            if bar.get_y() == pytest.approx(line - 0.4)
        ]
        ends = [bar.get_x() + bar.get_width() for bar in bars]
        reached = float(rows[title]["auroc"])
        together = title.startswith("two aggregators")
        head = float(rows["base model alone"]["auroc"])
        wanted = [head, reached, best] if together else [reached]
        assert ends == pytest.approx(wanted, abs=2e-5), title


def test_pictures_are_the_same_when_drawn_again(tmp_path, worth):
    save({"worth": worth, "sums": draw_sums()}, tmp_path / "one")
    save({"worth": draw_worth(), "sums": draw_sums()}, tmp_path / "two")
    for name in ("worth.svg", "sums.svg"):
        drawn = (tmp_path / "one" / name).read_bytes()
        assert len(drawn) > 10_000
        assert drawn == (tmp_path / "two" / name).read_bytes()
