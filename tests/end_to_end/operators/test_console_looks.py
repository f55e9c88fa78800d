"""Every page of the console in a real browser: widths, colours, keys, times; without a broker."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from proton import Message

from amqsidecar.model.event import Resent
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.operate import Wish, begin
from support.tier import at_length
from support.web.chromium import barriers, opened_page, running_chromium
from support.web.console import running_console
from support.web.console_store import dead, keep, open_store
from support.web.in_process import policies_of_file
from support.web.incident import keep_incident, keep_night, sick_status, status_of_the_night

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]

WIDTHS: Final = at_length(
    (375, 390, 768, 900, 1024, 1100, 1280, 1440, 1920), otherwise=(375, 900, 1920)
)
PHONE: Final = {"width": 375, "height": 812}
LONG: Final = f"queue://{'settlement.reconciliation.' * 4}retry_of_partner_bank"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console with something on every page."""
    path = tmp_path_factory.mktemp("full") / "schedule.db"
    store = open_store(path)
    now_ms = store._clock.now_ms()
    causes = ["connection refused", "card over limit", None]
    rows = [
        dead(
            n,
            causes[n % 3],
            now_ms - n * 60_000,
            message=bytes(Message(body=f'{{"order": {n}}}', properties={"order": n}).encode()),
        )
        for n in range(1, 70)
    ]
    rows += [
        dead(n, "exhausted " * 40, now_ms - 60_000, destination=LONG, state=RowState.EXHAUSTED)
        for n in range(70, 75)
    ]
    sent = Resent(
        at_ms=now_ms, destination="queue://orders.payments", redelivery_count=1, lateness_ms=1
    )
    keep(store, rows, [sent] * 30)
    look = Observation(destination=sent.destination, at_ms=now_ms, depth=1_234_567)
    store.add_observations([look])
    begin(store, Wish(action=Action.HOLD, selection=Selection(), actor="cli:anna"), now_ms)
    store.close()
    with running_console(path) as address:
        yield address


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of a sidecar that has seen nothing."""
    path = tmp_path_factory.mktemp("empty") / "schedule.db"
    open_store(path).close()
    with running_console(path) as address:
        yield address


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console at night: exhausted and unknown messages, three groups, outcomes unknown."""
    path = tmp_path_factory.mktemp("incident") / "schedule.db"
    store = open_store(path)
    keep_incident(store)
    store.close()
    with running_console(path, sidecar_status=status_of_the_night) as address:
        yield address


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of a sidecar that needs a person, at 5,000 exhausted messages of six causes."""
    path = tmp_path_factory.mktemp("night") / "schedule.db"
    store = open_store(path)
    keep_night(store)
    store.close()
    with running_console(path, sidecar_status=sick_status) as address:
        yield address


ANY_STORE: Final = ("/", "/groups", "/messages", "/plots", "/operations", "/act/retry", "/policies")
PAGES: Final = (
    *ANY_STORE,
    *("/messages?cause=card&older=1m", "/messages/one?id=5", "/messages/edit?id=5"),
    *("/operations/1", "/act/discard?id=7", "/act/cancel", "/messages/one?id=72"),
    "/groups/one?destination=orders&group=card%20over%20limit",
)
# Why few: all pages have the same colours.
DARK: Final = at_length(PAGES, otherwise=("/", "/messages/one?id=5", "/operations/1"))


def test_no_page_keeps_anybody_out(full: str, browser: Browser) -> None:
    found = []
    # Why reduced: while a colour changes slowly, it is neither the one nor the other.
    with opened_page(browser, full, color_scheme="light", reduced_motion="reduce") as page:
        for address in PAGES:
            page.goto(address)
            for summary in page.locator("summary").all():
                summary.click()
            found += barriers(page)
            if address in DARK:
                page.emulate_media(color_scheme="dark")
                found += barriers(page, "color-contrast")
                page.emulate_media(color_scheme="light")
    assert found == []


TABLES_OUTSIDE_CARDS: Final = """[...document.querySelectorAll("table.rows")].some(
    table => table.offsetWidth > table.parentElement.clientWidth)"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.proof)])
@pytest.mark.parametrize(
    ("store", "pages"),
    [
        ("full", PAGES),
        ("night", at_length(ANY_STORE, otherwise=("/", "/groups", "/messages", "/plots"))),
        # Why in proof: they have the same tables and charts, with less in them.
        pytest.param("incident", ("/",), marks=pytest.mark.proof),
        pytest.param("empty", ANY_STORE, marks=pytest.mark.proof),
    ],
)
def test_no_page_is_wider_than_its_window(
    browser: Browser,
    request: pytest.FixtureRequest,
    store: str,
    pages: tuple[str, ...],
    scheme: Scheme,
) -> None:
    found: list[tuple[str | int, ...]] = []
    with opened_page(browser, request.getfixturevalue(store), color_scheme=scheme) as page:
        for address in pages:
            page.goto(address)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    found.append((address, width))
                if page.evaluate(TABLES_OUTSIDE_CARDS):
                    found.append((address, width, "a table is wider than its card"))
    assert found == []


SQUEEZED: Final = """[...document.querySelectorAll("table.rows td *")]
    .filter(one => one.offsetHeight > 3 * one.offsetWidth && one.offsetHeight > 120)
    .map(one => one.textContent.trim())"""
RULES: Final = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 5, redelivery_delay_ms: 60000}
"""


def test_no_cell_of_the_policies_is_squeezed_on_a_phone(tmp_path: Path, browser: Browser) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text(RULES)
    store = open_store(tmp_path / "schedule.db")
    keep_incident(store)
    store.close()
    with (
        running_console(tmp_path / "schedule.db", policies=policies_of_file(rules)) as address,
        opened_page(browser, address, viewport=PHONE) as page,
    ):
        page.goto("/policies")
        expect(page.locator("td[data-label='what becomes of it']").first).to_be_visible()
        assert page.evaluate(SQUEEZED) == []


def test_no_row_of_a_table_is_cut(night: str, browser: Browser) -> None:
    """A row is a line of its table at 1024, and a block with the name of each value on a phone."""
    with opened_page(browser, night) as page:
        for address in ("/", "/groups", "/messages", "/operations", "/act/retry"):
            page.goto(address)
            row = page.locator("table.rows tbody tr").first
            for width, display in ((1024, "table-row"), (375, "flex")):
                page.set_viewport_size({"width": width, "height": 800})
                expect(row).to_have_css("display", display)
                assert page.evaluate(CUT_CELLS) == []
            assert all(row.locator("td:visible").evaluate_all(LABELS))


CUT_CELLS: Final = """[...document.querySelectorAll("table.rows tbody :is(th, td)")]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim())"""
LABELS: Final = """all => all.map(one =>
    one.querySelector(".badge, input") ? "its own" : getComputedStyle(one, "::before").content)"""


def test_what_is_wrong_the_exhausted_and_all_six_groups_are_above_the_fold(
    night: str, browser: Browser
) -> None:
    with opened_page(browser, night, viewport={"width": 1440, "height": 900}) as page:
        page.goto("/")
        for name in ("5,000 exhausted messages wait for a person", "This sidecar needs a person"):
            expect(page.get_by_role("heading", name=name)).to_be_in_viewport(ratio=1)
        expect(page.locator("#retry-exhausted")).to_be_in_viewport(ratio=1)
        groups = page.locator("a[id^=group-]")
        expect(groups).to_have_count(6)
        for link in groups.all():
            expect(link).to_be_in_viewport(ratio=1)
        # Why: in the envelope of a framework the root cause would be at its end.
        expect(groups.first).to_have_text("SocketTimeoutException: Read timed out, order *")


def mail_group(page: Page) -> str:
    """Return the address of a group of the night."""
    page.goto("/groups")
    return page.get_by_role("link", name="TemplateMissing").get_attribute("href") or ""


BOXES: Final = """all => all.map(one => one.getBoundingClientRect())
    .filter(box => box.height > 0).map(box => [box.left, box.right])"""


# Why in proof: the longer the time, the closer the marks.
@pytest.mark.parametrize(
    "span", ["24h", *(pytest.param(one, marks=pytest.mark.proof) for one in ("5m", "1h"))]
)
def test_marks_of_a_chart_do_not_collide(night: str, browser: Browser, span: str) -> None:
    """Thirteen operations and starts, several in the same second; at each width."""
    with opened_page(browser, night) as page:
        for address in ("/plots?", f"{mail_group(page)}&"):
            page.goto(f"{address}span={span}")
            for width in (375, 1024, 1440):
                page.set_viewport_size({"width": width, "height": 800})
                labels = page.locator("text.mark").evaluate_all(BOXES)
                assert labels
                assert all(one[1] < other[0] for one, other in itertools.pairwise(sorted(labels)))
                begins = sorted(one[0] for one in page.locator("line.mark").evaluate_all(BOXES))
                assert all(other - one >= 1.5 for one, other in itertools.pairwise(begins))


def test_charts_show_five_minutes_an_hour_or_a_day_without_scripts(
    night: str, browser: Browser
) -> None:
    with opened_page(browser, night, java_script_enabled=False) as page:
        for begin in ("/", "/plots", mail_group(page)):
            page.goto(begin)
            for name, bars in (("5m", 5), ("24h", 24), ("1h", 60)):
                choice = page.get_by_role("navigation", name="Time of the chart").first
                choice.get_by_role("link", name=name, exact=True).click()
                chart = page.get_by_role("region").filter(has=page.locator("#deaths-heading"))
                current = chart.locator("nav a[aria-current]")
                expect(current).to_have_text(name)
                expect(current).to_be_in_viewport()
                chart.get_by_text("As a table").click()
                expect(chart.locator("table tbody tr")).to_have_count(bars)


def test_each_page_names_the_broker_the_sidecars_health_and_the_age_of_its_numbers(
    night: str, incident: str, browser: Browser
) -> None:
    colours = set[str]()
    for address, health in ((night, "sidecar needs a person"), (incident, "sidecar well")):
        with opened_page(browser, address) as page:
            page.clock.install()
            for path in ("/", "/groups", "/plots", "/messages/one?id=1"):
                page.goto(path)
                state = page.locator("#state")
                expect(state).to_contain_text("Apache Artemis 2.57.0 at core://broker:61616")
                expect(state.locator(".badge")).to_have_text(health)
                expect(state.locator("time")).to_have_count(1)
            colours.add(state.locator(".badge").evaluate("one => getComputedStyle(one).color"))
            page.clock.fast_forward(3 * 60_000)
            expect(state).to_contain_text(", 3 min ago")
    assert len(colours) == 2


def test_what_runs_does_not_look_as_if_it_had_succeeded(night: str, browser: Browser) -> None:
    with opened_page(browser, night) as page:
        page.goto("/operations")
        running = page.locator("td .badge").first
        expect(running).to_have_text("running")
        colours = [running.evaluate("one => getComputedStyle(one).color")]
        for other in ("good", "bad", "warn"):
            running.evaluate("(one, other) => { one.className = `badge ${other}`; }", other)
            colours.append(running.evaluate("one => getComputedStyle(one).color"))
        assert len({*colours}) == 4


@pytest.mark.parametrize(
    "store",
    [
        "night",
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("full", "empty", "incident")),
    ],
)
def test_on_a_phone_all_pages_are_in_reach_and_the_first_has_three_screens_at_most(
    browser: Browser, request: pytest.FixtureRequest, store: str
) -> None:
    with opened_page(browser, request.getfixturevalue(store), viewport=PHONE) as page:
        page.goto("/")
        for link in page.locator("header nav a").all():
            expect(link).to_be_in_viewport(ratio=1)
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height <= 3 * PHONE["height"]


def test_the_charts_of_a_group_are_as_wide_as_the_page_and_whole(
    full: str, browser: Browser
) -> None:
    with opened_page(browser, full) as page:
        page.goto("/groups/one?destination=orders&group=card%20over%20limit")
        for width in (375, 768, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 812})
            [plot] = [one for one in page.locator("svg.plot").all() if one.is_visible()]
            shown, whole = plot.evaluate(
                "one => { const box = one.closest('.wide'); "
                "return [box.scrollWidth <= box.clientWidth, "
                "one.getBoundingClientRect().width >= 0.99 * box.clientWidth]; }"
            )
            assert shown
            assert whole


def test_keys_move_through_rows_choose_them_and_lead_to_what_an_action_would_do(
    full: str, browser: Browser
) -> None:
    with opened_page(browser, full) as page:
        press = page.keyboard.press
        page.goto("/messages")
        links = page.locator("table.rows tbody th a")
        for key, row in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
            press(key)
            expect(links.nth(row)).to_be_focused()
        press("x")
        press("j")
        press("x")
        expect(page.locator("input[name=id]:checked")).to_have_count(2)
        press("h")
        expect(page.locator("h1")).to_have_text("Hold: what it would do")
        assert page.url.count("id=") == 2
        page.go_back()
        press("/")
        field = page.get_by_label("Destination", exact=True)
        expect(field).to_be_focused()
        page.keyboard.type("jxrhk?g")
        expect(field).to_have_value("jxrhk?g")
        page.goto("/messages/one?id=5")
        press("r")
        expect(page.locator("h1")).to_have_text("Retry: what it would do")
        press("c")
        expect(page.get_by_role("button", name="Retry 1 message")).to_be_focused()
        press("g")
        press("g")
        expect(page.locator("h1")).to_have_text("Groups")
        press("j")
        press("o")
        expect(page.locator("h1")).not_to_have_text("Groups")
        press("?")
        shown = page.get_by_role("dialog")
        expect(shown.get_by_text("Next and previous row")).to_be_visible()
        press("h")
        expect(shown).to_be_visible()


def test_times_stand_in_the_zone_of_the_browser_too(full: str, browser: Browser) -> None:
    with opened_page(browser, full, timezone_id="Asia/Tokyo") as page:
        page.goto("/messages/one?id=5")
        taken = page.locator("main time.clock").first
        at = taken.get_attribute("datetime")
        local = page.evaluate("at => new Date(at).toLocaleTimeString('sv-SE')", at)
        expect(taken).to_contain_text(f" UTC ({local} here)")
        page.goto("/messages")
        assert local_zone_titles(page) == {True}
        page.goto("/act/retry?id=5")
        # Why not tomorrow: eight o'clock there may be past in the last hour of a day here.
        chosen_day = (datetime.now(UTC) + timedelta(days=2)).date()
        page.get_by_label("Not before").fill(f"{chosen_day}T08:00")
        chosen = page.get_by_label("Zone of this time")
        assert chosen.evaluate("field => field.selectedOptions[0].text") == "Asia/Tokyo"
        page.get_by_role("button", name="Retry 1 message").click()
        begins = page.locator("dt", has_text="Not before").locator("+ dd time")
        day_before = chosen_day - timedelta(days=1)
        expect(begins).to_have_attribute("datetime", f"{day_before}T23:00:00.000Z")


def local_zone_titles(page: Page) -> set[bool]:
    times = page.locator("td time").all()
    return {(one.get_attribute("title") or "").endswith(" Asia/Tokyo") for one in times}


def test_without_scripts_everything_is_read_and_done(full: str, browser: Browser) -> None:
    with opened_page(browser, full, java_script_enabled=False) as page:
        page.goto("/groups")
        page.get_by_role("link", name="card over limit").click()
        page.get_by_role("link", name="Retry…").click()
        expect(page.get_by_text("would be changed")).to_be_visible()
        page.get_by_role("button", name="Retry 23 messages").click()
        expect(page.locator("h1")).to_contain_text("Retry")
        expect(page.get_by_role("button", name="Copy as command")).to_be_hidden()


RULES_TODAY: Final = "plugins: [{redelivery: {default_entry: {}}}]\n"
RULES_BY_CODE: Final = """\
plugins:
  - redelivery: {default_entry: {}}
  - rules: {rules: [{name: no stock, properties: {code: E7}, action: exhaust}]}
"""


def test_from_what_a_group_has_in_common_to_the_rule_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    """Ten messages of each of two causes; those of one have the code E7."""
    store = open_store(tmp_path / "schedule.db")
    now_ms = store._clock.now_ms()
    rows = [
        dead(
            n,
            ("card over limit", "connection refused")[n % 2],
            now_ms - n * 1_000,
            destination="queue://orders",
            message=bytes(
                Message(body=f"order {n}", properties={"code": "E1" if n % 2 else "E7"}).encode()
            ),
        )
        for n in range(1, 21)
    ]
    keep(store, rows)
    store.close()
    (tmp_path / "rules.yaml").write_text(RULES_TODAY)
    policies = policies_of_file(tmp_path / "rules.yaml")
    with (
        running_console(tmp_path / "schedule.db", policies=policies) as address,
        opened_page(browser, address) as page,
    ):
        page.goto("/groups")
        page.get_by_role("link", name="card over limit").first.click()
        common = page.get_by_role("region", name="What these have in common")
        cells = common.get_by_role("row", name="code").locator("td")
        expect(cells).to_have_text(["E7", "100 %", "0 %"])

        page.get_by_role("link", name="Messages", exact=True).click()
        page.get_by_text("Filter", exact=True).click()
        page.get_by_label("Cause, properties or body contain").fill("e7")
        page.get_by_role("button", name="Show").click()
        listed = page.get_by_role("region", name="Messages", exact=True).locator("tbody tr")
        expect(listed).to_have_count(10)

        page.get_by_role("link", name="Policies").click()
        page.get_by_label("Rules, a policy in YAML").fill(RULES_BY_CODE)
        page.get_by_role("button", name="See what would change").click()
        effect = page.get_by_role("region", name="What these rules would change")
        expect(effect).to_contain_text("10 of them would be decided differently")
        changed = effect.get_by_role("row", name="given up")
        expect(changed.locator("td[data-label='waiting']")).to_have_text("10")
