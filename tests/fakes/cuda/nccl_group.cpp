// SPDX-License-Identifier: Apache-2.0
// A fake NCCL: operations and groups of them.
#include "tests/fakes/cuda/nccl_group.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_faults.h"
#include "tests/fakes/cuda/nccl_operations.h"
#include "tests/fakes/cuda/nccl_reduce.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace lockstep::fake {
namespace {

// A call, checked, before it is queued.
struct Call {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream = nullptr;
  std::string name;
  bool is_message = false;
  Collective collective;
  Message message;
  OperationFault fault = OperationFault::none;
};

struct Made {
  std::shared_ptr<ncclComm> comm;
  ncclComm_t* handle;
};

// What a thread has said since ncclGroupStart.
struct Group {
  int depth = 0;
  std::vector<Call> calls;
  std::vector<Made> made;
  ncclResult_t error = ncclSuccess;  // of the first call that failed
};
thread_local Group group;

void run_faulty(ncclComm& comm, OperationFault fault) {
  if (fault == OperationFault::remote_error) {
    comm.set_state(ncclRemoteError, "remote process exited or there was a network error");
  }
  hang(comm);
}

Job collective_job(const Call& call) {
  return {.name = call.name,
          .stream = call.stream,
          .run = [comm = call.comm.get(), collective = call.collective, fault = call.fault] {
            if (fault != OperationFault::none) return run_faulty(*comm, fault);
            run_collective(*comm, collective);
          }};
}

Job message_job(const std::vector<Call>& calls) {
  std::vector<Message> messages;
  OperationFault fault = OperationFault::none;
  for (const Call& call : calls) {
    messages.push_back(call.message);
    fault = std::max(fault, call.fault);
  }
  return {.name = calls.front().name,
          .stream = calls.front().stream,
          .run = [comm = calls.front().comm.get(), messages = std::move(messages), fault] {
            if (fault != OperationFault::none) return run_faulty(*comm, fault);
            run_messages(*comm, messages);
          }};
}

// The collectives of one communicator in their order, then its messages as one operation.
ncclResult_t launch_calls(const std::shared_ptr<ncclComm>& comm, const std::vector<Call>& calls) {
  std::vector<Job> jobs;
  std::vector<Call> messages;
  const auto first =
      std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call.comm == comm; });
  for (const Call& call : calls) {
    if (call.comm != comm) continue;
    if (call.stream != first->stream) {
      return fail(ncclInvalidUsage, "one group on two streams: not known to the fake");
    }
    if (call.is_message) {
      messages.push_back(call);
    } else {
      jobs.push_back(collective_job(call));
    }
  }
  if (!messages.empty()) jobs.push_back(message_job(messages));
  return comm->launch(std::move(jobs));
}

ncclResult_t launch_all(const std::vector<Call>& calls) {
  std::vector<std::shared_ptr<ncclComm>> comms;
  for (const Call& call : calls) {
    if (std::find(comms.begin(), comms.end(), call.comm) == comms.end()) {
      comms.push_back(call.comm);
    }
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& comm : comms) {
    const ncclResult_t one = launch_calls(comm, calls);
    if (result == ncclSuccess || one > ncclInProgress) result = one;
    if (one != ncclSuccess && one != ncclInProgress) return one;
  }
  return result;
}

ncclResult_t wait_for_made(std::vector<Made> made) {
  ncclResult_t result = ncclSuccess;
  for (const Made& one : made) {
    if (!one.comm->blocking) {
      result = ncclInProgress;
      continue;
    }
    const ncclResult_t status = one.comm->wait_while_in_progress();
    if (status == ncclSuccess) continue;
    *one.handle = nullptr;
    discard(one.comm.get());
    result = status;
  }
  return result;
}

ncclResult_t check_call(const Call& call) {
  const ncclComm& comm = *call.comm;
  const ncclDataType_t type = call.is_message ? call.message.type : call.collective.type;
  if (size_of(type) == 0) return fail(ncclInvalidArgument, call.name + ": " + name_of(type));
  const int other = call.is_message ? call.message.peer : call.collective.root;
  if (other < 0 || other >= comm.size) {
    return fail(ncclInvalidArgument,
                call.name + ": rank " + std::to_string(other) + " of " + std::to_string(comm.size));
  }
  if (!call.is_message && !is_known(call.collective.reduction)) {
    return fail(ncclInvalidArgument, call.name + ": unknown reduction");
  }
  if (device_of(call.stream) != comm.device) {
    return fail(ncclInvalidUsage, call.name + ": the stream is not on the communicator's device");
  }
  return ncclSuccess;
}

ncclResult_t submit(const char* function, ncclComm_t handle, Call call) {
  const auto refuse = [](ncclResult_t result) {
    if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
    return result;
  };
  call.name = function;
  call.comm = live(function, handle);
  if (!call.comm) return refuse(fail(ncclInvalidArgument, call.name + ": no communicator"));
  if (enter(function) != cudaSuccess) return refuse(fail(ncclUnhandledCudaError, "cuda failure"));
  if (const auto ready = call.comm->ready(call.name); ready != ncclSuccess) return refuse(ready);
  if (const auto valid = check_call(call); valid != ncclSuccess) return refuse(valid);
  if (call.is_message) {
    call.message.check(*call.comm);
  } else {
    call.collective.check(*call.comm);
  }
  call.fault = next_operation(call.comm->rank);
  if (group.depth > 0) {
    group.calls.push_back(std::move(call));
    return ncclSuccess;
  }
  return launch_all({std::move(call)});
}

ncclResult_t collective(const char* function, ncclComm_t comm, cudaStream_t stream,
                        const Collective& operation) {
  Call call;
  call.stream = stream;
  call.collective = operation;
  return submit(function, comm, std::move(call));
}

ncclResult_t message(const char* function, ncclComm_t comm, cudaStream_t stream,
                     const Message& one) {
  Call call;
  call.stream = stream;
  call.is_message = true;
  call.message = one;
  return submit(function, comm, std::move(call));
}

}  // namespace

bool defer_to_group_end(const std::shared_ptr<ncclComm>& comm, ncclComm_t* handle) {
  if (group.depth == 0) return false;
  group.made.push_back({comm, handle});
  return true;
}

}  // namespace lockstep::fake

namespace fake = lockstep::fake;

ncclResult_t ncclGroupStart() {
  fake::forbid_on_worker(__func__);
  ++fake::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  fake::forbid_on_worker(__func__);
  if (fake::group.depth == 0) return fake::fail(ncclInvalidUsage, "ncclGroupEnd without a start");
  if (--fake::group.depth > 0) return ncclSuccess;
  const fake::Group ended = std::exchange(fake::group, {});
  const ncclResult_t made = fake::wait_for_made(ended.made);
  if (ended.error != ncclSuccess) return ended.error;
  if (made != ncclSuccess && made != ncclInProgress) return made;
  const ncclResult_t launched = fake::launch_all(ended.calls);
  return launched == ncclSuccess ? made : launched;
}

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return fake::collective(__func__, comm, stream,
                          {.kind = fake::Kind::all_reduce,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .type = type,
                           .reduction = reduction});
}

ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t comm, cudaStream_t stream) {
  return fake::collective(__func__, comm, stream,
                          {.kind = fake::Kind::reduce,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .type = type,
                           .reduction = reduction,
                           .root = root});
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return fake::collective(__func__, comm, stream,
                          {.kind = fake::Kind::reduce_scatter,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .type = type,
                           .reduction = reduction});
}

ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return fake::collective(
      __func__, comm, stream,
      {.kind = fake::Kind::all_gather, .send = send, .recv = recv, .count = count, .type = type});
}

ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return fake::collective(__func__, comm, stream,
                          {.kind = fake::Kind::broadcast,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .type = type,
                           .root = root});
}

ncclResult_t ncclBcast(void* data, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return fake::message(
      __func__, comm, stream,
      {.sends = true, .data = const_cast<void*>(data), .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return fake::message(__func__, comm, stream,
                       {.sends = false, .data = data, .count = count, .type = type, .peer = peer});
}
