"""A laboratory robot: asks a campaign for rows, measures them, and tells the results."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any


def call(server: str, campaign: str, token: str, word: str, **body: Any) -> Any:
    """Calls the JSON interface, and tries again until an answer comes; with a key, a label counts once."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{server}/api/campaigns/{campaign}/{word}", json.dumps(body).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise RuntimeError(json.load(error)["error"]) from None
        except OSError:
            pass  # nobody answers
        time.sleep(5)


def work(server: str, campaign: str, token: str, measure: Callable[[dict[str, Any]], float], count: int) -> None:
    """Measures ``count`` rows, one after the other."""
    for _ in range(count):
        for row in call(server, campaign, token, "ask", n=1, lease="6h")["rows"]:
            call(server, campaign, token, "tell", id=row["id"], value=measure(row["inputs"]), key=f"robot {row['id']}")
