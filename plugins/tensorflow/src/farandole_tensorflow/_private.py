"""The uses of TensorFlow, and of Keras on it, that they do not promise.

Checked on TensorFlow 2.13 to 2.21; docs/guide/tensorflow.md says when.

| name | what for | where |
|---|---|---|
| `Graph._get_control_flow_context`, `XLAControlFlowContext`, `outer_context` | whether XLA compiles a graph | here |
| `FuncGraph.outer_graph` | the same, of the graph around it | here |
| `tensorflow.compiler.tf2xla.ops.gen_xla_ops` | the call out of what XLA compiles, for `use_xla` | here |
| `BatchNormalization._fused_can_be_used` | tells the Keras that has a fused form, Keras 2 | here |
| `BatchNormalization._moments` | is extended to the batches of all ranks | _normalization.py |

The symbols that the native part looks up are listed in csrc: in completion.h, from_xla.h and tf_api.h. Where those of
XLA are missing, `use_xla` says so. A rule of tests/architecture lets no other module reach for such names.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def is_compiled(graph: Any) -> bool:
    """Return whether XLA will compile it; False where TensorFlow lacks the private names that tell."""
    while graph is not None:
        context = getattr(graph, "_get_control_flow_context", lambda: None)()
        while context is not None:
            if type(context).__name__ == "XLAControlFlowContext":
                return True
            context = getattr(context, "outer_context", None)
        graph = getattr(graph, "outer_graph", None)
    return False


def call_out_of_xla(**arguments: Any) -> Any:
    """A call from what XLA compiles; see TensorFlow's XlaCustomCallV2."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_custom_call_v2(**arguments)


def has_fused_normalization() -> bool:
    """Return whether this Keras computes it in one operation of TensorFlow by default."""
    return hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used")
