"""What is sent and answered, and the OpenAPI document that is made of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from metastable._version import __version__

MOST_TEXTS = 256
"""Texts of one request."""
MOST_CHARACTERS = 2**21
"""Characters of one text; a hundred thousand tokens have about half a million."""
MOST_BYTES = 2**23
"""Bytes of one request."""


class Request(BaseModel):
    """Texts to be judged."""

    model_config = ConfigDict(extra="forbid", strict=True)
    texts: list[str] = Field(min_length=1, max_length=MOST_TEXTS, description="Texts, each as the model reads it.")
    rate: float | None = Field(None, gt=0, lt=1, description="Nominal rate of false alarms; that of the service.")


class DriftRequest(Request):
    """A batch to be tested for drift."""

    documents: list[str | int] | None = Field(None, description="The document of every text; none: all are one.")


class ChannelAnswer(BaseModel):
    """One channel of one text."""

    value: float
    p: float
    surprise: float
    layer: int


class MarkAnswer(BaseModel):
    """A token that carries an alarm."""

    number: int
    share: float


class ScoreAnswer(BaseModel):
    """What the monitor says about one text."""

    status: str
    p: float
    alarm: bool
    surprise: float
    length: int
    channel: str
    layer: int
    channels: dict[str, ChannelAnswer]
    marks: list[MarkAnswer]


class StreamAnswer(BaseModel):
    """The anytime-valid test over everything that was scored."""

    seen: int
    log_wealth: float
    alarm: bool


class ScoresAnswer(BaseModel):
    """Scores of all texts, in their order."""

    scores: list[ScoreAnswer]
    stream: StreamAnswer


class EmbeddingsAnswer(ScoresAnswer):
    """Unit embeddings beside the scores; null for a text without tokens."""

    embeddings: list[list[float] | None]


class DriftAnswer(BaseModel):
    """Whether a batch as a whole is unusual."""

    texts: int
    judged: int
    mean: float
    deviation: float
    p: float
    alarm: bool
    alarms: int
    channel: str


class ErrorAnswer(BaseModel):
    """Why a request was refused, in one sentence."""

    error: str


POSTS: dict[str, tuple[str, type[BaseModel], type[BaseModel]]] = {
    "/score": ("Judge texts", Request, ScoresAnswer),
    "/embed": ("Embed texts and judge them, in one pass", Request, EmbeddingsAnswer),
    "/drift": ("Test a batch for drift", DriftRequest, DriftAnswer),
}
GETS = {
    "/": ("Live page", "text/html"),
    "/health": ("Which calibration this is", "application/json"),
    "/recent": (
        "Latest scores; `since` is the number of the last one known",
        "application/json",
    ),
    "/metrics": ("Prometheus metrics", "text/plain"),
    "/openapi.json": ("This document", "application/json"),
}


def openapi() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the service."""
    schemas: dict[str, Any] = {}

    def named(model: type[BaseModel]) -> dict[str, str]:
        made = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(made.pop("$defs", {}))
        schemas[model.__name__] = made
        return {"$ref": f"#/components/schemas/{model.__name__}"}

    def refusal(why: str) -> dict[str, Any]:
        return {"description": why, "content": {"application/json": {"schema": named(ErrorAnswer)}}}

    paths: dict[str, Any] = {}
    for path, (summary, sent, answered) in POSTS.items():
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": {"application/json": {"schema": named(sent)}}},
                "responses": {
                    "200": {"description": summary, "content": {"application/json": {"schema": named(answered)}}},
                    "400": refusal("Not JSON, or texts that cannot be read"),
                    "413": refusal(
                        f"More than {MOST_BYTES} bytes, or a text of more than {MOST_CHARACTERS} characters"
                    ),
                    "422": refusal("JSON of another form"),
                    "503": refusal("Too many requests are waiting"),
                },
            }
        }
    for path, (summary, kind) in GETS.items():
        paths[path] = {
            "get": {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {}}}}}
        }
    info = {"title": "metastable monitor", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
