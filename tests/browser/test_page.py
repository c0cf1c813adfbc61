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


def test_a_task_that_an_instance_without_a_page_may_run_is_unknown(group, opened):
    instances = group(2, pageless=["cccccccc"])
    page = opened(instances[0])
    health = page.locator("#health")
    expect(health).to_contain_text("1 of 3 instances have no page", timeout=LONG)
    instances[1].kill()
    expect(health).to_contain_text("4 tasks may run on an instance without a page", timeout=LONG)
    assert "nowhere" not in page.locator("#tasks-table").inner_text()
    row = {row[0]: row for row in cells(page, "tasks-table")}["0_1"]
    assert "? unknown" in row
    assert "set its metrics.port" in page.locator("#tasks-table .unknown").first.get_attribute("title")
    pageless = next(row for row in cells(page, "instances-table") if row[0] == "cccccccc")
    assert pageless[1] == "unknown"


def test_late_rows_are_on_top_in_amber(group, opened):
    page = opened(group(2, late=3)[0])
    health = page.locator("#health")
    expect(health).to_contain_text("6 late rows were dropped in the newest micro-batches", timeout=LONG)
    expect(health).to_have_class("late")
    expect(page.locator("#summary .late")).to_have_text("Late rows6")
    assert page.locator("#batches-table td.late").all_inner_texts() == ["3", "3"]
    assert page.evaluate(_CONTRAST) == []


def test_without_late_rows_nothing_is_amber(group, opened):
    page = opened(group(1)[0])
    expect(page.locator("#health")).to_have_class("well", timeout=LONG)
    assert page.locator(".late").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_before_the_first_answer_shapes_hold_the_place_of_the_data(group, opened, scheme):
    (instance,) = group(1)
    page = opened(instance, blocked="**/events", color_scheme=scheme)
    assert page.locator("#main").get_attribute("aria-busy") == "true"
    for part in ("#summary", "#tasks .scroll", "#lag-chart"):
        assert page.locator(part).bounding_box()["height"] > 50, part
        assert "gradient" in page.locator(part).evaluate("part => getComputedStyle(part).backgroundImage"), part
    assert page.locator("#no-rebalances").is_hidden(), "nobody knows yet"
    page.unroute("**/events")
    page.reload()
    page.wait_for_selector("#tasks-table tbody tr", timeout=LONG)
    assert page.locator("#main").get_attribute("aria-busy") is None


def test_each_thing_has_one_name_and_each_time_is_shown_once(group, opened):
    page = opened(group(2)[0])
    expect(page.locator("#freshness")).to_have_text(
        re.compile(r"^Updated at \d\d:\d\d:\d\d UTC, as \S+ sees it$"), timeout=LONG
    )
    heads = page.locator("thead th").all_inner_texts()
    assert heads.count("State") == 1, "of an instance"
    assert "Stores on disk" in heads
    story = page.locator("#stories > li").first.inner_text()
    assert story.count("in service after 1.3 s") == 1
    assert "1.250" not in story


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


@pytest.mark.parametrize("steps", [1, 14])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_graph_uses_the_width_that_it_has(group, opened, width, steps):
    names = [f"{n}-of-a-step-with-a-long-name" for n in range(steps)]
    page = opened(group(1, steps=names)[0], viewport={"width": width, "height": 800})
    expect(page.locator("#graph rect")).to_have_count(steps + 2, timeout=LONG)
    region, used = page.locator("#topology .scroll").bounding_box(), page.locator("#graph").bounding_box()
    boxes = [rect.bounding_box() for rect in page.locator("#graph rect").all()]
    left, right = min(box["x"] for box in boxes), max(box["x"] + box["width"] for box in boxes)
    if width > 1000:
        assert right - left > 0.9 * region["width"]
    assert used["width"] <= region["width"], "it needs no scrolling sideways"
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            apart = abs(one["x"] - other["x"]) >= min(one["width"], other["width"]) or abs(one["y"] - other["y"]) >= 44
            assert apart, "boxes do not overlap"
    page.set_viewport_size({"width": 640, "height": 800})
    expect(page.locator("#graph")).to_have_attribute("width", re.compile(r"^6\d\d$"), timeout=LONG)


def test_on_a_phone_the_name_of_a_row_stays_in_sight(group, opened):
    page = opened(group(3)[0], viewport={"width": 390, "height": 800})
    expect(page.locator("#instances-table tbody tr")).to_have_count(3, timeout=LONG)
    for table in ("instances-table", "tasks-table", "batches-table"):
        region = page.locator(f".scroll:has(#{table})")
        region.evaluate("region => { region.scrollLeft = 10_000; }")
        assert region.evaluate("region => region.scrollLeft") > 0, table
        first = page.locator(f"#{table} tbody th").first.bounding_box()
        assert abs(first["x"] - region.bounding_box()["x"]) <= 2, table
        assert first["height"] < 90, f"{table}: the name is in few lines"


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
