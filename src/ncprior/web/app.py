"""The web application: the guard around pages, JSON interface and style sheet."""

from collections.abc import Iterable
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ncprior.campaigns.database import Database
from ncprior.campaigns.times import Clock, utc_now
from ncprior.web.api import api_routes
from ncprior.web.guard import Guard
from ncprior.web.labelling import labelling_routes
from ncprior.web.open_campaigns import OpenCampaigns
from ncprior.web.pages import page_routes

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def create_app(
    database: Database, *, hosts: Iterable[str] = LOOPBACK, behind_tls: bool = False, now: Clock = utc_now
) -> Guard:
    """The application that a server runs.

    Args:
        database: The storage of the campaigns.
        hosts: Names under which it may be called.
        behind_tls: Whether a proxy in front encrypts.
        now: The clock of the campaigns.
    """
    campaigns = OpenCampaigns(database, now)
    routes = [*page_routes(campaigns), *labelling_routes(campaigns), *api_routes(campaigns)]
    return Guard(Starlette(routes=[*routes, _style()]), database, hosts=hosts, behind_tls=behind_tls)


def _style() -> Route:
    text = (files("ncprior.web") / "static" / "style.css").read_text(encoding="utf-8")

    def style(_: Request) -> Response:
        return Response(text, media_type="text/css", headers={"cache-control": "max-age=3600"})

    return Route("/static/style.css", style)
