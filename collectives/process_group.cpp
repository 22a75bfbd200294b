// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/process_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <tuple>
#include <utility>

#include "collectives/abort_signal.h"
#include "collectives/bootstrap.h"
#include "collectives/communication_thread.h"
#include "collectives/control_channel.h"
#include "collectives/host_identity.h"
#include "collectives/local/local_group.h"
#include "collectives/local/lone_rank_backend.h"
#include "collectives/mpi/mpi_process.h"
#include "collectives/nccl/nccl_backend.h"
#include "collectives/shm/shm_backend.h"
#include "collectives/two_level/host_layout.h"
#include "collectives/two_level/two_level_backend.h"
#include "lockstep/collectives/agree.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// MPI_Finalize waits for all ranks; one that dies inside it must not keep the others.
constexpr std::chrono::seconds kFinalizeTimeout{5};
constexpr std::chrono::milliseconds kThreadEnds{100};
// How long rank 0 may go on alone, to write the result, before the launcher may notice an end.
constexpr std::chrono::milliseconds kRootEndsFirst{2000};
constexpr std::chrono::milliseconds kRootEndsFirstAfterAbort{500};

void check_backend(const std::string& backend, int size) {
  constexpr std::array known{"auto", "shm", "mpi", "nccl", "local"};
  if (std::find(known.begin(), known.end(), backend) == known.end()) {
    throw ConfigError("backend \"" + backend + "\" is not known", "use auto, shm, mpi or nccl");
  }
  if (backend == "local" && size > 1) {
    throw ConfigError("backend local is for one rank, this job has " + std::to_string(size),
                      "use auto, shm, mpi or nccl");
  }
}

// `devices` by rank. All ranks know the same and throw the same, so that none waits for another.
void check_devices(const std::string& name, const std::vector<DeviceKind>& devices,
                   const std::vector<std::vector<int>>& groups, const std::string& backend) {
  const auto text = [&](std::size_t rank) {
    return "rank " + std::to_string(rank) + " on " + to_string(devices[rank]);
  };
  for (std::size_t rank = 1; rank < devices.size(); ++rank) {
    if (devices[rank] == devices[0]) continue;
    throw ConfigError("group " + name + ": tensors of " + text(0) + ", of " + text(rank),
                      "give all ranks the same kind of device");
  }
  const bool alone = std::all_of(groups.begin(), groups.end(),
                                 [](const auto& group) { return group.size() == 1; });
  const bool on_cpu = devices[0] == DeviceKind::cpu;
  if (on_cpu && backend == "nccl") {
    throw ConfigError("group " + name + ": backend nccl moves nothing between tensors on cpu",
                      "use device = cuda, or backend = auto");
  }
  if (alone || on_cpu || backend == "auto" || backend == "nccl") return;
  throw ConfigError("group " + name + ": backend " + backend +
                        " moves nothing between tensors on " + to_string(devices[0]),
                    "use backend = auto or nccl");
}

// Runs `body` on the communication thread and waits; false if it is still running at the deadline.
// Throws what the body throws, or what ended the thread's work before it.
bool run_on(CommunicationThread& thread, std::function<void()> body, Clock::time_point deadline) {
  const Event done = thread.call(std::move(body));
  return done.wait_for(std::max(Clock::duration::zero(), deadline - Clock::now()));
}

// Whether the thread gets through what was handed to it in time.
bool answers(CommunicationThread& thread, std::chrono::nanoseconds limit) {
  try {
    return thread.call([] {}).wait_for(limit);
  } catch (const std::exception&) {
    return true;  // after a failed operation
  }
}

// What each rank tells the others at the start.
struct Arrival {
  HostIdentity host;
  ControlPoint control;  // rank 0's
};

std::string encode_arrival(const Arrival& arrival) {
  return BodyWriter()
      .text(arrival.host.name)
      .text(arrival.host.key)
      .number(arrival.host.process_id)
      .text(encode_point(arrival.control))
      .take();
}

Arrival decode_arrival(const std::string& text) {
  BodyReader reader(text);
  Arrival arrival;
  arrival.host.name = reader.text();
  arrival.host.key = reader.text();
  arrival.host.process_id = reader.number();
  arrival.control = decode_point(reader.text());
  return arrival;
}

}  // namespace

struct ProcessGroup::State {
  GroupOptions options;
  LaunchPlace place;
  std::vector<std::string> hosts;
  std::vector<std::string> host_keys;
  std::vector<int> process_ids;
  std::shared_ptr<AbortSignal> signal = std::make_shared<AbortSignal>();
  std::unique_ptr<MpiProcess> mpi;  // none in a job of one; used on `thread` only
  std::shared_ptr<CommunicationThread> thread = std::make_shared<CommunicationThread>("comm");
  std::unique_ptr<ControlChannel> control;
  std::unique_ptr<Communicator> world;

  Clock::time_point collective_deadline() const {
    return Clock::now() + options.collective_timeout;
  }

  // As in init(): it hangs inside MPI for good, and whoever destroys it would wait for it.
  void abandon_thread() const {
    static_cast<void>(new std::shared_ptr<CommunicationThread>(thread));
  }

  std::string rank_text() const { return "rank " + std::to_string(place.rank); }

  std::vector<int> all_ranks() const {
    std::vector<int> ranks(static_cast<std::size_t>(place.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  void set_arrivals(const std::vector<Arrival>& arrivals) {
    for (const Arrival& arrival : arrivals) {
      hosts.push_back(arrival.host.name);
      host_keys.push_back(arrival.host.key);
      process_ids.push_back(arrival.host.process_id);
    }
    const auto own = host_keys.begin() + place.rank;
    place.local_rank = static_cast<int>(std::count(host_keys.begin(), own, *own));
  }

  void start_control(std::vector<ControlLink> links) {
    ControlOptions control_options;
    control_options.rank = place.rank;
    control_options.size = place.size;
    control_options.silence_timeout = options.silence_timeout;
    control_options.exit_timeout = options.exit_timeout;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      control_options.names.push_back("rank " + std::to_string(rank) + " (pid " +
                                      std::to_string(process_ids[rank]) + " on host " +
                                      hosts[rank] + ")");
    }
    control =
        std::make_unique<ControlChannel>(std::move(control_options), std::move(links), signal);
  }

  // On the communication thread: MPI, who is where, and how to reach rank 0.
  std::vector<Arrival> arrive(const Arrival& own, Clock::time_point deadline) {
    Wait wait(*signal, deadline, rank_text() + ": start");
    mpi = std::make_unique<MpiProcess>(place, wait);
    const auto backend = mpi->group(all_ranks(), Lane::control);
    std::vector<Arrival> arrivals;
    for (const std::string& text : MpiExchange(*backend, wait).all_gather(encode_arrival(own))) {
      arrivals.push_back(decode_arrival(text));
    }
    return arrivals;
  }

  std::vector<ControlLink> connect(const std::vector<Arrival>& arrivals, ControlListener* listener,
                                   Clock::time_point deadline) const {
    if (listener != nullptr) return listener->accept(place.size, deadline);
    ControlPoint point = arrivals.front().control;
    const auto own = static_cast<std::size_t>(place.rank);
    if (host_keys[own] == host_keys.front()) point.addresses = {"127.0.0.1"};
    std::vector<ControlLink> links;
    links.push_back(connect_to_root(point, place.rank, deadline));
    return links;
  }

  // For tensors on the CPU: that of backend nccl are the world's, of a few bytes.
  bool chooses_itself() const { return options.backend == "auto" || options.backend == "nccl"; }

  // Messages among the ranks of the one of `groups` that this rank is in. All ranks count all.
  std::unique_ptr<MpiBackend> own_messages(const std::vector<std::vector<int>>& groups, Lane lane) {
    std::unique_ptr<MpiBackend> own;
    for (const std::vector<int>& group : groups) {
      if (auto backend = mpi->group(group, lane)) own = std::move(backend);
    }
    return own;
  }

  // On the communication thread; `groups` are all groups that the job makes now, in one order.
  // Null where this rank's has nobody else.
  std::unique_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups, Lane lane,
                                        Wait& wait) {
    std::unique_ptr<Backend> own;
    for (const std::vector<int>& group : groups) {
      const HostLayout layout = host_layout(group, host_keys);
      auto messages = mpi->group(group, lane);
      if (layout.two_levels() && chooses_itself()) {
        TwoLevels levels{.all = std::move(messages),
                         .host = nullptr,
                         .across = nullptr,
                         .host_of_rank = layout.host_of_rank};
        const auto on_host = own_messages(layout.ranks_of_host, lane);
        levels.across = own_messages(layout.across(), lane);
        if (!levels.all) continue;
        MpiExchange exchange(*on_host, wait);
        levels.host = make_shm_backend(on_host->rank(), on_host->size(), exchange, wait);
        own = std::make_unique<TwoLevelBackend>(std::move(levels));
      } else if (messages && group.size() > 1) {
        own = make_flat_backend(std::move(messages), layout, group, wait);
      }
    }
    return own;
  }

  // The same between GPUs.
  std::unique_ptr<Backend> make_gpu_backend(const std::vector<std::vector<int>>& groups, Lane lane,
                                            Device device, Wait& wait) {
    const auto messages = own_messages(groups, lane);  // for the start alone
    if (messages->size() == 1) return nullptr;
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return std::find(group.begin(), group.end(), place.rank) != group.end();
    });
    MpiExchange exchange(*messages, wait);
    return make_nccl_backend(*own, messages->rank(), device, exchange, wait);
  }

  std::unique_ptr<Backend> make_flat_backend(std::unique_ptr<MpiBackend> messages,
                                             const HostLayout& layout,
                                             const std::vector<int>& ranks, Wait& wait) const {
    if (options.backend == "mpi" || (chooses_itself() && !layout.one_host())) {
      return messages;
    }
    if (!layout.one_host()) {
      std::string where;
      for (const int rank : ranks) where += " " + hosts[static_cast<std::size_t>(rank)];
      throw ConfigError(
          wait.operation() + ": backend shm needs all ranks on one host, they are on" + where,
          "use backend = auto or mpi");
    }
    MpiExchange exchange(*messages, wait);
    return make_shm_backend(messages->rank(), messages->size(), exchange, wait);
  }

  std::unique_ptr<Communicator> make_communicator(std::string name, Lane lane,
                                                  const std::vector<std::vector<int>>& groups,
                                                  Device device, Clock::time_point deadline) {
    std::unique_ptr<Communicator> host;
    if (device.kind != DeviceKind::cpu) {
      host = make_communicator(name + ".host", Lane::control, groups, Device{}, deadline);
    }
    const auto backend = std::make_shared<std::unique_ptr<Backend>>();
    const bool on_cpu = device.kind == DeviceKind::cpu;
    if (place.size > 1) {
      const std::string what = rank_text() + ": make group " + name;
      const bool done = run_on(
          *thread,
          [this, backend, groups, lane, device, on_cpu, deadline, what] {
            Wait wait(*signal, deadline, what);
            *backend = on_cpu ? make_backend(groups, lane, wait)
                              : make_gpu_backend(groups, lane, device, wait);
          },
          // Earlier operations on this thread have deadlines of their own.
          deadline + options.collective_timeout);
      if (!done) {
        throw CommError(what + ": the communication thread does not answer",
                        "look at the log of the other ranks");
      }
    }
    if (!*backend && on_cpu) *backend = std::move(make_local_backends(1).front());
    if (!*backend) *backend = std::make_unique<LoneRankBackend>(device);
    return std::make_unique<Communicator>(
        std::move(*backend), thread, signal,
        CommunicatorOptions{
            .name = std::move(name), .lane = lane, .timeout = options.collective_timeout},
        std::move(host));
  }
};

ProcessGroup::ProcessGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

ProcessGroup ProcessGroup::init(GroupOptions options) {
  const auto deadline = Clock::now() + options.init_timeout;
  auto state = std::make_unique<State>();
  state->place = launch_place();
  state->options = std::move(options);
  check_backend(state->options.backend, state->place.size);

  Arrival own;
  own.host = host_identity();
  std::vector<ControlLink> links;
  if (state->place.size == 1) {
    state->set_arrivals({own});
  } else {
    std::unique_ptr<ControlListener> listener;
    if (state->place.rank == 0) {
      listener = std::make_unique<ControlListener>();
      own.control = listener->point();
    }
    const auto arrivals = std::make_shared<std::vector<Arrival>>();
    const bool done = run_on(
        *state->thread,
        [raw = state.get(), arrivals, own, deadline] { *arrivals = raw->arrive(own, deadline); },
        deadline + std::chrono::seconds(1));
    if (!done) {
      const CommError error(state->rank_text() + ": MPI_Init has not returned within " +
                                std::to_string(state->options.init_timeout.count()) + " s",
                            "look for a rank that did not start; timeout.init sets the time");
      // The thread hangs inside MPI and holds this memory; the process is about to end.
      static_cast<void>(state.release());
      throw error;
    }
    state->set_arrivals(*arrivals);
    links = state->connect(*arrivals, listener.get(), deadline);
  }
  state->start_control(std::move(links));
  state->world =
      state->make_communicator("world", Lane::control, {state->all_ranks()}, Device{}, deadline);
  return ProcessGroup(std::move(state));
}

int ProcessGroup::rank() const noexcept { return state_->place.rank; }
int ProcessGroup::size() const noexcept { return state_->place.size; }
int ProcessGroup::local_rank() const noexcept { return state_->place.local_rank; }
const std::vector<std::string>& ProcessGroup::hosts() const noexcept { return state_->hosts; }
const std::vector<int>& ProcessGroup::process_ids() const noexcept { return state_->process_ids; }
const std::string& ProcessGroup::launcher() const noexcept { return state_->place.launcher; }
const std::vector<std::string>& ProcessGroup::warnings() const noexcept {
  return state_->place.warnings;
}
Communicator& ProcessGroup::world() noexcept { return *state_->world; }

std::unique_ptr<Communicator> ProcessGroup::split(std::string name, int color, int key, Lane lane,
                                                  Device device) {
  struct Member {
    int color;
    int key;
    int rank;
  };
  std::vector<Member> members;
  std::vector<DeviceKind> devices;  // by rank
  for (const std::string& text : gather_text(
           world(),
           BodyWriter().number(color).number(key).number(static_cast<int>(device.kind)).take())) {
    BodyReader reader(text);
    const int its_color = reader.number();
    const int its_key = reader.number();
    members.push_back({its_color, its_key, static_cast<int>(members.size())});
    devices.push_back(static_cast<DeviceKind>(reader.number()));
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.color, a.key, a.rank) < std::tie(b.color, b.key, b.rank);
  });
  std::vector<std::vector<int>> groups;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || members[i].color != members[i - 1].color) groups.emplace_back();
    groups.back().push_back(members[i].rank);
  }
  check_devices(name, devices, groups, state_->options.backend);
  return state_->make_communicator(std::move(name), lane, groups, device,
                                   state_->collective_deadline());
}

void ProcessGroup::abort(AbortCause cause) noexcept { state_->control->abort(std::move(cause)); }

std::shared_ptr<const AbortSignal> ProcessGroup::abort_signal() const noexcept {
  return state_->signal;
}

void ProcessGroup::on_abort(std::function<void(const AbortCause&)> callback) {
  state_->control->on_abort(std::move(callback));
}

bool ProcessGroup::lost_peer_within(std::chrono::milliseconds window) const noexcept {
  return state_->control->lost_peer_within(window);
}

Outcome ProcessGroup::leave(Outcome mine) noexcept {
  const Verdict verdict = state_->control->leave(mine);
  if (state_->place.size == 1) return verdict.outcome;
  bool finalized = false;
  if (verdict.complete) {
    try {
      const auto result = std::make_shared<std::atomic<bool>>(false);
      const bool done = run_on(
          *state_->thread, [mpi = state_->mpi.get(), result] { *result = mpi->finalize(); },
          Clock::now() + kFinalizeTimeout);
      finalized = done && *result;
      if (!done) state_->abandon_thread();
    } catch (const std::exception&) {
      finalized = false;  // ends like after a failure, by the exit status alone
    }
  }
  if (!verdict.complete && !answers(*state_->thread, kThreadEnds)) state_->abandon_thread();
  // A launcher leaves ranks alone that have finalised and end with 0, and only those.
  if (!finalized || verdict.outcome != Outcome::finished) {
    state_->control->wait_for_root_to_end(verdict.complete ? kRootEndsFirst
                                                           : kRootEndsFirstAfterAbort);
  }
  return verdict.outcome;
}

}  // namespace lockstep
