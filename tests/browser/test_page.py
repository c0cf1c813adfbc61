"""The live page in Chromium: what it shows, what a hostile name does, keyboard, phones, colours."""

import re

import pytest
from playwright.sync_api import expect

NASTY = "<img src=x onerror=\"alert('mine')\"></script><script>alert(1)</script>"
VIOLATED = "Content Security Policy"

LONG = 60_000

_COUNT_DRAWINGS = """() => {
  document.body.dataset.drawn = 0;
  const count = () => { document.body.dataset.drawn = Number(document.body.dataset.drawn) + 1; };
  new MutationObserver(count).observe(document.querySelector("#lag-chart"), {childList: true});
}"""
_CONTRAST = """() => {
  const luminance = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg") || !element.getClientRects().length) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(element.outerHTML.slice(0, 120));
  }
  return poor;
}"""


def cells(page, table):
    return [row.all_inner_texts() for row in (r.locator("th, td") for r in page.locator(f"#{table} tbody tr").all())]


def test_whichever_instance_is_asked_shows_the_whole_group(group, opened):
    for instance in group(3):
        page = opened(instance)
        expect(page.locator("#health")).to_contain_text("All is well", timeout=LONG)
        assert len(cells(page, "instances-table")) == 3
        rows = {row[0]: row for row in cells(page, "tasks-table")}
        assert len(rows) == 8
        first = " ".join(rows["0_0"])
        assert "● active" in first
        assert "○ standby 10" in first
        assert page.locator("#stories h3").first.inner_text().startswith("Generation 4")
        assert "resident" in cells(page, "batches-table")[0]
        assert page.locator("#graph rect").count() == 2


def test_an_instance_that_is_killed_is_shown_as_such_and_those_left_go_on(group, opened):
    instances = group(3)
    page = opened(instances[0])
    expect(page.locator("#health")).to_contain_text("All is well", timeout=LONG)
    instances[1].kill()
    expect(page.locator("#health")).to_contain_text("1 of 3 instances do not answer", timeout=LONG)
    assert any("was RUNNING" in row for row in cells(page, "instances-table"))
    assert "✕ nowhere" in {row[0]: row for row in cells(page, "tasks-table")}["0_1"]
    assert "as last seen" in page.locator("#tasks-table").inner_text()


def test_the_page_says_when_its_own_instance_is_gone(group, opened):
    (instance,) = group(1)
    page = opened(instance)
    instance.kill()
    expect(page.locator("#health")).to_contain_text("does not answer", timeout=LONG)
    assert "Ask another one" in page.locator("#health").inner_text()


@pytest.mark.parametrize("state", ["RUNNING", "ERROR"])
def test_hostile_names_are_text(group, opened, state):
    instances = group(2, nasty=NASTY)
    instances[1].state = state
    page = opened(instances[0])
    expect(page.locator("#instances-table tbody tr")).to_have_count(2, timeout=LONG)
    expect(page.locator("#instances-table")).to_contain_text(state, timeout=LONG)
    for part in ("#application", "#topics-table", "#stories", "#config-table", "#graph-list"):
        assert NASTY in page.locator(part).text_content(), part
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert not [text for text in opened.wrong if VIOLATED in text or "dialog" in text]


def test_two_hundred_tasks_can_be_searched(group, opened):
    instances = group(4, tasks=200)
    page = opened(instances[0])
    expect(page.locator("#tasks-table tbody tr")).to_have_count(200, timeout=LONG)
    page.get_by_label("Task", exact=True).fill("0_17")
    assert [row[0] for row in cells(page, "tasks-table")] == ["0_17", *(f"0_{n}" for n in range(170, 180))]
    assert page.locator("#task-count").inner_text() == "11 of 200 tasks"
    page.get_by_label("Task", exact=True).fill("")
    page.get_by_label("Show").select_option("trouble")
    assert cells(page, "tasks-table") == []


def test_what_was_focused_and_opened_stays_so(group, opened):
    page = opened(group(1)[0])
    page.locator("#configuration summary").press("Enter")
    assert page.locator("#configuration details").get_attribute("open") is not None
    page.get_by_label("Task", exact=True).fill("0_1")
    seen = page.locator("#instances-table tbody tr").first
    seen.evaluate("(row) => { row.dataset.seen = 'yes'; }")
    page.evaluate(_COUNT_DRAWINGS)
    expect(page.locator("body")).to_have_attribute("data-drawn", re.compile("[2-9]"), timeout=LONG)
    assert seen.get_attribute("data-seen") == "yes", "rows are not made anew"
    assert page.evaluate("document.activeElement.id") == "task-filter"
    assert page.locator("#configuration details").get_attribute("open") is not None
    assert "[hidden]" in page.locator("#config-table").inner_text()


def test_the_keyboard_reaches_everything(group, opened):
    page = opened(group(1)[0])
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(() => { const at = document.activeElement; return at.id || at.getAttribute('aria-label')"
                " || at.textContent.trim(); })()"
            )
        )
    assert reached[0] == "Skip to the content"
    wanted = {"task-filter", "role-filter", "Table of tasks and processes", "The topology as a list", "metrics"}
    assert wanted <= set(reached), reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(group, opened, scheme):
    instances = group(2)
    page = opened(instances[0], color_scheme=scheme)
    instances[1].kill()
    expect(page.locator("#health")).to_contain_text("do not answer", timeout=LONG)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == (scheme == "dark")
    assert page.evaluate(_CONTRAST) == []


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_width_scrolls_sideways(group, opened, width):
    page = opened(group(3, tasks=40, nasty=NASTY)[0], viewport={"width": width, "height": 800})
    expect(page.locator("#instances-table tbody tr")).to_have_count(3, timeout=LONG)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_tables_and_parts_have_names_for_a_screen_reader(group, opened):
    page = opened(group(2)[0])
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("section:not([aria-labelledby])").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("svg:not([role=img]):not([aria-hidden])").count() == 0
    assert page.locator("input:not(label input), select:not(label select)").count() == 0
    assert page.locator("[role=status]").count() == 1, "only the state of the whole is spoken when it changes"
    # How it is said beside how it is coloured.
    assert page.locator(".role").evaluate_all("all => all.every(one => /\\w/.test(one.textContent))")
