"""Three in the morning, in a real browser, with a real broker behind, by keyboard alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.web.chromium import opened_page, running_chromium

pytestmark = pytest.mark.browser

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
PHONE = {"width": 390, "height": 844}
MESSAGES = 12


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def artemis() -> Iterator[ArtemisBroker]:
    """A broker of its own: tokens that other tests left would make the first screen red."""
    with ArtemisBroker() as started:
        yield started


class Site:
    """A queue whose dead letters a sidecar holds, one whose messages die later; its console."""

    def __init__(self, broker: ArtemisBroker, queues: tuple[str, str]) -> None:
        self.by_keyboard, self.story = queues
        self.peer = JmsPeer.of(broker, "qpid")
        self.address = ""
        self.sidecar: SidecarProcess | None = None


@pytest.fixture(scope="module")
def site(artemis: ArtemisBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    queues = ("e2e.late.keyboard", "e2e.late.story")
    site = Site(artemis, queues)
    for queue in queues:
        harness = AmqpArtemisHarness(artemis, queue)
        harness.kill_at_first_failure(queue)
        harness.close()
    site.peer.fill(site.by_keyboard, MESSAGES, size=10)
    site.peer.fail(site.by_keyboard, "reject", messages=MESSAGES, deliveries=1, quiet_ms=0)
    names = ",".join(f"{queue}.DLQ" for queue in queues)
    sets = [
        f"intake.queues=[{names}]",
        "intake.backlog_threshold=1",
        "outcomes.interval_s=1",  # Why: no window of a few seconds may go by without a look.
    ]
    folder = tmp_path_factory.mktemp("console")
    with SidecarProcess(folder, artemis.amqp_url, policy=POLICY, sets=sets) as sidecar:
        sidecar.start()
        eventually(lambda: sidecar.metric("amqsidecar_waiting") == MESSAGES, what="all are held")
        [started] = [line for line in sidecar.log_lines() if line.get("event") == "started"]
        site.address, site.sidecar = f"http://{started['http']}", sidecar
        yield site


def focus_on(page: Page, name: str, most: int = 60) -> None:
    """Press Tab until an element of this name has the focus; every stop on the way shows itself."""
    for _ in range(most):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
              const element = document.activeElement;
              const style = getComputedStyle(element);
              const label = element.labels?.[0]?.textContent ?? "";
              return [element.textContent.trim() || label.trim() || element.ariaLabel || "",
                      element === document.body || style.outlineStyle !== "none"];
            }"""
        )
        assert focused[1], f"{focused[0]!r} has the focus and does not show it"
        if name in focused[0]:
            return
    raise AssertionError(f"{name!r} can't be reached by keyboard")


def follow(page: Page, name: str) -> None:
    """Go where an element leads that the keyboard reaches."""
    focus_on(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


@pytest.mark.broker
def test_by_keyboard_alone_on_a_phone(site: Site, browser: Browser) -> None:
    with opened_page(browser, site.address, viewport=PHONE, color_scheme="dark") as page:
        press = page.keyboard.press
        page.goto("/")
        focus_on(page, "Skip to the content", 1)
        press("Enter")
        expect(page.locator("main")).to_be_focused()
        press("g")
        press("g")
        expect(page.locator("h1")).to_have_text("Groups")
        page.goto(f"/groups?destination={site.by_keyboard}")
        follow(page, "(no reason given)")
        follow(page, "Retry…")
        expect(page.locator("h1")).to_contain_text("what it would do")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        focus_on(page, "First only")
        page.keyboard.type("2")
        follow(page, "Retry 12 messages")
        expect(page.locator("h1")).to_contain_text("Operation")
        expect(page.locator("#live .badge").first).to_have_text("running")
        follow(page, "Pause")
        expect(page.locator("#live .badge").first).to_have_text("paused")
        # What has the focus keeps it while the page goes on by itself.
        focus_on(page, "stop that")
        with page.expect_response(lambda answer: "/operations/" in answer.url):
            pass
        expect(page.locator("#live-switch")).to_be_focused()
        press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()


class Person:
    """Uses the keyboard only, and counts what they have to decide on."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.actions = 0

    def open(self, address: str) -> None:
        self.actions += 1
        self._page.goto(address)

    def follow(self, name: str) -> None:
        self.actions += 1
        follow(self._page, name)
        assert self._page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    def write(self, field: str, text: str) -> None:
        self.actions += 1
        focus_on(self._page, field)
        self._page.keyboard.press("Control+a")
        self._page.keyboard.type(text)


@pytest.mark.broker
def test_from_the_alert_to_the_note_by_keyboard_on_a_phone_in_less_than_twelve_actions(
    site: Site, browser: Browser
) -> None:
    count, sidecar = 20, site.sidecar
    assert sidecar is not None
    site.peer.fill(site.story, count, size=10)
    site.peer.fail(site.story, "reject", messages=count, deliveries=1, quiet_ms=0)
    eventually(lambda: len(sidecar.rows("--destination", site.story)) == count)
    alert = f"/groups/one?destination={site.story}&group=(no reason given)"
    with opened_page(browser, site.address, viewport=PHONE) as page:
        person, live = Person(page), page.locator("#live")
        person.open(alert)
        expect(page.locator("h1")).to_have_text("(no reason given)")
        expect(page.get_by_text("the last one that died")).to_be_visible()
        expect(page.locator(".badge", has_text="new").first).to_be_visible()
        person.follow("Hold…")
        person.follow(f"Hold {count} messages")
        expect(live.locator(".badge").first).to_have_text("done")
        # The fix.
        consumer = site.peer.start_flaky_consumer(site.story, how="reject")
        with consumer:
            person.follow("Its group and notes")
            person.follow("Retry…")
            expect(page.get_by_text(f"{count} messages would be changed")).to_be_visible()
            expect(page.get_by_label("At most a second")).to_have_value("20")
            person.write("First only", "5")
            person.write("A message may come back for", "6")  # Else it takes minutes.
            person.follow(f"Retry {count} messages")
            consumed = live.locator(".tiles div", has_text="consumed").locator("dd")
            expect(consumed).to_have_text(str(count))
            came_back = live.locator(".tiles div", has_text="came back").locator("dd")
            expect(came_back).to_have_text("0")
            expect(live.locator(".badge").first).to_have_text("done")
            expect(live.get_by_role("cell", name="consumed").first).to_be_visible()
            assert "success" not in page.locator("main").inner_text().lower()
        person.follow("Its group and notes")
        person.write("Note for others: what is known, a ticket", "Fixed by 2.3.1, all consumed.")
        person.follow("Keep this note")
        expect(page.locator(".written")).to_have_text("Fixed by 2.3.1, all consumed.")
    assert person.actions < 12
