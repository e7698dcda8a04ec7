"""Any scikit-learn estimator as a row of the results table: named in a config, or given as a Python object.

For every node (one site training) a new estimator is made. Its setting `keeps` decides what it is trained on:
the training parts of all sites so far at once (``cumulative``), of the last site alone (``independent``), or
of one site after another by its own ``partial_fit``. It is never stored, because that would need a pickle. So
a node of ``partial_fit`` is trained on all its sites again, from the first.

With ``site = true`` it receives the subjects' sites by scikit-learn's metadata routing, so that
`fcforge.estimator.SiteHarmoniser` can precede a classifier.

Shapes: n subjects, R ROIs, K classes.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module, util
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, Literal

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, FCForgeError
from fcforge.core.randomness import derive
from fcforge.core.registry import is_of_user
from fcforge.core.settings import Checked, checked
from fcforge.core.spec import LearnerSpec
from fcforge.core.subjects import FCBatch, Site
from fcforge.core.target import TWO_CLASSES, Target

PIPELINE = "pipeline"  # method and model of such a row
# estimators given as Python objects, by the hash of their settings
_HANDED: dict[str, Any] = {}


@dataclass(frozen=True)
class Pipeline(Checked):
    """Settings of a row with an estimator.

    Attributes
    ----------
    estimator : str
        ``module:function`` (or class), or the class of an estimator that was given as an object.
    keeps : {"cumulative", "independent", "partial_fit"}
        Sites on which it is trained: all so far, the last, or one after the other.
    input : {"edges", "matrices"}
        FC as (n, R (R - 1) / 2), the entries below the diagonal in nilearn's order, or as (n, R, R).
    site : bool
        Whether it is given ``site=``, the subjects' sites, when it is fitted and when it scores.
    folder : str
        Folder that may hold the module. It does not enter the key of a run.
    sha256 : str
        Hash of the module's source and the estimator's settings, by which a changed estimator is another run.
    """

    kind: ClassVar[str] = "learner"
    estimator: str
    keeps: Literal["cumulative", "independent", "partial_fit"]
    input: Literal["edges", "matrices"] = "edges"
    site: bool = False
    folder: str = ""
    sha256: str = ""

    def make(self) -> Any:
        """Return a fresh, unfitted estimator."""
        from sklearn.base import clone

        if self.sha256 in _HANDED:
            return clone(_HANDED[self.sha256], safe=False)
        where = f"estimator '{self.estimator}'"
        module, _, function = self.estimator.partition(":")
        if not function:
            raise ConfigError(
                "it was handed over as an object and is not known in this process.",
                where=where,
                do="Train with jobs=1, or give the name of a function that makes it.",
            )
        try:
            made = getattr(_module(module, self.folder), function)()
        except Exception as error:
            raise ConfigError(
                f"it cannot be made ({type(error).__name__}: {error}).",
                where=where,
                do=f"Install {module}, or put {module}.py into {self.folder}; its function "
                f"'{function}' takes no arguments and returns an unfitted estimator.",
            ) from error
        return clone(made, safe=False)

    def require(self, target: Target) -> None:
        """Raise `ConfigError` unless it can be made and is of the target's kind.

        A regressor is needed for a number, a classifier for classes.
        """
        from sklearn.base import is_regressor

        if is_regressor(self.make()) != (target.kind == "number"):
            wanted = "a regressor" if target.kind == "number" else "a classifier"
            message = f"estimator '{self.estimator}' is not {wanted}, and the target is"
            hint = "Give another estimator, or change target of [dataset]."
            raise ConfigError(f"{message} {target.name}, {target.kind}.", do=hint)


def pipeline_of(learner: LearnerSpec) -> Pipeline | None:
    """Return the pipeline of a row; None if the row has a method of fcforge instead."""
    return (
        Pipeline(**learner.method.params) if learner.method.name == PIPELINE else None
    )


def read_pipeline(table: Mapping[str, Any], where: str, folder: Path) -> LearnerSpec:
    """Return the learner of a row ``[[learner]]`` with an estimator.

    Parameters
    ----------
    table : mapping
        The row.
    where : str
        Its place in the config, for errors.
    folder : Path
        Folder of the config, which may hold the module.

    Raises
    ------
    ConfigError
        If the estimator cannot be made, cannot be trained as `keeps` asks, or cannot score.
    """
    from sklearn.base import clone

    stated = {"keeps": "", **table}  # "" is refused with a list of the valid values
    given = stated.pop("estimator")  # "module:function", or an estimator
    title = stated.pop("title", "")
    base_model = stated.pop("base_model", True)
    named = isinstance(given, str)
    shown = given if isinstance(given, str) else type(given).__name__
    settings = checked(
        Pipeline, stated, where, hidden=("estimator", "folder", "sha256")
    )
    pipeline = Pipeline(shown, folder=str(folder) if named else "", **settings)
    made = pipeline.make() if named else clone(given, safe=False)
    _require_usable(made, pipeline, where)
    hashed = _described(made).encode()
    if named:
        file = _module(shown.partition(":")[0], pipeline.folder).__file__
        hashed += Path(file).read_bytes() if file and Path(file).is_file() else b""
    pipeline = replace(pipeline, sha256=hashlib.sha256(hashed).hexdigest()[:32])
    if not named:
        _HANDED[pipeline.sha256] = made
    method = Component(PIPELINE, asdict(pipeline))
    title = title or shown.rpartition(":")[2]
    return LearnerSpec(method, Component(PIPELINE), title=title, base_model=base_model)


def _described(value: Any, within: frozenset[int] = frozenset()) -> str:
    """Return a text of an estimator's class, code and settings, nested ones included.

    It is the same in every process, which `repr` is not for functions and arrays.

    Parameters
    ----------
    value
    within : frozenset of int
        Identities of the functions and classes that are being described, which may refer to each other.
    """
    nested = partial(_described, within=within)
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{k!r}: {nested(v)}' for k, v in sorted(value.items()))}}}"
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(nested, value))}]"
    if isinstance(value, np.ndarray):
        return (
            f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
        )
    if isinstance(value, partial):
        return f"partial{nested([value.func, value.args, value.keywords])}"
    if hasattr(value, "__qualname__"):  # a function or a class
        return f"{value.__module__}.{value.__qualname__}{_code_of(value, within)}"
    if hasattr(value, "get_params"):
        return nested(type(value)) + nested(value.get_params(deep=False))
    return repr(value)


def _code_of(value: Any, within: frozenset[int]) -> str:
    """Return what a function or class does, as text; "" for a class of an installed package.

    A user may change a function or class and keep its name, in a notebook for example. Its code
    counts, with the values, functions and classes of the user that it refers to.

    Parameters
    ----------
    value : function or class
    within : frozenset of int
        As in `_described`.
    """
    if id(value) in within:
        return ""
    nested = partial(_described, within=within | {id(value)})
    code = getattr(value, "__code__", None)
    if isinstance(value, type):
        parts = []
        for cls in value.__mro__:
            if is_of_user(cls.__module__):
                parts += [
                    f"{name}={nested(_function_of(member))}"
                    for name, member in sorted(vars(cls).items())
                    if _counts(_function_of(member)) and name not in NOT_CODE
                ]
        return f"({', '.join(parts)})" if parts else ""
    if code is None:
        return ""
    names, does = _instructions(code)
    held = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
    if is_of_user(value.__module__):
        held += [
            value.__globals__[name]
            for name in sorted(names)
            if _counts(value.__globals__.get(name))
        ]
    return f"{does}{nested([value.__defaults__, value.__kwdefaults__, *held])}"


# attributes of a class that change without its code, or that every class has
NOT_CODE = ("__module__", "__qualname__", "__doc__", "__firstlineno__")


def _instructions(code: CodeType) -> tuple[set[str], str]:
    """Return the names that compiled code uses, and a text of its instructions, nested functions included."""
    names = set(code.co_names)
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, text = _instructions(constant)
            names |= inner
        elif isinstance(constant, frozenset):  # its order differs between processes
            text = str(sorted(map(repr, constant)))
        else:
            text = repr(constant)
        constants.append(text)
    return names, repr((code.co_code, code.co_names, code.co_varnames, constants))


def _function_of(member: Any) -> Any:
    """Return the function of a class's method or property; any other attribute unchanged."""
    for name in ("__func__", "fget", "func"):
        member = getattr(member, name, member)
    return member


def _counts(value: Any) -> bool:
    """Return whether a value that code refers to is described: plain ones, a user's functions and classes."""
    if isinstance(value, (type, FunctionType)):
        return is_of_user(value.__module__)
    return isinstance(value, (bool, int, float, str, tuple, np.ndarray))


def _is_set(cell: CellType) -> bool:
    """Return whether a closure's variable has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _module(name: str, folder: str) -> ModuleType:
    """Import a module: the present content of its .py file in the folder, else the installed one."""
    beside = Path(folder, f"{name}.py")
    if folder and folder not in sys.path:
        sys.path.append(folder)  # for modules that this one imports
    spec = None
    if beside.is_file():
        spec = util.spec_from_file_location(f"_fcforge_{name}", beside)
    if spec is None or spec.loader is None:
        return import_module(name)
    module = sys.modules[spec.name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _require_usable(estimator: Any, pipeline: Pipeline, where: str) -> None:
    """Raise `ConfigError` unless the estimator is an instance that can be trained and can score."""
    from sklearn.base import is_regressor

    learns = "partial_fit" if pipeline.keeps == "partial_fit" else "fit"
    scores = ("predict_proba", "decision_function")
    trained = hasattr(estimator, learns) and not isinstance(estimator, type)
    scored = any(hasattr(estimator, name) for name in scores)
    if not trained or not (scored or is_regressor(estimator)):
        kind = type(estimator).__name__
        message = (
            f"estimator '{pipeline.estimator}' ({kind}) cannot {learns} and score."
        )
        hint = (
            f"Give an unfitted regressor, or a classifier with {' or '.join(scores)}."
        )
        raise ConfigError(message, where=where, do=hint)


def train(
    pipeline: Pipeline,
    parts: Mapping[str, FCBatch],
    seed: int,
    order: Sequence[str],
    target: Target = TWO_CLASSES,
) -> Any:
    """Return a new estimator, trained on the training parts of some sites.

    All are given to it at once, unless it learns by ``partial_fit``. Every ``random_state`` that
    is None is set from the seed and the order.

    Parameters
    ----------
    pipeline : Pipeline
    parts : mapping of site to FCBatch
        Training subjects.
    seed : int
        Seed of the run.
    order : sequence of str
        Sites of the run so far.
    target : Target

    Raises
    ------
    FCForgeError
        If the estimator raises an error.
    """
    estimator = pipeline.make()
    # by partial_fit the same estimator goes from site to site, so its seed must not change
    names = () if pipeline.keeps == "partial_fit" else order
    _seed(estimator, derive(seed, *names, PIPELINE) % 2**32)  # NumPy takes 32 bits
    try:
        _fit(estimator, pipeline, parts, target)
    except Exception as error:
        raise FCForgeError(
            f"estimator '{pipeline.estimator}' cannot be trained ({error}).",
            where=f"sites {' > '.join(order)}, seed {seed}",
        ) from error
    return estimator


def _fit(
    estimator: Any, pipeline: Pipeline, parts: Mapping[str, FCBatch], target: Target
) -> None:
    """Fit an estimator to the training parts of some sites, by site in `parts`."""
    if pipeline.keeps == "partial_fit":
        # a classifier has to be told all classes, because a site may lack one; a regressor takes none
        more = {"classes": [*range(target.outputs)]} if target.classes else {}
        for part in parts.values():
            estimator.partial_fit(_inputs(part, pipeline), part.y.numpy(), **more)
        return
    every = FCBatch.concat(list(parts.values()))
    sizes = [len(part) for part in parts.values()]
    sites = np.repeat(list(parts), sizes)
    with _metadata(pipeline, sites) as metadata:
        estimator.fit(_inputs(every, pipeline), every.y.numpy(), **metadata)


def _seed(estimator: Any, number: int) -> None:
    """Set every ``random_state`` that is None, of the estimator and of estimators inside it."""
    if hasattr(estimator, "get_params"):
        for name, value in estimator.get_params().items():
            if value is None and name.rpartition("__")[2] == "random_state":
                estimator.set_params(**{name: number})


@contextmanager
def _metadata(pipeline: Pipeline, sites: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """Yield the metadata for an estimator: each subject's site, or nothing."""
    from sklearn import config_context

    # None leaves scikit-learn's setting as it is
    with config_context(enable_metadata_routing=pipeline.site or None):
        yield {"site": sites} if pipeline.site else {}


def _inputs(batch: FCBatch, pipeline: Pipeline) -> np.ndarray:
    """Return the estimator's input for n subjects: edges (n, R (R - 1) / 2) or matrices (n, R, R)."""
    fc = batch.fc.numpy().astype(np.float64)
    below = np.tril_indices(fc.shape[-1], -1)
    return fc[:, below[0], below[1]] if pipeline.input == "edges" else fc


def scores_after(
    pipeline: Pipeline,
    parts: Mapping[str, FCBatch],
    seed: int,
    order: Sequence[str],
    sites: Mapping[str, Site],
    target: Target = TWO_CLASSES,
) -> dict[str, np.ndarray]:
    """Train an estimator and return its scores for the test subjects of all sites.

    Parameters
    ----------
    pipeline, parts, seed, order, target
        As for `train`. Without parts the scores are those before training.
    sites : mapping of name to Site
        All sites of the run.

    Returns
    -------
    dict of str to ndarray of shape (n_test,) or (n_test, K)
        Scores by site.
    """
    by_site = {}
    fitted = train(pipeline, parts, seed, order, target) if parts else None
    for name, site in sites.items():
        if fitted is None:
            by_site[name] = uninformed_scores(len(site.test), target)
        else:
            by_site[name] = scores(fitted, pipeline, site.test, name, target)
    return by_site


def uninformed_scores(n: int, target: Target) -> np.ndarray:
    """Return scores of n subjects before training.

    They are equal probabilities of all classes, or the middle of a numeric target's range.
    """
    if target.kind == "more classes":
        return np.full((n, target.outputs), 1 / target.outputs, np.float32)
    return np.full(n, 0.5 if target.classes else 0.0, np.float32)


def scores(
    estimator: Any,
    pipeline: Pipeline,
    batch: FCBatch,
    site: str,
    target: Target = TWO_CLASSES,
) -> np.ndarray:
    """Return the scores of a site's subjects: probabilities, or a predicted number.

    An estimator without probabilities gets the logistic function of its decision function, or the softmax for
    more than two classes.

    Parameters
    ----------
    estimator : scikit-learn estimator
        Fitted.
    pipeline : Pipeline
    batch : FCBatch
        Subjects to score.
    site : str
        Their site.
    target : Target

    Returns
    -------
    ndarray of shape (n,) or (n, K), float32
        Probability of being a patient (n,) for two classes, of each class for more (n, K); else a number (n,).

    Raises
    ------
    FCForgeError
        If the estimator returns another shape, or values that are not finite.
    """
    n = len(batch)
    names = ("predict_proba", "decision_function") if target.classes else ("predict",)
    score = next(name for name in names if hasattr(estimator, name))
    with _metadata(pipeline, np.repeat(site, n)) as metadata:
        predicted = np.asarray(
            getattr(estimator, score)(_inputs(batch, pipeline), **metadata)
        )
    # classes of its training subjects, which may be fewer than those of the target
    classes = [int(c) for c in getattr(estimator, "classes_", range(target.outputs))]
    per_class = score == "predict_proba" or len(classes) > 2
    wanted = (n, len(classes)) if per_class else (n,)
    if predicted.shape != wanted or not np.isfinite(predicted).all():
        raise FCForgeError(
            f"estimator '{pipeline.estimator}' gives scores of shape {predicted.shape}, or not all "
            f"finite; for {n} subjects they have shape {wanted}."
        )
    if not target.classes:
        return predicted.astype(np.float32)
    p = np.zeros((n, target.outputs))  # 0 for a class without training subjects
    p[:, classes] = predicted if score == "predict_proba" else _probabilities(predicted)
    return (p[:, 1] if target.outputs == 2 else p).astype(np.float32)


def _probabilities(decision: np.ndarray) -> np.ndarray:
    """Return probabilities (n, K) from decision functions (n, K), or (n,) for two classes."""
    odds = np.clip(decision, -50, 50)
    if odds.ndim == 1:
        odds = np.stack([np.zeros(len(odds)), odds], 1)
    weight = np.exp(odds)
    return weight / weight.sum(1, keepdims=True)
