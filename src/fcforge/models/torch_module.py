"""Any ``torch.nn.Module`` as a model, also of PyTorch Geometric.

Such models train one lane at a time, a lane being one learner with one order of sites and one seed. An
adapter (`TorchModule`) calls the module with parameters and buffers that are passed in. Before training it
is tried on a few simulated subjects ("the trial"), so that a module that cannot work is refused at once.

Shapes: n subjects, R ROIs.
"""

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fcforge import graphs
from fcforge.core.constants import LOG_SCALE, TAU
from fcforge.core.errors import ConfigError
from fcforge.core.names import unknown_name
from fcforge.models.base import Model, Output
from fcforge.nn.tensors import Inputs, Key, Params

Form = Literal["fc", "log", "dense", "sparse"]
FORWARD: dict[Form, str] = {  # how `forward` is called
    "fc": "forward(fc)",
    "log": "forward(log_fc)",
    "dense": "forward(x, adjacency)",
    "sparse": "forward(x, edge_index, edge_weight, batch)",
}
SUBJECTS = 3  # batch size of the trial that checks a module
WRAPPER = (
    "If it takes one Data object of PyTorch Geometric, wrap it: inputs = 'sparse' and a module with "
    "`def forward(self, x, edge_index, edge_weight, batch): return self.net(Data(x=x, "
    "edge_index=edge_index, edge_attr=edge_weight, batch=batch))`."
)


@dataclass(frozen=True)
class OneLaneModel(Model):
    """A model that trains one lane at a time, without vmap and CUDA graphs."""

    name = "torch_module"
    lifts = False
    needs_rois = True  # a module is tried on FC of its size when it is wrapped


@dataclass(frozen=True, init=False, eq=False)
class TorchModule(OneLaneModel):
    """A ``torch.nn.Module`` as a classifier.

    Every method can train it that needs no particular network. Parameters and buffers are handed to
    ``torch.func.functional_call``, so that the module itself never changes. Before training it is
    tried on random FC; what cannot work is refused by name.

    Parameters
    ----------
    module : torch.nn.Module
        Its ``forward`` returns logits (n, n_outputs).
    readout : str
        Name of the layer whose output is the graph-level readout that FORGE distils, as in
        ``module.named_modules()``. Without one the logits serve.
    inputs : {"fc", "log", "dense", "sparse"}
        Arguments of ``forward``. "fc": FC (n, R, R). "log": its matrix logarithm, scaled to about
        unit spread. "dense": node features (n, R, R) and weighted adjacency (n, R, R). "sparse":
        ``x, edge_index, edge_weight, batch`` as PyTorch Geometric has them.
    tau : float
        Threshold of an edge.
    n_rois, n_outputs : int
        Size of the input and number of logits.

    Notes
    -----
    Fresh parameters come from ``reset_parameters`` of every layer, seeded by the run; a parameter
    of a module without that method starts at its value in `module`.

    Examples
    --------
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> TorchModule(net, readout="2", n_rois=8).readout_size
    16
    """

    module: nn.Module = field(default_factory=nn.Identity, repr=False)
    readout: str = ""
    inputs: Form = "fc"
    tau: float = TAU

    __eq__ = object.__eq__  # two modules of one size are two models
    __hash__ = object.__hash__

    def __init__(
        self,
        module: nn.Module,
        readout: str = "",
        *,
        inputs: Form = "fc",
        tau: float = TAU,
        n_rois: int = 116,
        n_outputs: int = 2,
    ) -> None:
        # the class is frozen, so fields are set by object.__setattr__
        values = {
            "module": module,
            "readout": readout,
            "inputs": inputs,
            "tau": tau,
            "n_rois": n_rois,
            "n_outputs": n_outputs,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()
        # the trial finds the length of the readout
        object.__setattr__(self, "_size", self._try())

    @property
    def readout_size(self) -> int:
        """Length of the readout."""
        return self._size  # type: ignore[attr-defined]

    def init(self, rng: torch.Generator) -> Params:
        """Draw fresh parameters, seeded by `rng`.

        Only trainable ones are returned; the others are part of `init_stats`.
        """
        # layers draw from torch's global generator: it is seeded in a fork and restored after it
        seed = int(torch.randint(2**62, (1,), generator=rng))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = self._fresh()
        named = fresh.named_parameters()
        return {k: v.detach().clone() for k, v in named if v.requires_grad}

    def _fresh(self) -> nn.Module:
        """Return a copy of the module whose layers are drawn anew."""
        module = copy.deepcopy(self.module)
        for layer in module.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
        return module

    def init_stats(self) -> Params:
        """Return buffers, such as running statistics, and parameters that are not trained.

        These are the module's own values, not drawn anew.
        """
        stats = {k: v.detach().clone() for k, v in self.module.named_buffers()}
        for name, value in self.module.named_parameters():
            if not value.requires_grad:
                stats[name] = value.detach().clone()
        return stats

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the tensors that ``forward`` gets, as far as they do not depend on the batch.

        Their order in the dictionary is that of the arguments of ``forward`` (`_arguments`).
        """
        if self.inputs == "fc":
            return {"fc": fc}
        if self.inputs == "log":
            return {"log": graphs.log_matrix(fc) / LOG_SCALE}
        adjacency = graphs.adjacency(fc, self.tau)
        return {"features": graphs.node_features(fc), "adjacency": adjacency}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Call the module with these parameters and buffers, without changing the module itself.

        The readout is the output of the layer `readout`, taken by a forward hook. Random numbers of
        ``forward``, such as dropout, are seeded by `key` only. With `train` all layers are in training
        mode, those of dropout only if there is a `key`. Arguments as of `Model.apply`.
        """
        readouts: list[Tensor] = []

        def keep_output(layer: nn.Module, args: Any, output: Any) -> None:
            """Note the output of the readout layer; of several outputs the first is the readout."""
            readouts.append(output[0] if isinstance(output, tuple) else output)

        # the call changes these copies in place where a layer updates its buffers
        updated = {k: v.clone() for k, v in stats.items()}
        module = copy.copy(self.module)  # its layers are still those of `self.module`
        modes = {layer: layer.training for layer in module.modules()}
        _set_modes(module, train, key is not None)
        hook = None
        if self.readout:
            layer = module.get_submodule(self.readout)
            hook = layer.register_forward_hook(keep_output)
        try:
            with torch.random.fork_rng(devices=[], enabled=key is not None):
                if key is not None:
                    torch.manual_seed(int(key))
                logits = torch.func.functional_call(
                    module, {**params, **updated}, self._arguments(inputs)
                )
        finally:
            if hook is not None:
                hook.remove()
            for layer, training in modes.items():
                layer.training = training
        # a layer that is called several times counts with its last output
        embedding = readouts[-1].flatten(1) if readouts else logits
        return Output(logits, embedding, updated)

    def _arguments(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return the arguments of ``forward`` for a prepared batch.

        With ``inputs = "sparse"`` the graphs of all subjects become one, as in PyTorch Geometric: ROI r of
        subject s is node ``R s + r``.

        Returns
        -------
        tuple of Tensor
            With "sparse": node features (n R, R), ``edge_index`` (2, edges) with the source and the
            target node of each edge, their weights (edges,), and the subject of each node (n R,).
        """
        if self.inputs != "sparse":
            return tuple(inputs.values())
        x, adjacency = inputs["features"], inputs["adjacency"]
        n, rois, _ = adjacency.shape
        subject, target, source = adjacency.nonzero(as_tuple=True)
        edge_index = torch.stack([source, target]) + rois * subject
        weight = adjacency[subject, target, source]
        batch = torch.arange(n, device=x.device).repeat_interleave(rois)
        return x.flatten(0, 1), edge_index, weight, batch

    # -- the trial --------------------------------------------------------------------------------
    def _try(self) -> int:
        """Call the module on random FC and return the length of its readout.

        Raises
        ------
        ConfigError
            If the module cannot be trained: wrong shapes, no parameters, outputs that change from
            call to call or depend on other subjects of the batch.
        """
        layers = dict(self.module.named_modules())
        if self.readout and self.readout not in layers:
            known = [name for name in layers if name]
            raise unknown_name(
                "readout layer", self.readout, known, where=self._where()
            )
        if any(map(is_lazy, [*self.module.parameters(), *self.module.buffers()])):
            raise self._fault(
                "it has lazy layers whose sizes are not known yet.",
                "Give every layer its size, or call the module on one FC matrix first.",
            )
        inputs = self.prepare(_random_fc(self.n_rois))
        params = self.init(torch.Generator().manual_seed(0))
        if not params:
            raise self._fault(
                "it has no trainable parameters.", "Register layers in __init__."
            )
        leaves = {k: v.requires_grad_() for k, v in params.items()}
        seed = torch.tensor(0, dtype=torch.int32)
        self._call(leaves, inputs, train=True, key=seed)  # only to see that it works
        out, again = (self._call(leaves, inputs) for _ in range(2))
        alone = self._call(leaves, {k: v[:1] for k, v in inputs.items()})
        if not bool(out.logits.isfinite().all()):
            raise self._fault(
                "forward returns logits that are not finite.",
                "Check divisions, logarithms and the scale of the initial parameters.",
            )
        if out.embedding.shape[0] != SUBJECTS:
            raise self._fault(
                f"the layer '{self.readout}' returns {out.embedding.shape[0]} rows for "
                f"{SUBJECTS} subjects.",
                "Name a layer after the pooling over ROIs.",
            )
        if not torch.equal(out.logits, again.logits):
            raise self._fault(
                "its output changes from call to call in evaluation mode.",
                "Create layers in __init__, not in forward, and draw random numbers in training "
                "only.",
            )
        if not torch.allclose(out.logits[:1], alone.logits, atol=1e-3, rtol=1e-3):
            raise self._fault(
                "the scores of a subject depend on the other subjects of the batch.",
                "Do not normalise over the batch in evaluation mode.",
            )
        loss = out.logits.square().sum()  # any number that depends on all logits
        used = loss.requires_grad and any(
            gradient is not None
            for gradient in torch.autograd.grad(
                loss, list(leaves.values()), allow_unused=True
            )
        )
        if not used:
            raise self._fault(
                "its output depends on no parameter.", "Do not detach activations."
            )
        return out.embedding.shape[1]

    def _call(self, params: Params, inputs: Inputs, **mode: Any) -> Output:
        """Apply the module to the trial's subjects; raise `ConfigError` if it fails or returns no logits.

        Parameters
        ----------
        params : dict of Tensor
        inputs : dict of Tensor
        **mode
            `train` and `key` as in `apply`.
        """
        given = {k: v.clone() for k, v in inputs.items()}  # compared below
        try:
            logits, embedding, stats = self.apply(
                params, self.init_stats(), given, **mode
            )
        except Exception as error:
            problem = f"forward fails on FC of {self.n_rois} ROIs ({type(error).__name__}: {error})."
            raise self._fault(problem, self._advice(error)) from error
        subjects = len(next(iter(inputs.values())))
        right_shape = (subjects, self.n_outputs)
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else None
        if shape != right_shape:
            returned = f"shape {shape}" if shape is not None else type(logits).__name__
            raise self._fault(
                f"forward returns {returned} for {subjects} subjects, not {right_shape}.",
                "Return one row of logits per subject, and nothing else.",
            )
        if not all(torch.equal(given[k], v) for k, v in inputs.items()):
            raise self._fault(
                "forward changes its input in place.",
                "Write x = x * 2 instead of x *= 2 or x.mul_(2).",
            )
        return Output(logits, embedding, stats)

    def _advice(self, error: Exception) -> str:
        """Return what to do about an error of ``forward``."""
        others = [f"'{k}' {call}" for k, call in FORWARD.items() if k != self.inputs]
        advice = [
            f"With inputs = '{self.inputs}' it is called as {FORWARD[self.inputs]}. Other inputs: "
            f"{', '.join(others)}."
        ]
        if isinstance(error, RuntimeError) and re.search("shape|size|dim", str(error)):
            advice.insert(
                0,
                f"Was it built for another number of ROIs than {self.n_rois}? Build it for that of the "
                "data, which TorchModule(..., n_rois=...) states.",
            )
        if _takes_one_object(self.module.forward, self.inputs, error):
            advice.append(WRAPPER)
        return " ".join(advice)

    def _where(self) -> str:
        """Return the module's name for error messages."""
        return f"model '{type(self.module).__name__}'"

    def _fault(self, fault: str, advice: str) -> ConfigError:
        """Return the error for a module that cannot work.

        `fault` is a sentence on what is wrong, `advice` one on what to do.
        """
        return ConfigError(fault, where=self._where(), do=advice)


def _takes_one_object(
    forward: Callable[..., Any], inputs: Form, error: Exception
) -> bool:
    """Return whether ``forward`` has one argument and seems to expect an object with attributes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(forward).parameters.values()
    if [each.kind in kinds for each in parameters] != [True]:
        return False
    given_several = inputs in ("dense", "sparse") and isinstance(error, TypeError)
    return given_several or isinstance(error, AttributeError)


def _set_modes(module: nn.Module, train: bool, dropping: bool) -> None:
    """Set training or evaluation mode of all layers; dropout layers drop only if `dropping`."""
    for layer in module.modules():
        is_dropout = isinstance(layer, nn.modules.dropout._DropoutNd)
        layer.training = train and dropping if is_dropout else train


def _random_fc(rois: int) -> Tensor:
    """Return FC (n, R, R) of a few simulated subjects, always the same ones."""
    rng = torch.Generator().manual_seed(0)
    n_times = 2 * rois
    series = torch.randn(SUBJECTS, rois, n_times, generator=rng)
    # a signal that all ROIs share, so that correlations are not all near 0
    series = series + torch.randn(SUBJECTS, 1, n_times, generator=rng)
    return torch.stack([torch.corrcoef(one).reshape(rois, rois) for one in series])


def module_class(candidate: Any, name: str) -> Any:
    """Return a model class for a ``torch.nn.Module`` class that a config names.

    Parameters
    ----------
    candidate : object
        What the config's name imports. Only subclasses of ``torch.nn.Module`` are wrapped.
    name : str
        Name in the config, ``"module:object"``.

    Returns
    -------
    type or object
        A subclass of `TorchModule` that builds the module itself; `candidate` if that is no module
        class.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, nn.Module)):
        return candidate
    title = name  # in the class below `name` is the attribute itself

    @dataclass(frozen=True, init=False, eq=False)
    class Imported(TorchModule):
        """A module that a config names; `settings` are passed to its constructor."""

        settings: Mapping[str, Any] = field(default_factory=dict)
        name = title

        def __init__(
            self,
            readout: str = "",
            *,
            inputs: Form = "fc",
            tau: float = TAU,
            settings: Mapping[str, Any] | None = None,
            n_rois: int = 116,
            n_outputs: int = 2,
        ) -> None:
            arguments = dict(settings or {})
            object.__setattr__(self, "settings", arguments)
            module = _built(candidate, arguments, n_rois, n_outputs)
            super().__init__(
                module,
                readout,
                inputs=inputs,
                tau=tau,
                n_rois=n_rois,
                n_outputs=n_outputs,
            )

        def _fresh(self) -> nn.Module:
            """Return a new module: its constructor draws all parameters."""
            return _built(candidate, self.settings, self.n_rois, self.n_outputs)

    Imported.__name__ = Imported.__qualname__ = candidate.__name__
    Imported.__doc__ = inspect.getdoc(candidate) or f"Module {name} of a config."
    return Imported


def _built(
    candidate: Callable[..., nn.Module],
    settings: Mapping[str, Any],
    n_rois: int,
    n_outputs: int,
) -> nn.Module:
    """Return the module that a constructor builds; raise `ConfigError` if it refuses its arguments.

    Parameters
    ----------
    candidate : callable
        Usually a subclass of ``torch.nn.Module``.
    settings : mapping
        Its keyword arguments, from the config.
    n_rois, n_outputs : int
        Passed as well if the constructor has parameters of these names.
    """
    sizes = {"n_rois": n_rois, "n_outputs": n_outputs}
    accepted = inspect.signature(candidate).parameters
    sizes = {k: v for k, v in sizes.items() if k in accepted}
    try:
        return candidate(**sizes, **settings)
    except TypeError as error:
        raise ConfigError(
            f"it cannot be built ({error}).",
            where=f"model '{getattr(candidate, '__name__', candidate)}'",
            do="Write its arguments in settings = { name = value }; n_rois and n_outputs are given.",
        ) from error
