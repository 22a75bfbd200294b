// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/control_frame.h"
#include "core/file_handle.h"

namespace lockstep {

/// One connection of the control channel; never blocks. Used by one thread.
class ControlLink {
 public:
  using Clock = std::chrono::steady_clock;

  ControlLink() = default;
  explicit ControlLink(FileHandle socket) : socket_(std::move(socket)) {}

  bool open() const noexcept { return static_cast<bool>(socket_); }
  int fd() const noexcept { return socket_.get(); }
  void close() noexcept { socket_.reset(); }

  void send(const Frame& frame);
  bool wants_to_write() const noexcept { return !unsent_.empty(); }
  void flush();
  /// Takes in what has come; a broken connection closes the link.
  void read();
  /// The next frame taken in, also after the link is closed. Throws CommError on a stranger's
  /// bytes.
  std::optional<Frame> next() { return reader_.next(); }

 private:
  FileHandle socket_;
  FrameReader reader_;
  std::string unsent_;
};

/// Where rank 0 listens, as it tells the others.
struct ControlPoint {
  std::vector<std::string> addresses;  // numeric, in the order to try
  std::uint16_t port = 0;
  std::string token;  // whoever knows it belongs to the job
};

/// Rank 0's listening socket, on every address of the host, on a free port.
class ControlListener {
 public:
  ControlListener();
  const ControlPoint& point() const noexcept { return point_; }
  /// A link from each of the ranks 1 … size-1, by rank; [0] stays closed. Throws CommError that
  /// names the missing ranks at the deadline.
  std::vector<ControlLink> accept(int size, std::chrono::steady_clock::time_point deadline);

 private:
  FileHandle socket_;
  ControlPoint point_;
};

/// The link of `rank` to rank 0: tries the addresses in turn. Throws CommError that names them at
/// the deadline.
ControlLink connect_to_root(const ControlPoint& point, int rank,
                            std::chrono::steady_clock::time_point deadline);

std::string encode_point(const ControlPoint& point);
ControlPoint decode_point(std::string_view body);

}  // namespace lockstep
