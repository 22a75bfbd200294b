// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/preemption.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<int, const char*>, 5> kNotices = {{{SIGTERM, "SIGTERM"},
                                                                  {SIGINT, "SIGINT"},
                                                                  {SIGHUP, "SIGHUP"},
                                                                  {SIGUSR1, "SIGUSR1"},
                                                                  {SIGUSR2, "SIGUSR2"}}};

// A scheduler and a launcher that both pass a notice on do so within this time.
constexpr std::chrono::seconds kSameNotice(1);

sigset_t notice_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const auto& [number, name] : kNotices) sigaddset(&set, number);
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = notice_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) {
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    throw DeviceError("signalfd failed", "raise the limit of open files (ulimit -n)");
  }
}

SignalWatch::~SignalWatch() {
  poll();
  close(descriptor_);
  const sigset_t set = notice_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

const std::optional<std::string>& SignalWatch::poll() {
  const auto now = std::chrono::steady_clock::now();
  signalfd_siginfo info;
  while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    for (const auto& [number, name] : kNotices) {
      if (info.ssi_signo != static_cast<std::uint32_t>(number)) continue;
      if (!first_) {
        first_ = name;
        first_told_ = now;
      } else if (*first_ == name && now - first_told_ >= kSameNotice) {
        insists_ = true;
      }
    }
  }
  return first_;
}

bool SignalWatch::insists() {
  poll();
  return insists_;
}

}  // namespace lockstep
