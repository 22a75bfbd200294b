// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing_support {

/// An HTTP server on loopback that gives one answer of its script a connection, and keeps what it
/// was asked. An empty answer closes the connection without one; beyond the script it says 500. In
/// an answer @NONCE@ stands for the nonce of the newest request that had one.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers)
      : answers_(answers.begin(), answers.end()), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, generic, size) != 0 || ::listen(socket_, 16) != 0) std::abort();
    ::getsockname(socket_, generic, &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (true) {
      const int peer = ::accept(socket_, nullptr, nullptr);
      if (peer < 0) return;
      std::string answer = "HTTP/1.1 500 Beyond The Script\r\nContent-Length: 0\r\n\r\n";
      std::string asked = whole_request(peer);
      {
        const std::lock_guard lock(mutex_);
        const std::string name = "lockstep-nonce: ";
        const std::size_t at = asked.find(name);
        if (at != std::string::npos) nonce_ = asked.substr(at + name.size(), 32);
        requests_.push_back(std::move(asked));
        if (!answers_.empty()) {
          answer = std::move(answers_.front());
          answers_.pop_front();
        }
      }
      const std::size_t mark = answer.find("@NONCE@");
      if (mark != std::string::npos) answer.replace(mark, 7, nonce_);
      if (!answer.empty()) ::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::shutdown(peer, SHUT_WR);
      ::close(peer);
    }
  }

  static std::string whole_request(int peer) {
    std::string text;
    std::size_t wanted = std::string::npos;
    char some[65536];
    while (text.size() < wanted) {
      const ssize_t got = ::recv(peer, some, sizeof(some), 0);
      if (got <= 0) break;
      text.append(some, static_cast<std::size_t>(got));
      const std::size_t end = text.find("\r\n\r\n");
      if (end == std::string::npos || wanted != std::string::npos) continue;
      const std::size_t length = text.find("Content-Length: ");
      wanted = end + 4 + (length < end ? std::stoul(text.substr(length + 16)) : 0);
    }
    return text;
  }

  std::mutex mutex_;
  std::deque<std::string> answers_;
  std::vector<std::string> requests_;
  std::string nonce_;
  int socket_;
  int port_ = 0;
  std::thread thread_;
};

/// An answer that closes the connection. `headers`: lines with their ends.
inline std::string http(std::string_view status, const std::string& body = "",
                        const std::string& headers = "") {
  return "HTTP/1.1 " + std::string(status) +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

}  // namespace lockstep::testing_support
