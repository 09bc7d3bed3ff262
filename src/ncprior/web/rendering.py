"""Pages from templates, with what every page needs: who is looking, and the secret of its forms."""

from datetime import datetime

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ncprior.campaigns.people import Person
from ncprior.web.guard import form_secret

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("ncprior.web"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
)


def _number(value: object) -> str:
    """A number as people read it: four digits, or all of a whole one; text as it is."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "–"}[value]
    if isinstance(value, float | int):
        return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def _exact(value: float) -> str:
    """A number with all its digits."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _time(value: datetime | None) -> str:
    return "–" if value is None else f"{value:%Y-%m-%d %H:%M}"


_TEMPLATES.filters |= {"number": _number, "exact": _exact, "time": _time, "percent": lambda share: f"{share:.0%}"}


def page(request: Request, template: str, *, code: int = 200, **values: object) -> HTMLResponse:
    """A page for the person who asks."""
    person: Person | None = request.state.person
    secret = form_secret(request.scope, request.headers)
    text = _TEMPLATES.get_template(template).render(person=person, csrf=secret, **{"campaign": None, **values})
    return HTMLResponse(text, code)
