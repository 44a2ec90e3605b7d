"""The script of test_exit: bring this rank into the state that the argument names, and end."""

import contextlib
import os
import signal
import sys
import threading
import time

import farandole
import farandole_mxnet as hvd
import mxnet as mx

RANK = int(os.environ["FARANDOLE_RANK"])
STATES = {}


def state(*codes):
    """The exit codes that are right, by rank."""

    def add(function):
        STATES[function.__name__] = function, codes
        return function

    return add


def push(count=5, name="pending"):
    return [hvd.allreduce(mx.nd.ones((1000,)), name=f"{name}.{k}") for k in range(count)]


def slow():
    matrix = mx.nd.ones((600, 600))
    for _ in range(8):
        matrix = mx.nd.dot(matrix, matrix) / 600
    return matrix


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@state(0, 0)
def never_initialized():
    mx.nd.ones((3,)).asnumpy()


@state(0, 0)
def initialized():
    hvd.init()


@state(0, 0)
def after_operations():
    hvd.init()
    push()[-1].asnumpy()


@state(0, 0)
def operations_after_the_cores_init():
    farandole.init()
    hvd.allreduce(slow(), name="pending")


@state(0, 0)
def operations_pending():
    hvd.init()
    push(64)


@state(0, 0)
def results_dropped():
    hvd.init()
    for _ in range(20):
        push(1, "dropped")


@state(0, 0)
def one_rank_has_the_result():
    hvd.init()
    result = hvd.allreduce(slow(), op=hvd.Sum)
    assert RANK == 1 or result[0, 0].asscalar() == 2


@state(0, 0)
def inputs_not_computed():
    hvd.init()
    hvd.allreduce(slow(), name="slow")


@state(0, 0)
def one_name_many_times():
    hvd.init()
    for _ in range(30):
        hvd.allreduce(mx.nd.ones((1000,)), name="same")


@state(0, 0)
def peer_never_calls():
    hvd.init()
    if RANK == 0:
        push()


@state(0, 0)
def peer_left_before():
    hvd.init()
    if RANK == 1:
        hvd.shutdown()
    else:
        time.sleep(0.5)
        push()


@state(1, 0)
def several_wait_and_one_is_read():
    hvd.init()
    arrays = push()
    arrays[0].wait_to_read()
    if RANK == 1:
        hvd.shutdown()
    else:
        time.sleep(0.5)
        push(6, "later")[0].wait_to_read()


@state(0, -9)
def peer_dies_while_pending():
    hvd.init()
    if RANK == 1:
        time.sleep(0.3)
        die()
    push()


@state(0, -9)
def peer_died_and_the_error_is_unread():
    hvd.init()
    if RANK == 1:
        die()
    push()
    time.sleep(0.5)
    push(5, "later")


@state(0, -9)
def peer_died_and_the_error_is_read():
    hvd.init()
    if RANK == 1:
        die()
    try:
        push()[0].asnumpy()
    except mx.MXNetError as error:
        assert isinstance(error, hvd.PeerLostError) and "rank 1" in str(error)


@state(0, -9)
def many_errors_at_once():
    hvd.init()
    if RANK == 1:
        die()
    for turn in range(100):
        with contextlib.suppress(mx.MXNetError):
            results = [hvd.allreduce(mx.nd.ones((10,)), name=f"lost.{turn}.{k}") for k in range(64)]
            mx.nd.waitall()
            del results


@state(0, 0)
def mismatch_unread():
    hvd.init()
    hvd.allreduce(mx.nd.ones((3 + RANK,)), name="bad")


@state(0, 0)
def shut_down():
    hvd.init()
    push()[-1].asnumpy()
    hvd.shutdown()


@state(0, 0)
def shut_down_with_operations_pending():
    hvd.init()
    push()
    hvd.shutdown()


@state(0, 0)
def shut_down_by_the_core():
    farandole.init()
    push()
    farandole.shutdown()


@state(0, 0)
def initialized_again():
    hvd.init()
    hvd.shutdown()
    hvd.init()
    push()


@state(1, 1)
def unhandled_exception():
    hvd.init()
    push()
    raise RuntimeError("the user's own")


@state(3, 4)
def system_exit():
    hvd.init()
    push()
    sys.exit(3 + RANK)


@state(0, 0)
def immediate_exit():
    hvd.init()
    push()
    os._exit(0)


@state(-15, -15)
def terminated_while_waiting():
    hvd.init()
    if RANK == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
        push()[0].asnumpy()
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
    time.sleep(5)


@state(0, 0)
def daemon_thread_waits():
    hvd.init()
    if RANK == 0:
        threading.Thread(target=push()[0].asnumpy, daemon=True).start()
        time.sleep(0.2)


@state(0, 0)
def child_exits_first():
    hvd.init()
    push()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # runs what is registered for the exit
    assert os.waitpid(pid, 0)[1] == 0


@state(0, 0)
def joined():
    hvd.init()
    push()
    hvd.join()


@state(1, 1)
def gradients_lost_and_unread():
    hvd.init()
    net = mx.gluon.nn.Dense(3, in_units=3 + RANK)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 3 + RANK))).sum()
    loss.backward()
    trainer.step(2)


@state(0, 0)
def training():
    hvd.init()
    net = mx.gluon.nn.Dense(3, in_units=3)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam")
    for _ in range(3):
        with mx.autograd.record():
            loss = net(mx.nd.ones((2, 3))).sum()
        loss.backward()
        trainer.step(2)


if __name__ == "__main__":
    STATES[sys.argv[1]][0]()
