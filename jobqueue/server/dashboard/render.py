"""Templates to pages. What comes from a job is a stranger's text: escaped always, and made visible where it hides."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Request, Response
from markupsafe import Markup, escape

from jobqueue import __version__
from jobqueue.assets import folder
from jobqueue.server.dashboard.access import Visitor

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
MAX_SHOWN_CHARS = 100_000
ASSETS = {"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}

# Marks that change the direction of text, controls, and what has no width: they could make one text look like another.
_HIDDEN = re.compile(
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2069\\ufeff]"
)


def page(
    template: str, request: Request[Any, Any, Any], visitor: Visitor, *, status: int = 200, **values: Any
) -> Response[str]:
    """Return the page of *template*."""
    text = (
        _environment()
        .get_template(template)
        .render(path=request.scope["path"], visitor=visitor, now=datetime.now(UTC), **values)
    )
    headers = {"content-security-policy": CSP, "cache-control": "no-store", "referrer-policy": "same-origin"}
    if visitor.cookie is not None:
        headers["set-cookie"] = visitor.cookie
    return Response(text, status_code=status, headers=headers, media_type="text/html; charset=utf-8")


def redirect(location: str, cookie: str | None = None) -> Response[bytes]:
    """Lead the browser to another page of ours, after a form."""
    headers = {"location": location, "cache-control": "no-store"}
    if cookie is not None:
        headers["set-cookie"] = cookie
    return Response(b"", status_code=303, headers=headers)


@cache
def asset(name: str) -> bytes:
    """Return a file of the dashboard."""
    return (folder("web") / "static" / "app" / name).read_bytes()


@cache
def asset_url(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    return f"/assets/{name}?v={blake2b(asset(name), digest_size=6).hexdigest()}"


def visible(text: object, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return text in which nothing hides; cut at *limit* characters."""
    shown = str(text)
    if len(shown) > limit:
        shown = f"{shown[:limit]}… ({len(shown):,} characters in all)"
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def pretty(raw: msgspec.Raw | bytes | None, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return JSON on several lines, its numbers exactly as they are; cut at *limit* characters."""
    if raw is None:
        return "null"
    data = bytes(raw)
    # What is cut anyway need not be laid out.
    return visible((data if len(data) > limit else msgspec.json.format(data, indent=2)).decode(), limit)


def duration(seconds: float | None) -> str:
    """Return a length of time for people."""
    if seconds is None:
        return "–"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def since(moment: datetime | None) -> float | None:
    """Return the seconds from *moment* to now; negative in the future."""
    return None if moment is None else (datetime.now(UTC) - moment).total_seconds()


def when(moment: datetime | None) -> Markup:
    """Return a time relative to now, with the exact one on hover (the script shows it in the reader's zone)."""
    if moment is None:
        return Markup("–")
    seconds = since(moment) or 0.0
    text = f"{_about(seconds)} ago" if seconds >= 0 else f"in {_about(-seconds)}"
    exact = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(moment.isoformat(), exact, text)


def _about(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length or (unit == "min" and seconds >= length):
            return f"{seconds // length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: float | None) -> str:
    """Return a number of bytes for people."""
    if count is None:
        return "–"
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(count: float | None) -> str:
    """Return a whole number for people."""
    return "–" if count is None else f"{count:,.0f}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder("web") / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "pretty": pretty,
        "duration": duration,
        "since": since,
        "when": when,
        "size": size,
        "number": number,
    }
    environment.globals |= {"asset": asset_url, "version": __version__, "escape": escape}
    return environment
