"""Serves the page on 127.0.0.1 to who has the token; new points go out as server-sent events."""

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import escape
from plotly.offline import get_plotlyjs

from labkit import UserError, plots, profiling, report, runs
from labkit.live import answers
from labkit.live.answers import Asked
from labkit.live.board import Board
from labkit.live.machine import Machines
from labkit.live.sections import Sections, as_json

try:
    import tornado.httpserver
    import tornado.iostream
    import tornado.netutil
    import tornado.web
except ModuleNotFoundError as error:  # JupyterLab brings it
    raise UserError("`labkit live` needs tornado: install it with `pip install 'labkit[live]'`.") from error

FOLDER = Path(__file__).parent
HERE = ("127.0.0.1", "localhost")
"""Names of this machine under which a browser may ask: any other is a foreign site's, led here by its name server"""
POLL_S = 0.5
"""Shortest time between two looks at the folders"""
SHARE = 0.2
"""Share of a core that looking may take: of CPU time, so that the page does not lag on a busy machine"""
ALIVE_S = 15.0
"""Seconds after which a silent connection hears that the server is alive"""
LARGEST_QUESTION = 8 * 2**20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A page that may load nothing from elsewhere, and run no script that a run's name or setting brings"""


class Hub:
    """The board with all that answers from it; its look-outs wait here for a change."""

    def __init__(self, board: Board, token: str):
        self.board, self.token = board, token
        self.machines, self.sections = Machines(board), Sections(board)
        self.looking = ThreadPoolExecutor(1, thread_name_prefix="look")
        self.answering = ThreadPoolExecutor(2, thread_name_prefix="answer")
        self._changed = asyncio.Event()

    async def watch(self) -> None:
        """Look at the folders until cancelled."""
        while True:
            is_new, took_s = await asyncio.get_running_loop().run_in_executor(self.looking, self._look)
            if is_new:
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(0 if self.board.unread else max(POLL_S, took_s / SHARE))

    def _look(self) -> tuple[bool, float]:
        began = time.thread_time()
        return self.board.look(), time.thread_time() - began

    async def change(self, version: int) -> None:
        """Wait until the board has another version, or for `ALIVE_S`."""
        changed = self._changed
        if self.board.version == version:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), ALIVE_S)

    async def answer(self, how: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.answering, how)


class Handler(tornado.web.RequestHandler):
    """Answers who has the token and asks from this machine's own page."""

    def initialize(self, hub: Hub) -> None:
        self.hub = hub

    def set_default_headers(self) -> None:
        for name, value in {
            "Content-Security-Policy": POLICY,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            "Server": "labkit",
        }.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        host, origin = self.request.headers.get("Host", ""), self.request.headers.get("Origin")
        token = self.get_query_argument("token", "")
        is_here = host.rpartition(":")[0] in HERE or host in HERE
        is_own = origin is None or origin == f"{self.request.protocol}://{host}"
        if not (is_here and is_own and hmac.compare_digest(token.encode(), self.hub.token.encode())):
            self.set_status(403)
            self.finish(
                "This page is its reader's own: open the address, with its token, that `labkit live` printed.\n"
            )

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, tornado.iostream.StreamClosedError):  # the browser did not wait
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **more: Any) -> None:
        self.finish(f"{status_code}: {self._reason}\n")

    def asked(self) -> dict[str, Any]:
        """The question in the request's body."""
        try:
            question = json.loads(self.request.body)
        except ValueError:
            question = None
        if not isinstance(question, dict):
            raise tornado.web.HTTPError(400, reason="the question is not JSON")
        return question


class Page(Handler):
    async def get(self) -> None:
        """The page without a run: these come as the first event."""
        looks = [{"dash": look.dash, "symbol": look.marker} for look in map(plots.encoding, range(30))]  # of series
        settings = {"token": self.hub.token, "palettes": plots.PALETTES, "looks": looks}
        of_report = {"jobs": [], "columns": report.OF_TARGET, "config": plots.OFFLINE, "dark": plots.in_the_dark()}
        data: dict[str, Any] = {"settings": htmlsafe_json_dumps(settings), "report": htmlsafe_json_dumps(of_report)}
        data |= {"places": list(map(str, self.hub.board.places)), "token": self.hub.token, "palettes": plots.PALETTES}
        await self.finish(report.render("live.html", folder=FOLDER, **data))


class File(Handler):
    """The page's scripts."""

    async def get(self, name: str) -> None:
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", "private, max-age=86400" if name == "plotly" else "no-store")
        texts = {"plotly": get_plotlyjs, "report": report.SCRIPT.read_bytes, "live": (FOLDER / "live.js").read_bytes}
        await self.finish(await self.hub.answer(texts[name]))


class Events(Handler):
    """What has changed, as long as the browser listens."""

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        version, state = int(self.get_query_argument("since", "-1")), None
        with contextlib.suppress(tornado.iostream.StreamClosedError):  # until the browser is closed
            while True:
                news = await self.hub.answer(lambda since=version: self.hub.board.since(since))
                now = news["version"], news["unread"], len(news["notes"])
                self.write(f"data: {as_json(news)}\n\n" if now != state else ": alive\n\n")
                await self.flush()
                version, state = news["version"], now
                await self.hub.change(version)


def _read(question: dict[str, Any]) -> Asked:
    known = {field.name for field in fields(Asked)}
    try:
        return Asked(**{name: value for name, value in question.items() if name in known})
    except TypeError as error:
        raise UserError(f"the question cannot be read ({error}): load the page again.") from error


def _counter(hub: Hub, asked: dict[str, Any]) -> dict[str, Any]:
    question = _read(asked | {"metric": "", "groups": []})
    return hub.machines.answer(str(asked.get("run")), str(asked.get("counter", "")), question)


def _stop(hub: Hub, asked: dict[str, Any]) -> dict[str, Any]:
    feed = hub.board.feed(str(asked.get("run")))
    runs.request_stop(feed.folder)
    return {"said": f"{feed.name} was asked to stop: it ends after its step under way, with everything saved."}


QUESTIONS: dict[str, Callable[[Hub, dict[str, Any]], Any]] = {
    "curves": lambda hub, asked: answers.curves(hub.board, _read(asked)),
    "counter": _counter,
    "report": lambda hub, asked: hub.sections.answer(asked["runs"]),
    "facts": lambda hub, asked: answers.facts(hub.board, str(asked.get("run"))),
    "compare": lambda hub, asked: answers.compare(hub.board, asked["a"], asked["b"], asked.get("target")),
    "stop": _stop,
}


class Answer(Handler):
    """Answers a question with JSON; what the reader can fix is an answer, too."""

    async def post(self, name: str) -> None:
        asked = self.asked()
        try:
            answer = await self.hub.answer(lambda: as_json(QUESTIONS[name](self.hub, asked)))
        except (UserError, LookupError) as error:
            answer = json.dumps({"error": str(error)})
        self.set_header("Content-Type", "application/json")
        await self.finish(answer)


class Table(Handler):
    async def post(self) -> None:
        """All rows of a metric as CSV, run by run, so that no table is ever held whole."""
        asked = self.asked()
        lines = answers.table_rows(self.hub.board, asked.get("runs", []), str(asked.get("metric")))
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        with contextlib.suppress(tornado.iostream.StreamClosedError):
            while piece := await self.hub.answer(lambda: next(lines, "")):
                self.write(piece)
                await self.flush()


class Profile(Handler):
    """The page of a profiled run, which is a file by itself with its own script."""

    async def get(self) -> None:
        def page() -> str:
            feed = self.hub.board.feed(self.get_query_argument("run"))
            return report.profile_page(profiling.read_profile(feed.folder))

        try:
            html = await self.hub.answer(page)
        except UserError as error:
            html = f"<p>{escape(error)}</p>"
        else:
            own = POLICY.replace("script-src 'self'", "script-src 'unsafe-inline'").replace("connect-src 'self'; ", "")
            self.set_header("Content-Security-Policy", own)
        await self.finish(html)


ROUTES = {
    r"/": Page, r"/(plotly|report|live)\.js": File, r"/events": Events, rf"/({'|'.join(QUESTIONS)})": Answer,
    r"/table\.csv": Table, r"/profile": Profile,
}  # fmt: skip


def serve(
    places: Sequence[Path | str],
    *,
    port: int = 0,
    token: str | None = None,
    ready: Callable[[str], object] = print,
) -> None:
    """Serve the page about these folders of runs until Ctrl-C.

    Args:
        places: folders of runs, or run folders.
        port: of 127.0.0.1; a free one if 0.
        token: what the address ends in; a new one if None.
        ready: is called with the address once the page can be opened.

    Raises:
        UserError: the port is taken, or a folder is a file.
    """
    for place in map(Path, places):
        if place.is_file():
            raise UserError(f"{place} is a file, not a folder of runs: give the folder.")
    try:
        sockets = tornado.netutil.bind_sockets(port, "127.0.0.1")
    except OSError as error:
        raise UserError(f"port {port} cannot be used ({error.strerror}): choose another with --port.") from error
    asyncio.run(_serve(sockets, Board(places), token or secrets.token_urlsafe(24), ready))


async def _serve(sockets: list, board: Board, token: str, ready: Callable[[str], object]) -> None:
    hub = Hub(board, token)
    routes = [(pattern, handler, {"hub": hub}) for pattern, handler in ROUTES.items()]
    application = tornado.web.Application(routes, log_function=lambda handler: None, compress_response=False)
    server = tornado.httpserver.HTTPServer(application, max_body_size=LARGEST_QUESTION)
    server.add_sockets(sockets)
    ready(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/?token={token}")
    try:
        await hub.watch()
    finally:
        server.stop()
        hub.looking.shutdown(wait=False, cancel_futures=True)
        hub.answering.shutdown(wait=False, cancel_futures=True)
