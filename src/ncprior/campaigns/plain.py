"""Values as JSON has them, for `--json` and for robots."""

import math
from collections.abc import Mapping
from datetime import datetime


def plain(value: object) -> object:
    """Named tuples as dictionaries, times as text, numbers that are not finite as None; all else as it is.

    >>> from ncprior.campaigns.times import utc_now
    >>> plain({"rows": (1, math.inf)})
    {'rows': [1, None]}
    """
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
