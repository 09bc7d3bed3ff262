"""Pages to work with: my rows, corrections, and the upload of results."""

import hashlib
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ncprior.campaigns import listing
from ncprior.campaigns.campaign import Campaign
from ncprior.campaigns.labels import Telling
from ncprior.campaigns.results import results_in_csv
from ncprior.errors import UserError
from ncprior.web.open_campaigns import OpenCampaigns
from ncprior.web.pages import shown
from ncprior.web.rendering import page


class Filled(NamedTuple):
    """What someone has typed about a row, and what was wrong with it."""

    values: dict[str, str]
    note: str
    error: str


def labelling_routes(campaigns: OpenCampaigns) -> list[Route]:
    """Addresses of the pages to work with."""

    def of(request: Request) -> Campaign:
        return campaigns.get(request.path_params["name"])

    def mine(request: Request) -> Response:
        return _my_rows(request, of(request))

    def ask(request: Request) -> Response:
        campaign, who = of(request), request.state.person
        count = _text(request.state.form, "n")
        if not count.isdecimal() or len(count) > 6:
            raise UserError(f"{count!r:.20} is no number of rows")
        asked = campaign.ask(int(count), person=who.name, lease=_text(request.state.form, "lease") or None)
        return _my_rows(request, campaign, notices=asked.notices)

    def tell(request: Request) -> Response:
        return _tell(request, of(request))

    def correct(request: Request) -> Response:
        campaign, form, who = of(request), request.state.form, request.state.person
        row = _text(form, "id")
        values = {name: _text(form, f"value {name}") for name in campaign.spec.targets}
        values = {name: value for name, value in values.items() if value}
        of_whom = _text(form, "of") or None
        campaign.correct(row, values, person=who.name, note=_text(form, "note") or None, of=of_whom)  # type: ignore[arg-type]
        return RedirectResponse(f"/c/{campaign.name}/row?{urlencode({'id': row})}", 303)

    def upload(request: Request) -> Response:
        return page(request, "upload.html", campaign=of(request), outcomes=None, text="", told=None)

    def preview(request: Request) -> Response:
        return _upload(request, of(request), tell_them=False)

    def confirm(request: Request) -> Response:
        return _upload(request, of(request), tell_them=True)

    posts = {"ask": ask, "tell": tell, "correct": correct, "preview": preview, "confirm": confirm}
    return [
        Route("/c/{name}/mine", shown(mine)),
        Route("/c/{name}/upload", shown(upload)),
        *(Route(f"/c/{{name}}/{word}", shown(act), methods=["POST"]) for word, act in posts.items()),
    ]


def _my_rows(
    request: Request, campaign: Campaign, *, notices: list[str] | None = None, filled: dict[str, Filled] | None = None
) -> Response:
    """The page of someone's rows; ``filled`` are those whose values could not be taken."""
    who = request.state.person
    if not who.may_label:
        raise UserError(f"{who.name} may look, but not label")
    recent = campaign.database.read(lambda c: listing.recent_labels(c, campaign.id, who))
    return page(
        request,
        "mine.html",
        code=400 if filled else 200,
        campaign=campaign,
        rows=campaign.held(who.name),
        notices=notices or [],
        filled=filled or {},
        recent=recent,
    )


def _tell(request: Request, campaign: Campaign) -> Response:
    """Takes what was filled in: values to tell, and a row to skip, to fail, to give back."""
    form, who = request.state.form, request.state.person
    notices: list[str] = []
    wrong: dict[str, Filled] = {}
    given_up = {row for word in ("skip", "fail", "release") if (row := _give_up(campaign, form, who.name, word))}
    rows = dict.fromkeys(one for one in form.getlist("row") if isinstance(one, str) and one not in given_up)
    for row in rows:
        typed = {name: _text(form, f"value {name} {row}") for name in campaign.spec.targets}
        note = _text(form, f"note {row}")
        values = {name: value for name, value in typed.items() if value}
        if not values:
            continue
        try:
            told = campaign.tell(row, values, person=who.name, note=note or None)  # type: ignore[arg-type]
            notices += told.notices
        except UserError as error:
            wrong[row] = Filled(typed, note, str(error))
    if wrong or notices:
        return _my_rows(request, campaign, notices=notices, filled=wrong)
    return RedirectResponse(f"/c/{campaign.name}/mine", 303)


def _give_up(campaign: Campaign, form: FormData, person: str, word: str) -> str:
    """Skips, fails or releases the row whose button was pressed, if one was."""
    row = _text(form, word)
    if row and word == "release":
        campaign.release(row, person=person)
    elif row:
        getattr(campaign, word)(row, person=person, note=_text(form, f"note {row}") or None)
    return row


def _upload(request: Request, campaign: Campaign, *, tell_them: bool) -> Response:
    """Says what a file of results would do, or does it; a file that is told twice counts once."""
    form, who = request.state.form, request.state.person
    given = form.get("file")
    content = given.file.read() if isinstance(given, UploadFile) else _text(form, "text").encode()
    content = content.replace(b"\r\n", b"\n").strip() + b"\n"
    results = results_in_csv(content, campaign.spec)
    digest = hashlib.sha256(content).hexdigest()[:32]
    results = [one._replace(key=f"upload {digest} {number}") for number, one in enumerate(results, 1)]
    outcomes = campaign.tell_rows(_without_note(results), person=who.name, preview=not tell_them)
    told = sum(one.outcome == "new" for one in outcomes) if tell_them else None
    text = content.decode()
    return page(request, "upload.html", campaign=campaign, outcomes=outcomes, text=text, told=told)


def _without_note(results: list[Telling]) -> list[Telling]:
    """Results with empty notes as none."""
    return [one._replace(note=one.note or None) for one in results]


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""
