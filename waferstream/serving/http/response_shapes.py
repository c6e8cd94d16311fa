"""What responses look like on the wire: a chat that was answered, in other words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from waferstream.serving.http.response_requests import ResponseRequest
from waferstream.serving.http.shapes import Choice, Shape
from waferstream.serving.questions import Piece

Event = dict[str, Any]


class ResponseShape:
    """The object and the events of one response.

    Args:
        asked: What was asked.
        chat: The shape of the chat that answers it.
    """

    def __init__(self, asked: ResponseRequest, chat: Shape) -> None:
        self._asked = asked
        self._chat = chat
        self._message = f"msg_{chat.name}"
        self._numbers = count()
        self._has_begun = False

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Return the response, of which there is one choice."""
        answered = self._chat.whole(choices)
        (choice,) = answered["choices"]
        is_whole = choice["finish_reason"] != "length"
        status = "completed" if is_whole else "incomplete"
        return {
            **self._about(status),
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "output": self._output(choice["message"], status),
            "usage": _usage(answered["usage"]),
            "time_info": answered["time_info"],
            "seed": answered["seed"],
        }

    def opening(self) -> Iterator[Event]:
        """Yield the events before an answer."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._about("in_progress"))

    def piece(self, piece: Piece) -> Iterator[Event]:
        """Yield the events of a piece of text."""
        if piece.said.text:
            yield from self._begun()
            yield self._of_text("delta", delta=piece.said.text)

    def _begun(self) -> Iterator[Event]:
        """Yield the events before the first text."""
        if not self._has_begun:
            self._has_begun = True
            item = self._said("", "in_progress") | {"content": []}
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._part("added", _part(""))

    def closing(self, choice: Choice) -> Iterator[Event]:
        """Yield the events after an answer."""
        response = self.whole([choice])
        for index, item in enumerate(response["output"]):
            if item["type"] == "function_call":
                yield from self._called(index, item)
            else:
                yield from self._begun()
                text = item["content"][0]["text"]
                yield self._of_text("done", text=text)
                yield self._part("done", _part(text))
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: Mapping[str, Any]) -> Event:
        """Return the event of an answer that fails."""
        told = {"code": "server_error", "message": error["message"]}
        return self._event("response.failed", response=self._about("failed") | {"error": told})

    def _called(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of a call, whose arguments come in one piece."""
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        place = {"item_id": item["id"], "output_index": index}
        arguments = item["arguments"]
        for kind, said in (("delta", {"delta": arguments}), ("done", {"arguments": arguments})):
            yield self._event(f"response.function_call_arguments.{kind}", **place, **said)

    def _output(self, message: Mapping[str, Any], status: str) -> list[dict[str, Any]]:
        """Return the items of an answer: what is said, and calls."""
        calls = [
            {
                "id": f"fc_{call['id']}",
                "type": "function_call",
                "call_id": call["id"],
                **call["function"],
                "status": status,
            }
            for call in message.get("tool_calls", [])
        ]
        text = message["content"]
        return [self._said(text or "", status), *calls] if text or not calls else calls

    def _said(self, text: str, status: str) -> dict[str, Any]:
        about = {"id": self._message, "type": "message", "role": "assistant", "status": status}
        return {**about, "content": [_part(text)]}

    def _part(self, kind: str, part: Mapping[str, Any]) -> Event:
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return self._event(f"response.content_part.{kind}", **place, part=part)

    def _of_text(self, kind: str, **said: str) -> Event:
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return self._event(f"response.output_text.{kind}", **place, **said, logprobs=[])

    def _event(self, kind: str, **said: Any) -> Event:
        return {"type": kind, "sequence_number": next(self._numbers), **said}

    def _about(self, status: str) -> dict[str, Any]:
        """Return what a response says before it is answered."""
        asked = self._asked
        return {
            "id": f"resp_{self._chat.name}",
            "object": "response",
            "created_at": float(self._chat.created_s),
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self._chat.model,
            "output": [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": asked.reasoning and asked.reasoning.effort, "summary": None},
            "service_tier": self._chat.tier,
            "store": False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools or [],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": asked.user,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage of a chat in the words of a response."""
    read, drawn = usage["prompt_tokens_details"], usage["completion_tokens_details"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": read["cached_tokens"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": drawn["reasoning_tokens"]},
        "total_tokens": usage["total_tokens"],
    }
