"""Declare and check settings: default, range and one line of help."""

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from bertpt.errors import InputError, SettingError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "float32", "bfloat16")
LIMITS = {
    "at_least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "at_most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def setting(
    default: T,
    help: str,  # noqa: A002
    *,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
    **limits: float,
) -> T:
    """Declare a dataclass field with its help, choices and range (the keys of `LIMITS`)."""
    assert limits.keys() <= LIMITS.keys(), limits
    metadata = {"help": help, "choices": choices, "metavar": metavar, **limits}
    return dataclasses.field(default=default, metadata=metadata)


class Settings:
    """Base class of settings: checks every value against its declared range.

    Raises:
        SettingError: for the first value that is out of range.
    """

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(cast("Any", self)):
            value = getattr(self, field.name)
            problem = _wrong_type(value, kinds[field.name]) or _problem(value, field.metadata)
            if problem:
                raise SettingError(field.name, problem)

    @classmethod
    def read(cls, values: Mapping[str, Any], source: object) -> "Self":
        """Create settings from the values in a file.

        Raises:
            InputError: a name or a value is wrong; the message names it and the source.
        """
        known = {field.name for field in dataclasses.fields(cast("Any", cls))}
        if unknown := sorted(values.keys() - known):
            raise InputError(f"{source}: unknown setting {', '.join(unknown)}")
        try:
            return cls(**values)
        except SettingError as error:
            problem = str(error).partition(" ")[2]
            raise InputError(f"{source}: {error.setting} {problem}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        return dataclasses.asdict(cast("Any", self))


def _wrong_type(value: object, kind: Any) -> str | None:
    if isinstance(value, kind) or (isinstance(value, int) and isinstance(0.0, kind)):
        return None
    return f"{value!r} is not of type {getattr(kind, '__name__', kind)}"


def _problem(value: Any, declared: Mapping[str, Any]) -> str | None:
    if value is None:
        return None
    if declared.get("choices") and value not in declared["choices"]:
        return f"{value} is not one of {', '.join(declared['choices'])}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    limits = {LIMITS[name]: bound for name, bound in declared.items() if name in LIMITS}
    if all(holds(value, bound) for (holds, _), bound in limits.items()):
        return None
    return f"{value} must be " + " and ".join(f"{words} {b:g}" for (_, words), b in limits.items())
