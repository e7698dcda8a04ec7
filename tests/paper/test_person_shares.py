"""What people add to a run sums to its average along the way."""

import person_shares
import pytest

from fake_runs import fake_learner
from fcforge.evaluation.forgetting import summary


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_what_people_add_makes_the_average_along_the_way(metric):
    for one in fake_learner("a", skill=1.1)[:3]:
        added = person_shares.shares(one, metric)
        assert sum(added.values()) == pytest.approx(summary(one, metric)["aaa"])
        assert len(added) == sum(len(ids) for ids in one.subject_ids.values())
