"""Names of the tensor collections that networks are made of."""

from torch import Tensor

Params = dict[str, Tensor]
Inputs = dict[str, Tensor]
Key = (
    Tensor | None
)  # int32 scalar that dropout is drawn from; without one nothing is dropped
