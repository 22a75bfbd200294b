// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

constexpr std::size_t kMostBody = std::size_t{1} << 30U;  // of an answer that is kept as text
constexpr long kConnectMilliseconds = 10'000;
constexpr long kSlowBytesPerSecond = 4096;
constexpr long kBufferBytes = 512L * 1024;

/// What the callbacks of one transfer share.
struct Transfer {
  const HttpRequest& request;
  BodyReader body;
  HttpAnswer answer;
  std::string refused;  // why a callback has ended the transfer
};

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return made;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Of "HTTP/1.1 200 OK"; 0 if it is none.
int status_of(std::string_view line) {
  const std::size_t blank = line.find(' ');
  int status = 0;
  if (blank == std::string_view::npos) return 0;
  std::from_chars(line.data() + blank + 1, line.data() + line.size(), status);
  return status;
}

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {  // a second one follows an interim answer
    transfer.answer.headers.clear();
    transfer.answer.status = status_of(line);
    return line.size();
  }
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    transfer.answer.headers.emplace_back(lower(trimmed(line.substr(0, colon))),
                                         trimmed(line.substr(colon + 1)));
  }
  return line.size();
}

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  HttpAnswer& answer = transfer.answer;
  const std::size_t bytes = size * count;
  const std::span<std::byte> into = transfer.request.into;
  if (answer.status == 206 && !into.empty()) {
    if (bytes > into.size() - answer.into_bytes) {
      transfer.refused = "the answer is longer than what was asked for";
      return 0;
    }
    std::memcpy(into.data() + answer.into_bytes, data, bytes);
    answer.into_bytes += bytes;
    return bytes;
  }
  // A server that ignores the range would send the whole object.
  const std::size_t most = into.empty() || answer.status >= 300 ? kMostBody : into.size();
  if (bytes > most - std::min(most, answer.body.size())) {
    transfer.refused = "the answer is too long";
    return 0;
  }
  answer.body.append(data, bytes);
  return bytes;
}

std::size_t give_body(char* data, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  return transfer.body.read(std::as_writable_bytes(std::span(data, size * count)));
}

/// Where a kept connection turns out dead, the body goes over a new one from its begin.
int seek_body(void* context, curl_off_t offset, int origin) {
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(context)->body.seek(static_cast<std::uint64_t>(offset));
  return CURL_SEEKFUNC_OK;
}

class HeaderList {
 public:
  explicit HeaderList(const Headers& headers) {
    // libcurl would add both by itself, unsigned.
    add("Expect:");
    const bool typed = std::any_of(headers.begin(), headers.end(), [](const auto& header) {
      return lower(header.first) == "content-type";
    });
    if (!typed) add("Content-Type:");
    for (const auto& [name, value] : headers) {
      if (lower(name) == "host") {
        add("Host: " + value);
      } else {
        add(name + (value.empty() ? ";" : ": " + value));
      }
    }
  }
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  curl_slist* get() const { return list_; }

 private:
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (longer == nullptr) throw UsageError("no memory for a request's headers", "free memory");
    list_ = longer;
  }

  curl_slist* list_ = nullptr;
};

void set_method(CURL* curl, const HttpRequest& request, Transfer& transfer) {
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);  // also sends "Content-Length: 0"
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, &give_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, static_cast<void*>(&transfer));
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, &seek_body);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, static_cast<void*>(&transfer));
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void check_library() {
  // Once a process, and before there may be threads of ours that use it.
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) {
    throw UsageError("libcurl does not start", "check the libcurl installation");
  }
}

}  // namespace

std::string HttpAnswer::header(std::string_view name) const {
  const auto at = std::find_if(headers.begin(), headers.end(),
                               [&](const auto& each) { return each.first == name; });
  return at == headers.end() ? std::string() : at->second;
}

/// What outlives a request: connections, and what is known of names and TLS sessions. The request
/// itself has a libcurl handle of its own: after some damaged answers, one that is used again
/// follows a stale pointer (seen by valgrind in libcurl 7.88).
struct Http::Handle {
  CURLSH* share = curl_share_init();
  Handle() {
    bool good = share != nullptr;
    for (const curl_lock_data kept :
         {CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_SSL_SESSION}) {
      good = good && curl_share_setopt(share, CURLSHOPT_SHARE, kept) == CURLSHE_OK;
    }
    if (!good) throw UsageError("libcurl has no handle", "check the libcurl installation");
  }
  ~Handle() { curl_share_cleanup(share); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

Http::Http(HttpOptions options) : options_(std::move(options)) { check_library(); }
Http::~Http() = default;

std::unique_ptr<Http::Handle> Http::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Handle> handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return std::make_unique<Handle>();
}

void Http::give_back(std::unique_ptr<Handle> handle) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(handle));
}

HttpAnswer Http::send(const HttpRequest& request) {
  std::unique_ptr<Handle> handle = take();
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> request_handle(curl_easy_init(),
                                                                     &curl_easy_cleanup);
  CURL* curl = request_handle.get();
  if (curl == nullptr) throw UsageError("libcurl has no handle", "check the libcurl installation");
  const HeaderList headers(request.headers);
  Transfer transfer{
      .request = request, .body = BodyReader(request.body), .answer = {}, .refused = {}};
  std::array<char, CURL_ERROR_SIZE> why = {};
  const auto set = [&](CURLoption option, auto value) {
    if (curl_easy_setopt(curl, option, value) == CURLE_OK) return;
    throw UsageError("libcurl refuses an option", "install libcurl 7.85 or newer");
  };
  set(CURLOPT_SHARE, handle->share);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_HEADERFUNCTION, &take_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_ERRORBUFFER, why.data());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMilliseconds);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<long>(1, request.deadline.count())));
  set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.patience.count()));
  if (!options_.ca_bundle.empty()) set(CURLOPT_CAINFO, options_.ca_bundle.c_str());
  if (!options_.use_proxies) set(CURLOPT_NOPROXY, "*");
  if (request.connection == Connection::fresh) set(CURLOPT_FRESH_CONNECT, 1L);
  set_method(curl, request, transfer);

  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) {
    transfer.answer.fault = why.front() != '\0' ? why.data() : curl_easy_strerror(code);
    if (!transfer.refused.empty()) transfer.answer.fault = transfer.refused;
  } else if (transfer.answer.status == 0) {
    transfer.answer.fault = "the server did not answer in HTTP";
  }
  request_handle.reset();  // while what it shares is nobody else's
  give_back(std::move(handle));
  return std::move(transfer.answer);
}

}  // namespace lockstep::s3
