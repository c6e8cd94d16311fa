"""The pages for people: chat, playground and account.

They are files of ``waferstream/serving/pages``, which load nothing from elsewhere. Anybody may open
them; what they ask is asked in the name of a key, as by any client.
"""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from waferstream.machine.regions.layout import Layout
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.answers import Answers

PAGES = {"/": "chat", "/playground": "playground", "/account": "account"}
"""The pages by their paths."""

_FOLDERS: list[str | tuple[str, str]] = [
    ("waferstream.serving", "pages"),
    ("waferstream.reports", "."),
]
_ENDINGS = (".css", ".js", ".svg")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Pages:
    """The paths of pages, and of the files that they consist of."""

    def __init__(self, answers: Answers, accounts: Accounts | None) -> None:
        given = {"service": _about(answers, accounts), "pages": PAGES}
        self._texts = {path: _rendered(name, given) for path, name in PAGES.items()}
        self._files = StaticFiles(packages=_FOLDERS)
        self.routes = [
            *(Route(path, self.page) for path in PAGES),
            Route("/pages/{name}", self.file),
        ]

    async def page(self, request: Request) -> Response:
        """Return a page."""
        return HTMLResponse(self._texts[request.scope["path"]], headers=_HEADERS)

    async def file(self, request: Request) -> Response:
        """Return a style, a script or a drawing of the pages."""
        name = request.path_params["name"]
        if not name.endswith(_ENDINGS):
            raise HTTPException(404)
        response = await self._files.get_response(name, request.scope)
        response.headers.update(_HEADERS)
        return response


def _rendered(name: str, given: dict[str, Any]) -> str:
    environment = Environment(
        loader=PackageLoader("waferstream.serving", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html.jinja").render(name=name, **given)


def _about(answers: Answers, accounts: Accounts | None) -> dict[str, Any]:
    """Return what the pages know of the service."""
    price = None if accounts is None else accounts.price.model_dump(mode="json", exclude_none=True)
    return {
        "model": answers.model.name,
        "needs_key": accounts is not None,
        "price": price,
        "layout": _placed(answers.service.layout, answers.service.spec.system.name),
    }


def _placed(layout: Layout, system: str) -> dict[str, Any]:
    """Return where the layers lie, in the order of a token."""
    region = layout.region
    return {
        "system": system,
        "columns": region.fabric.columns,
        "rows": region.fabric.rows,
        "side": region.side,
        "wafers": layout.num_wafers,
        "stages": [stage.as_json() for stage in layout.stages],
    }
