"""Numbers among an assignor's own settings."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import ConfigException
from sparkrelay.settings import shortly

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["number_setting"]

_MOST: Final = 1_000_000
#: No exponent, and few digits: to compute with a million of them would take hours.
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def number_setting(configs: Mapping[str, Any], key: str, default: str, *, least: int) -> Fraction:
    """Return one of an assignor's settings as a fraction, so that no rounding decides an assignment.

    Args:
        configs: the application's settings.
        key: the setting's name.
        default: what it is if nobody says anything.
        least: the smallest value.

    Raises:
        ConfigException: it is not a number, too small or too large.
    """
    value = configs.get(key, default)
    # A float is what its shortest text says: 0.45 is 9/20.
    text = str(value)
    if not _NUMBER.fullmatch(text) or not least <= (found := Fraction(text)) <= _MOST:
        raise ConfigException(f"{key}={shortly(value)} must be a number from {least} to {_MOST}, such as {default}")
    return found
