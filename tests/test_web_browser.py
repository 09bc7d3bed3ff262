"""The page in a real browser: log in, ask, tell, correct, upload, on a telephone, without JavaScript."""

import os
import shutil
import socket
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright

from ncprior.campaigns import Campaign, people
from ncprior.campaigns.database import Database
from ncprior.campaigns.predicted import Predicted
from ncprior.campaigns.times import utc_now
from ncprior.campaigns.training import Ranked
from ncprior.campaigns.worker import work
from ncprior.web.app import create_app

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "NCPRIOR_NEED_BROWSER" not in os.environ, reason="no Chromium to open the page with"
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1200, "height": 900}


class Lines:
    """A model that is a straight line, for the page to show."""

    def __init__(self, inputs, targets, spec, seed, unlabelled):  # noqa: ARG002
        self.line = np.polyfit(inputs["x"].to_numpy(), targets[:, 0], 1)
        self.spec, self.seed = spec, seed

    def predict(self, inputs):
        return {"y": [Predicted.normal(float(m), 0.3, 0.1 + 0.01 * i) for i, m in enumerate(self._mean(inputs))]}

    def _mean(self, inputs):
        return np.polyval(self.line, inputs["x"].to_numpy())

    def rank(self, candidates, known, count, excluded):  # noqa: ARG002
        rows = np.flatnonzero(~excluded)[:count]
        return Ranked(rows, np.zeros(len(rows)) + known.num_rows)

    def content(self):
        return b"a line"

    def metrics(self):
        return {"seed": self.seed}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A server with a campaign that has a model and audit rows; gives its address, campaign and tokens."""
    folder = tmp_path_factory.mktemp("browser")
    generator = np.random.default_rng(0)
    table = {"sample": [f"s/{i}" for i in range(400)], "x": generator.uniform(0, 9, 400), "kind": ["a", "b"] * 200}
    pq.write_table(pa.table(table), folder / "pool.parquet")
    database = Database(f"sqlite:///{folder / 'campaign.db'}", create=True)
    campaign = Campaign.create(
        "solubility", pool=folder / "pool.parquet", id="sample", target="y", storage=database, audit=0.4, budget=300
    )
    for _ in range(3):
        for row in campaign.ask(30, person="bob").rows:
            campaign.tell(row.id, 2 * row.inputs["x"] + generator.normal(), person="bob")
        work(campaign, Lines)
    tokens = {
        name: database.write(lambda c, name=name, role=role: people.add_token(c, name, role, utc_now()))
        for name, role in (("ann", "labeller"), ("vera", "viewer"))
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(database), port=port, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}", campaign, tokens
    server.should_exit = True
    thread.join()
    database.close()


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(site, chromium):
    """Opens a page of a new browser, of a person if there is a name; JavaScript is off, as none is needed."""
    address, _, tokens = site
    contexts, wrong = [], []

    def opened(name=None, size=DESKTOP):
        context = chromium.new_context(viewport=size, java_script_enabled=False, base_url=address)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda line: wrong.append(line.text) if "Security Policy" in line.text else None)
        page.on("request", lambda sent: wrong.append(sent.url) if not sent.url.startswith(address) else None)
        if name is not None:
            page.goto("/login")
            page.get_by_label("Token").fill(tokens[name])
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("heading", name="Campaigns")).to_be_visible()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def width(page):
    """How wide the page is; of the browser itself, as the page runs no scripts."""
    session = page.context.new_cdp_session(page)
    return session.send("Page.getLayoutMetrics")["cssContentSize"]["width"]


def test_a_stranger_sees_nothing(open_page):
    page = open_page()
    for path in ("/", "/c/solubility", "/c/solubility/mine", "/nothing"):
        page.goto(path)
        assert page.url.endswith("/login")
        assert "solubility" not in page.content()
    page.get_by_label("Token").fill("1.guess")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("That is no token")


def test_from_log_in_to_a_corrected_label(open_page, site):
    _, campaign, _ = site
    page = open_page("ann")
    page.get_by_role("link", name="solubility").click()
    expect(page.locator("figure img")).to_have_count(2)
    page.get_by_role("link", name="My rows").click()
    page.get_by_label("Rows").fill("3")
    page.get_by_role("button", name="Ask for rows").click()
    expect(page.locator("fieldset.row")).to_have_count(3)
    assert "redicted" not in page.locator("fieldset.row").first.inner_text()
    first = page.locator("fieldset.row").nth(0)
    row = first.locator("legend a").inner_text()
    first.get_by_label("y", exact=True).fill("17.25")
    first.get_by_label("note").fill("by hand")
    page.locator("fieldset.row").nth(1).get_by_role("button", name="Skip").click()
    expect(page.locator("fieldset.row")).to_have_count(1)  # what was filled in elsewhere is saved as well
    assert campaign.status().skipped == 1
    expect(page.get_by_role("table")).to_contain_text("17.25")
    told = page.get_by_role("table").inner_text()
    assert row in told
    assert "17.25" in told
    page.get_by_role("table").get_by_role("link", name=row).click()
    page.get_by_text("Correct", exact=True).first.click()
    page.get_by_label("y by ann").fill("7.5")
    page.get_by_label("why").fill("decimal point")
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("main")).to_contain_text("decimal point")
    assert [event.value for event in campaign.history(row) if event.value is not None] == [17.25, 7.5]
    page.get_by_role("link", name="Labels").click()
    page.get_by_label("Search").fill("decimal")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("main table tr")).to_have_count(2)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/c/solubility")
    assert page.url.endswith("/login")


def test_results_are_uploaded_after_a_look(open_page, site, tmp_path):
    _, campaign, _ = site
    page = open_page("ann")
    (tmp_path / "results.csv").write_text("sample,y\ns/390,3.5\ns/391,4.5\nelsewhere,1\n")
    page.goto("/c/solubility/upload")
    page.get_by_label("Results").set_input_files(tmp_path / "results.csv")
    page.get_by_role("button", name="Look at it").click()
    expect(page.locator("main")).to_contain_text("2 labels will be told")
    before = campaign.status().labelled
    page.get_by_role("button", name="Tell 2 labels").click()
    expect(page.locator("main")).to_contain_text("2 labels were told")
    assert campaign.status().labelled == before + 2


@pytest.mark.parametrize("path", ["/", "/c/solubility", "/c/solubility/mine", "/c/solubility/labels",
                                  "/c/solubility/upload", "/c/solubility/row?id=s/1"])  # fmt: skip
def test_pages_fit_a_telephone(open_page, path):
    page = open_page("ann", PHONE)
    page.goto(path)
    assert width(page) <= PHONE["width"]
    if path.endswith("mine") and not page.locator("fieldset.row").count():
        page.get_by_role("button", name="Ask for rows").click()
        expect(page.locator("fieldset.row")).to_have_count(5)
        assert width(page) <= PHONE["width"]


def test_a_viewer_looks_and_has_no_forms(open_page):
    page = open_page("vera")
    page.goto("/c/solubility")
    assert page.get_by_role("link", name="My rows").count() == 0
    assert page.locator("main form").count() == 0
    with page.expect_download() as download:
        page.get_by_role("link", name="Labelled rows as CSV").click()
    assert download.value.suggested_filename == "solubility-labels.csv"
