"""Pages to look at: campaigns, one campaign, its labels, a row; figures and exports; the log-in."""

import secrets
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ncprior.campaigns import listing, people
from ncprior.campaigns.campaign import Campaign, campaign_names
from ncprior.campaigns.results import export_csv
from ncprior.errors import UserError
from ncprior.web import figures
from ncprior.web.guard import COOKIE, FORM_COOKIE, Guard
from ncprior.web.open_campaigns import OpenCampaigns
from ncprior.web.rendering import page

_SIGNED_IN = 30 * 86_400
"""Seconds for which a browser keeps the token."""

_SVG_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""A drawing has its styles in it, and nothing else."""


def shown(respond: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A page on which a mistake is told in one line."""

    def answer(request: Request) -> Response:
        try:
            return respond(request)
        except UserError as error:
            return page(request, "error.html", code=400, message=str(error))

    return answer


def page_routes(campaigns: OpenCampaigns) -> list[Route]:
    """Addresses of the pages to look at."""

    def of(request: Request) -> Campaign:
        return campaigns.get(request.path_params["name"])

    def overview(request: Request) -> Response:
        names = campaign_names(campaigns.database)
        return page(request, "campaigns.html", statuses=[campaigns.get(name).status() for name in names])

    def one(request: Request) -> Response:
        campaign = of(request)
        return page(request, "campaign.html", campaign=campaign, status=campaign.status())

    def labels(request: Request) -> Response:
        campaign, query = of(request), request.query_params
        text, teller = query.get("q", "")[:100], query.get("person", "")[:100]
        number = int(query["page"]) if query.get("page", "").isdecimal() and len(query["page"]) < 9 else 1
        found = campaign.database.read(
            lambda c: (listing.label_page(c, campaign.id, text=text, teller=teller, page=number),
                       listing.tellers(c, campaign.id))
        )  # fmt: skip
        held = {row.id for row in campaign.held(request.state.person.name)}
        return page(
            request, "labels.html", campaign=campaign, labels=found[0], tellers=found[1], text=text, teller=teller,
            held=held,
        )  # fmt: skip

    def row(request: Request) -> Response:
        campaign, key = of(request), request.query_params.get("id", "")[:1_000]
        who = request.state.person
        detail = campaign.database.read(lambda c: listing.row_detail(c, campaign.id, campaign.spec, key, who))
        if detail is None:
            campaign.refresh()  # someone may have updated the pool
            campaign.pool.check(campaign.name)
            inputs = listing.pool_row(campaign.pool, key)
            if inputs is None:
                raise UserError(f"there is no row {key!r:.80} in campaign {campaign.name!r}")
            detail = listing.RowDetail(key, inputs, "never asked for", None, True, [], {}, None, False, [], [])
        return page(request, "row.html", campaign=campaign, row=detail)

    def curve(request: Request) -> Response:
        campaign = of(request)
        audit = campaign.status().audits[0]
        if not audit.curve:
            raise UserError("no audit rows yet")
        narrow, wanted = "narrow" in request.query_params, campaign.spec.stop_error
        return _svg(figures.learning_curve(audit.curve, audit.target, wanted, narrow=narrow))

    def left(request: Request) -> Response:
        campaign = of(request)
        model = campaign.status().model
        if model is None or not model.metrics.get("uncertainty", {}).get("columns"):
            raise UserError("no model yet")
        narrow, target = "narrow" in request.query_params, campaign.spec.targets[0]
        return _svg(figures.left_uncertainty(model.metrics["uncertainty"], target, narrow=narrow))

    def export(request: Request) -> Response:
        campaign, whole = of(request), request.path_params["kind"] == "history"
        if request.path_params["kind"] not in ("labels", "history"):
            raise UserError("there are labels.csv and history.csv")
        text = export_csv(campaign.database, campaign.id, campaign.spec, history=whole)
        file = f"{campaign.name}-{request.path_params['kind']}.csv"
        headers = {"content-disposition": f'attachment; filename="{file}"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    found = {
        "/": overview,
        "/c/{name}": one,
        "/c/{name}/labels": labels,
        "/c/{name}/row": row,
        "/c/{name}/curve.svg": curve,
        "/c/{name}/uncertainty.svg": left,
        "/c/{name}/{kind}.csv": export,
    }
    routes = [Route(path, shown(respond)) for path, respond in found.items()]
    log_in = Route("/login", shown(_log_in), methods=["GET", "POST"])
    return [*routes, log_in, Route("/logout", _log_out, methods=["POST"])]


def _log_in(request: Request) -> Response:
    """The form for the token; with the right one, the browser keeps it."""
    guard: Guard = request.state.guard
    if request.method != "POST":
        secret = request.cookies.get(FORM_COOKIE) or secrets.token_hex(16)
        request.scope["headers"] = [*request.scope["headers"], (b"cookie", f"{FORM_COOKIE}={secret}".encode())]
        answer: Response = page(Request(request.scope), "login.html", wrong=False)
        _set_cookie(answer, guard, FORM_COOKIE, secret, 3_600)
        return answer
    token = str(request.state.form.get("token", "")).strip()[:200]
    who = guard.database.read(lambda connection: people.by_token(connection, token))
    if who is None:
        guard.note_failure(request.state.address)
        return page(request, "login.html", code=401, wrong=True)
    answer = RedirectResponse("/", 303)
    _set_cookie(answer, guard, COOKIE, token, _SIGNED_IN)
    return answer


def _log_out(_: Request) -> Response:
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _set_cookie(answer: Response, guard: Guard, name: str, value: str, seconds: int) -> None:
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=guard.behind_tls)


def _svg(drawing: bytes) -> Response:
    return Response(drawing, media_type="image/svg+xml", headers=_SVG_POLICY)
