"""Classes that come in variants, chosen by one word: ``HCTS(variant="paper")``."""

import inspect
from typing import Any, ClassVar

from fcforge.core.names import look_up


class Variants(type):
    """Metaclass that picks the class of a variant when an instance is made.

    The root class has a dictionary ``variants``, at first empty. Every class that derives from it and
    has a class attribute ``variant`` of its own is registered there under that word. Calling one of
    these classes with ``variant = word`` makes an instance of the class registered under the word.
    Without the argument the class itself is used; the root is the default variant.

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
        """Return an instance of the variant's class, made with the other arguments."""
        variant_class = cls if variant is None else cls.of_variant(variant)
        return type.__call__(variant_class, *args, **settings)

    @property
    def __signature__(cls) -> inspect.Signature:
        """Signature that ``help()`` shows: the settings of the class, then `variant`."""
        init = vars(cls)["__init__"]
        settings = list(inspect.signature(init).parameters.values())[1:]
        variant = inspect.Parameter(
            "variant",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=str | None,
        )
        return inspect.Signature([*settings, variant])

    def of_variant(cls, variant: str) -> Any:
        """Return the class of a variant; raise `ConfigError`, which lists them, for another word."""
        return look_up("variant", variant, cls.variants)
