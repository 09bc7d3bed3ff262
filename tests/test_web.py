"""The page and the JSON interface: who gets in, and what they can do there."""

import importlib.util
import io
import json
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
import uvicorn
from starlette.testclient import TestClient

from ncprior.campaigns import Campaign, people
from ncprior.campaigns.database import Database
from ncprior.web import guard as guarding
from ncprior.web.api import openapi
from ncprior.web.app import create_app

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOST = {"host": "localhost"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A campaign with an owner, a labeller, a viewer and one whose token was revoked."""
    folder = tmp_path_factory.mktemp("site")
    rows = {"id": [f"r{i}" for i in range(200)], "x": [float(i) for i in range(200)], "<b>": ["<script>"] * 200}
    pa_csv.write_csv(pa.table(rows), folder / "pool.csv")
    database = Database(f"sqlite:///{folder / 'campaign.db'}", create=True)
    campaign = Campaign.create("first", pool=folder / "pool.csv", id="id", target="y", storage=database)
    people_of = {"olga": "owner", "ann": "labeller", "vera": "viewer", "rex": "owner"}
    tokens = {
        name: database.write(lambda c, name=name, role=role: people.add_token(c, name, role, NOW))
        for name, role in people_of.items()
    }
    database.write(lambda c: people.revoke(c, "rex", NOW))
    site = SimpleNamespace(app=create_app(database), database=database, campaign=campaign, tokens=tokens, later=0.0)
    site.app.clock = lambda: time.monotonic() + site.later
    yield site
    database.close()


@pytest.fixture
def client(site):
    """Makes a browser of a person, or of nobody."""
    site.later += guarding.WINDOW + 1  # wrong tokens are forgotten
    for name in ("ann", "olga"):
        for row in site.campaign.held(name):
            site.campaign.release(row.id, person=name)
    made = []

    def browser(name=None):
        new = TestClient(site.app, base_url="http://localhost", follow_redirects=False)
        if name is not None:
            new.cookies.set(guarding.COOKIE, site.tokens[name])
        made.append(new)
        return new

    yield browser
    for one in made:
        one.close()


def secret(page):
    return re.search(r'name="csrf" value="(\w+)"', page.text)[1]


def routes(site):
    """Every address of the application with every method that it takes, and names filled in."""
    for route in site.app.app.routes:
        path = route.path.replace("{name}", "first").replace("{kind}", "labels")
        for method in sorted(route.methods):
            yield path, method


def test_the_walk_knows_all_routes(site):
    found = set(routes(site))
    assert {("/", "GET"), ("/c/first/tell", "POST"), ("/api/campaigns/first/ask", "POST")} <= found
    assert len(found) >= 30


def test_without_a_token_nothing_is_answered_but_the_form_to_log_in(site, client):
    stranger = client()
    for path, method in routes(site):
        answer = stranger.request(method, path)
        if path in guarding.PUBLIC:
            assert answer.status_code in (200, 403), path
        elif path.startswith("/api/"):
            assert answer.status_code == 401, path
        else:
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        assert path == "/static/style.css" or "first" not in answer.text
        assert "r1" not in answer.text
    assert stranger.get("/no/such/page").status_code == 303  # not even whether there is such a page


def test_a_revoked_token_is_no_token(site, client):
    for path, method in routes(site):
        if path in guarding.PUBLIC:
            continue
        site.later += guarding.WINDOW + 1  # wrong tokens are forgotten
        with client("rex") as revoked:
            answer = revoked.request(method, path, headers={"authorization": f"Bearer {site.tokens['rex']}"})
            assert answer.status_code in (303, 401), path
            assert "r1" not in answer.text


def test_revocation_is_at_once(site, client):
    token = site.database.write(lambda c: people.add_token(c, "tom", "labeller", NOW))
    site.tokens["tom"] = token
    tom = client("tom")
    assert tom.get("/c/first").status_code == 200
    site.database.write(lambda c: people.revoke(c, "tom", NOW))
    assert tom.get("/c/first").status_code == 303


@pytest.mark.parametrize("name", ["olga", "ann", "vera"])
def test_roles_are_respected_everywhere(site, client, name):
    who = client(name)
    header = {"authorization": f"Bearer {site.tokens[name]}"}
    for path, method in routes(site):
        if path in guarding.PUBLIC or path == "/logout":
            continue
        answer = who.request(method, path, headers=header if path.startswith("/api/") else {})
        if method == "POST" and (name == "vera" or not path.startswith("/api/")):
            assert answer.status_code == 403, path  # a viewer; or a form without its secret
        elif path.endswith("/mine") and name == "vera":
            assert answer.status_code == 400
        else:
            assert answer.status_code in (200, 400), path


def test_the_json_interface_takes_no_cookie_and_pages_no_header(site, client):
    assert client("ann").get("/api/campaigns").status_code == 401
    header = {"authorization": f"Bearer {site.tokens['ann']}"}
    assert client().get("/", headers=header).status_code == 303
    assert client().get(f"/c/first?token={site.tokens['ann']}").status_code == 303


def test_forms_of_other_sites_are_refused(site, client):
    ann, olga = client("ann"), client("olga")
    mine = secret(ann.get("/c/first/mine"))
    ask = {"n": "1", "lease": "1d"}
    assert ann.post("/c/first/ask", data=ask).status_code == 403
    assert ann.post("/c/first/ask", data={**ask, "csrf": secret(olga.get("/c/first/mine"))}).status_code == 403
    for header in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert ann.post("/c/first/ask", data={**ask, "csrf": mine}, headers=header).status_code == 403
    assert site.campaign.held("ann") == []
    good = ann.post("/c/first/ask", data={**ask, "csrf": mine}, headers={"origin": "http://localhost"})
    assert good.status_code == 200
    [row] = site.campaign.held("ann")
    site.campaign.release(row.id, person="ann")


def test_logging_in_needs_the_form_of_this_page_and_the_right_token(site, client):
    stranger = client()
    assert stranger.post("/login", data={"token": site.tokens["ann"]}).status_code == 403
    form = {"csrf": secret(stranger.get("/login"))}
    wrong = stranger.post("/login", data={**form, "token": "1.wrong"})
    assert (wrong.status_code, guarding.COOKIE in wrong.cookies) == (401, False)
    right = stranger.post("/login", data={**form, "token": f" {site.tokens['ann']} "})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = next(line for line in right.headers.get_list("set-cookie") if line.startswith(guarding.COOKIE))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert site.tokens["ann"] not in right.headers["location"]
    page = stranger.get("/")
    assert "ann" in page.text
    assert site.tokens["ann"] not in page.text
    assert stranger.post("/logout", data={"csrf": secret(page)}).status_code == 303
    assert stranger.get("/").status_code == 303


def test_cookies_travel_by_https_alone_behind_tls(site):
    app = create_app(site.database, behind_tls=True)
    with TestClient(app, base_url="http://localhost") as browser:
        assert "Secure" in browser.get("/login").headers["set-cookie"]


def test_many_wrong_tokens_are_not_looked_at_any_more(site, client):
    stranger = client()
    for _ in range(guarding.MOST_FAILURES):
        assert stranger.get("/api/campaigns", headers={"authorization": "Bearer 1.wrong"}).status_code == 401
    right = {"authorization": f"Bearer {site.tokens['ann']}"}
    assert stranger.get("/api/campaigns", headers=right).status_code == 429
    site.later += guarding.WINDOW + 1
    assert stranger.get("/api/campaigns", headers=right).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "evil.example:80@localhost.x"])
def test_other_hosts_are_refused(client, host):
    assert client("ann").get("/", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(client, method):
    assert client("ann").request(method, "/").status_code == 405


def test_large_requests_are_refused(site, client):
    header = {"authorization": f"Bearer {site.tokens['ann']}"}
    body = b"x" * (guarding.MOST_BYTES + 1)
    assert client().post("/api/campaigns/first/tell", content=body, headers=header).status_code == 413

    def pieces():
        for _ in range(5):
            yield b"x" * (1 << 20)

    answer = client().post("/api/campaigns/first/tell", content=pieces(), headers=header)
    assert answer.status_code == 413


def test_every_answer_has_the_headers_that_browsers_need(client):
    for who, path in (
        (None, "/login"),
        (None, "/"),
        ("ann", "/c/first"),
        ("ann", "/nothing"),
        (None, "/api/campaigns"),
    ):
        headers = client(who).get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "script-src" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_names_from_tables_are_escaped(client):
    page = client("ann").get("/c/first/row?id=r3")
    assert "&lt;script&gt;" in page.text
    assert "<script>" not in page.text
    assert "&lt;b&gt;" in page.text
    assert "<i>" not in client("ann").get("/c/first/row", params={"id": "<i>"}).text


def test_the_description_of_the_json_interface_is_that_of_its_routes(site):
    described = json.loads(openapi())["paths"]
    there = {
        (route.path, method.lower())
        for route in site.app.app.routes
        for method in route.methods - {"HEAD"}
        if route.path.startswith("/api/")
    }
    assert {(path, method) for path, methods in described.items() for method in methods} == there
    from ncprior.web.api import _FIELDS, _NEEDED

    for word, fields in _FIELDS.items():
        body = described[f"/api/campaigns/{{name}}/{word}"]["post"]["requestBody"]["content"]["application/json"]
        assert set(body["schema"]["properties"]) == set(fields)
        assert tuple(body["schema"].get("required", ())) == _NEEDED.get(word, ())


@pytest.fixture
def robot(site, client):
    """Calls the JSON interface as ann."""
    browser = client()

    def call(word, **fields):
        header = {"authorization": f"Bearer {site.tokens['ann']}"}
        return browser.post(f"/api/campaigns/first/{word}", content=json.dumps(fields), headers=header)

    return call


def test_a_robot_asks_tells_corrects_and_gives_up(site, robot):
    before = site.campaign.status()
    asked = robot("ask", n=4, lease="2h").json()
    assert (len(asked["rows"]), asked["targets"]) == (4, ["y"])
    assert set(asked["rows"][0]) == {"id", "inputs", "expires_at"}
    first, second, third, fourth = (row["id"] for row in asked["rows"])
    told = robot("tell", id=first, value=1.5, key="run 1").json()
    assert told == {"id": first, "outcome": "new", "missing": [], "notices": []}
    assert robot("tell", id=first, value=1.5, key="run 1").json()["outcome"] == "known"
    refused = robot("tell", id=first, value=2.5)
    assert refused.status_code == 400
    assert "ncprior campaign correct" in refused.json()["error"]
    assert robot("correct", id=first, value={"y": 2.5}).json()["outcome"] == "new"
    assert robot("skip", id=second, note="lost").json() == {"id": second, "notices": []}
    assert robot("fail", id=third).status_code == 200
    assert robot("extend", id=fourth, lease="1w").json()["id"] == fourth
    assert robot("release", id=fourth).status_code == 200
    status = client_status(site, robot)
    assert status["labelled"] == before.labelled + 1
    assert (status["skipped"], status["failed"], status["out"]) == (before.skipped + 1, before.failed + 1, 0)


def client_status(site, _):
    with TestClient(site.app, base_url="http://localhost") as browser:
        header = {"authorization": f"Bearer {site.tokens['vera']}"}
        return browser.get("/api/campaigns/first/status", headers=header).json()


@pytest.mark.parametrize(
    ("word", "fields", "message"),
    [
        ("ask", {"n": "5"}, "n must be a whole number"),
        ("ask", {"n": True}, "n must be a whole number"),
        ("ask", {"n": 0}, "ask for 1 to"),
        ("ask", {"pool": "/etc/passwd"}, "unknown field 'pool'"),
        ("ask", {"person": "olga"}, "unknown field 'person'"),
        ("tell", {"id": "r1"}, "value is missing"),
        ("tell", {"id": "r1", "value": "much"}, "is no value of 'y'"),
        ("tell", {"id": "", "value": 1}, "the id of a row"),
        ("tell", {"id": "../x", "value": 1}, "not in the pool"),
        ("tell", {"id": "new", "value": 1, "inputs": {"x": [1]}}, "no value for the input"),
        ("skip", {"id": 5}, "id must be text"),
        ("tell", {"id": "r1\ud800", "value": 1}, "the id of a row"),
        ("tell", {"id": "r1", "value": 1, "note": "\ud800"}, "a note may have"),
        ("tell", {"id": "r1", "value": 10**400}, "is no value of 'y'"),
        ("tell", {"id": "new", "value": 1, "inputs": {"x": 1, "<b>": "\0"}}, "are no text"),
    ],
)
def test_bad_requests_are_one_line(robot, word, fields, message):
    answer = robot(word, **fields)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"id": "r1", "value": NaN}'])
def test_bodies_that_are_no_json_are_one_line(site, client, body):
    header = {"authorization": f"Bearer {site.tokens['ann']}"}
    answer = client().post("/api/campaigns/first/tell", content=body, headers=header)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_campaign_that_is_not_there_is_told(client):
    page = client("ann").get("/c/other")
    assert page.status_code == 400
    assert "there is no campaign &#39;other&#39;" in page.text


def post(browser, path, source, **fields):
    return browser.post(path, data={**fields, "csrf": secret(browser.get(source))})


def test_values_that_cannot_be_taken_are_shown_again_with_the_reason(site, client):
    ann = client("ann")
    post(ann, "/c/first/ask", "/c/first/mine", n="2", lease="1d")
    good, bad = [row.id for row in site.campaign.held("ann")]
    fields = {"row": [good, bad], f"value y {good}": "4.5", f"value y {bad}": "4,5", f"note {bad}": "a comma"}
    page = post(ann, "/c/first/tell", "/c/first/mine", **fields)
    assert page.status_code == 400
    assert "&#39;4,5&#39; is no value of &#39;y&#39;" in page.text
    assert 'value="4,5"' in page.text
    assert 'value="a comma"' in page.text
    assert [row.id for row in site.campaign.held("ann")] == [bad]
    assert post(ann, "/c/first/tell", "/c/first/mine", skip=bad).status_code == 303
    assert site.campaign.held("ann") == []


def test_an_upload_is_previewed_told_once_and_safe(site, client):
    ann = client("ann")
    text = "id,y,note\nr150,1.5,=1+1\nr151,2.5,\nnowhere,3,\n"

    def upload(path, **data):
        return ann.post(path, data={**data, "csrf": secret(ann.get("/c/first/upload"))}, files=files)

    files = {"file": ("results.csv", io.BytesIO(text.encode()), "text/csv")}
    before = site.campaign.status().labelled
    preview = upload("/c/first/preview")
    assert "2 labels will be told" in preview.text
    assert "not in the pool" in preview.text
    assert site.campaign.status().labelled == before
    files = None
    assert "2 labels were told" in upload("/c/first/confirm", text=text.replace("\n", "\r\n")).text
    assert "0 labels were told" in upload("/c/first/confirm", text=text).text
    assert site.campaign.status().labelled == before + 2
    assert "'=1+1" in ann.get("/c/first/labels.csv").text
    files = {"file": ("results.csv", io.BytesIO(b"\xff\xfe"), "text/csv")}
    assert "no CSV table in UTF-8" in upload("/c/first/preview").text


def test_who_holds_a_row_sees_neither_its_prediction_nor_other_labels(site, client):
    page = client("ann").get("/c/first/row?id=r150")
    assert "1.5" in page.text
    assert "Correct" in page.text
    assert "Correct" not in client("vera").get("/c/first/row?id=r150").text
    post(client("ann"), "/c/first/ask", "/c/first/mine", n="1", lease="1d")
    [held] = site.campaign.held("ann")
    page = client("ann").get(f"/c/first/row?id={held.id}")
    assert "Hidden until the row is told" in page.text
    site.campaign.release(held.id, person="ann")


def test_the_robot_of_the_docs_asks_measures_and_tells(site):
    example = Path(__file__).parent.parent / "examples" / "campaign_robot.py"
    robot = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("robot", example))
    spec.loader.exec_module(robot)
    server = uvicorn.Server(uvicorn.Config(site.app, port=0, log_level="error", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    before = site.campaign.status().labelled
    robot.work(address, "first", site.tokens["olga"], lambda inputs: 2 * inputs["x"], 3)
    assert site.campaign.status().labelled == before + 3
    with pytest.raises(RuntimeError, match="there is no campaign"):
        robot.work(address, "other", site.tokens["olga"], lambda _: 0.0, 1)
    server.should_exit = True
    thread.join()
