"""The campaigns that a server has open: each once, for all requests."""

import threading

from ncprior.campaigns.campaign import Campaign
from ncprior.campaigns.database import Database
from ncprior.campaigns.times import Clock, utc_now

_MOST = 100


class OpenCampaigns:
    """Opens campaigns when they are first asked for; they keep the index of their pool in memory."""

    def __init__(self, database: Database, now: Clock = utc_now) -> None:
        self.database, self.now = database, now
        self._open: dict[str, Campaign] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Campaign:
        """The campaign of this name."""
        with self._lock:
            if name in self._open:
                return self._open[name]
        found = Campaign.open(name, self.database, self.now)
        with self._lock:
            if len(self._open) >= _MOST:
                self._open.pop(next(iter(self._open)))
            return self._open.setdefault(name, found)
