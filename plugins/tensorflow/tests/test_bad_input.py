"""Mistakes are reported clearly, by TensorFlow's own classes, in time, and nothing hangs."""

import io
import os
import re
import signal
import sys
import time
from contextlib import redirect_stderr

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import RanksFailed, World, spawn, world
from farandole_tensorflow._errors import as_ours, in_a_graph

pytestmark = pytest.mark.timeout(180)


def goes_on():
    assert hvd.allreduce(tf.ones(1), op=hvd.Sum).numpy().tolist() == [hvd.size()]


def raised(kind, call):
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def text_of(kind, call):
    return str(raised(kind, call))


def printed(error):
    """The lines that the error prints where nobody catches it, but for those of code, which may have marks."""
    with redirect_stderr(io.StringIO()) as text:
        sys.excepthook(type(error), error, error.__traceback__)
    return [line for line in text.getvalue().splitlines() if not line.startswith("    ")]


def has(text, *words):
    assert [word for word in words if word not in text] == [], text


def disagreements():
    last = hvd.rank() == hvd.size() - 1
    reduce = tf.function(lambda x: hvd.allreduce(x, name="shapes", op=hvd.Sum))
    eager = raised(hvd.MismatchError, lambda: hvd.allreduce(tf.ones(2 + last), name="shapes"))
    graph = raised(tf.errors.FailedPreconditionError, lambda: reduce(tf.ones(2 + last)))
    for error in (eager, graph):
        has(str(error), "shapes'", "rank 0", "rank 1", "(2,)", "(3,)", "test_bad_input.py:")
        trace, sentence = printed(error)[:-1], printed(error)[-1]
        assert re.match(r"farandole\.MismatchError: allreduce '[\w.]*shapes': the ranks disagree .*[^\]]$", sentence), (
            sentence
        )
        assert "test_bad_input.py" in trace[-1], trace
    assert "[Op:" not in str(eager)
    assert "{{function_node" not in str(eager)
    dtypes = tf.function(lambda x: hvd.allreduce(x, name="dtypes", op=hvd.Sum))
    mine = tf.ones(1, tf.int32 if last else tf.float32)
    has(text_of(tf.errors.FailedPreconditionError, lambda: dtypes(mine)), "dtypes'", "int32", "float32")
    goes_on()


def test_disagreements_name_ranks_and_values():
    world(2).run(disagreements)


OF_2_13 = """Graph execution error:

Detected at node 'allreduce.gradient.3' defined at (most recent call last):
    File "train.py", line 9, in <module>
      train()
Node: 'allreduce.gradient.3'
"""
OF_2_21 = """Graph execution error:

Detected at node while/allreduce.gradient.3 defined at (most recent call last):
  File "train.py", line 9, in <module>

  File "train.py", line 8, in train

"""
OF_A_LAMBDA = "Graph execution error:\n\n{{function_node __inference_<lambda>_13}} "  # whose name has marks of its own
ONE = """allreduce 'w': the ranks disagree
\t [[{{node while/allreduce.gradient.3}}]] [Op:__inference_step_11]"""
SEVERAL = """2 root error(s) found.
  (0) FAILED_PRECONDITION:  allreduce 'w': the ranks disagree
\t [[{{node allreduce_1}}]]
\t [[{{node Identity}}]]
  (1) FAILED_PRECONDITION:  allreduce 'v': the ranks disagree
\t [[{{node allreduce_2}}]]
0 successful operations.
0 derived errors ignored. [Op:__inference_step_11]"""


@pytest.mark.parametrize("frames", ["", OF_2_13, OF_2_21, OF_A_LAMBDA])
@pytest.mark.parametrize("words", [ONE, SEVERAL])
def test_our_sentence_is_found_among_tensorflows_words(frames, words):
    error = in_a_graph(tf.errors.DeadlineExceededError(None, None, frames + words))
    assert (type(error), str(error)) == (hvd.DeadlineError, "allreduce 'w': the ranks disagree")


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("allreduce 'w': the ranks disagree", hvd.MismatchError),
        ("farandole is not initialized; call init() first", hvd.NotInitializedError),
        ("allreduce 'w' failed on rank 0: this rank called shutdown", hvd.NotInitializedError),
        ("this is a forked child of a rank; only the rank itself can take part", hvd.NotInitializedError),
    ],
)
def test_the_sentence_tells_a_mismatch_from_a_missing_world(sentence, kind):
    """There is no world here, as after a program's `finally: hvd.shutdown()`."""
    words = f"{OF_A_LAMBDA}{sentence}\n\t [[{{{{node allreduce}}}}]] [Op:__inference_step_11]"
    of_a_graph = tf.errors.FailedPreconditionError(None, None, words)
    assert type(in_a_graph(of_a_graph)) is kind
    with pytest.raises(kind), as_ours():
        raise tf.errors.FailedPreconditionError(None, None, sentence + " [Op:FarandoleAllreduce]")


def test_what_others_operations_raise_is_left_to_tensorflow():
    theirs = OF_2_21 + "Incompatible shapes: [2] vs. [3]\n\t [[{{node allreduced/add}}]] [Op:__inference_step_11]"
    for error in (tf.errors.InvalidArgumentError(None, None, theirs), ValueError(ONE)):
        assert in_a_graph(error) is None


def one_of_many():
    """The others of the graph are complete, and the session can go on."""

    @tf.function
    def reduce(x, y):
        return [hvd.allreduce(x + i, op=hvd.Sum) for i in range(10)] + [hvd.allreduce(y, op=hvd.Sum)]

    text_of(tf.errors.FailedPreconditionError, lambda: reduce(tf.ones(2), tf.ones(1 + hvd.rank())))
    for _ in range(3):
        assert reduce(tf.ones(2), tf.ones(1))[-1].numpy().tolist() == [hvd.size()]


def test_a_disagreement_leaves_the_rest_of_a_graph():
    world(2).run(one_of_many)


def misuse():
    for call, words in (
        (lambda: hvd.alltoall(tf.ones(2), [5] * hvd.size()), ["splits"]),
        (lambda: hvd.allgather(tf.constant(1.0)), ["dimension"]),
        (lambda: hvd.allreduce(tf.constant([True])), ["bool"]),
    ):
        error = raised(tf.errors.InvalidArgumentError, call)
        assert isinstance(error, ValueError)
        has(str(error), *words)
    shapeless = tf.function(hvd.allgather, input_signature=[tf.TensorSpec(None)])
    has(text_of(tf.errors.InvalidArgumentError, lambda: shapeless(1.0)), "dimension")
    for wrong in ([], [1.5] * hvd.size(), 7, tf.ones([hvd.size()])):
        has(text_of(ValueError, lambda wrong=wrong: hvd.alltoall(tf.ones(2), wrong)), "splits")
    goes_on()


def test_misuse_is_refused_by_the_rank_that_sees_it():
    world(2).run(misuse)


def compiled():
    reduce = tf.function(hvd.allreduce, jit_compile=True)
    has(text_of(tf.errors.InvalidArgumentError, lambda: reduce(tf.ones(1))), "allreduce", "jit_compile=False")
    goes_on()


def test_what_xla_compiles_cannot_have_operations():
    world(2).run(compiled)


def after_shutdown():
    reduce = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    assert reduce(tf.ones(1)).numpy().tolist() == [hvd.size()]
    hvd.shutdown()
    error = raised(tf.errors.FailedPreconditionError, lambda: reduce(tf.ones(1)))
    has(str(error), "init()")
    assert printed(error)[-1].startswith("farandole.NotInitializedError: "), printed(error)
    raised(hvd.NotInitializedError, lambda: hvd.allreduce(tf.ones(1)))
    hvd.init()
    assert reduce(tf.ones(1)).numpy().tolist() == [hvd.size()]


def test_a_graph_outlives_a_world():
    world(2).run(after_shutdown)


def on_one_rank():
    reduce = tf.function(lambda x: hvd.allreduce(x, name="alone"))
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        try:
            hvd.barrier()
        except hvd.RecoverableError:
            return None
    begun = time.monotonic()
    text = text_of(tf.errors.DeadlineExceededError, lambda: reduce(tf.ones(1)))
    assert time.monotonic() - begun < 20
    return text


def test_an_operation_that_one_rank_runs_is_named_after_the_deadline():
    with World(2, init=False, env={"FARANDOLE_TIMEOUT": "2", "FARANDOLE_WARN_AFTER": "1"}) as two:
        text, _ = two.run(on_one_rank)
    has(text, "allreduce.alone", "rank 1")


def die_in_a_step(folder):
    """Rank 1 is killed while the others' graph is under way; what they see, and when."""
    hvd.init()

    @tf.function
    def step(x):
        return [hvd.allreduce(x + i, op=hvd.Sum) for i in range(20)]

    for _ in range(3):
        step(tf.ones(1000))
    if hvd.rank() == 1:
        while len(os.listdir(folder)) < 2:  # what is done here may still be under way on the others
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    with open(os.path.join(folder, str(hvd.rank())), "w"):
        begun = time.monotonic()
    text = text_of(tf.errors.InternalError, lambda: step(tf.ones(1000)))  # TensorFlow replaces what a graph's node says
    assert time.monotonic() - begun < 10
    has(text, "rank 1", "UnavailableError")
    error = raised(hvd.PeerLostError, lambda: hvd.allreduce(tf.ones(1)))
    assert isinstance(error, tf.errors.UnavailableError)
    has(str(error), "rank 1")
    hvd.shutdown()


def test_a_rank_that_is_killed_is_named_by_the_others(tmp_path):
    with World(3, init=False) as three:
        with pytest.raises(RanksFailed, match="rank 1 exited with -9") as caught:
            three.run(die_in_a_step, str(tmp_path))
        assert "raised" not in str(caught.value)


IMPORTS = """
import tensorflow as tf
tf.version.VERSION = "2.12.1"
try:
    import farandole_tensorflow
except ImportError as error:
    print(error)
tf.version.VERSION = "2.13.0-rc1"
import farandole_tensorflow
print(farandole_tensorflow.__name__)
"""


def test_older_versions_of_tensorflow_are_refused(tmp_path):
    script = tmp_path / "imports.py"
    script.write_text(IMPORTS)
    refused, imported = spawn(1, script, timeout=150)[0].strip().splitlines()[-2:]
    assert refused.startswith("farandole-tensorflow works with TensorFlow 2.13 and later")
    assert imported == "farandole_tensorflow"


def test_a_process_can_end_with_operations_in_flight(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(
        "import sys, time\nimport farandole_tensorflow as hvd, tensorflow as tf\n"
        + "from threading import Thread\nhvd.init()\n"
        + "reduce = tf.function(lambda x: [hvd.allreduce(x + i) for i in range(20)])\n"
        + "if hvd.rank() == 0:\n    Thread(target=lambda: reduce(tf.ones(1)), daemon=True).start()\n    time.sleep(2)\n"
        + "hvd.broadcast_object(0)\nprint('ends')\n"
    )
    assert all("ends" in output for output in spawn(2, script, timeout=60))
