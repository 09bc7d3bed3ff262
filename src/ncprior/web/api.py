"""The JSON interface, for laboratory robots; ``openapi.json`` describes it."""

import json
from collections.abc import Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ncprior.campaigns.campaign import Campaign, campaign_names
from ncprior.campaigns.database import StorageError
from ncprior.campaigns.leases import Asked
from ncprior.campaigns.people import Person
from ncprior.campaigns.plain import plain
from ncprior.errors import UserError
from ncprior.schema import JsonObject
from ncprior.web.open_campaigns import OpenCampaigns

_FIELDS: dict[str, dict[str, type]] = {
    "ask": {"n": int, "lease": str},
    "tell": {"id": str, "value": object, "note": str, "key": str, "inputs": dict},
    "correct": {"id": str, "value": object, "note": str, "key": str, "of": str},
    "skip": {"id": str, "note": str},
    "fail": {"id": str, "note": str},
    "release": {"id": str},
    "extend": {"id": str, "lease": str},
}
"""What a request may hold, by the last word of its address."""

_NEEDED = {"tell": ("id", "value"), "correct": ("id", "value")} | dict.fromkeys(
    ("skip", "fail", "release", "extend"), ("id",)
)


def api_routes(campaigns: OpenCampaigns) -> list[Route]:
    """All addresses under ``/api/``."""

    def names(_: Request) -> Response:
        return JSONResponse({"campaigns": campaign_names(campaigns.database)})

    def status(request: Request) -> Response:
        return _answered(lambda: campaigns.get(request.path_params["name"]).status())

    def description(_: Request) -> Response:
        return Response(openapi(), media_type="application/json")

    def action(word: str) -> Route:
        def act(request: Request) -> Response:
            return _answered(lambda: _act(campaigns, request, word))

        return Route(f"/api/campaigns/{{name}}/{word}", act, methods=["POST"], name=f"api {word}")

    return [
        Route("/api/campaigns", names, name="api campaigns"),
        Route("/api/campaigns/{name}/status", status, name="api status"),
        Route("/api/openapi.json", description, name="api description"),
        *(action(word) for word in _FIELDS),
    ]


def openapi() -> str:
    """The description of the interface."""
    return (files("ncprior.web") / "openapi.json").read_text(encoding="utf-8")


def _act(campaigns: OpenCampaigns, request: Request, word: str) -> object:
    person: Person = request.state.person
    given = _read(request.state.body, word)
    campaign = campaigns.get(request.path_params["name"])
    done = getattr(campaign, word)(**given, person=person.name)
    return _described(campaign, word, given, done)


def _described(campaign: Campaign, word: str, given: JsonObject, done: object) -> object:
    """What the interface says about something that was done."""
    if word in ("skip", "fail", "release"):
        return {"id": given["id"], "notices": done or []}
    if word == "extend":
        return {"id": given["id"], "expires_at": done}
    if word == "ask":
        assert isinstance(done, Asked)
        return {**done._asdict(), "targets": campaign.spec.targets}
    return done


def _read(body: bytes, word: str) -> JsonObject:
    """The fields of a request.

    Raises:
        UserError: If it is no JSON object, or has fields that mean nothing here.
    """
    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise UserError("the request is no JSON") from error
    fields = _FIELDS[word]
    if not isinstance(given, dict):
        raise UserError("the request must be a JSON object")
    if unknown := [name for name in given if name not in fields]:
        raise UserError(f"unknown field {unknown[0]!r:.80}; {word} takes {', '.join(fields)}")
    for name, value in given.items():
        kind = fields[name]
        if kind is not object and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UserError(f"{name} must be {_WORDS[kind]}")
    if missing := [name for name in _NEEDED.get(word, ()) if name not in given]:
        raise UserError(f"{missing[0]} is missing")
    return given


_WORDS: dict[type, str] = {int: "a whole number", str: "text", dict: "an object"}


def _answered(act: Callable[[], object]) -> Response:
    try:
        return JSONResponse(plain(act()))
    except StorageError as error:  # the same may work later
        return JSONResponse({"error": str(error)}, 503)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 400)
