// SPDX-License-Identifier: Apache-2.0
#include "collectives/control_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHalfToken = 16;  // hexadecimal digits
// How long an address may take, the answer of rank 0 included.
constexpr std::chrono::seconds kPatience{3};
constexpr const char* kOpenPorts =
    "ranks talk over TCP: allow connections between the hosts of the job, on all ports above 1023";

int poll_once(std::vector<pollfd>& watched, Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return poll(watched.data(), watched.size(), static_cast<int>(std::clamp<long>(left, 0, 1000)));
}

void make_prompt(const FileHandle& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Loopback is left out: it is another machine's own on every machine.
std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::array<char, NI_MAXHOST> text{};
      if (getnameinfo(entry->ifa_addr, size, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
        continue;
      }
      const std::string address = text.data();
      // A link-local address has no meaning without the interface, whose name differs by host.
      if (address.find('%') == std::string::npos) found.push_back(address);
    }
  }
  return found;
}

// Takes as long for a wrong guess as for a right one.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

std::string_view asking_half(const ControlPoint& point) {
  return std::string_view(point.token).substr(0, kHalfToken);
}

std::string_view answering_half(const ControlPoint& point) {
  return std::string_view(point.token).substr(kHalfToken);
}

// Who is at the other end, once it has said so; a stranger's link is closed.
std::optional<int> greeted(ControlLink& link, const ControlPoint& point, int size) {
  try {
    link.read();
    const auto frame = link.next();
    if (!frame) return std::nullopt;
    if (frame->type == FrameType::hello) {
      BodyReader body(frame->body);
      const int rank = body.number();
      if (rank >= 1 && rank < size && same_secret(body.text(), asking_half(point))) return rank;
    }
  } catch (const CommError&) {
    // Not a frame of ours: no peer of ours.
  }
  link.close();
  return std::nullopt;
}

FileHandle start_connect(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  FileHandle socket_fd(
      socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket_fd) return {};
  if (connect(socket_fd.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return {};
  }
  make_prompt(socket_fd);
  return socket_fd;
}

// A closed link if rank 0 does not answer there in time.
ControlLink try_address(const ControlPoint& point, const std::string& address, int rank,
                        Clock::time_point deadline) {
  FileHandle socket_fd = start_connect(address, point.port);
  if (!socket_fd) return {};
  std::vector<pollfd> watched = {{.fd = socket_fd.get(), .events = POLLOUT, .revents = 0}};
  while (poll_once(watched, deadline) <= 0) {
    if (Clock::now() >= deadline) return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return {};
  ControlLink link(std::move(socket_fd));
  link.send({.type = FrameType::hello,
             .body = BodyWriter().number(rank).text(asking_half(point)).take()});
  watched[0].events = POLLIN;
  while (link.open() && Clock::now() < deadline) {
    poll_once(watched, deadline);
    link.read();
    const auto frame = link.next();
    if (!frame) continue;
    const bool ours = frame->type == FrameType::welcome &&
                      same_secret(BodyReader(frame->body).text(), answering_half(point));
    return ours ? std::move(link) : ControlLink();
  }
  return {};
}

}  // namespace

void ControlLink::send(const Frame& frame) {
  if (!open()) return;
  unsent_ += encode(frame);
  flush();
}

void ControlLink::flush() {
  while (open() && !unsent_.empty()) {
    const ssize_t sent = ::send(fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      // A broken connection is noticed by receive(), which first takes what the peer still said.
      if (errno != EAGAIN && errno != EWOULDBLOCK) unsent_.clear();
      return;
    }
  }
}

void ControlLink::read() {
  std::array<char, 4096> bytes{};
  while (open()) {
    const ssize_t got = recv(fd(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      reader_.feed({bytes.data(), static_cast<std::size_t>(got)});
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) close();
    return;
  }
}

ControlListener::ControlListener() {
  const auto refuse = [](const char* call) {
    return CommError(std::string("rank 0: control channel: ") + call + ": " + std::strerror(errno),
                     kOpenPorts);
  };
  // One socket for IPv6 and IPv4; a kernel without IPv6 gets the second.
  socket_ = FileHandle(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in6);
  address.ss_family = AF_INET6;
  const int off = 0;
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (!socket_ || setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
      bind(socket_.get(), raw, size) != 0) {
    socket_ = FileHandle(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) throw refuse("socket");
    size = sizeof(sockaddr_in);
    address.ss_family = AF_INET;
    if (bind(socket_.get(), raw, size) != 0) throw refuse("bind");
  }
  if (listen(socket_.get(), SOMAXCONN) != 0) throw refuse("listen");
  sockaddr_storage bound{};
  size = sizeof bound;
  auto* bound_raw = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(socket_.get(), bound_raw, &size) != 0) throw refuse("getsockname");
  std::uint16_t port = 0;
  // The port lies at the same place in both families.
  std::memcpy(&port, reinterpret_cast<const char*>(&bound) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  point_ = {.addresses = own_addresses(), .port = ntohs(port), .token = random_hex(kHalfToken)};
}

std::vector<ControlLink> ControlListener::accept(int size, Clock::time_point deadline) {
  std::vector<ControlLink> links(static_cast<std::size_t>(size));
  std::vector<ControlLink> strangers;
  const auto missing = [&] {
    std::string ranks;
    for (std::size_t rank = 1; rank < links.size(); ++rank) {
      if (!links[rank].open()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    return ranks;
  };
  while (!missing().empty()) {
    if (Clock::now() >= deadline) {
      throw CommError("rank 0: control channel: no connection from rank " + missing(), kOpenPorts);
    }
    std::vector<pollfd> watched = {{.fd = socket_.get(), .events = POLLIN, .revents = 0}};
    for (const ControlLink& link : strangers) {
      watched.push_back({.fd = link.fd(), .events = POLLIN, .revents = 0});
    }
    poll_once(watched, deadline);
    FileHandle fresh(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fresh) {
      make_prompt(fresh);
      strangers.emplace_back(std::move(fresh));
    }
    for (ControlLink& link : strangers) {
      const auto rank = greeted(link, point_, size);
      if (!rank) continue;
      link.send(
          {.type = FrameType::welcome, .body = BodyWriter().text(answering_half(point_)).take()});
      // A rank that calls again has given up its first connection.
      links[static_cast<std::size_t>(*rank)] = std::exchange(link, ControlLink());
    }
    std::erase_if(strangers, [](const ControlLink& link) { return !link.open(); });
  }
  return links;
}

ControlLink connect_to_root(const ControlPoint& point, int rank, Clock::time_point deadline) {
  for (;;) {
    for (const std::string& address : point.addresses) {
      ControlLink link =
          try_address(point, address, rank, std::min(deadline, Clock::now() + kPatience));
      if (link.open()) return link;
    }
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::string tried;
  for (const std::string& address : point.addresses) {
    tried += (tried.empty() ? "" : ", ") + address;
  }
  throw CommError("rank " + std::to_string(rank) + ": control channel: rank 0 does not answer on " +
                      tried + " port " + std::to_string(point.port),
                  kOpenPorts);
}

std::string encode_point(const ControlPoint& point) {
  BodyWriter writer;
  writer.number(point.port).text(point.token);
  writer.number(static_cast<std::int32_t>(point.addresses.size()));
  for (const std::string& address : point.addresses) writer.text(address);
  return writer.take();
}

ControlPoint decode_point(std::string_view body) {
  BodyReader reader(body);
  ControlPoint point;
  point.port = static_cast<std::uint16_t>(reader.number());
  point.token = reader.text();
  point.addresses.resize(static_cast<std::size_t>(reader.number()));
  for (std::string& address : point.addresses) address = reader.text();
  return point;
}

}  // namespace lockstep
