"""Every registered model keeps the contract of `fcforge.models.base`, found through the table."""

import pytest
import torch
import torch.nn.functional as F

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.models import MODELS
from small_world import make_model

R, N = 14, 6
SMALL = {
    "gcn": {"hidden": 8},
    "gat": {"hidden": 8, "heads": 2},
    "sage": {"hidden": 8},
    "graph_transformer": {"hidden": 8, "heads": 2, "coordinates": 3},
    "gae": {"hidden": 8},
    "linear": {},
    "mlp": {"hidden": 8},
    "tem": {"hidden": 8},
    "brainnetcnn": {"width": 3, "nodes": 4, "hidden": 8},
}
GRAPH_MODELS = [n for n in SMALL if n not in ("linear", "mlp", "tem", "brainnetcnn")]
parametrised = pytest.mark.parametrize(
    "model",
    [make_model(Component(n, p), R) for n, p in SMALL.items()],
    ids=lambda m: m.name,
)


def random_fc(n: int = N, rois: int = R, seed: int = 0) -> torch.Tensor:
    rng = torch_rng(seed, "fc")
    series = torch.randn(n, rois, 40, generator=rng) + torch.randn(
        n, 1, 40, generator=rng
    )
    return torch.stack([torch.corrcoef(s) for s in series])


def key(n: int) -> torch.Tensor:
    return torch.tensor(n, dtype=torch.int32)


def started(model, seed: int = 0):
    """Parameters away from zero, so that a linear model says something too."""
    params = model.init(torch_rng(seed))
    return {
        k: v + 0.05 * torch.randn(v.shape, generator=torch_rng(seed, k))
        for k, v in params.items()
    }, model.init_stats()


def objective(model):
    def loss(params, stats, inputs, y, key):
        out = model.apply(params, stats, inputs, train=True, key=key)
        return F.cross_entropy(out.logits, y), (out.logits, out.embedding, out.stats)

    return torch.func.grad(loss, has_aux=True)


def test_the_table_holds_the_papers_models_and_the_edge_models():
    assert set(MODELS) == {
        "gcn",
        "gat",
        "sage",
        "graph_transformer",
        "gae",
        "linear",
        "mlp",
        "tem",
        "brainnetcnn",
    }
    assert all(name == cls.name for name, cls in MODELS.items())
    assert set(SMALL) == set(MODELS)


@pytest.mark.parametrize(
    ("name", "depth", "dropout", "lr"),
    [
        ("gcn", 4, 0.3, 1e-3),
        ("gat", 3, 0.4, 5e-4),
        ("sage", 4, 0.3, 1e-3),
        ("graph_transformer", 3, 0.3, 5e-4),
        ("gae", 3, 0.2, 1e-3),
    ],
)
def test_sizes_are_the_papers(name, depth, dropout, lr):
    model = make_model(Component(name), 116)
    assert (model.depth, model.hidden, model.dropout, model.lr) == (
        depth,
        128,
        dropout,
        lr,
    )
    params = model.init(torch_rng(0))
    assert [params[f"head.{i}.weight"].shape for i in range(3)] == [
        (64, 256),
        (32, 64),
        (2, 32),
    ]


@parametrised
def test_shapes(model):
    params, stats = started(model)
    inputs = model.prepare(random_fc())
    assert all(v.shape[0] == N and v.dtype == torch.float32 for v in inputs.values())
    out = model.apply(params, stats, inputs)
    assert out.logits.shape == (N, 2)
    assert out.embedding.shape[0] == N
    assert model.readout_size in (0, out.embedding.shape[1])
    assert torch.isfinite(out.logits).all()
    if model.name in GRAPH_MODELS:
        assert out.embedding.shape == (N, 2 * model.hidden)
    assert all(torch.equal(out.stats[k], v) for k, v in stats.items())
    trained = model.apply(params, stats, inputs, train=True, key=key(1)).stats
    assert set(trained) == set(stats)
    assert all(not torch.equal(trained[k], v) for k, v in stats.items())


@parametrised
def test_same_seed_same_numbers(model):
    a, b = model.init(torch_rng(1)), model.init(torch_rng(1))
    assert all(torch.equal(a[k], b[k]) for k in a)
    if model.name != "linear":
        assert any(
            not torch.equal(v, a[k]) for k, v in model.init(torch_rng(2)).items()
        )
    inputs, (params, stats) = model.prepare(random_fc()), started(model)
    torch.manual_seed(0)
    first = model.apply(params, stats, inputs, train=True, key=key(3)).logits
    torch.manual_seed(1)
    again = model.apply(params, stats, inputs, train=True, key=key(3)).logits
    other = model.apply(params, stats, inputs, train=True, key=key(4)).logits
    assert torch.equal(first, again)
    assert torch.equal(first, other) is (model.name == "linear")


@pytest.mark.rounding
@parametrised
def test_a_lane_equals_the_same_call_alone(model):
    lanes = [started(model, seed) for seed in (0, 1, 2)]
    inputs = [model.prepare(random_fc(seed=s)) for s in (0, 1, 2)]
    y = torch.stack(
        [torch.arange(N) % 2, (torch.arange(N) + 1) % 2, torch.arange(N) % 2]
    )
    keys = torch.stack([key(5), key(6), key(7)])

    def pile(dicts):
        return {k: torch.stack([d[k] for d in dicts]) for k in dicts[0]}

    step = objective(model)
    grads, aux = torch.func.vmap(step)(
        pile([p for p, _ in lanes]), pile([s for _, s in lanes]), pile(inputs), y, keys
    )
    for i, (params, stats) in enumerate(lanes):
        grad_alone, aux_alone = step(params, stats, inputs[i], y[i], keys[i])
        for name, g in grad_alone.items():
            assert torch.allclose(grads[name][i], g, atol=1e-5), name
        for together, alone in zip(aux[:2], aux_alone[:2], strict=True):
            assert torch.allclose(together[i], alone, atol=1e-5)
        for name, value in aux_alone[2].items():
            assert torch.allclose(aux[2][name][i], value, atol=1e-5), name


@pytest.mark.rounding
@parametrised
def test_func_grad_equals_autograd_and_reaches_every_parameter(model):
    params, stats = started(model)
    inputs, y = model.prepare(random_fc()), torch.arange(N) % 2
    grads, _ = objective(model)(params, stats, inputs, y, key(1))
    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    out = model.apply(leaves, stats, inputs, train=True, key=key(1))
    F.cross_entropy(out.logits, y).backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None, name
        assert torch.allclose(grads[name], leaf.grad, atol=1e-6), name


@parametrised
def test_subjects_do_not_touch_each_other_in_eval(model):
    params, stats = started(model)
    fc = random_fc()
    together = model.apply(params, stats, model.prepare(fc)).logits
    alone = model.apply(params, stats, model.prepare(fc[2:3])).logits
    assert torch.allclose(together[2:3], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gae"])
def test_relabelling_rois_changes_nothing_once_the_input_weights_are_relabelled(name):
    """Q FC Q^T permutes nodes and feature columns; columns are undone in the first weight."""
    model = make_model(Component(name, SMALL[name]), R)
    params, stats = started(model)
    fc = random_fc()
    order = torch.randperm(R, generator=torch_rng(9))
    moved = fc[:, order][:, :, order]
    relabelled = dict(params)
    for weight in ("conv0.weight", "conv0.root"):
        if weight in params:
            relabelled[weight] = params[weight][:, order]
    a = model.apply(params, stats, model.prepare(fc))
    b = model.apply(relabelled, stats, model.prepare(moved))
    assert torch.allclose(a.embedding, b.embedding, atol=1e-5)
    assert torch.allclose(a.logits, b.logits, atol=1e-5)
    assert not torch.allclose(
        a.logits, model.apply(params, stats, model.prepare(moved)).logits, atol=1e-4
    )


@pytest.mark.parametrize("name", GRAPH_MODELS)
def test_a_graph_without_edges_and_a_flat_roi_give_finite_numbers(name):
    model = make_model(Component(name, {**SMALL[name], "tau": 0.99}), R)
    params, stats = started(model)
    fc = random_fc()
    fc[:, 3], fc[:, :, 3] = 0.0, 0.0
    grads, aux = objective(model)(
        params, stats, model.prepare(fc), torch.arange(N) % 2, key(1)
    )
    assert torch.isfinite(aux[0]).all()
    assert all(torch.isfinite(g).all() for g in grads.values())


@parametrised
def test_a_few_steps_of_gradient_descent_fit_a_batch(model):
    params, stats = started(model)
    inputs, y = model.prepare(random_fc()), torch.arange(N) % 2
    before = F.cross_entropy(model.apply(params, stats, inputs).logits, y)

    def loss(p):
        return F.cross_entropy(model.apply(p, stats, inputs).logits, y)

    rate = 1e-3 if model.name == "linear" else 2e-2
    for _ in range(40):
        grads = torch.func.grad(loss)(params)
        params = {k: v - rate * grads[k] for k, v in params.items()}
    assert loss(params) < before


def test_an_unknown_model_or_parameter_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'gnc'.*'gcn'"):
        make_model(Component("gnc"), R)
    with pytest.raises(ConfigError, match=r"'hiden'\. Did you mean 'hidden'\?"):
        make_model(Component("gat", {"hiden": 3}), R)
    with pytest.raises(ConfigError, match=r"'gcn'.*'n_rois'"):
        make_model(Component("gcn", {"n_rois": 3}), R)


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("gcn", {"edges": "negative"}, "edges = 'negative'"),
        ("linear", {"features": "negative"}, "features = 'negative'"),
        ("gcn", {"dropout": 1.0}, "dropout = 1.0"),
        ("gcn", {"hidden": 0}, "hidden = 0"),
        ("gcn", {"depth": 2.5}, "depth = 2.5"),
        ("gat", {"heads": 3}, "multiple of heads"),
        ("graph_transformer", {"heads": 0}, "heads = 0"),
        ("mlp", {"dropout": "much"}, "is not a number"),
    ],
)
def test_bad_settings_are_one_clear_error(name, params, says):
    with pytest.raises(ConfigError, match=says) as caught:
        make_model(Component(name, params), R)
    assert f"model '{name}'" in str(caught.value)
