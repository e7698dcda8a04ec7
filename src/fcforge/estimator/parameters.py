"""Parameters of the estimators, and the learner that they and their defaults describe."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple, Self

from sklearn.utils import check_random_state
from torch import nn

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.identity import defaults_of
from fcforge.core.options import Kind
from fcforge.core.settings import make
from fcforge.core.spec import Conditions, LearnerSpec, Training
from fcforge.core.target import Kind as TargetKind
from fcforge.core.target import Target
from fcforge.data.matrices import Order
from fcforge.estimator.inputs import ReadsFC
from fcforge.estimator.trained import SiteSettings
from fcforge.experiments.config_code import import_parts
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS, Method
from fcforge.models import MODELS
from fcforge.models.edge import WHOLE_LOG
from fcforge.models.torch_module import TorchModule

RIDGE = "ridge"
CLOSED_FORM = "analytic"
FORGE = "forge"
LINEAR = "linear"
# chosen on the development sites by the rule of paper/experiments/forge_default.toml
LINEAR_EPOCHS = 40
LINEAR_RATE = 3e-4
# by the same rule: FCM-VAE, because it fits four ABIDE sites in less than 90 s
GENERATOR = "fcm_vae"
FAST_GENERATOR = "corr_gauss"  # also of targets that FCM-VAE does not learn
COLUMN_GENERATOR = "edge_gauss"  # of arbitrary columns: a Gaussian of each
COLUMNS = (
    "z"  # features of a model that are the columns themselves, with features="any"
)
DRAWN_SEEDS = 2**31 - 1


class Part(NamedTuple):
    """A part of a learner whose settings can be set as ``part__name``.

    Attributes
    ----------
    parameter : str
        Parameter of the estimator that holds the settings.
    registry : mapping of name to class, or None
        None for `Training`.
    hidden : tuple of str
        Fields that are not settings of the part, or are parameters of the estimator itself.
    """

    parameter: str
    registry: Mapping[str, Any] | None
    hidden: tuple[str, ...] = ()


PARTS = {
    "method": Part("method_params", METHODS),
    "model": Part("model_params", MODELS, ("n_rois", "n_outputs")),
    "generator": Part("generator_params", GENERATORS),
    "training": Part("training", None, ("epochs", "batch_size", "lr")),
}


@dataclass(repr=False, eq=False)
class LearnerParameters(ReadsFC):
    """Parameters of an estimator; `ForgeClassifier` documents them.

    Parts of a learner (`PARTS`) have settings of their own, which can be read and set as
    ``part__name``.
    """

    method: "str | Method | None" = None
    model: "str | nn.Module | TorchModule | None" = None
    generator: str | None = None
    epochs: int | None = None
    batch_size: int = Training.batch_size
    lr: float | None = None
    seed: int | None = None
    method_params: Mapping[str, Any] | None = None
    model_params: Mapping[str, Any] | None = None
    generator_params: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    features: Literal["fc", "any"] = "fc"
    edges: Order = "nilearn"
    kind: Kind = "auto"
    calibrate: Literal["none", "inner_val"] = "none"
    val_fraction: float = Conditions.val_fraction
    positive: Any = None
    random_state: Any = 0
    site_order: Sequence[Any] | None = None
    allow_unlike_sites: bool = False
    verbose: int = 0
    n_jobs: int | None = None

    # -- parameters --------------------------------------------------------------------------------
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool
            Whether to add the settings of the parts, ``method__memory`` for instance, with their
            defaults where none is given.

        Returns
        -------
        dict of str to value
        """
        params = super().get_params(deep=False)
        if not deep:
            return params
        for part in PARTS:
            for name, value in self._part_settings(part).items():
                params[f"{part}__{name}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings of the parts as ``part__name``; `fit` checks the values."""
        part_settings: dict[str, Any] = {}
        own_parameters: dict[str, Any] = {}
        for key, value in params.items():
            part, separator, _ = key.partition("__")
            chosen = part_settings if separator and part in PARTS else own_parameters
            chosen[key] = value
        super().set_params(**own_parameters)
        for key, value in part_settings.items():
            part, _, name = key.partition("__")
            parameter = PARTS[part].parameter
            setattr(self, parameter, {**(getattr(self, parameter) or {}), name: value})
        return self

    def _part_settings(self, part: str) -> dict[str, Any]:
        """Return the settings of a part by name: those that were given, else their defaults.

        Settings that no user may set, or that have no default, are left out unless given. The settings
        of a method or model that was given as an object count as given. If the part's name is not registered,
        its defaults are unknown, and only what was given is returned.

        Parameters
        ----------
        part : str
            A key of `PARTS`.
        """
        parameter, registry, hidden = PARTS[part]
        held = getattr(self, parameter)
        given = dict(held) if isinstance(held, Mapping) else {}
        cls: Any = Training  # the one part that has no registry
        if part == "method" and isinstance(self.method, Method):
            given = {**settings_of(self.method), **given}
        if part == "model" and self._own_module is not None:
            given = {**self._own_module, **given}
            cls, hidden = TorchModule, (*hidden, "module")
        elif registry is not None:
            cls = _known(registry, self._part_name(part))
            if cls is None:
                return given
        defaults = {}
        for field in fields(cls):
            if field.name in hidden or not field.init:
                continue
            if field.default is not MISSING:
                defaults[field.name] = field.default
        if (
            part == "model"
        ):  # the estimator chooses other features than the model's class
            defaults |= self._model_features()
        return {**defaults, **given}

    def _part_name(self, part: str) -> str:
        """Return the registered name of a part; "" for a generator that is not needed."""
        method = self._method_name()
        if part == "method":
            return method
        if part == "model":
            if self._own_module is not None:
                return TorchModule.name
            return self._usual_model(method) if self.model is None else str(self.model)
        if self.generator is not None:
            return self.generator
        return self._usual_generator() if self._needs_generator(method) else ""

    @property
    def _own_module(self) -> dict[str, Any] | None:
        """Return the settings of a model given as an object; None for one given by name."""
        if isinstance(self.model, TorchModule):
            names = ("module", "readout", "inputs", "tau")
            return {name: getattr(self.model, name) for name in names}
        return {"module": self.model} if isinstance(self.model, nn.Module) else None

    def _method_name(self) -> str:
        """Return the registered name of the method; register the class of one given as an object."""
        if self.method is None:
            return self._usual_method()
        if isinstance(self.method, Method):
            return registered_name(type(self.method))
        is_ridge = isinstance(self.method, str) and self.method == RIDGE
        return CLOSED_FORM if is_ridge else self.method

    def _usual_method(self) -> str:
        """Return the method of ``method=None``: FORGE, or ridge for columns of any kind."""
        return FORGE if self.features == "fc" else CLOSED_FORM

    @staticmethod
    def _usual_model(method: str) -> str:
        """Return the model of ``model=None``: the first that the method names, else the linear one."""
        known = _known(METHODS, method)
        return next(iter(known.models if known else ()), LINEAR)

    @staticmethod
    def _needs_generator(method: str) -> bool:
        """Return whether a method of this name replays synthetic subjects."""
        known = _known(METHODS, method)
        return known is not None and known.needs_generator

    def _usual_generator(self, kind: TargetKind = "two classes") -> str:
        """Return the generator of ``generator=None`` for methods that replay synthetic subjects."""
        if self.features == "any":
            return COLUMN_GENERATOR
        return GENERATOR if kind in GENERATORS[GENERATOR].learns else FAST_GENERATOR

    def _model_features(self) -> dict[str, Any]:
        """Return the features of a linear model whose settings name none."""
        if self.features == "any":
            return {"features": COLUMNS}
        return {"features": WHOLE_LOG} if self._part_name("model") == LINEAR else {}

    # -- what they describe ------------------------------------------------------------
    def _learner_spec(self, target: Target) -> LearnerSpec:
        """Return method, model and generator, as the parameters and their defaults define them."""
        self._require_names()
        method = self._part_name("method")
        model = self._part_name("model")
        if self.features == "any" and model not in (LINEAR, "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        features = (self.model_params or {}).get("features", COLUMNS)
        if self.features == "any" and features != COLUMNS:
            raise ConfigError(
                f"the model's features = {features!r} are of FC, and features='any' means columns of "
                "any kind.",
                do="Leave the model's features out.",
            )
        # Settings of the model below those of the user: of a module its own, else the features of FC that the
        # method asks for, else those that are usual for the model.
        defaults = self._model_features()
        known = _known(METHODS, method)
        if known is not None and known.features and self.features == "fc":
            defaults = {"features": known.features}
        if self._own_module is not None:
            defaults = self._own_module
        params = {**defaults, **(self.model_params or {})}
        own = settings_of(self.method) if isinstance(self.method, Method) else {}
        spec = LearnerSpec(
            Component(method, {**own, **(self.method_params or {})}),
            Component(model, params),
            self._generator(target),
        )
        import_parts(spec)
        return spec

    def _require_names(self) -> None:
        """Raise `ConfigError` if method, model or generator is neither a name nor a usable object."""
        values = {
            name: getattr(self, name) for name in ("method", "model", "generator")
        }
        for name, value in values.items():
            if value is None or isinstance(value, str):
                continue
            if name == "model" and self._own_module is not None:
                continue
            if isinstance(value, Method) and name == "method":
                continue
            message = f"{name}={value!r:.80} is not a name."
            hint = f"See `fcforge list {name}s`."
            if name == "model":
                hint = "Give a name of `fcforge list models` or an object of a torch.nn.Module."
            if name == "method":
                hint = "Give a name of `fcforge list methods`, 'module:Class', or an object of a Method."
            if isinstance(value, type) and name != "generator":
                hint = f"Give an object, {name}={value.__name__}(...), not its class."
            raise ConfigError(message, do=hint)

    def _generator(self, target: Target) -> Component | None:
        """Return the generator, or None where the method needs none and none is given."""
        name = self.generator
        if name is None and self._needs_generator(self._method_name()):
            name = self._usual_generator(target.kind)
        if name is None:
            if self.generator_params:
                message = "generator_params is given, but no generator."
                hint = "Name it, generator=..., or leave them out."
                raise ConfigError(message, do=hint)
            return None
        known = _known(GENERATORS, name)
        if self.features == "any" and known is not None and not known.learns_columns:
            message = f"generator '{name}' makes correlation matrices; features='any' means other columns."
            able = [
                f"'{other}'" for other, cls in GENERATORS.items() if cls.learns_columns
            ]
            hint = f"Leave generator out, or choose one of {', '.join(able)}."
            raise ConfigError(message, do=hint)
        return Component(name, dict(self.generator_params or {}))

    def _warn_of_unused_generator(self) -> None:
        """Warn of a generator that was given and that the method does not use."""
        method = self._method_name()
        unused = self.generator is not None and not self._needs_generator(method)
        if unused and _known(METHODS, method) is not None:
            message = f"generator={self.generator!r} has no effect"
            reason = f"method {method!r} replays no synthetic subjects"
            hint = "Leave generator out, or choose method='forge'."
            warnings.warn(f"{message}: {reason}. {hint}", stacklevel=5)

    def _site_settings(self, target: Target) -> SiteSettings:
        """Return the settings by which the sites of this call are trained."""
        linear = self._part_name("model") == LINEAR and self.features == "fc"
        epochs = LINEAR_EPOCHS if linear else Training.epochs
        values = {
            "epochs": epochs if self.epochs is None else self.epochs,
            "batch_size": self.batch_size,
            "lr": LINEAR_RATE if linear and self.lr is None else self.lr,
        }
        given = dict(self.training or {})
        training = make(Training, {**values, **given}, "training")
        return SiteSettings(
            training, self._generator(target), self.calibrate, self.val_fraction
        )

    def _fixed_seed(self) -> int | None:
        """Return the seed of the parameters, or None if every fit draws its own."""
        if self.seed is not None:
            if self.random_state not in (0, self.seed):  # 0 is its default
                message = (
                    f"seed={self.seed} and random_state={self.random_state} differ."
                )
                raise ConfigError(message, do="Give one of them.")
            return int(self.seed)
        # None, or a RandomState, from which every fit draws
        if self.random_state is None or hasattr(self.random_state, "randint"):
            return None
        check_random_state(self.random_state)  # refuses what is no seed
        return int(self.random_state)

    def _drawn_seed(self) -> int:
        """Return the seed of the parameters, or draw one from `random_state`."""
        fixed = self._fixed_seed()
        if fixed is not None:
            return fixed
        return int(check_random_state(self.random_state).randint(DRAWN_SEEDS))


def _known(registry: Mapping[str, Any], name: Any) -> Any:
    """Return the registered class of a name, or None for any other value of a parameter."""
    return registry[name] if isinstance(name, str) and name in registry else None


def registered_name(cls: type[Method]) -> str:
    """Return the name under which the class of a method is registered; register it if it is not."""
    for name, known in METHODS.items():
        if cls is known or _variant_of(cls, known) is not None:
            return name
    name = f"{cls.__module__}:{cls.__qualname__}"
    METHODS[name] = cls  # a class that a notebook defines again replaces the former one
    return name


def _variant_of(cls: type, root: Any) -> str | None:
    """Return the word by which `root` chooses a class among its variants; None if it does not."""
    variants = getattr(root, "variants", {})
    return next((word for word, known in variants.items() if known is cls), None)


def settings_of(part: Any) -> dict[str, Any]:
    """Return the settings of an object that differ from the defaults, as a config would state them.

    Parameters
    ----------
    part : dataclass instance
        A method, or settings nested in one.
    """
    defaults = defaults_of(type(part))
    settings: dict[str, Any] = {}
    if (variant := _variant_of(type(part), type(part))) is not None:
        settings["variant"] = variant
    for field in fields(part):
        value = getattr(part, field.name)
        if not field.init or (field.name in defaults and defaults[field.name] == value):
            continue
        settings[field.name] = settings_of(value) if is_dataclass(value) else value
    return settings
