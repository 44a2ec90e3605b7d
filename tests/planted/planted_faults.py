"""One-line faults across the layers, each of which the default run must find. See plant.py.

A change that moves code moves the fault along: tests/planted/test_faults.py fails when `before` is not there once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A line that is made wrong, and where that should be found first."""

    name: str  # what is wrong, in a few plain words
    path: str
    before: str  # in the file exactly once; spans lines where a single one is not unique
    after: str
    found_by: str  # "cpp <regex of ctest>" or a path of Python tests, perhaps with ::test


FAULTS = [
    # ---- core, common
    Fault(
        name="a reduction with a copy leaves the last element out of the copy",
        path="core/src/reduce/kernels.h",
        before="to + done_bytes, rest * (Out::kStepBytes / kStep));",
        after="to + done_bytes, (rest - 1) * (Out::kStepBytes / kStep));",
        found_by="cpp TwiceStoresTheSameBitsInBothPlaces",
    ),
    Fault(
        name="narrowing to bfloat16 rounds ties up instead of to even",
        path="core/src/reduce/conversions.h",
        before="return bits + 0x7fffu + ((bits >> 16) & 1u);",
        after="return bits + 0x8000u;",
        found_by="cpp NarrowingTakesTheNearestAndTheEvenOneOfTwo",
    ),
    Fault(
        name="the tree order splits the inputs at half the right power of two",
        path="core/src/reduce/reduce.cc",
        before="while (2 * power < count) power *= 2;",
        after="while (4 * power < count) power *= 2;",
        found_by="cpp OrderOfSummation",
    ),
    # ---- core, transport
    Fault(
        name="a client does not check the server's proof of the key",
        path="core/src/transport/handshake.cc",
        before=(
            "      if (client) FRD_RETURN_IF_ERROR(CheckProof(fd, kServerLabel));\n"
            "      theirs_ = DecodeHello(received_);\n"
        ),
        after="      theirs_ = DecodeHello(received_);\n",
        found_by="cpp HandshakeClient",
    ),
    Fault(
        name="received descriptors leak into child processes",
        path="core/src/transport/socket_io.cc",
        before="recvmsg(fd, &passing.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);",
        after="recvmsg(fd, &passing.message, MSG_DONTWAIT);",
        found_by="cpp ArriveInOrderAndCloseOnExec",
    ),
    Fault(
        name="received shared memory need not be sealed",
        path="core/src/transport/shm/segment.cc",
        before="seals < 0 || (seals & kSeals) != kSeals) {",
        after="seals < 0) {",
        found_by="cpp SegmentTest",
    ),
    # ---- core, world
    Fault(
        name="liveness blames the connection that closed last",
        path="core/src/world/liveness.cc",
        before="suspect = std::min_element(closed_.begin(), closed_.end(),",
        after="suspect = std::max_element(closed_.begin(), closed_.end(),",
        found_by="cpp LivenessTest",
    ),
    Fault(
        name="a second process with a rank that has connected already is admitted",
        path="core/src/world/rendezvous/server.cc",
        before=(
            "  if (connected_[at])\n"
            "    return Invalid(NameOfRank(peers_, rank)"
            ' + " has connected already; there are two processes started with one rank");\n'
        ),
        after="",
        found_by="cpp OfTwoProcessesWithOneRankTheSecondIsTold",
    ),
    # ---- core, algorithms
    Fault(
        name="the ring passes the finished blocks on one step too early",
        path="core/src/algorithms/schedule.cc",
        before="const int out = ring.Block(me + 1 - t), in = ring.Block(me - t);",
        after="const int out = ring.Block(me - t), in = ring.Block(me - t - 1);",
        found_by="cpp EveryBlockEndsCompleteOnEveryParticipant",
    ),
    Fault(
        name="the ring is chosen where the order of summation matters",
        path="core/src/algorithms/plan.cc",
        before="n > 2 && !facts.order_matters &&",
        after="n > 2 && facts.order_matters &&",
        found_by="cpp LongDataTakesDirectInOrderAndTheRingInAnyOrder",
    ),
    # ---- core, controller
    Fault(
        name="postscale factors are not compared between the ranks",
        path="core/src/controller/signature.h",
        before='visit("postscale factor", self.postscale...);',
        after="visit(kNotCompared, self.postscale...);",
        found_by="cpp ValidateTest",
    ),
    Fault(
        name="a stall names the ranks that have come instead of those that are missing",
        path="core/src/controller/coordinator.cc",
        before="absence.here.push_back(rank);\n      } else if (joined_.count(rank) == 0) {\n        absence.ranks",
        after="absence.ranks.push_back(rank);\n      } else if (joined_.count(rank) == 0) {\n        absence.here",
        found_by="cpp StalledNamesWhoHasNotDescribed",
    ),
    Fault(
        name="the use of an id that is evicted ends before all ranks have reduced their shares",
        path="core/src/controller/log_reader.cc",
        before="completed && (!name->small() || in_flight_.IsTwoPhase(*name))",
        after="completed && !name->small()",
        found_by="cpp SimulationTest",
    ),
    Fault(
        name="a result is taken although a rank has not reduced its share",
        path="core/src/transport/shm/slots.cc",
        before="    if (!HasReduced(m, generation)) return false;\n",
        after="    if (m == self_ && !HasReduced(m, generation)) return false;\n",
        found_by="cpp TwoPhases",
    ),
    Fault(
        name="the evicted flag of a name is not read",
        path="core/src/controller/name_table.cc",
        before="  return !counters_.IsEvicted(id);\n",
        after="  return true;\n",
        found_by="cpp ReleaseTest",
    ),
    Fault(
        name="the last to be done with an id does not wake the leader",
        path="core/src/controller/log_reader.cc",
        before="if (memory_.counters.DoneWith(id, properties.local_members)) outbox_.Ring();",
        after="memory_.counters.DoneWith(id, properties.local_members);",
        found_by="cpp ReleaseTest",
    ),
    Fault(
        name="the ranks that have joined are not forgotten at the end of a join",
        path="core/src/controller/coordinator.cc",
        before="  joined_.clear();\n",
        after="",
        found_by="cpp OperationsOfTheOthersGoOnAndAllBeginAnew",
    ),
    # ---- core, engine
    Fault(
        name="a rank that cannot go on after an exception does not end the epoch",
        path="core/src/engine/engine.cc",
        before="  operations_->thrown = cause;\n",
        after="  static_cast<void>(cause);\n",
        found_by="cpp SubmissionExceptionsTest",
    ),
    Fault(
        name="the postscale factor is not applied",
        path="core/src/operation/operation.cc",
        before="return {ReduceOp::kSum, {request.postscale, static_cast<double>(set_size)}};",
        after="return {ReduceOp::kSum, {1.0, static_cast<double>(set_size)}};",
        found_by="cpp AverageDividesAndScalesApply",
    ),
    Fault(
        name="an unnamed operation does not wait for the one in flight under its name",
        path="core/src/operation/naming.h",
        before="    if (pooled_ != nullptr) pooled_->latest = operation;\n",
        after="    static_cast<void>(operation);\n",
        found_by="cpp NamingTest",
    ),
    Fault(
        name="a call that was not entered takes its number",
        path="core/src/operation/naming.cc",
        before="FindName(request, next->second, /*awaited=*/true);",
        after="FindName(request, next->second++, /*awaited=*/true);",
        found_by="cpp NamingTest",
    ),
    Fault(
        name="a rank takes its own share from its slot, into which it has not written it",
        path="core/src/collectives/slot_reduction.cc",
        before="    if (tensor.input != nullptr) inputs[self] = static_cast<const std::byte*>(tensor.input) + at;\n",
        after="",
        found_by="cpp TwoPhases",
    ),
    Fault(
        name="a copy that reads ahead leaves out what fills no line",
        path="core/src/common/cache.h",
        before="  std::memcpy(to + at, from + at, size_bytes - at);\n",
        after="",
        found_by="cpp Members",
    ),
    Fault(
        name="a rank does not expect that two who wait have slots of 1 MB",
        path="core/src/algorithms/plan.cc",
        before="  facts.awaited = true;\n",
        after="",
        found_by="cpp ChooseProtocol",
    ),
    Fault(
        name="an operation that ends wakes nobody who sleeps until it does",
        path="core/src/engine/operations.h",
        before="    waiting.Notify();\n",
        after="",
        found_by="cpp WakesASleepingThreadWhileAnotherGoesOnDriving",
    ),
    Fault(
        name="a rank reduces its share again after it has waited for the others",
        path="core/src/engine/operations.cc",
        before="  if (!slots.HasReduced(slots.self(), admission.generation())) {\n",
        after="  {\n",
        found_by="cpp AwaitedOnesOfTwoRanksMayBeLarger",
    ),
    Fault(
        name="an operation for which not all ranks wait gets oversized slots",
        path="core/src/controller/id_table.cc",
        before="std::all_of(descriptions.begin(), descriptions.end(), [](const auto& of) { return of.second.awaited",
        after="std::any_of(descriptions.begin(), descriptions.end(), [](const auto& of) { return of.second.awaited",
        found_by="cpp OversizedSlotsAreForOperationsThatAllRanksAwait",
    ),
    Fault(
        name="ranks do not hear that their names for an operation differ",
        path="core/src/controller/id_table.cc",
        before="id.serial, names_differ, once, first};",
        after="id.serial, names_differ && false, once, first};",
        found_by="cpp AllHearThatTheirNamesForAnOperationDiffer",
    ),
    Fault(
        name="the generation of a share outlives the operation",
        path="core/src/transport/shm/slots.cc",
        before="line(part)->reduced.store(0, std::memory_order_relaxed);",
        after="{\n    }",
        found_by="cpp TwoPhases",
    ),
    Fault(
        name="a rank with a thread that may still call something is taken to wait for ever",
        path="core/python/farandole/_runtime/diagnosis/stacks.py",
        before="if int(match[1], 16) not in threads and not _is_idle(lines[head + 1 : end]):",
        after="if not threads and not _is_idle(lines[head + 1 : end]):",
        found_by="core/tests/python/test_diagnosis.py::test_a_thread_that_may_call_something_is_seen",
    ),
    Fault(
        name="a forked child keeps the rank's connections open",
        path="core/src/engine/process.cc",
        before="  Descriptor::CloseInChild();\n",
        after="",
        found_by="tests/collectives/meaning/test_badinput.py::test_a_forked_child_keeps_no_connection_open",
    ),
    # ---- core, backends
    Fault(
        name="a native allreduce copies a member's part before the member has combined it",
        path="core/src/collectives/allreduce.cc",
        before="if (!staging_->HasCombined(finished_members_, number(t) + 1)) return false;",
        after="if (!staging_->HasCombined(finished_members_, number(t))) return false;",
        found_by="cpp Native.AnySequenceOfCollectivesGivesWhatTheDefinitionsSay",
    ),
    Fault(
        name="the MPI communicator of a removed set is not freed",
        path="core/src/backends/mpi/communicator.cc",
        before="  if (is_made_) library_.comm_free(library_.abi, &handle_);\n",
        after="",
        found_by="cpp CommunicatorsAreGivenBack",
    ),
    Fault(
        name="a sum of one rank is scaled by NCCL, which leaves elements out",
        path="core/src/backends/nccl/library.cc",
        before="bool CanScale(int set_size) { return set_size > 1; }",
        after="bool CanScale(int set_size) { return set_size > 0; }",
        found_by="cpp ScaledSumsOfSeveralRanksOnly",
    ),
    # ---- core, C interface and bindings
    Fault(
        name="the size that a caller gives for a tensor's struct is not checked",
        path="core/src/capi.cc",
        before='    if (tensor.struct_size < kFirstTensor) return Refuse(TooSmall("frd_tensor"), why);\n',
        after="",
        found_by="cpp CStructs",
    ),
    Fault(
        name="the C interface reports every ended operation as a success",
        path="core/src/capi.cc",
        before="call->done(call->argument, CodeOf(status), status.message().c_str(), event);",
        after="call->done(call->argument, FRD_OK, status.message().c_str(), event);",
        found_by="plugins/mxnet/tests/test_bad_input.py::test_ranks_whose_networks_differ_are_told",
    ),
    Fault(
        name="the bindings write into a read-only array",
        path="core/bindings/memory.cc",
        before="look_at(type, target, /*writes=*/true, dimensions, tensor, &memory);",
        after="look_at(type, target, /*writes=*/false, dimensions, tensor, &memory);",
        found_by="core/tests/python/test_handles.py::test_arrays_show_their_memory",
    ),
    Fault(
        name="a tensor that is not contiguous is read as if it were",
        path="core/bindings/memory.cc",
        before="if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;",
        after="if (tensor.shape[i] != 1 && tensor.strides[i] < stride) return false;",
        found_by="plugins/torch/tests/test_memory.py::test_the_core_reads_contiguous_memory_of_the_host",
    ),
    # ---- core, Python
    Fault(
        name="the default of an allreduce is the sum",
        path="core/python/farandole/_api/ops.py",
        before="        if op is None:\n            return ReduceOp.AVERAGE\n",
        after="        if op is None:\n            return ReduceOp.SUM\n",
        found_by="core/tests/python/test_ops.py::test_average_is_the_default_and_op_wins",
    ),
    Fault(
        name="local and cross places read from the environment are swapped",
        path="core/python/farandole/_start/environment.py",
        before="return World(rank, size, local_rank, local_size, cross_rank, cross_size, launcher=launcher.title)",
        after="return World(rank, size, cross_rank, cross_size, local_rank, local_size, launcher=launcher.title)",
        found_by="core/tests/python/test_environment.py::test_our_launcher_says_everything",
    ),
    Fault(
        name="gradients after one that failed are not waited for",
        path="core/python/farandole/_training/gradients.py",
        before="                first_error = first_error or error\n        for handles,",
        after="                first_error = first_error or error\n                break\n        for handles,",
        found_by="core/tests/python/test_gradients.py::test_the_first_error_is_raised_after_all_are_complete",
    ),
    Fault(
        name="every gathered object is read from the place of the first",
        path="core/python/farandole/_api/objects.py",
        before="        objects.append(pickle.loads(joined[start : start + size]))\n        start += size\n",
        after="        objects.append(pickle.loads(joined[start : start + size]))\n",
        found_by="core/tests/python/test_numpy_conformance.py",
    ),
    Fault(
        name="a rank's exception passes for its answer in the testing package",
        path="core/python/farandole/testing/_child.py",
        before="return pickle.dumps((False, traceback.format_exc()))",
        after="return pickle.dumps((True, traceback.format_exc()))",
        found_by="core/tests/python/test_life.py::test_a_failing_rank_is_shown",
    ),
    # ---- launcher
    Fault(
        name="the launcher of node 0 takes any proof of a key",
        path="core/python/farandole/_start/proof.py",
        before='if not hmac.compare_digest(proof, self._mac(b"caller", self._mine, theirs)):',
        after="if len(proof) != _MAC_BYTES:",
        found_by="tests/launch/test_nodes.py::test_another_key_is_refused_before_the_listener_says_anything_of_its_own",
    ),
    Fault(
        name="the launcher blames the rank that failed last",
        path="core/python/farandole/launch/head/failure_report.py",
        before="    culprit = suspects[0]\n",
        after="    culprit = suspects[-1]\n",
        found_by="tests/launch/test_launch_ending.py",
    ),
    Fault(
        name="the launcher blames a rank that failed because of another's end",
        path="core/python/farandole/launch/head/failure_report.py",
        before="        death = cause\n",
        after="",
        found_by="tests/launch/test_launch_ending.py::test_what_ranks_say_counts_more_than_the_order_of_deaths",
    ),
    Fault(
        name="the launcher's exit code after a signal lacks the 128",
        path="core/python/farandole/launch/ending.py",
        before="self._begin(now, now + self.grace_s, exit_code=128 + signum)",
        after="self._begin(now, now + self.grace_s, exit_code=signum)",
        found_by="tests/launch/test_launch_ending.py::test_an_interrupt_is_passed_on_once_and_kills_after_the_grace",
    ),
    Fault(
        name="ranks are started with their signals blocked",
        path="core/python/farandole/launch/guard.py",
        before=(
            "            signal.signal(signum, signal.SIG_DFL)\n    signal.pthread_sigmask(signal.SIG_SETMASK, ())\n"
        ),
        after="            signal.signal(signum, signal.SIG_DFL)\n",
        found_by="tests/launch/test_launch_run.py::test_ranks_start_with_no_signal_blocked",
    ),
    # ---- plugins
    Fault(
        name="PyTorch ranks without optimizer state do not take the root's",
        path="plugins/torch/src/farandole_torch/_broadcasting.py",
        before="    if not is_root:\n        state = _replaced(",
        after="    if not is_root and optimizer.state:\n        state = _replaced(",
        found_by="plugins/torch/tests/test_broadcasting.py::test_ranks_without_state_receive_the_roots",
    ),
    Fault(
        name="TensorFlow's gradient of an allgather takes the rank for the place in the process set",
        path="plugins/tensorflow/src/farandole_tensorflow/_gradients.py",
        before="starts = tf.reduce_sum(rows[: place_op(number)], axis=0)",
        after="starts = tf.reduce_sum(rows[: farandole.rank()], axis=0)",
        found_by="plugins/tensorflow/tests/test_gradients.py::test_gradients",
    ),
    Fault(
        name="Keras's momentum correction divides where it should multiply",
        path="core/python/farandole/_keras/learning_rate.py",
        before="each.assign(each * (after / before))",
        after="each.assign(each * (before / after))",
        found_by="plugins/torch/tests/test_keras.py::test_callbacks",
    ),
    Fault(
        name="MXNet's engine does not hear what an operation reads",
        path="plugins/mxnet/csrc/call.cc",
        before="  const int reads = call->is_in_place_ ? 0 : count;\n",
        after="  const int reads = 0;\n",
        found_by="plugins/mxnet/tests/test_engine.py::test_operations_wait_for_what_they_read_and_are_waited_for",
    ),
    Fault(
        name="MXNet's list of errors has no memory of its own and moves as it grows",
        path="plugins/mxnet/src/farandole_mxnet/_native.py",
        before="_library = _opened()\n_make_room_for_errors()\n",
        after="_library = _opened()\n",
        found_by="plugins/mxnet/tests/test_engine.py::test_the_memory_of_mxnets_list_of_errors_is_not_moved",
    ),
    Fault(
        name="shutdown keeps what libraries hold while the user keeps a handle",
        path="core/src/engine/progress.cc",
        before="  work_.CloseBackends();\n",
        after="",
        found_by="tests/collectives/backends/test_nccl_faults.py::test_shutdown_frees_communicators_also_while_the_user_keeps_a_handle",
    ),
]
