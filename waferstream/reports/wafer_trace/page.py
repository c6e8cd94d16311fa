"""A kernel on the fabric as an animation: one page, self-contained, with a script of its own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from csnode.engine.calls import KernelCall
from csnode.engine.spec import KernelName
from waferstream.reports.page import Facts, Page, Section, Sentence, render
from waferstream.reports.wafer_trace.kernel_trace import KernelTrace

_TEMPLATE = "wafer_trace/page.html.jinja"

EXPLANATIONS: Mapping[KernelName, str] = {
    "streamed_product": (
        "Activations rest, weights pass by. Tokens lie down the columns of PEs, features along the "
        "rows; weights enter at the edge, row 0. A weight goes down its column and reaches every "
        "row. Its arrival triggers a multiply-add: weight times feature of all tokens of the PE, "
        "added to the partial sums of one output. Behind the last weight of an output comes a "
        "control wavelet; then the partial sums go round the ring of their row, from PE to PE, "
        "while the weights of the next output are multiplied already."
    ),
    "token_product": (
        "The gradient of a weight. Both operands rest on the wafer, tokens down the columns. The "
        "PEs of a row send their gradients of outputs along the row in turn; each PE multiplies "
        "what arrives by its inputs. Then the products are added up the columns in a chain."
    ),
    "resident_product": (
        "A product of activations, as in attention (SUMMA). In each step one column of PEs sends "
        "its slice of the left operand along the rows, one row of PEs its slice of the right one "
        "down the columns. While a slice is multiplied, the next one is on its way."
    ),
    "feature_sum": (
        "Sums over features, which lie along a row. Each PE adds up its own, a tree along the row "
        "adds the sums of the PEs, and the result goes back to all of them."
    ),
    "token_sum": (
        "Sums over tokens, which lie down the columns. Each PE adds up its own, and a tree adds "
        "the sums of the PEs up the column."
    ),
    "softmax": (
        "Maximum and sum of a token go along its row, by a tree and back. Between them every PE "
        "computes the exponentials of its features, one after the other: most of the cycles."
    ),
    "layer_norm": (
        "Sum and sum of squares of a token go along its row together, by a tree and back. Then "
        "every PE computes mean and deviation of its tokens, and normalizes its features."
    ),
    "rms_norm": (
        "The sum of squares of a token goes along its row, by a tree and back. Then every PE "
        "normalizes its features."
    ),
}


def trace_page(trace: KernelTrace, command: str) -> str:
    """Return the page of a trace as HTML; ``command`` is what wrote it."""
    rows, columns = trace.shape
    page = Page(
        title=f"{trace.call.kernel.replace('_', ' ').capitalize()} of {trace.layer}",
        subtitle=f"{trace.model}, {trace.phase} pass: {sizes(trace.call)} on {rows} x {columns} "
        "PEs of the simulated fabric",
        sections=[_about(trace, command)],
        tiles=[
            ("Counted", f"{trace.cycles:,} cycles", "by the simulator of the fabric"),
            ("Closed form", f"{trace.closed_form:,.0f} cycles", _error_text(trace)),
            ("Busy", f"{trace.busy_share:.0%}", "of the PEs' cycles"),
            ("Wavelets", f"{trace.outcome.hops:,} hops", f"{trace.outcome.sent:,} sent by cores"),
        ],
    )
    return render(page, _TEMPLATE, trace=trace.data())


def sizes(call: KernelCall) -> str:
    """Return the sizes of a kernel in words."""
    if call.kernel.endswith("_product"):
        rows, inner, columns = call.shape
        return f"{rows:,} x {inner:,} times {inner:,} x {columns:,}"
    *_, features = call.shape
    return f"{prod(call.shape[:-1]):,} tokens of {features:,} features"


def _error_text(trace: KernelTrace) -> str:
    return f"{trace.closed_form / trace.cycles - 1:+.1%} beside the count"


def _about(trace: KernelTrace, command: str) -> Section:
    rows, columns = trace.shape
    edge = "; row 0 is the edge at which weights enter" if trace.has_edge else ""
    times = f", {trace.whole.times:,} times" if trace.whole.times > 1 else ""
    facts = {
        "Layer": f"{trace.layer}, {trace.phase}, op {trace.op}",
        "In the layer": f"{sizes(trace.whole)}{times}",
        "Here": f"{sizes(trace.call)}, operands {trace.call.dtype}, random numbers",
        "Region": f"{rows} rows x {columns} columns of a WSE-2{edge}",
    }
    if command:
        facts["Command"] = command
    return Section(
        "about",
        "What is shown",
        [
            Sentence(EXPLANATIONS[trace.call.kernel], is_note=False),
            Facts(facts),
            Sentence(
                "The kernel is cut to a few tokens and features for each PE, so that single "
                "wavelets can be followed; its layout, order of sums and cycles are those of "
                "runtime.engine: wafer-cycles."
            ),
        ],
    )
