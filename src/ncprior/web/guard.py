"""The outermost layer: nothing is answered without a token, and nothing is changed by another site.

Every request goes through here before any page is looked for. It must name an allowed host, be of bounded size, and
come with the token of a person: in a cookie for pages, in a header for the JSON interface. Only the log-in form and the
style sheet are for everybody. Viewers may look, and nothing else.
"""

import hashlib
import hmac
import secrets
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ncprior.campaigns import people
from ncprior.campaigns.database import Database
from ncprior.campaigns.people import Person
from ncprior.errors import UserError

COOKIE, FORM_COOKIE = "ncprior_token", "ncprior_form"
PUBLIC = ("/login", "/static/style.css")
"""What is answered without a token."""

MOST_BYTES = 4 << 20
"""Of a request."""

MOST_FAILURES, WINDOW = 10, 300.0
"""Wrong tokens from one address within these seconds, after which no more are looked at."""

_ADDRESSES = 10_000
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Lets requests through to an application that come from people with a token."""

    def __init__(
        self,
        app: ASGIApp,
        database: Database,
        *,
        hosts: Iterable[str],
        behind_tls: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.database, self.behind_tls, self.clock = app, database, behind_tls, clock
        self.hosts = {host.lower() for host in hosts}
        self._failures: dict[str, deque[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                names = {name for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in names]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            refusal = await self._admit(scope, receive)
            if refusal is None:
                await self.app(scope, _replayed(scope), send_guarded)
            else:
                await refusal(scope, receive, send_guarded)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if not started:
                wrong = _refused(scope, 500, "something went wrong; the server's log says what")
                await wrong(scope, receive, send_guarded)
        finally:
            if "form" in scope.get("state", {}):
                await scope["state"]["form"].close()  # files that were sent with it

    async def _admit(self, scope: Scope, receive: Receive) -> Response | None:
        """None if a request may pass, with its person, form and body in the scope's state; or else the refusal."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if urlsplit(f"//{headers.get('host', '')}").hostname not in self.hosts:
            return PlainTextResponse("this server has another name\n", 400)
        if method not in ("GET", "HEAD", "POST"):
            return _refused(scope, 405, "only GET, HEAD and POST")
        address = self._address(scope, headers)
        if self._is_blocked(address):
            return _refused(scope, 429, "too many wrong tokens; wait five minutes")
        state = scope.setdefault("state", {})
        token = _bearer(headers) if _is_api(scope) else _cookie(headers, COOKIE)
        person = await self._person(token)
        if token and person is None:
            self.note_failure(address)
        if person is None and path not in PUBLIC:
            return self._log_in(scope)
        state.update(person=person, token=token, address=address, guard=self)
        if method in ("GET", "HEAD"):
            state["body"] = b""
            return None
        if person is not None and not person.may_label and path not in ("/logout", *PUBLIC):
            return _refused(scope, 403, f"{person.name} may look, but not change anything")
        body = await _body(headers, receive)
        if body is None:
            return _refused(scope, 413, f"a request may have {MOST_BYTES >> 20} MB")
        state["body"] = body
        if _is_api(scope):
            return None  # no other site can send the header with the token
        return await self._check_form(scope, headers)

    async def _person(self, token: str | None) -> Person | None:
        if not token:
            return None
        return await run_in_threadpool(self.database.read, lambda connection: people.by_token(connection, token))

    async def _check_form(self, scope: Scope, headers: Headers) -> Response | None:
        """Reads the form of a request, and refuses one that another site may have made."""
        state = scope["state"]
        try:
            form = await Request(scope, _replayed(scope)).form(max_files=1, max_fields=10_000, max_part_size=MOST_BYTES)
        except (HTTPException, UserError, ValueError):
            return _refused(scope, 400, "the form cannot be read")
        state["form"] = form
        origin = headers.get("origin")
        same = origin is None or urlsplit(origin).netloc == headers.get("host")
        same = same and headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not same or not hmac.compare_digest(_text(form, "csrf").encode(), form_secret(scope, headers).encode()):
            return _refused(scope, 403, "the form is not from this page, or too old; go back, load it again")
        return None

    def _log_in(self, scope: Scope) -> Response:
        """The answer to strangers, whether or not there is such a page."""
        if _is_api(scope):
            return JSONResponse({"error": "a token is needed: Authorization: Bearer TOKEN"}, 401)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    def _address(self, scope: Scope, headers: Headers) -> str:
        """Who is asking; behind a proxy, what the proxy says."""
        if self.behind_tls and (forwarded := headers.get("x-forwarded-for")):
            return forwarded.rpartition(",")[2].strip()[:100]
        return str(scope["client"][0]) if scope.get("client") else ""

    def note_failure(self, address: str) -> None:
        """Counts a wrong token."""
        if len(self._failures) >= _ADDRESSES:
            self._failures.pop(next(iter(self._failures)))
        self._failures.setdefault(address, deque(maxlen=MOST_FAILURES)).append(self.clock())

    def _is_blocked(self, address: str) -> bool:
        failures = self._failures.get(address)
        return failures is not None and len(failures) == MOST_FAILURES and self.clock() - failures[0] < WINDOW


def form_secret(scope: Scope, headers: Headers) -> str:
    """What the forms of this person have in them, and other sites cannot know.

    Before someone has logged in it is a cookie of their own; if there is none, nothing fits.
    """
    token = scope["state"].get("token")
    if token and scope["state"].get("person") is not None:
        return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()
    return _cookie(headers, FORM_COOKIE) or secrets.token_hex(16)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def _is_api(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/api/"))


def _refused(scope: Scope, status: int, reason: str) -> Response:
    if _is_api(scope):
        return JSONResponse({"error": reason}, status)
    return PlainTextResponse(f"{reason}\n", status)


def _bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _cookie(headers: Headers, name: str) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(name)


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The body of a request; None if it is too large."""
    declared = headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > MOST_BYTES:
        return None
    parts, size = [], 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES or message["type"] == "http.disconnect":
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(scope: Scope) -> Receive:
    """The body once more, for who reads it next."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": scope["state"].get("body", b""), "more_body": False}

    return receive
