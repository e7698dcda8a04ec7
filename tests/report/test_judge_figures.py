import numpy as np
import pytest

from fcforge.report.judge_figures import edge_scatter, system_order
from fcforge.sites.made_up import atlas_of
from fcforge.studies.judge.portraits import Portrait


def test_rois_are_grouped_by_system() -> None:
    order, starts = system_order(116)
    systems = [atlas_of(116).systems[i] for i in order]
    assert sorted(order.tolist()) == list(range(116))
    changes = [i for i in range(116) if i == 0 or systems[i] != systems[i - 1]]
    assert changes == [place for _, place in starts]


def test_a_generator_of_negative_edges_stays_in_the_picture() -> None:
    square, spectrum = np.eye(3), np.ones(3)
    real = Portrait(square, square, np.array([0.1, 0.2, 0.4]), spectrum)
    below = real._replace(edge_mean=np.array([-0.9, -0.8, -0.7]))
    figure = edge_scatter({"real": real, "low": below})
    assert figure.axes[0].get_ylim() == pytest.approx((-0.95, 1.0))
