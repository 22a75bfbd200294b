// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/nccl_segment.h"

namespace lockstep::fake {

/// An operation on its way to a stream.
struct Job {
  std::string name;
  cudaStream_t stream = nullptr;
  std::function<void()> run;  // on the stream's worker; ends early when the communicator stops
};

/// Keeps `message` for ncclGetLastError and returns `result`.
ncclResult_t fail(ncclResult_t result, const std::string& message);

}  // namespace lockstep::fake

/// A communicator of one rank. All calls from any thread.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
 public:
  ncclComm(int its_rank, int ranks, int on_device, bool is_blocking)
      : rank(its_rank), size(ranks), device(on_device), blocking(is_blocking) {}
  ~ncclComm();

  int rank;  // both of a child are known when its init is over
  int size;
  const int device;  // of this process
  const bool blocking;
  std::shared_ptr<lockstep::fake::Segment> segment;  // set by init

  /// Joins the others; runs on the communicator's thread until all have come.
  void init(const ncclUniqueId& id);
  /// Finds the ranks of the same colour, then init(); on the child's thread. `number` counts the
  /// parent's splits. Without a colour (`child` null) on the parent's.
  static void split(ncclComm& parent, ncclComm* child, std::uint32_t number, int color, int key);
  /// The parent is in progress from here until the groups are known.
  std::uint32_t begin_split();
  ncclResult_t ready_to_split();           // also after a revocation
  void start(std::function<void()> body);  // one at a time
  void join();
  ncclResult_t wait_while_in_progress();

  ncclResult_t poll();  // the state; queues what is held back when asked often enough
  void set_state(ncclResult_t result, const std::string& message = {});

  /// Whether an operation can be given: success or the reason why not.
  ncclResult_t ready(const std::string& name);
  /// Queues the jobs, or, as a communicator that does not block does, holds them back until the
  /// state is asked for: ncclInProgress.
  ncclResult_t launch(std::vector<lockstep::fake::Job> jobs);

  bool initialising();   // not every rank has come yet, or never will
  ncclResult_t flush();  // queues what is held back, as enough polls do
  void begin_finalize();
  void finalize();       // on the communicator's thread
  void wait_for_jobs();  // until all that were queued have run
  void stop(bool and_abort);
  bool stopped() const;

  // ncclCommRegister: buffers are known until they are taken back.
  void* add_registration(void* data, std::size_t bytes);
  void remove_registration(void* registration);  // dies if it is none, or its memory was freed
  std::size_t registrations();

 private:
  void end_split();
  void queue(lockstep::fake::Job job);
  void release_held(bool drop);
  void run(std::uint64_t number, const std::function<void()>& body);

  std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  ncclResult_t state_ = ncclInProgress;
  std::thread thread_;
  std::uint32_t splits_ = 0;
  std::uint64_t queued_ = 0;
  std::uint64_t turn_ = 0;  // jobs that have run: they run in order, whatever their streams
  bool running_ = false;
  struct Buffer {
    void* data;
    std::size_t bytes;
  };
  std::map<std::uintptr_t, Buffer> registered_;  // by number
  std::uintptr_t last_registration_ = 0;
  std::vector<lockstep::fake::Job> held_;
  int polls_left_ = 0;
  bool joined_ = false;  // init is over
  bool warm_ = false;    // something has been launched
  bool finalizing_ = false;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> aborted_{false};
};
