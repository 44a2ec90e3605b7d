"""XLA has no kernels for our operations, and says so when a graph runs, in words of its own; here it is said before."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def check_not_compiled(graph: Any, kind: str) -> None:
    """Raise tf.errors.InvalidArgumentError where the graph that is being made will be compiled by XLA."""
    if _is_compiled(graph):
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"{kind} cannot be compiled by XLA: say model.compile(..., jit_compile=False) in Keras, or give fit the "
            "BroadcastGlobalVariablesCallback, which does; elsewhere tf.function(..., jit_compile=False)",
        )


def _is_compiled(graph: Any) -> bool:
    """TensorFlow has no public word for it; where its private ones are missing, the answer is no."""
    while graph is not None:
        context = getattr(graph, "_get_control_flow_context", lambda: None)()
        while context is not None:
            if type(context).__name__ == "XLAControlFlowContext":
                return True
            context = getattr(context, "outer_context", None)
        graph = getattr(graph, "outer_graph", None)
    return False
