"""The HTTP application: JSON in and out, every refusal one sentence, a live page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from metastable.arguments import instance
from metastable.errors import InvalidInput, MetastableError, MissingExtra
from metastable.monitor.service.page import live_page
from metastable.monitor.service.schemas import (
    MOST_BYTES,
    MOST_CHARACTERS,
    POSTS,
    DriftRequest,
    Request,
    openapi,
)
from metastable.monitor.service.state import Service


class Refusal(Exception):
    """A request that is refused: the code and the sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def application(service: Service) -> Any:
    """The Starlette application of a service."""
    instance(service, "service", Service, "a Service")
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import Request as Asked
        from starlette.responses import HTMLResponse, JSONResponse, Response
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra.of("starlette", "serve") from error

    def guarded(answer: Callable[[Asked], Awaitable[Response]]) -> Callable[[Asked], Awaitable[Response]]:
        async def respond(asked: Asked) -> Response:
            try:
                return await answer(asked)
            except Refusal as refusal:
                code, sentence = refusal.code, str(refusal)
            except MetastableError as error:
                code, sentence = 400, str(error)
            except Exception as error:  # the service lives on, and tells no more than the kind of what happened
                code, sentence = 500, f"the request could not be answered ({type(error).__name__})"
            if service.metrics is not None:
                service.metrics.refused(code)
            return JSONResponse({"error": sentence}, status_code=code)

        return respond

    async def read(asked: Asked, kind: type[Request]) -> Request:
        size = 0
        parts = []
        async for part in asked.stream():
            size += len(part)
            if size > MOST_BYTES:
                raise Refusal(413, f"a request may have {MOST_BYTES} bytes")
            parts.append(part)
        return parsed(b"".join(parts), kind)

    async def seated(work: Callable[[], Any]) -> Any:
        if not service.seats.acquire(blocking=False):
            raise Refusal(503, "too many requests are waiting; try again")
        try:
            return await run_in_threadpool(work)
        finally:
            service.seats.release()

    async def score(asked: Asked) -> Response:
        body = await read(asked, Request)
        _, scores = await seated(lambda: service.embed(body.texts, body.rate))
        return JSONResponse({"scores": [one.to_dict() for one in scores], "stream": service.evidence()})

    async def embed(asked: Asked) -> Response:
        body = await read(asked, Request)
        rows, scores = await seated(lambda: service.embed(body.texts, body.rate))
        told = [row.tolist() if np.isfinite(row).all() else None for row in rows]
        plain = [one.to_dict() for one in scores]
        return JSONResponse({"embeddings": told, "scores": plain, "stream": service.evidence()})

    async def drift(asked: Asked) -> Response:
        body = await read(asked, DriftRequest)
        assert isinstance(body, DriftRequest)
        found = await seated(lambda: service.drift(body.texts, body.documents, body.rate))
        return JSONResponse(asdict(found))

    async def recent(asked: Asked) -> Response:
        text = asked.query_params.get("since", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise Refusal(422, "since must be a number")
        return JSONResponse(service.since(int(text)))

    async def health(asked: Asked) -> Response:
        return JSONResponse(service.health())

    async def metrics(asked: Asked) -> Response:
        if service.metrics is None:
            raise Refusal(501, str(MissingExtra.of("prometheus-client", "metrics")))
        content, kind = service.metrics.text()
        return Response(content, media_type=kind)

    async def document(asked: Asked) -> Response:
        return JSONResponse(openapi())

    async def page(asked: Asked) -> Response:
        return HTMLResponse(live_page(service.health(), service.recent.maxlen or 0))

    posts = {"/score": score, "/embed": embed, "/drift": drift}
    assert posts.keys() == POSTS.keys()
    gets = {"/": page, "/health": health, "/recent": recent, "/metrics": metrics, "/openapi.json": document}
    routes = [Route(path, guarded(answer), methods=["POST"]) for path, answer in posts.items()]
    routes += [Route(path, guarded(answer), methods=["GET"]) for path, answer in gets.items()]
    return Starlette(routes=routes)


def parsed(body: bytes, kind: type[Request]) -> Request:
    """The request in a body, or a refusal."""
    from pydantic import ValidationError

    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is not JSON") from None
    try:
        read = kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the request"
        raise Refusal(422, f"{where[:60]}: {first['msg'][:100]}") from None
    for number, text in enumerate(read.texts):
        if len(text) > MOST_CHARACTERS:
            raise Refusal(413, f"text {number} has {len(text)} characters; at most {MOST_CHARACTERS} are read")
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which no tokenizer reads
            raise Refusal(400, f"text {number} is not valid Unicode") from None
    return read


def serve(service: Service, host: str, port: int) -> None:
    """Run the service until it is interrupted."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra.of("uvicorn", "serve") from error
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be between 0 and 65535, got {port}")
    uvicorn.run(application(service), host=host, port=port, log_level="warning", limit_concurrency=256)
