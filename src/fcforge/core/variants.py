"""Classes that come in variants, chosen by one word: ``HCTS(variant="paper")``."""

import inspect
from typing import Any, ClassVar

from fcforge.core.names import look_up


class Variants(type):
    """Metaclass that picks the class of a variant when an instance is made.

    The root class has an empty dictionary ``variants``. Every class below it with a class
    attribute ``variant`` of its own is registered there under that word. Calling any of them with
    ``variant = word`` makes an instance of the class registered under the word; without it the
    class that was called is used, which is the root for the default variant.

    Examples
    --------
    >>> class Dog(metaclass=Variants):
    ...     variants = {}
    ...     variant = "large"
    >>> class SmallDog(Dog):
    ...     variant = "small"
    >>> type(Dog(variant="small")).__name__, type(Dog()).__name__
    ('SmallDog', 'Dog')
    """

    variants: ClassVar[dict[str, type]]

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        if "variant" in body:
            cls.variants[body["variant"]] = cls

    def __call__(cls, *args: Any, variant: str | None = None, **settings: Any) -> Any:
        """Make an instance of the variant's class."""
        chosen = cls if variant is None else cls.of_variant(variant)
        return type.__call__(chosen, *args, **settings)

    @property
    def __signature__(cls) -> inspect.Signature:
        """Signature of the class: its own settings, then `variant`."""
        init = vars(cls)["__init__"]
        own = list(inspect.signature(init).parameters.values())[1:]
        word = inspect.Parameter(
            "variant",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=str | None,
        )
        return inspect.Signature([*own, word])

    def of_variant(cls, variant: str) -> Any:
        """Return the class of a variant; a wrong word raises `ConfigError` with the known ones."""
        return look_up("variant", variant, cls.variants)
