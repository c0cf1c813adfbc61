"""Numeric settings of assignors."""

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
#: No exponent and few digits: computing with a million digits would take hours.
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def number_setting(configs: Mapping[str, Any], key: str, default: str, *, least: int) -> Fraction:
    """Return a setting of an assignor as a fraction, so that no rounding decides an assignment.

    Raises:
        ConfigException: it is not a number, below ``least`` or too large.
    """
    value = configs.get(key, default)
    text = str(value)  # of a float the shortest: 0.45 is 9/20
    if not _NUMBER.fullmatch(text) or not least <= (found := Fraction(text)) <= _MOST:
        raise ConfigException(f"{key}={shortly(value)} must be a number from {least} to {_MOST}, such as {default}")
    return found
