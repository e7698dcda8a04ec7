"""Arrays of a record: safetensors bytes, written one way only."""

from collections.abc import Mapping

import numpy as np

from fcforge.errors import ExchangeError

KINDS = "fiub"  # floats, whole numbers, yes or no


def save_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as they are stored; names sorted, nothing beside them."""
    from safetensors.numpy import save

    return save({k: np.asarray(arrays[k], order="C") for k in sorted(arrays)})


def load_arrays(data: bytes, what: str) -> dict[str, np.ndarray]:
    """Arrays by name, types and numbers checked; anything else raises `ExchangeError`.

    What is read must be stored again as the same bytes: nothing hides beside the arrays.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found = load(data)
        same = save_arrays(found) == data
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ExchangeError(
            f"the arrays of the {what} cannot be read ({type(error).__name__})."
        ) from error
    if not same:
        raise ExchangeError(f"the arrays of the {what} hide something beside them.")
    for name, array in found.items():
        if array.dtype.kind not in KINDS or not np.isfinite(array).all():
            raise ExchangeError(
                f"array {name!r:.80} of the {what} ({array.dtype}) holds what is no number."
            )
    return {name: found[name] for name in sorted(found)}
