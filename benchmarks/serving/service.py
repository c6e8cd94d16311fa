"""What the service adds to the engine: to the first token, and to each that follows.

The same requests go to the engine of a process and through HTTP to the service around that engine,
all streams at once. A small model of random weights answers, so that steps are short.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import uvicorn

from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.http.app import make_app
from waferstream.serving.questions import Piece, Question

WAIT_S = 300.0


@dataclass(frozen=True)
class Stream:
    """When the pieces of one answer came, in seconds after its request."""

    times_s: Sequence[float]

    @property
    def first_s(self) -> float:
        """The time of the first piece."""
        return self.times_s[0]

    @property
    def per_token_s(self) -> float:
        """The mean time between pieces."""
        return (self.times_s[-1] - self.times_s[0]) / max(1, len(self.times_s) - 1)


def measure(place: Path, streams: int, tokens: int, repeats: int) -> dict[str, float]:
    """Return what HTTP adds, in milliseconds: medians over trials of the engine and the service."""
    found: dict[str, list[float]] = {"first_token_p99_ms": [], "per_token_ms": []}
    with (
        Answers(Deployment(place)) as answers,
        TemporaryDirectory() as folder,
        _served(answers, Path(folder)) as port,
        ThreadPoolExecutor(streams) as pool,
    ):
        ask = partial(_ask, answers, tokens)
        post = partial(_post, port, answers.model.name, tokens)
        for _ in range(repeats):
            alone, over = (list(pool.map(each, range(streams))) for each in (ask, post))
            first = _p99([s.first_s for s in over]) - _p99([s.first_s for s in alone])
            found["first_token_p99_ms"].append(first * 1e3)
            mean = [median(s.per_token_s for s in each) for each in (alone, over)]
            found["per_token_ms"].append((mean[1] - mean[0]) * 1e3)
    return {name: median(each) for name, each in found.items()}


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def _ask(answers: Answers, tokens: int, seed: int) -> Stream:
    pieces: Queue[Piece | AnswerFailed] = Queue()
    begun_s, times = perf_counter(), []
    prompt = answers.model.text.encode("def f")
    answers.ask(Question(prompt, Sampling(seed), tokens), pieces.put)
    while True:
        piece = pieces.get(timeout=WAIT_S)
        if isinstance(piece, AnswerFailed):
            raise piece.error
        times.append(perf_counter() - begun_s)
        if piece.end is not None:
            return Stream(times)


def _post(port: int, model: str, tokens: int, seed: int) -> Stream:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    body = {"model": model, "prompt": "def f", "max_tokens": tokens, "seed": seed, "stream": True}
    begun_s, times = perf_counter(), []
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data: {"):
            times.append(perf_counter() - begun_s)
    connection.close()
    return Stream(times)


@contextmanager
def _served(answers: Answers, folder: Path) -> Iterator[int]:
    """Serve answers in a thread of this process; yield the port."""
    app = make_app(answers, folder)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    begun_s = perf_counter()
    while not server.started and perf_counter() - begun_s < WAIT_S:
        thread.join(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
