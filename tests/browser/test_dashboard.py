"""The dashboard in a real Chromium: what a person on call does, and how it looks on small and large screens."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import System

FAILED = """
INSERT INTO jobs (type, status, error, attempts, started_at, completed_at)
SELECT (ARRAY['payment_retry', 'email_send'])[1 + n % 2], 'failed', 'GatewayError: 504 for order ' || n, 5,
       now() - n * interval '1 min', now() - n * interval '1 min'
FROM generate_series(1, 80) AS n
"""


def test_a_job_is_created_and_watched_live_until_it_is_completed(page: Page, system: System) -> None:
    page.goto("/")
    page.get_by_role("link", name="New job").click()
    page.get_by_role("link", name="High priority").click()
    page.get_by_label("Payload").fill('{"to": "ann@example.com"')
    expect(page.get_by_text("Not JSON: line 1, column 25")).to_be_visible()
    page.get_by_label("Payload").fill('{"to": "ann@example.com", "n": 12345678901234567890}')
    expect(page.get_by_text("Valid JSON")).to_be_visible()
    page.get_by_label("Idempotency key").fill("welcome-ann")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("The job was created.")).to_be_visible()
    # Nothing is reloaded from here on: the page refreshes its parts by itself.
    expect(page.locator("[data-part=badge]")).to_have_text("completed")
    expect(page.locator("#payload")).to_contain_text("12345678901234567890")
    expect(page.locator("#result")).to_contain_text("ann@example.com")
    expect(page.get_by_text("Completed in")).to_be_visible()
    page.get_by_role("button", name="Copy id").click()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#job-id").text_content()

    page.goto("/new")
    page.get_by_label("Idempotency key").fill("welcome-ann")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("This key was used before")).to_be_visible()


def test_a_mistake_is_shown_at_its_field_with_everything_still_there(page: Page) -> None:
    page.expected_errors.append("422")  # type: ignore[attr-defined]
    page.goto("/new")
    page.get_by_label("Payload").fill('{"kept": true,\n  oops}')
    page.get_by_label("Idempotency key").fill("kept, too")
    page.get_by_role("button", name="Create job").click()
    expect(page.locator("#problem-payload")).to_contain_text("at line 2, column 3")
    expect(page.get_by_label("Payload")).to_have_value('{"kept": true,\n  oops}')
    expect(page.get_by_label("Idempotency key")).to_have_value("kept, too")


def test_a_job_is_cancelled_in_two_steps_run_again_and_duplicated(page: Page, system: System) -> None:
    job_id = system.create(run_at="2090-01-01T00:00:00Z", payload={"x": 1})
    page.goto(f"/jobs/{job_id}")
    expect(page.get_by_text("It is not due yet")).to_be_visible()
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.locator("[data-part=badge]")).to_have_text("cancelled")
    page.get_by_role("button", name="Retry now").click()
    expect(page.locator("[data-part=badge]")).to_have_text("completed")
    expect(page.get_by_text("Queued again by dashboard user")).to_be_visible()
    page.get_by_role("link", name="Duplicate").click()
    expect(page.get_by_label("Payload")).to_have_value('{\n  "x": 1\n}')


def test_somebody_new_finds_what_broke_and_retries_it(page: Page, system: System) -> None:
    system.sql(FAILED)
    page.goto("/")
    expect(page.get_by_text("jobs failed for good in the last hour")).to_be_visible()
    page.get_by_role("link", name="All failures").click()
    page.get_by_role("link", name="Last hour").click()
    page.get_by_role("listitem").filter(has_text="payment_retry").get_by_role("button").click()
    expect(page.get_by_role("heading")).to_have_text(re.compile("Retry (29|30) jobs?"))
    page.get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("heading")).to_have_text(re.compile("(29|30) jobs queued again"))
    assert system.sql("SELECT count(*) FROM jobs WHERE type = 'email_send' AND status = 'failed'") == [(40,)]


def test_jobs_are_filtered_leafed_through_and_ticked(page: Page, system: System) -> None:
    system.sql(FAILED)
    page.goto("/jobs")
    page.get_by_role("link", name="failed").click()
    page.locator("summary").click()
    page.get_by_label("Text in the error").fill("order 7")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(11)
    assert "error=order+7" in page.url
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody tr")).to_have_count(30)
    page.locator("tbody input").nth(0).check()
    page.locator("tbody input").nth(1).check()
    expect(page.get_by_text("2 ticked")).to_be_visible()
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("heading")).to_have_text("Retry 2 jobs?")
    page.get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("heading")).to_have_text("2 jobs queued again")


def test_lists_refresh_themselves_but_not_what_is_being_used(page: Page, system: System) -> None:
    page.goto("/jobs")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    first = system.create()
    expect(page.get_by_text(first)).to_be_visible()
    page.locator("tbody input").nth(0).check()
    second = system.create()
    with page.expect_response("**/jobs"):
        pass  # the refresh that was under way
    with page.expect_response("**/jobs"):
        pass
    expect(page.get_by_text(second)).to_have_count(0)
    page.locator("tbody input").nth(0).uncheck()
    expect(page.get_by_text(second)).to_be_visible()


@pytest.mark.parametrize("system", [{"DASHBOARD_PASSWORD": "operate it"}], indirect=True)
def test_logging_in_and_out(page: Page, system: System) -> None:
    page.expected_errors.append("401")  # type: ignore[attr-defined]
    page.goto("/workers")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("This is not the password.")).to_be_visible()
    page.get_by_label("Password").fill("operate it")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    page.goto("/workers")
    expect(page.get_by_label("Password")).to_be_visible()


def test_text_of_strangers_runs_nothing(page: Page, system: System) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    job_id = system.create(payload={hostile: hostile}, run_at="2090-01-01T00:00:00Z")
    system.sql(
        "INSERT INTO jobs (type, status, error, completed_at) VALUES ('email_send', 'failed',"
        f" '{hostile.replace(chr(39), chr(39) * 2)}', now())"
    )
    for path in ("/", "/jobs", f"/jobs/{job_id}", "/failures", f"/new?from={job_id}"):
        page.goto(path)
        assert page.title() != "owned"
        expect(page.locator("img")).to_have_count(0)


def test_every_page_works_without_scripts(browser: Browser, system: System) -> None:
    context = browser.new_context(base_url=system.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/new")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("The job was created.")).to_be_visible()
    for name in ("Overview", "Jobs", "Failures", "Workers", "System"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
    context.close()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(360, "light"), (390, "dark"), (1280, "light"), (1280, "dark"), (1920, "dark"), (2560, "light")],
)
def test_every_page_fits_and_can_be_used_by_everybody(
    browser: Browser, system: System, width: int, scheme: str
) -> None:
    system.sql(FAILED)
    system.sql("UPDATE jobs SET error = repeat('long_word_without_any_space_', 12) WHERE error LIKE '% 7'")
    job_id = system.create(payload={"text": "x" * 300}, run_at="2090-01-01T00:00:00Z")
    context = browser.new_context(
        base_url=system.url,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    for path in (
        "/",
        "/jobs",
        f"/jobs/{job_id}",
        "/jobs?status=failed&error=504",
        "/new",
        "/workers",
        "/failures",
        "/system",
    ):
        page.goto(path)
        too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(too_wide) <= 0, f"{path} is wider than {width} pixels"
        found = Axe().run(page).response["violations"]
        serious = [each for each in found if each["impact"] in {"serious", "critical"}]
        assert serious == [], f"{path}: {[(each['id'], each['nodes'][0]['html']) for each in serious]}"
    context.close()
