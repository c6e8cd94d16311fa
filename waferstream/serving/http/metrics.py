"""What the service does, in numbers that Prometheus collects."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waferstream.serving.answers import Answers
from waferstream.serving.questions import End, Watcher

_FIRST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_NEXT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """The path ``/metrics``, and what is counted for it: in a registry of its own."""

    def __init__(self, answers: Answers) -> None:
        self._registry = CollectorRegistry()
        self._tokens = TokenMetrics(self._registry)
        self._requests = Counter(
            "waferstream_http_requests",
            "Requests that were answered, by the path of their route.",
            ["path", "status"],
            registry=self._registry,
        )
        self._watch_load(answers)
        answers.watcher = self._tokens
        self.routes = [Route("/metrics", self.show)]

    async def show(self, _: Request) -> Response:
        """Return all numbers in the text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def counting(self, app: ASGIApp, routes: Iterable[Route]) -> ASGIApp:
        """Return an application whose requests are counted, by those of its routes."""
        paths: dict[object, str] = {route.endpoint: route.path for route in routes}

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_counted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    path = paths.get(scope.get("endpoint"), "none")
                    self._requests.labels(path, str(message["status"])).inc()
                await send(message)

            await app(scope, receive, send_counted)

        return counted

    def _watch_load(self, answers: Answers) -> None:
        """Let the numbers that rise and fall be read when they are collected."""
        for name, meaning, read in (
            ("sequences_running", "Sequences that are computed.", lambda: answers.load.running),
            ("sequences_waiting", "Sequences that wait for room.", lambda: answers.load.waiting),
            ("cache_tokens", "Tokens whose keys and values are held.", lambda: answers.load.tokens),
            ("cache_capacity_tokens", "Tokens that there is room for.", lambda: answers.capacity),
        ):
            gauge = Gauge(f"waferstream_{name}", meaning, registry=self._registry)
            gauge.set_function(read)


class TokenMetrics(Watcher):
    """What is counted of tokens, by the thread of the engine."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._prompt = Counter("waferstream_prompt_tokens", "Tokens of prompts.", registry=registry)
        self._cached = Counter(
            "waferstream_cached_prompt_tokens",
            "Tokens of prompts that others had left in the cache.",
            registry=registry,
        )
        self._drawn = Counter(
            "waferstream_completion_tokens", "Tokens that were drawn.", registry=registry
        )
        self._first_s = Histogram(
            "waferstream_time_to_first_token_seconds",
            "Time from a request to its first token, of this host.",
            buckets=_FIRST_S,
            registry=registry,
        )
        self._next_s = Histogram(
            "waferstream_time_per_output_token_seconds",
            "Time from a token to the next one, of this host.",
            buckets=_NEXT_S,
            registry=registry,
        )
        self._emulated = Counter(
            "waferstream_emulated_seconds",
            "What the emulated machine would have taken for answers that ended.",
            ["phase"],
            registry=registry,
        )

    def first_token(self, prompt: int, cached: int, waited_s: float) -> None:
        """Count the prompt of a request, and its first token."""
        self._prompt.inc(prompt)
        self._cached.inc(cached)
        self._drawn.inc()
        self._first_s.observe(waited_s)

    def next_token(self, waited_s: float) -> None:
        """Count another token of a request."""
        self._drawn.inc()
        self._next_s.observe(waited_s)

    def ended(self, end: End) -> None:
        """Count the emulated time of an answer."""
        self._emulated.labels("prompt").inc(end.emulated.prompt_s)
        self._emulated.labels("completion").inc(end.emulated.completion_s)
