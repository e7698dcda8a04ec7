"""Generators on numpy arrays: fit, sample, save and load without a run.

`FCGenerator` wraps any registered generator. `FCMVAE` is FCM-VAE, with an encoder and a training
history in addition. All numbers come from `fcforge.generators.base.Generator`. They are computed in
one thread and do not depend on the number of cores.
"""

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError, FCForgeError, StoreError
from fcforge.core.labels import refuse_fractions, refuse_missing, refuse_mixed_types
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators.base import GeneratorState
from fcforge.generators.cache import read_tensors, write_tensors
from fcforge.generators.fcm_vae import StableVAE
from fcforge.generators.fcm_vae.base import VAE
from fcforge.generators.progress import listening
from fcforge.nn.resources import one_thread

FORMAT = "fcforge generator 1"
HEADER = "fcforge"  # key of our entry in the metadata of a safetensors file
SYMMETRIC = 1e-4  # largest difference between an entry and its mirror image
UNIT = 1e-3  # largest excess of a correlation over 1, and difference of the diagonal from 1
RandomState = int | np.random.RandomState | np.random.Generator | None


class FCGenerator:
    """A generator of FC matrices, fitted on arrays.

    Parameters
    ----------
    name : str
        Generator: "corr_gauss", "edge_gauss", "bootstrap", "regate", "brainnetgan", "gr_spd_gan"
        or "fcm_vae".
    random_state : int, RandomState, Generator or None
        Seed of the fit and of samples. None draws one.
    verbose : bool
        Print the progress of training to stderr.
    **settings
        Settings of the generator, as in a config.

    Attributes
    ----------
    classes_ : ndarray
        Labels in sorted order.
    n_rois_ : int
    diagnostics_ : dict
        Measures of the training, for example the number of active latent units.

    Examples
    --------
    >>> import numpy as np
    >>> series = np.random.default_rng(0).standard_normal((12, 8, 90))
    >>> fc = np.stack([np.corrcoef(one) for one in series])
    >>> y = np.array(["control", "patient"] * 6)
    >>> generator = FCGenerator("corr_gauss", random_state=0).fit(fc, y)
    >>> generator.sample(["patient", "control", "patient"]).shape
    (3, 8, 8)
    """

    def __init__(
        self,
        name: str = "corr_gauss",
        *,
        random_state: RandomState = 0,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        # the registry imports this module while it looks for generators
        from fcforge.generators import make_generator

        self.name = name
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose
        self.generator = make_generator(Component(name, settings))

    def __repr__(self) -> str:
        shown = [f"{k}={v!r}" for k, v in self._arguments().items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that `repr` shows, by name."""
        first = {"name": self.name, **self.settings}
        return {**first, "random_state": self.random_state}

    # -- fit and sample ---------------------------------------------------------------------------
    def fit(self, fc: np.ndarray, y: np.ndarray) -> Self:
        """Learn from the subjects of one site.

        Parameters
        ----------
        fc : ndarray of shape (n_subjects, n_rois, n_rois)
            Pearson correlation matrices; rows of vectorised edges are refused.
        y : array-like of shape (n_subjects,)
            Diagnoses: numbers or words, at least two classes.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the matrices are not finite, symmetric correlations, if `fc` and `y` differ in length,
            or if there is a single class. Labels are refused as `ForgeClassifier` refuses them: missing
            ones, two spellings of one, texts beside numbers, and numbers with a fraction.
        ConfigError
            If `random_state` is no seed.
        """
        matrices = checked_fc(fc)
        refuse_mixed_types(y)
        labels = np.asarray(y)
        if labels.shape != (len(matrices),):
            raise DataError(
                f"fc has {len(matrices)} subjects, y has shape {labels.shape}.",
                do="Give one diagnosis per matrix.",
            )
        _require_labels(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                f"all {len(labels)} subjects have the diagnosis {classes.tolist()[0]!r}.",
                do="Give subjects of at least two classes.",
            )
        kind = "two classes" if len(classes) == 2 else "more classes"
        if kind not in self.generator.learns:
            raise DataError(
                f"y has {len(classes)} classes.",
                where=self.generator.where(),
                do="Use corr_gauss, bootstrap or edge_gauss, which learn more than two classes.",
            )
        seed = seed_of(self.random_state)
        batch = FCBatch.from_numpy(matrices, codes.astype(np.int64))
        listener = _Printer(self.name) if self.verbose else None
        with listening(listener), one_thread():
            state = self.generator.fit(batch, torch_rng(seed, "fit"))
        self._set(state, classes, matrices.shape[-1], seed)
        return self

    def sample(self, y: np.ndarray, random_state: RandomState = None) -> np.ndarray:
        """Draw one synthetic subject per diagnosis.

        Parameters
        ----------
        y : array-like of shape (n,)
            Diagnoses, of the classes seen in `fit`.
        random_state : int, RandomState, Generator or None
            Seed of these samples. With None, each call after a fit draws other subjects, from the
            generator's own seed and the number of the call.

        Returns
        -------
        ndarray of shape (n, n_rois, n_rois), float32

        Raises
        ------
        DataError
            If a diagnosis was not in the training data.
        """
        state = self._fitted()
        labels = np.asarray(y)
        if labels.ndim != 1:
            raise DataError(
                f"y has shape {labels.shape}.", do="Give a list of diagnoses."
            )
        # The code of a label is its place among the classes; that of an unknown label is arbitrary, and
        # found by comparing the class in that place.
        codes = np.minimum(
            np.searchsorted(self.classes_, labels), len(self.classes_) - 1
        )
        unknown = labels[self.classes_[codes] != labels] if len(labels) else labels
        if len(unknown):
            raise DataError(
                f"the diagnosis {unknown.tolist()[0]!r} was not in the training data.",
                do=f"Use {self.classes_.tolist()}.",
            )
        if random_state is None:
            self._calls += 1
            rng = torch_rng(self._seed, "sample", self._calls)
        else:
            rng = torch_rng(seed_of(random_state), "sample")
        y_codes = torch.from_numpy(codes.astype(np.int64))
        with one_thread():
            return self.generator.sample(state, y_codes, rng).fc.numpy()

    def _set(
        self, state: GeneratorState, classes: np.ndarray, n_rois: int, seed: int
    ) -> None:
        """Store a fitted state and what belongs to it.

        Parameters
        ----------
        state : GeneratorState
        classes : ndarray of shape (n_classes,)
            Labels in sorted order.
        n_rois, seed : int
            Number of ROIs, and the seed of the fit, from which samples get theirs.
        """
        self._state = state
        self._seed = seed
        self._calls = 0
        self.classes_ = classes
        self.n_rois_ = n_rois
        self.diagnostics_ = self.generator.diagnostics(state)

    def _fitted(self) -> GeneratorState:
        """Return the state, or raise `FCForgeError` before `fit`."""
        if not hasattr(self, "_state"):
            raise FCForgeError(f"{self!r} is not fitted.", do="Call fit(fc, y) first.")
        return self._state

    # -- storage ----------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write the fitted generator to a safetensors file; nothing is pickled.

        The file can disclose data of the training subjects: keep it as you keep their scans, and
        share samples instead.

        Parameters
        ----------
        path : path
        """
        state = self._fitted()
        header = {
            "format": FORMAT,
            "name": self.name,
            "settings": self.settings,
            "classes": self.classes_.tolist(),
            "n_rois": self.n_rois_,
            "seed": self._seed,
        }
        write_tensors(Path(path), state.named(), {HEADER: json.dumps(header)})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a generator that `save` has written.

        Parameters
        ----------
        path : path

        Raises
        ------
        StoreError
            If the file is damaged or was not written by `save`.
        """
        header = _read_header(Path(path))
        settings = header["settings"]
        loaded = cls._of(header["name"], int(header["seed"]), settings)
        tensors = read_tensors(Path(path))
        try:
            state = loaded.generator.read_state(tensors)
        except KeyError as missing:
            raise StoreError(
                f"the tensor {missing} is missing.", where=path
            ) from missing
        if not all(bool(torch.isfinite(x).all()) for x in tensors.values()):
            raise StoreError("it holds values that are not finite.", where=path)
        classes = np.array(header["classes"])
        loaded._set(state, classes, int(header["n_rois"]), int(header["seed"]))
        return loaded

    @classmethod
    def _of(cls, name: str, seed: int, settings: Mapping[str, Any]) -> Self:
        """Return a generator that is not fitted, by name."""
        return cls(name, random_state=seed, **settings)


class FCMVAE(FCGenerator):
    """FCM-VAE, the FORGE paper's graph-transformer VAE of FC matrices.

    Parameters
    ----------
    variant : {"stable", "paper", "authors"}
        "stable" does not collapse; "paper" follows the text, "authors" their code.
        docs/generators.md has a table of all differences.
    random_state : int, RandomState, Generator or None
        Seed of the fit and of samples. None draws one.
    verbose : bool
        Print the terms of the loss of every epoch to stderr.
    **settings
        Sizes, training and ablation switches (`fcforge.generators.fcm_vae.base.VAE`). Defaults
        depend on the variant; the signature shows those of "stable".

    Attributes
    ----------
    history_ : dict of ndarray
        ``reconstruction``, ``label`` (the supervised term) and ``kl`` of every epoch, means over
        subjects.
    classes_, n_rois_, diagnostics_
        As for `FCGenerator`.

    Examples
    --------
    >>> import numpy as np
    >>> series = np.random.default_rng(0).standard_normal((12, 8, 90))
    >>> fc = np.stack([np.corrcoef(one) for one in series])
    >>> vae = FCMVAE(random_state=0, epochs=2).fit(fc, [0, 1] * 6)
    >>> vae.sample([1, 0]).shape, vae.encode(fc).shape, len(vae.history_["kl"])
    ((2, 8, 8), (12, 32), 2)
    """

    generator: VAE

    def __init__(
        self,
        variant: Literal["stable", "paper", "authors"] = "stable",
        *,
        random_state: RandomState = 0,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        self.variant = variant
        super().__init__(
            "fcm_vae",
            random_state=random_state,
            verbose=verbose,
            variant=variant,
            **settings,
        )

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that `repr` shows, by name; the variant is one of the settings."""
        return {**self.settings, "random_state": self.random_state}

    @property
    def history_(self) -> dict[str, np.ndarray]:
        """Return the terms of the loss in every epoch, by name, each of shape (epochs,)."""
        history = self._fitted().model.history.numpy()
        return dict(zip(("reconstruction", "label", "kl"), history.T, strict=True))

    def encode(self, fc: np.ndarray) -> np.ndarray:
        """Return the encoder's mean of the latent variables of every subject.

        Parameters
        ----------
        fc : ndarray of shape (n, n_rois, n_rois)

        Returns
        -------
        ndarray of shape (n, d_z)
            d_z is the number of latent units.
        """
        return self._apply(fc, lambda model, x: self.generator.latent_means(model, x))

    def reconstruct(self, fc: np.ndarray) -> np.ndarray:
        """Encode every subject and decode the mean of its latent variables, without noise.

        Parameters
        ----------
        fc : ndarray of shape (n, n_rois, n_rois)

        Returns
        -------
        ndarray of shape (n, n_rois, n_rois)
        """
        return self._apply(fc, self.generator.reconstruct)

    def _apply(self, fc: np.ndarray, function: Any) -> np.ndarray:
        """Check an FC array and return ``function(model, FC as Tensor)`` as an array.

        Parameters
        ----------
        fc : ndarray of shape (n, n_rois, n_rois)
        function : callable
            Its first argument is the fitted model, a NamedTuple of the variant.
        """
        model = self._fitted().model
        matrices = checked_fc(fc, self.n_rois_)
        with torch.no_grad(), one_thread():
            result: Tensor = function(model, torch.from_numpy(matrices))
        return result.numpy()

    @classmethod
    def _of(cls, name: str, seed: int, settings: Mapping[str, Any]) -> Self:
        """Return an FCM-VAE that is not fitted; `name` is always the same."""
        return cls(random_state=seed, **settings)


def _signature() -> inspect.Signature:
    """Return the signature of `FCMVAE` with a parameter for each setting of the variant stable."""
    # Without the first, self, and the last, **settings.
    shared = [*inspect.signature(FCMVAE.__init__).parameters.values()][1:-1]
    settings = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field.type,
        )
        for field in fields(StableVAE)
    ]
    return inspect.Signature([*shared, *settings])


FCMVAE.__signature__ = _signature()  # type: ignore[attr-defined]


class _Printer:
    """Listener that prints the progress of a fit on one line of stderr.

    Parameters
    ----------
    name : str
        Name of the generator.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_place = sys.stderr.isatty()

    def __call__(self, done: int, total: int, terms: Mapping[str, float]) -> None:
        # On a terminal one line is written over; elsewhere about ten lines are written.
        step = max(1, total // 10)
        if not self.in_place and done % step and done != total:
            return
        values = [f"{name} {value:.4g}" for name, value in terms.items()]
        line = f"{self.name}: {done} of {total}, {', '.join(values)}"
        end = "\n" if not self.in_place or done == total else ""
        print(
            f"\r{line}" if self.in_place else line, end=end, file=sys.stderr, flush=True
        )


def checked_fc(fc: np.ndarray, n_rois: int | None = None) -> np.ndarray:
    """Check FC matrices and return them as float32.

    Parameters
    ----------
    fc : array-like of shape (n, n_rois, n_rois)
    n_rois : int, optional
        Number of ROIs that is required; by default any.

    Returns
    -------
    ndarray of shape (n, n_rois, n_rois), float32

    Raises
    ------
    DataError
        If a matrix is not finite, not symmetric or not a correlation, or has other ROIs.
    """
    matrices = np.asarray(fc, dtype=np.float32)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        form, advice = "", "Give matrices of shape (subjects, ROIs, ROIs)."
        if matrices.ndim == 2 and not np.array_equal(matrices, matrices.T):
            form = ": one row of numbers per subject, as vectorised edges have"
            # nilearn multiplies the diagonal by sqrt 2
            advice += (
                " nilearn makes them of its rows without diagonal: vec_to_sym_matrix(rows, "
                "diagonal=np.full((len(rows), n_rois), 0.5**0.5))."
            )
        elif matrices.ndim == 2:
            form = ": one matrix"
            advice += " Of one subject it is fc[None]."
        raise DataError(f"fc has shape {matrices.shape}{form}.", do=advice)
    if n_rois is not None and matrices.shape[1] != n_rois:
        raise DataError(
            f"fc has {matrices.shape[1]} ROIs, the generator was fitted on {n_rois}.",
            do="Use the same atlas.",
        )
    _refuse_subject(
        ~np.isfinite(matrices).all((1, 2)),
        "has values that are not finite",
        "Leave the subject out, or drop ROIs without signal.",
    )
    uneven = np.abs(matrices - matrices.transpose(0, 2, 1)).max((1, 2), initial=0)
    _refuse_subject(
        uneven > SYMMETRIC,
        "has a matrix that is not symmetric",
        "Give whole correlation matrices, e.g. np.corrcoef(series.T).",
    )
    _refuse_subject(
        np.abs(matrices).max((1, 2), initial=0) > 1.0 + UNIT,
        "has values beyond 1",
        "Give Pearson correlations; np.tanh undoes Fisher's z.",
    )
    diagonals = np.diagonal(matrices, axis1=1, axis2=2)
    _refuse_subject(
        np.abs(diagonals - 1.0).max(1, initial=0) > UNIT,
        "has a diagonal that is not 1",
        "Give whole correlation matrices; where the diagonal was set to 0, set it to 1.",
    )
    return matrices


def _require_labels(labels: np.ndarray) -> None:
    """Raise `DataError` if there are no labels (n,), or one of them can be no class."""
    if not len(labels):
        raise DataError(
            "there are no subjects.", do="Give at least some of each class."
        )
    refuse_missing(labels, "fc and y")
    refuse_fractions(labels)


def _refuse_subject(faulty: Any, fault: str, advice: str) -> None:
    """Raise `DataError` for the first faulty subject.

    Parameters
    ----------
    faulty : ndarray of bool, shape (n,)
        Whether each subject is faulty.
    fault, advice : str
        What is wrong with such a subject, and what to do; parts of the message.
    """
    if faulty.any():
        count = int(faulty.sum())
        more = f" (and {count - 1} more)" if count > 1 else ""
        message = f"subject {int(faulty.argmax())}{more} {fault}."
        raise DataError(message, where="fc", do=advice)


def seed_of(random_state: RandomState) -> int:
    """Return an integer seed: the given one, one drawn from a generator, or a random one for None.

    Raises
    ------
    ConfigError
        If `random_state` is neither a whole number from 0 to 2**32 - 1 nor one of these.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if not isinstance(random_state, Integral) or not 0 <= random_state < 2**32:
        raise ConfigError(
            f"random_state={random_state!r} is no seed.",
            do="Give a whole number from 0 to 2**32 - 1, a generator of numpy, or None.",
        )
    return int(random_state)


def _read_header(path: Path) -> dict[str, Any]:
    """Return the checked metadata of a file written by `FCGenerator.save`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get(HEADER, "null"))
    except (SafetensorError, ValueError) as error:
        raise StoreError(f"damaged file ({error}).", where=path) from error
    required: dict[str, Any] = {
        "name": str,
        "settings": dict,
        "classes": list,
        "n_rois": int,
        "seed": int,
    }
    known = isinstance(header, dict) and header.get("format") == FORMAT
    if not known or not all(isinstance(header.get(k), t) for k, t in required.items()):
        raise StoreError(
            "it is not a generator saved by fcforge.",
            where=path,
            do="Give a file written by save().",
        )
    return header
