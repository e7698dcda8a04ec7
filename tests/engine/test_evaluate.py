"""The evaluator: P(patient) of every test subject of every site, from the test splits alone."""

import numpy as np
import torch

from fcforge.engine import Evaluator
from fcforge.sites import make_sites
from small_world import World, cohort, order


def test_scores_are_the_networks_probabilities_of_all_sites():
    world = World.of("finetune").teach(order()[:1])
    sites = make_sites(cohort(), 0)
    found = Evaluator(sites, world.learner).scores(world.lane)
    assert list(found) == list(sites)
    model = world.learner.model
    for name, site in sites.items():
        logits = model.apply(
            world.lane.params, world.lane.stats, model.prepare(site.test.fc)
        ).logits
        expected = torch.sigmoid(logits[:, 1] - logits[:, 0]).numpy()
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)
        assert found[name].dtype == np.float32


def test_only_the_oracle_is_told_the_site():
    world = World.of("packnet", {"route": "oracle"}).teach(order()[:2])
    sites = make_sites(cohort(), 0)
    oracle = Evaluator(sites, world.learner).scores(world.lane)
    method, model = world.learner.method, world.learner.model
    first = order()[0]
    inputs = model.prepare(sites[first].test.fc)
    blind = torch.softmax(method.logits(model, world.lane, inputs), -1)[:, 1].detach().numpy()
    assert not np.allclose(oracle[first], blind)


def test_peek_hands_out_one_sites_test_split():
    world = World.of("finetune")
    sites = make_sites(cohort(), 0)
    _, y = Evaluator(sites, world.learner).peek(order()[1])
    assert torch.equal(y, sites[order()[1]].test.y)
