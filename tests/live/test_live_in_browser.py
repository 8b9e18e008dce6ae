"""The live page in a real browser: runs that grow, the reader's choices, the keyboard, and who may ask."""

import json
import urllib.error
import urllib.request

import pytest
from axe_playwright_python.sync_playwright import Axe
from made_up import new_run, write_run, write_samples
from processes import served, wait_for

EVIL = '<img src=x onerror="window.broken=1">'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two groups of three seeds, a hostile run, and a run that goes on."""
    folder = tmp_path_factory.mktemp("runs")
    for lr, every_s in ((0.1, 2.0), (0.2, 1.0)):
        for seed in range(3):
            write_run(folder, [0.5, 0.6 + 0.01 * seed, 0.8], seed=seed, lr=lr, every_s=every_s * (1 + 0.1 * seed))
    write_run(folder, [0.4, float("nan"), 0.5], lr=EVIL, seed=9, budget=EVIL, target=None, config={"job": EVIL})
    return folder


@pytest.fixture(scope="module")
def growing(folder):
    run = new_run(
        folder, "growing", config={"job": "own", "train": {"target_metric": "auc", "target": 0.9, "max_seconds": 100}}
    )
    grow(run, 1)
    write_samples(run.folder, "cpu", "cpu_percent", {0: 10.0, 1: 20.0}, unit="%")
    return run


def grow(run, step, value=0.5):
    run.metric(step=step, wall_s=float(step), train_s=0.5 * step, samples=10 * step, name="auc", value=value)
    run.event("evaluated", metrics={"auc": value}, wall_s=float(step), train_s=0.5 * step, samples=10 * step, step=step)
    run.flush()


@pytest.fixture(scope="module")
def address(folder, growing):
    with served(folder) as (address, _):
        yield address


@pytest.fixture
def page(browser, address):
    """The page as it opens; the test fails on any script error, and on any request to elsewhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, color_scheme="light", accept_downloads=True)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda each: faults.append(each.text) if "Security Policy" in each.text else None)
    page.on(
        "request",
        lambda each: None if each.url.startswith(("http://127.0.0.1", "blob:", "data:")) else faults.append(each.url),
    )
    page.goto(address)
    ready(page)
    yield page
    assert faults == []
    context.close()


def ready(page, count=8):
    page.wait_for_function(f"() => document.querySelectorAll('#rows tr').length === {count}")
    page.wait_for_function("() => document.getElementById('curves').data?.length > 0")


def traces(page, kind="mean"):
    return page.evaluate(
        f"document.getElementById('curves').data.filter(t => t.meta?.kind === {json.dumps(kind)}).map(t => t.name)"
    )


def drawn(page, expression):
    page.wait_for_function(f"() => {{ const plot = document.getElementById('curves'); return {expression}; }}")


@pytest.mark.parametrize("wrong", [{"token": "no"}, {"Host": "evil.example"}, {"Origin": "http://evil.example"},
                                   {"Origin": "http://127.0.0.1:1"}, {"Host": "127.0.0.1.evil.example"}])  # fmt: skip
def test_who_has_no_token_or_comes_from_elsewhere_is_refused_everything(address, wrong):
    start, _, token = address.partition("/?token=")
    token = wrong.get("token", token)
    headers = {name: value for name, value in wrong.items() if name != "token"}
    for path in ("/", "/live.js", "/plotly.js", "/events", "/profile", "/nowhere"):
        request = urllib.request.Request(f"{start}{path}?token={token}", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20)
        assert refused.value.code == (404 if path == "/nowhere" else 403), path
    for path in ("/curves", "/stop", "/facts", "/report", "/table.csv"):
        request = urllib.request.Request(f"{start}{path}?token={token}", data=b"{}", headers=headers)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=20)


def test_new_points_come_by_themselves_and_choices_stay(page, growing):
    row = page.locator("#rows tr").filter(has_text="growing")
    assert "running" in row.inner_text() and "at most" in row.inner_text()
    page.locator("#singles").check()
    page.locator("#sections").scroll_into_view_if_needed()
    page.wait_for_selector("#job0-curves .main-svg")
    identifier = page.locator("#sections section").filter(has_text="AUC 0.78").get_attribute("id")
    slider = page.locator(f"#{identifier}-target")
    slider.press("ArrowLeft")
    page.locator(f'input[name="{identifier}-x"][value="samples"]').check()
    chosen = slider.get_attribute("aria-valuetext")
    for step in (2, 3, 4):
        grow(growing, step, 0.5 + step / 20)
    page.wait_for_function(
        "() => [...document.querySelectorAll('#rows tr')].some(row => row.textContent.includes('auc 0.7'))"
    )
    page.wait_for_function(
        "() => document.getElementById('sections').textContent.includes('(4 evaluations)')",
        timeout=80_000,  # sections wait for as long as they took, which is long beside other tests
    )
    assert slider.get_attribute("aria-valuetext") == chosen
    assert page.locator(f'input[name="{identifier}-x"][value="samples"]').is_checked()


def test_runs_are_drawn_over_dollars_filtered_grouped_faceted_and_sorted(page):
    assert len(traces(page)) == 2, "seeds are groups"
    page.get_by_role("radio", name="Dollars").check(force=True)
    drawn(page, "plot.layout.xaxis.title.text.startsWith('Cost at the price')")
    caption = page.locator("#caption").inner_text()
    assert "runs predicted from" in caption and "by the catalogue" in caption and "1 run not drawn: no price" in caption
    assert len(traces(page)) == 2
    page.locator("#filter").fill("lr=0.1")
    page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 3")
    drawn(page, "plot.data.filter(t => t.meta?.kind === 'mean').length === 1")
    page.locator("#filter").fill("")
    page.locator("#choose summary").click()
    page.locator('#by input[value="lr"]').check()
    drawn(page, "plot.data.some(t => t.name === 'lr 0.1')")
    page.locator("#facet").select_option("lr")
    drawn(page, "plot.layout.annotations.length >= 3")
    page.get_by_role("button", name="Seed").click()
    seeds = page.locator("#rows tr td:nth-child(3)").all_inner_texts()
    assert seeds[0] == "9" and page.locator("th[aria-sort]").inner_text().startswith("Seed")


def test_zoom_statistics_smoothing_and_the_link_to_what_is_seen(page, browser):
    drag(page, 0.25, 0.5)
    page.wait_for_function("() => document.getElementById('to').value !== ''")
    start, end = (float(page.locator(f"#{name}").input_value()) for name in ("from", "to"))
    assert 0 < start < end < 5 and f"from={page.locator('#from').input_value()}" in page.url
    page.locator("#whole").click()
    page.wait_for_function("() => document.getElementById('to').value === ''")
    page.locator("#from").fill("1.5")
    page.locator("#to").fill("5")
    drawn(page, "Math.abs(plot.layout.xaxis.range[1] - 5) < 1e-9")
    page.locator("#smooth").press("ArrowRight")
    page.wait_for_function("() => document.getElementById('caption').textContent.includes('moving average')")
    page.get_by_role("radio", name="Training time").check(force=True)
    drawn(page, "plot.layout.xaxis.title.text.startsWith('Training time')")
    page.evaluate("() => Plotly.relayout('curves', {'xaxis.range[0]': 1, 'xaxis.range[1]': 3})")
    page.wait_for_function("() => document.getElementById('to').value === '3'")
    page.wait_for_function("() => document.querySelectorAll('#ranges tbody tr').length >= 3")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#link").click()
    page.wait_for_function("() => document.getElementById('state').textContent.includes('was copied')")
    link, again = page.evaluate("navigator.clipboard.readText()"), browser.new_page()
    again.goto(link)
    ready(again)
    assert again.locator("#to").input_value() == "3" and again.locator('input[name="x"][value="train_s"]').is_checked()
    assert "EMA" in again.locator("#smooth-value").inner_text()
    drawn(again, "Math.abs(plot.layout.xaxis.range[1] - 3) < 1e-9")
    again.close()


def plot_area(page):
    area = page.locator("#curves .nsewdrag").first
    area.scroll_into_view_if_needed()
    return area.bounding_box()


def drag(page, start, end):
    """Select a part of the curves with the mouse, from and to these shares of their width."""
    area = plot_area(page)
    x, y = (lambda share: area["x"] + share * area["width"]), area["y"] + area["height"] / 2
    page.mouse.move(x(start), y)
    page.mouse.down()
    page.mouse.move(x(end), y, steps=5)
    page.mouse.up()


def test_a_point_leads_to_its_run(page):
    page.locator("#singles").check()
    drawn(page, "plot.data.some(t => t.meta?.kind === 'run')")
    area = plot_area(page)
    x, y = page.evaluate("""() => {
      const plot = document.getElementById('curves'), { xaxis, yaxis } = plot._fullLayout;
      const run = plot._fullData.find(({ meta }) => meta?.kind === 'run');
      return [xaxis.d2p(run.x[0]), yaxis.d2p(run.y[0])];
    }""")
    page.mouse.move(area["x"] + x, area["y"] + y)
    page.wait_for_selector("#curves .hovertext")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => document.getElementById('run').open")
    dialog = page.locator("#run")
    name = page.locator("#run-title").text_content()
    assert name in page.locator("#rows").text_content()
    assert all(words in dialog.text_content() for words in (name, "Provenance", "evaluated"))
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_two_groups_are_compared_and_saved(page, tmp_path):
    names = page.locator("#a option").all_inner_texts()
    a, b = (next(at for at, name in enumerate(names) if f"lr {lr}" in name) for lr in ("0.2", "0.1"))
    page.locator("#a").select_option(index=a)
    page.locator("#b").select_option(index=b)
    page.wait_for_function(
        "() => document.getElementById('compared').textContent.includes('A reaches the target 2.00')"
    )
    page.locator("#filter").fill("lr=0.1")
    page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 3")
    with page.expect_download() as saved:
        page.locator("#csv").click()
    saved.value.save_as(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 3 and lines[0].startswith("run,group,seed,step,wall_s")
    with page.expect_download() as picture:
        page.locator("#png").click()
    picture.value.save_as(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_counters_lie_under_the_curves_and_a_run_shows_its_facts(page, growing):
    page.get_by_role("button", name=growing.folder.name, exact=True).first.click()
    dialog = page.locator("#run")
    dialog.get_by_text("evaluated").first.wait_for()
    assert "max_seconds" not in page.locator("#state").inner_text()
    page.locator("#run-machine").click()
    page.wait_for_function("() => document.querySelectorAll('#counter option').length === 2")
    page.locator("#counter").select_option(index=1)
    drawn(
        page,
        "plot.data.some(t => t.meta?.kind === 'counter') || "
        "document.getElementById('caption').textContent.includes('no place')",
    )


def test_names_from_runs_stay_text_and_what_is_no_number_is_marked(page):
    assert page.evaluate("window.broken === undefined && document.querySelectorAll('main img').length") == 0
    assert EVIL in page.locator("#rows").inner_text()
    drawn(page, "plot.data.some(t => t.meta?.kind === 'odd')")
    assert "is no number" in page.locator("#caption").inner_text()
    page.locator("#sections").scroll_into_view_if_needed()
    page.wait_for_selector("#sections .main-svg")
    assert page.evaluate("window.broken === undefined && document.querySelectorAll('main img').length") == 0


def test_nothing_is_wrong_by_the_rules_of_accessibility_in_both_themes(page):
    page.locator("#sections").scroll_into_view_if_needed()
    page.wait_for_selector("#sections .main-svg")
    page.locator("#choose summary").click()
    for scheme, paper in (("light", "#ffffff"), ("dark", "#16191f")):
        page.emulate_media(color_scheme=scheme)
        drawn(page, f"plot.layout.paper_bgcolor === '{paper}'")
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
        assert found.violations_count == 0, found.generate_report()
    assert "Line chart of auc" in page.locator("#curves").get_attribute("aria-label")


def test_by_keyboard_alone_a_run_is_found_and_stopped_after_a_question(page, growing):
    page.locator("#filter").focus()
    page.keyboard.type("growing")
    page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 1")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Stop":
            break
    page.keyboard.press("Enter")
    assert page.locator("#ask").is_visible() and growing.folder.name in page.locator("#ask").inner_text()
    page.keyboard.press("Enter")  # the focus is on "Let it go on"
    assert not page.locator("#ask").is_visible() and not growing.stop_requested
    page.get_by_role("button", name="Stop growing").or_(page.locator("#rows button", has_text="Stop")).first.press(
        "Enter"
    )
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('state').textContent.includes('was asked to stop')")
    wait_for(lambda: growing.stop_requested)


def test_a_server_that_was_killed_leaves_what_is_shown_and_a_run_that_was_deleted_goes(browser, tmp_path):
    first, second = (write_run(tmp_path, [0.5, 0.8], seed=seed) for seed in range(2))
    with served(tmp_path) as (address, server):
        page = browser.new_page()
        page.goto(address)
        ready(page, 2)
        (first / "run.json").unlink()
        page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 1")
        server.kill()
        page.wait_for_function("() => document.getElementById('state').textContent.includes('does not answer')")
        assert second.name in page.locator("#rows").inner_text()
        page.close()


def test_of_many_groups_those_of_one_look_are_one_trace_and_each_point_names_its_group(browser, tmp_path):
    for lr in range(41):
        for seed in range(2):
            write_run(tmp_path, [0.5, 0.6 + 0.002 * lr, 0.8], seed=seed, lr=float(lr))
    with served(tmp_path) as (address, _):
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(address)
        drawn(page, "plot.data?.length && new Set(plot.data.flatMap(t => t.text ?? [])).size === 41")
        data = "document.getElementById('curves').data"
        found = page.evaluate(f"{data}.map(t => [t.meta.kind, t.x.length, t.text.length])")
        assert all(kind == "means" and points == texts for kind, points, texts in found)
        assert len(found) < 41 and "lr 7" in page.evaluate(f"{data}.flatMap(t => t.text).join()")
        page.close()
