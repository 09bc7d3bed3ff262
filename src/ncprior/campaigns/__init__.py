"""Label campaigns: ask for rows, tell their labels days later, by many people, and lose nothing.

>>> from ncprior.campaigns import Campaign  # needs the extra: pip install "ncprior[campaigns]"
"""

from ncprior.campaigns.campaign import Campaign

__all__ = ["Campaign"]
