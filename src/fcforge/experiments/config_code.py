"""Code that a config names: ``"module:object"`` for an estimator, method, model or dataset.

Importing a module runs its code, and a Python file beside a config came with the config. Commands that a user
starts on a config of somebody else (`check`, `tune`, `judge`, `analyse motion`, a chain's first step)
therefore import only installed modules, unless ``--allow-code`` is given.
"""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.registry import Registry, source_files
from fcforge.core.spec import LearnerSpec


def allow_module(name: str, folder: Path, where: str, allow_code: bool) -> None:
    """Make a module that lies beside a config importable, if code is allowed.

    Nothing is done for any other module: it has to be installed, and then it is importable.

    Parameters
    ----------
    name : str
        ``"module:object"``.
    folder : Path
        Folder of the config.
    where : str
        Place of the name, for the error message.
    allow_code : bool
        Whether code beside the config may be imported.

    Raises
    ------
    ConfigError
        If the module lies beside the config and `allow_code` is false.
    """
    top = name.partition(":")[0].partition(".")[0]
    beside = [folder / f"{top}.py", folder / top / "__init__.py"]
    files = [path for path in beside if path.is_file()]
    if not files:
        return
    if not allow_code:
        raise ConfigError(
            f"'{name}' would run code that came with the config ({files[0]}).",
            where=where,
            do="Read that file. If you trust it, add --allow-code.",
        )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def registries() -> dict[str, Registry]:
    """Return the registries of a learner's parts, by kind."""
    from fcforge.generators import GENERATORS
    from fcforge.methods import METHODS
    from fcforge.models import MODELS

    return {"method": METHODS, "model": MODELS, "generator": GENERATORS}


def import_parts(learner: LearnerSpec) -> None:
    """Register the parts of a learner that are named ``"module:object"``."""
    parts = {
        "method": learner.method,
        "model": learner.model,
        "generator": learner.generator,
    }
    named = {kind: part.name for kind, part in parts.items() if part is not None}
    if any(":" in name for name in named.values()):
        for kind, registry in registries().items():
            if kind in named:
                registry.import_member(named[kind])
        for name in named.values():
            if ":" in name:
                _require_unchanged(name)


# the module and the digest of its files, by the name of an imported part
_imported: dict[str, tuple[ModuleType, str]] = {}


def _require_unchanged(name: str) -> None:
    """Raise `ConfigError` if the source of ``"module:object"`` has changed since it was imported.

    Python still runs the old code, and the results would be stored as those of the new one. Notebooks
    and workers of a cluster live long enough for this.
    """
    module = sys.modules[name.partition(":")[0]]
    files = source_files(name)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    known, before = _imported.setdefault(name, (module, digest))
    if known is not module:  # imported anew
        _imported[name] = module, digest
    elif before != digest:
        raise ConfigError(
            f"the code of '{name}' has changed since it was imported, and Python still has the old one.",
            do="Start Python again (restart the kernel of a notebook, or the workers of a cluster).",
        )


def code_files(learner: LearnerSpec) -> list[str]:
    """Return the names of the files with code of a learner's own: its parts named ``"module:object"``."""
    parts = (learner.method, learner.model, learner.generator)
    names = [part.name for part in parts if part is not None]
    # the name of a scikit-learn estimator is a setting
    names += [str(learner.method.params.get("estimator", ""))]
    files = {
        path.name
        for name in names
        if ":" in name
        for path in source_files(name) or [Path(f"{name.partition(':')[0]}.py")]
    }
    return sorted(files)


def import_dataset(dataset: Component) -> None:
    """Register a dataset that is named ``"module:function"``."""
    from fcforge.data.datasets import DATASETS

    DATASETS.import_member(dataset.name)
