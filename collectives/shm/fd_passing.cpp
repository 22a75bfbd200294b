// SPDX-License-Identifier: Apache-2.0
#include "collectives/shm/fd_passing.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

CommError socket_error(const std::string& what) {
  return {what + ": " + std::generic_category().message(errno),
          "ranks of one host meet over a Unix socket; in containers with networks of their own use "
          "backend = mpi"};
}

struct Address {
  sockaddr_un where{};
  socklen_t length = 0;
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&where); }
};

Address abstract_address(const std::string& name) {
  Address address;
  address.where.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.where.sun_path) {
    throw UsageError("socket name of " + std::to_string(name.size()) + " bytes",
                     "names come from listen_for_peers");
  }
  name.copy(address.where.sun_path + 1, name.size());  // the zero in front makes it abstract
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

FileHandle open_socket() {
  FileHandle opened(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (opened.get() < 0) throw socket_error("socket");
  return opened;
}

bool same_user(const FileHandle& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// A message of one byte with room for one file descriptor.
struct Message {
  char byte = 'f';
  iovec data{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};

  Message() {
    data = {.iov_base = &byte, .iov_len = 1};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

void send_file(const FileHandle& connection, int file, Wait& wait) {
  Message message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(control), &file, sizeof file);
  while (sendmsg(connection.get(), &message.header, MSG_NOSIGNAL) < 0) {
    if (!try_again()) throw socket_error("handing out shared memory");
    wait.step();
  }
}

}  // namespace

Listener listen_for_peers(int peers) {
  Listener listener{.socket = open_socket(), .name = "lockstep-" + random_hex(16)};
  Address address = abstract_address(listener.name);
  if (bind(listener.socket.get(), address.get(), address.length) != 0) throw socket_error("bind");
  if (listen(listener.socket.get(), std::max(peers, 1)) != 0) throw socket_error("listen");
  return listener;
}

void hand_out(const Listener& listener, const FileHandle& file, int peers, Wait& wait) {
  for (int served = 0; served < peers;) {
    const FileHandle connection(
        accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() < 0) {
      if (!try_again() && errno != ECONNABORTED) throw socket_error("accept");
      wait.step();
    } else if (same_user(connection)) {
      send_file(connection, file.get(), wait);
      ++served;
    }
  }
}

FileHandle receive_file(const std::string& name, Wait& wait) {
  const FileHandle connection = open_socket();
  Address address = abstract_address(name);
  while (connect(connection.get(), address.get(), address.length) != 0) {
    if (!try_again()) throw socket_error("connecting to rank 0 of this host");
    wait.step();
  }
  if (!same_user(connection)) {
    throw CommError("the socket of rank 0 belongs to another user",
                    "start all ranks of a job as one user");
  }
  Message message;
  ssize_t received = 0;
  while ((received = recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC)) < 0) {
    if (!try_again()) throw socket_error("receiving shared memory");
    wait.step();
  }
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (received != 1 || control == nullptr || control->cmsg_type != SCM_RIGHTS) {
    throw CommError("rank 0 of this host closed its socket without handing out shared memory",
                    "look at the log of that rank");
  }
  int file = -1;
  std::memcpy(&file, CMSG_DATA(control), sizeof file);
  return FileHandle(file);
}

}  // namespace lockstep
