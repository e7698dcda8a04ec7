"""Keys of runs: they hold what changes numbers, and survive a new setting with a default.

After a new setting, or a changed default with its raised `defaults_version`, write the pins anew:
``python tests/experiments/test_run_keys.py``.
"""

import json
import sys
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import fcforge
import fcforge_consortium
from fcforge.base_model.model import BaseModelSettings
from fcforge.core.component import Component
from fcforge.core.identity import defaults_of, digest, identity, settings_identity
from fcforge.core.leaks import Leaks
from fcforge.core.settings import Checked
from fcforge.core.spec import BaseModelSpec, LearnerSpec, RunSpec, Training
from fcforge.experiments import run_keys
from fcforge.experiments.pipelines import Pipeline
from fcforge.experiments.run_keys import keys_of_specs, run_key
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.models.torch_module import TorchModule
from fcforge.replay.bandit import Bandit
from fcforge.replay.hcts import HCTS
from fcforge_consortium.base_model.space import SpaceSettings

SPEC = RunSpec(
    dataset=Component("folder", {"path": "/a/b.npz"}),
    learner=LearnerSpec(
        Component("ewc", {"strength": 10.0}),
        Component("gcn"),
        Component("corr_gauss"),
        "mine",
    ),
    order=("A", "B", "C"),
    seed=3,
    training=Training(epochs=4),
    leaks=Leaks(select_on_test=True),
    data_sha256="abc",
)


def test_key_leaves_out_what_changes_no_number():
    relabelled = replace(SPEC, learner=replace(SPEC.learner, title="yours"))
    moved = replace(SPEC, dataset=Component("folder", {"path": "/elsewhere.npz"}))
    assert run_key(relabelled) == run_key(moved) == run_key(SPEC)
    # without the hash of the content the place is all that is known
    assert run_key(replace(moved, data_sha256="")) != run_key(
        replace(SPEC, data_sha256="")
    )


CHANGES = {
    "learner": replace(SPEC.learner, method=Component("ewc", {"strength": 11.0})),
    "order": ("B", "A", "C"),
    "seed": 4,
    "training": Training(epochs=5),
    "protocol": "paper",
    "leaks": Leaks(),
    "test_fraction": 0.4,
    "folds": 5,
    "visits": 2,
    "val_fraction": 0.1,
    "confounds": ("age",),
    "base_model": BaseModelSpec(Component("folder", {"path": "x"})),
    "data_sha256": "abd",
    "left_out": 0,
}


@pytest.mark.parametrize("field", [*CHANGES])
def test_key_holds_all_that_changes_numbers(field):
    assert run_key(replace(SPEC, **{field: CHANGES[field]})) != run_key(SPEC)


def test_every_field_of_a_spec_is_covered_above():
    assert {*CHANGES, "dataset", "own_threshold"} == set(asdict(SPEC))


def test_more_runs_do_not_rename_those_that_are_there():
    assert run_key(replace(SPEC, own_threshold=True)) == run_key(SPEC)


def test_prefixes_of_different_orders_have_equal_keys():
    other = replace(SPEC, order=("A", "B", "D"))
    assert run_key(other.prefix(2)) == run_key(SPEC.prefix(2))
    assert run_key(other) != run_key(SPEC)
    # names are not glued together
    assert run_key(replace(SPEC, order=("AB",))) != run_key(
        replace(SPEC, order=("A", "B"))
    )


def test_a_default_that_is_stated_changes_no_key():
    def spec(params: dict[str, Any], model: dict[str, Any]) -> RunSpec:
        learner = replace(SPEC.learner, method=Component("ewc", params))
        return replace(SPEC, learner=replace(learner, model=Component("gcn", model)))

    default = defaults_of(METHODS["ewc"])["strength"]
    hidden = defaults_of(MODELS["gcn"])["hidden"]
    stated = spec({"strength": default}, {"hidden": hidden})
    assert run_key(stated) == run_key(spec({}, {}))
    assert run_key(spec({"strength": 7.0}, {})) == run_key(spec({"strength": 7}, {}))


def test_features_that_the_method_chooses_are_told_from_the_default_of_the_model():
    """`build_learner` gives an edge model the features of its method unless it has its own."""
    default = defaults_of(MODELS["linear"])["features"]
    names = [n for n, m in METHODS.items() if m.features not in ("", default)]
    assert names, "no method chooses other features than those of the model"
    for name in names:
        chosen, stated = (
            replace(
                SPEC, learner=LearnerSpec(Component(name), Component("linear", params))
            )
            for params in ({}, {"features": default})
        )
        assert run_key(chosen) != run_key(stated)


# -- a new setting renames nothing -------------------------------------------------------------
REGISTRIES: dict[str, dict[str, type[Any]]] = {
    "method": METHODS,
    "model": MODELS,
    "generator": GENERATORS,
}
OTHERS = (
    Training,
    Leaks,
    RunSpec,
    BaseModelSettings,
    SpaceSettings,
    Pipeline,
    TorchModule,
)
REGISTERED = [(kind, name) for kind, table in REGISTRIES.items() for name in table]


def with_new_setting(cls: type[Any], default: Any = 1.5) -> type[Any]:
    """A class of the same name with one more setting."""
    new = ("brand_new", float, field(default=default, kw_only=True))
    own = {"name": cls.name} if hasattr(cls, "name") else {}
    if "former_name" in vars(cls):
        own["former_name"] = cls.former_name
    return make_dataclass(cls.__name__, [new], bases=(cls,), frozen=True, namespace=own)


def learner_with(kind: str, name: str, **params: Any) -> LearnerSpec:
    return replace(SPEC.learner, **{kind: Component(name, params)})


@pytest.mark.parametrize(("kind", "name"), REGISTERED)
def test_a_new_setting_of_a_registered_class_renames_no_run(kind, name, monkeypatch):
    spec = replace(SPEC, learner=learner_with(kind, name))
    before = run_key(spec)
    monkeypatch.setitem(
        REGISTRIES[kind], name, with_new_setting(REGISTRIES[kind][name])
    )
    run_keys.learner_identity.cache_clear()
    try:
        assert run_key(spec) == before
        used = replace(SPEC, learner=learner_with(kind, name, brand_new=2.0))
        assert run_key(used) != before
        stated = replace(SPEC, learner=learner_with(kind, name, brand_new=1.5))
        assert run_key(stated) == before
    finally:
        run_keys.learner_identity.cache_clear()


def test_a_new_setting_of_training_leaks_or_run_renames_no_run():
    extended = {
        "training": with_new_setting(Training)(epochs=4),
        "leaks": with_new_setting(Leaks)(select_on_test=True),
    }
    for name, value in extended.items():
        assert run_key(replace(SPEC, **{name: value})) == run_key(SPEC)
        changed = replace(value, brand_new=2.0)
        assert run_key(replace(SPEC, **{name: changed})) != run_key(SPEC)
    new = with_new_setting(RunSpec)
    values = {name: getattr(SPEC, name) for name in (f.name for f in fields(RunSpec))}
    assert run_key(new(**values)) == run_key(SPEC)
    assert run_key(new(**values, brand_new=2.0)) != run_key(SPEC)


@pytest.mark.parametrize("cls", [BaseModelSettings, SpaceSettings, Pipeline])
def test_a_new_setting_of_other_classes_changes_no_identity(cls):
    params = {"estimator": "a:b", "keeps": "cumulative"} if cls is Pipeline else {}
    new = with_new_setting(cls)
    assert identity(new(**params)) == identity(cls(**params))
    assert settings_identity(new, params, "") == settings_identity(cls, params, "")


# -- a changed default renames everything that relies on it --------------------------------------
PINS = Path(__file__).with_name("pinned_defaults.json")
# of a class, not of its fields
CLASS_SETTINGS = ("lr", "features", "presets", "betas", "attention_bias", "dense_bias")
SAMPLERS = {f"sampler {word}": cls for word, cls in HCTS.variants.items()}
BANDITS = {f"bandit {cls.__name__}": cls for cls in (Bandit, *Bandit.__subclasses__())}


def settings_classes() -> dict[str, type[Any]]:
    """All classes whose defaults decide numbers, by a name for the pins."""
    found = {}
    for kind, name in REGISTERED:
        cls = REGISTRIES[kind][name]
        found[f"{kind} {name}"] = cls
        for variant, chosen in getattr(cls, "variants", {}).items():
            found[f"{kind} {name} {variant}"] = chosen
    for name, cls in list(found.items()):
        for variant, other in getattr(cls, "variants", {}).items():
            if other is not cls:
                found[f"{name} {variant}"] = other
    found |= SAMPLERS | BANDITS
    return found | {cls.__name__: cls for cls in OTHERS}


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=repr))


def pins_of(cls: type[Any]) -> dict[str, Any]:
    own = {name: getattr(cls, name) for name in CLASS_SETTINGS if hasattr(cls, name)}
    defaults = {"defaults": plain(defaults_of(cls)), "class": plain(own)}
    return {"defaults_version": getattr(cls, "defaults_version", 1), **defaults}


def fault(cls: type[Any], pinned: dict[str, Any]) -> str:
    """Why a class does not agree with what is pinned; empty if it does."""
    now = pins_of(cls)
    if now == pinned:
        return ""
    for part in ("defaults", "class"):
        both = now[part].keys() & pinned[part].keys()
        changed = [name for name in both if now[part][name] != pinned[part][name]]
        if changed and now["defaults_version"] <= pinned["defaults_version"]:
            return f"default of {changed[0]} changed: raise defaults_version"
    return f"write the pins anew: python {Path(__file__).name}"


@pytest.mark.parametrize("name", settings_classes())
def test_defaults_are_those_that_are_pinned(name):
    pinned = json.loads(PINS.read_text())
    assert name in pinned, f"write the pins anew: python {Path(__file__).name}"
    assert not fault(settings_classes()[name], pinned[name])


UNPINNED = {  # settings classes whose defaults are in no run's key, and why
    "BaseModelTable": "table of a config: becomes fields of a run",
    "ConfoundsTable": "table of a config: becomes fields of a run",
    "SplitTable": "table of a config: becomes fields of a run",
    "EvaluationTable": "table of a config: decides tables, not runs",
    "LearnerDefaults": "table of a config: becomes learners",
    "ConfigTables": "the tables of a config",
    "Experiment": "becomes runs",
    "JudgeConfig": "config of fcforge judge, which stores no runs",
    "Panel": "of fcforge judge",
    "SiteSettings": "of an estimator",
    "ChainSettings": "of a chain, whose first record states all of them",
}


def is_of_the_package(cls: type[Any]) -> bool:
    """Whether a module of ours defines the class, other than a function that wraps a user's network.

    Other tests of the process import networks that way, and each is a subclass that stays.
    """
    if not cls.__module__.startswith("fcforge"):
        return False
    place: Any = sys.modules[cls.__module__]
    for name in cls.__qualname__.split("."):
        place = getattr(place, name, None)
    return place is cls


def test_every_settings_class_is_pinned_or_decides_no_run():
    """A new class of settings has to be pinned, or its name goes into `UNPINNED`."""
    for package in (fcforge, fcforge_consortium):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(("__main__", ".fused_kernels")):  # Triton's
                continue
            import_module(module.name)
    every: set[type[Any]] = set()
    new = {Checked}
    while new:
        new = {sub for cls in new for sub in cls.__subclasses__()} - every
        every |= new
    ours = {cls for cls in every if is_of_the_package(cls)}
    assert {TorchModule, SpaceSettings} <= ours
    pinned = set(settings_classes().values())
    # a base class's fields are pinned with those of the classes that derive from it
    inherited = {base for cls in pinned for base in cls.__mro__}
    left = {cls.__name__ for cls in ours - pinned - inherited}
    assert left <= set(UNPINNED), left - set(UNPINNED)


@pytest.mark.parametrize("word", HCTS.variants)
@pytest.mark.parametrize("stated", [False, True])
def test_a_raised_version_of_a_sampler_changes_the_keys_of_its_runs(
    word, stated, monkeypatch
):
    """A config names a sampler by a word, or by a table of its settings."""
    sampler = {"variant": word, "temperature": 0.7} if stated else word
    spec = replace(SPEC, learner=learner_with("method", "forge", sampler=sampler))
    default = replace(SPEC, learner=learner_with("method", "forge"))
    run_keys.learner_identity.cache_clear()
    before, before_default = run_key(spec), run_key(default)
    assert (before == before_default) == (sampler == "stable")
    monkeypatch.setattr(HCTS.variants[word], "defaults_version", 99)
    run_keys.learner_identity.cache_clear()
    try:
        assert run_key(spec) != before
        # others keep their keys; a subclass may set its own version
        if word != "stable":
            assert run_key(default) == before_default
    finally:
        run_keys.learner_identity.cache_clear()


@dataclass(frozen=True)
class Old(Checked):
    rate: float = 0.1


@dataclass(frozen=True)
class Changed(Checked):
    rate: float = 0.2


@dataclass(frozen=True)
class Raised(Changed):
    defaults_version = 2


def test_a_changed_default_is_refused_until_its_version_is_raised():
    assert not fault(Old, pins_of(Old))
    assert "raise defaults_version" in fault(Changed, pins_of(Old))
    assert "pins anew" in fault(Raised, pins_of(Old))
    assert "pins anew" in fault(with_new_setting(Old), pins_of(Old))


def test_a_variant_is_part_of_the_identity():
    vae = GENERATORS["fcm_vae"]
    assert settings_identity(vae, {"variant": "stable"}, "here") == {}
    raised = {
        "variant": "paper",
        "defaults_version": vae.variants["paper"].defaults_version,
    }
    paper = settings_identity(vae, {"variant": "paper", "epochs": 7}, "here")
    assert paper == {**raised, "epochs": 7}
    stated = settings_identity(vae, {"variant": "paper", "epochs": 100}, "here")
    assert stated == raised
    authors = settings_identity(vae, {"variant": "authors"}, "here")
    assert authors == {"variant": "authors"}  # its number has not changed


def test_a_raised_version_changes_the_identity():
    assert identity(Old()) == identity(Changed()) == {}
    assert identity(Raised()) != identity(Old())
    assert identity(Raised(rate=0.1)) == {"rate": 0.1, "defaults_version": 2}


@pytest.mark.parametrize(("kind", "name"), REGISTERED)
def test_a_raised_version_of_a_registered_class_changes_the_key(
    kind, name, monkeypatch
):
    spec = replace(SPEC, learner=learner_with(kind, name))
    before = run_key(spec)
    monkeypatch.setattr(REGISTRIES[kind][name], "defaults_version", 99)
    run_keys.learner_identity.cache_clear()
    try:
        assert run_key(spec) != before
    finally:
        run_keys.learner_identity.cache_clear()


@pytest.mark.parametrize(
    ("learner", "key"),
    [
        # keys that these learners had as forge_release, public_head and released
        (
            LearnerSpec(
                Component("contributions", {"epsilon": 8.0}), Component("linear")
            ),
            "33f9f6b4963f81d1",
        ),
        (
            LearnerSpec(Component("base_model_alone"), Component("linear")),
            "61ff103f69a0e1fd",
        ),
        (
            LearnerSpec(Component("forge"), Component("gcn"), Component("contributed")),
            "d81431de6ff241ee",
        ),
    ],
)
def test_a_new_name_of_a_class_renames_no_stored_run(learner, key):
    data = Component("folder", {"path": "x"})
    assert run_key(RunSpec(data, learner, ("A", "B"), 0, data_sha256="abc")) == key


# -- folders of earlier versions ---------------------------------------------------------------
def test_nodes_of_older_folders_are_found_by_their_specs():
    stored = {"0123": SPEC, "4567": SPEC.prefix(2)}
    key_of = keys_of_specs(stored)
    relabelled = replace(SPEC, learner=replace(SPEC.learner, title="yours"))
    moved = replace(relabelled, dataset=Component("folder", {"path": "/elsewhere"}))
    assert key_of(moved) == "0123"
    assert key_of(moved.prefix(2)) == "4567"
    assert key_of(moved.prefix(1)).startswith("missing-")
    assert key_of(moved.prefix(1)) != key_of(moved.prefix(0))


def test_digests_are_of_values():
    assert digest({"a": 1, "b": (2.0, None)}) == digest({"b": [2, None], "a": 1.0})
    assert len({digest(v) for v in (1, 1.5, "1", [1], {"1": 1}, None, [])}) == 7


if __name__ == "__main__":
    before = json.loads(PINS.read_text())
    for name, cls in settings_classes().items():
        reason = fault(cls, before[name]) if name in before else ""
        if "raise" in reason:  # pins written anew would hide the change
            raise SystemExit(f"{name}: {reason}")
    pinned = {name: pins_of(cls) for name, cls in settings_classes().items()}
    PINS.write_text(json.dumps(pinned, indent=1, sort_keys=True) + "\n")
