// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <string>

#include "collectives/communication_thread.h"
#include "collectives/exchange.h"
#include "collectives/shm/shm_backend.h"
#include "tests/support/ranks.h"

namespace lockstep::testing_support {

/// An exchange between threads.
class ThreadExchange final : public Exchange {
 public:
  struct Board {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> coming;
    std::vector<std::string> last;
    int arrived = 0;
    int round = 0;
  };
  ThreadExchange(int rank, int size, Board& board) : rank_(rank), size_(size), board_(board) {}

  std::vector<std::string> all_gather(std::string mine) override {
    std::unique_lock lock(board_.mutex);
    board_.coming.resize(static_cast<std::size_t>(size_));
    board_.coming[static_cast<std::size_t>(rank_)] = std::move(mine);
    const int round = board_.round;
    if (++board_.arrived == size_) {
      board_.last.swap(board_.coming);
      board_.arrived = 0;
      ++board_.round;
      board_.changed.notify_all();
    }
    board_.changed.wait(lock, [&] { return board_.round != round; });
    return board_.last;
  }

 private:
  int rank_;
  int size_;
  Board& board_;
};

/// An exchange between processes, through sockets that existed before they were forked.
class ForkExchange final : public Exchange {
 public:
  /// `sockets[r]` leads from rank 0 to rank r, `up` from this rank to rank 0.
  ForkExchange(int rank, std::vector<int> sockets, int up)
      : rank_(rank), sockets_(std::move(sockets)), up_(up) {}

  std::vector<std::string> all_gather(std::string mine) override {
    std::vector<std::string> texts(sockets_.size());
    if (rank_ != 0) {
      put(up_, mine);
      for (std::string& text : texts) text = get(up_);
      return texts;
    }
    texts[0] = std::move(mine);
    for (std::size_t rank = 1; rank < texts.size(); ++rank) texts[rank] = get(sockets_[rank]);
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
      for (const std::string& text : texts) put(sockets_[rank], text);
    }
    return texts;
  }

 private:
  static void check(bool ok) {
    if (!ok) throw CommError("a forked rank has gone", "look at its output");
  }
  static void put(int socket, const std::string& text) {
    const std::uint64_t length = text.size();
    check(write(socket, &length, sizeof length) == sizeof length);
    check(write(socket, text.data(), length) == static_cast<ssize_t>(length));
  }
  static std::string get(int socket) {
    std::uint64_t length = 0;
    check(recv(socket, &length, sizeof length, MSG_WAITALL) == sizeof length);
    std::string text(length, '\0');
    if (length == 0) return text;  // recv would wait for a byte
    check(recv(socket, text.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length));
    return text;
  }

  int rank_;
  std::vector<int> sockets_;
  int up_;
};

inline std::unique_ptr<Communicator> make_shm_communicator(
    int rank, int size, Exchange& exchange, const std::shared_ptr<AbortSignal>& abort,
    CommunicatorOptions options) {
  Wait wait(*abort, std::chrono::steady_clock::now() + std::chrono::seconds(30), "shm set-up");
  return std::make_unique<Communicator>(
      make_shm_backend(rank, size, exchange, wait),
      std::make_shared<CommunicationThread>("comm " + std::to_string(rank)), abort,
      std::move(options));
}

/// A group of threads that share memory as processes of a host would: every rank maps it anew.
inline std::vector<std::unique_ptr<Communicator>> make_shm_group(
    int ranks, const CommunicatorOptions& options, const std::shared_ptr<AbortSignal>& abort) {
  ThreadExchange::Board board;
  std::vector<std::unique_ptr<Communicator>> group(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(rank, ranks, board);
      group[static_cast<std::size_t>(rank)] =
          make_shm_communicator(rank, ranks, exchange, abort, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return group;
}

/// Runs `body` in one forked process a rank over shared memory. Returns each rank's exit status:
/// what `body` returned, 99 after an exception, 128 + number after a signal.
inline std::vector<int> run_forked(int ranks, const std::function<int(Communicator&)>& body,
                                   CommunicatorOptions options = {
                                       .name = "world", .timeout = std::chrono::seconds(20)}) {
  std::vector<int> down(static_cast<std::size_t>(ranks), -1);
  std::vector<int> up(static_cast<std::size_t>(ranks), -1);
  for (std::size_t rank = 1; rank < down.size(); ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    down[rank] = ends[0];
    up[rank] = ends[1];
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int status = 99;
      try {
        ForkExchange exchange(rank, down, up[static_cast<std::size_t>(rank)]);
        auto abort = std::make_shared<AbortSignal>();
        const auto group = make_shm_communicator(rank, ranks, exchange, abort, options);
        status = body(*group);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::_Exit(status);
    }
    children.push_back(child);
  }
  for (const int socket : down) close(socket);
  for (const int socket : up) close(socket);
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return statuses;
}

}  // namespace lockstep::testing_support
